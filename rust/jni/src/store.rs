//! State stores. Rows cross as addresses of memory that Java owns; scans cross in batches.

use std::collections::HashSet;
use std::sync::{Arc, LazyLock};

use holdfast_core::state::{
    CommitId, FamilyOfInterest, FamilyOptions, HYDRATION_BYTES, KeyRange, Layout, MemoryBudget,
    NextHydration, ScanBatch, ScanOf, StateStore, find_own, read_changes,
};
use holdfast_core::{Error, Owner};
use jni::objects::{JByteArray, JClass, JLongArray, JObject, JObjectArray, JString};
use jni::sys::{jboolean, jint, jlong};
use jni::{Env, EnvUnowned, jni_sig, jni_str};
use parking_lot::Mutex;

use crate::convert::{LongRecord, file_ids, java_strings, strings};
use crate::folders::{FOLDERS, SegmentFolder};
use crate::guard::{Failure, primitive, with_env};
use crate::handles::Handles;
use crate::malloc;

struct Store {
    folder: Arc<SegmentFolder>,
    state: Mutex<StateStore>,
}

impl Store {
    /// Makes a call of an open session. Once more if it came upon damage that the store could go around: a
    /// call that fails with damage has changed nothing.
    fn call<R>(
        &self,
        mut call: impl FnMut(&mut StateStore) -> holdfast_core::Result<R>,
    ) -> Result<R, Failure> {
        let mut state = self.state.lock();
        match call(&mut state) {
            Err(damage) => {
                self.go_around(&mut state, damage)?;
                Ok(call(&mut state)?)
            }
            done => Ok(done?),
        }
    }

    /// Returns `damage` unless the store went around it.
    fn go_around(&self, state: &mut StateStore, damage: Error) -> Result<(), Failure> {
        // Readers have none.
        let writer = self.folder.writer().ok();
        if damage.is_damage() && state.go_around(self.folder.storage.as_ref(), writer)? {
            return Ok(());
        }
        Err(damage.into())
    }
}

static STORES: Handles<Store> = Handles::new("state store");

/// Native memory of all stores of this process.
static MEMORY: LazyLock<Arc<MemoryBudget>> = LazyLock::new(|| {
    let memory = MemoryBudget::unlimited();
    memory.release_by(malloc::release);
    Arc::new(memory)
});

/// Of a target so much, a sixteenth, is left for what stores take beyond what they count: memory that the
/// allocator keeps, and the copies while state is given up. Measured on queries with ten times the state.
const LEFT_OF_TARGET: u64 = 16;

/// `Native.limitMemory(long limit, long target)`: limits the memory of all stores of this process; 0 is
/// no limit, and a target of three quarters of it.
#[unsafe(no_mangle)]
extern "system" fn Java_io_holdfast_spark_Native_limitMemory<'local>(
    env: EnvUnowned<'local>,
    _class: JClass<'local>,
    limit: jlong,
    target: jlong,
) {
    primitive(env, || {
        let given = |bytes: jlong| u64::try_from(bytes).ok().filter(|bytes| *bytes > 0);
        MEMORY.set_limit_bytes(given(limit).unwrap_or(u64::MAX));
        MEMORY.set_target_bytes(given(target).map(|bytes| bytes - bytes / LEFT_OF_TARGET));
        Ok(())
    });
}

/// `Native.wasShortOfMemory(): boolean`: whether stores of this process ever took more than the target.
#[unsafe(no_mangle)]
extern "system" fn Java_io_holdfast_spark_Native_wasShortOfMemory<'local>(
    env: EnvUnowned<'local>,
    _class: JClass<'local>,
) -> jboolean {
    primitive(env, || Ok(MEMORY.was_short()))
}

/// `Native.usedMemory(): long`: bytes of native memory that all stores of this process have taken.
#[unsafe(no_mangle)]
extern "system" fn Java_io_holdfast_spark_Native_usedMemory<'local>(
    env: EnvUnowned<'local>,
    _class: JClass<'local>,
) -> jlong {
    primitive(env, || Ok(MEMORY.used_bytes() as jlong))
}

/// Bytes that Java lends for the time of one call.
///
/// # Safety
/// `address` must be the start of `len` readable bytes that no thread writes during the call.
unsafe fn lent<'a>(address: jlong, len: jint) -> Result<&'a [u8], Failure> {
    let len = usize::try_from(len).map_err(|_| bad_buffer(address, len))?;
    if len == 0 {
        return Ok(&[]);
    }
    if address == 0 {
        return Err(bad_buffer(address, len as jint));
    }
    // SAFETY: the caller vouches for the range.
    Ok(unsafe { std::slice::from_raw_parts(address as *const u8, len) })
}

fn version_of(version: jlong) -> Result<u64, Failure> {
    u64::try_from(version)
        .map_err(|_| Error::invalid_input(format!("version {version} is negative")).into())
}

fn bad_buffer(address: jlong, len: jint) -> Failure {
    Error::invalid_input(format!("bad buffer: address {address:#x}, {len} bytes")).into()
}

fn options(bits: jint) -> FamilyOptions {
    FamilyOptions::from_bits(bits as u8)
}

/// `Native.openStore(long folder, String operator, String partition, String store,
/// boolean columns, int options, boolean journal): long`. `options` are those of the one family of a
/// store without column families; `journal` says that sessions record every operation.
#[unsafe(no_mangle)]
extern "system" fn Java_io_holdfast_spark_Native_openStore<'local>(
    env: EnvUnowned<'local>,
    _class: JClass<'local>,
    folder: jlong,
    operator: JString<'local>,
    partition: JString<'local>,
    store: JString<'local>,
    columns: jboolean,
    option_bits: jint,
    journal: jboolean,
) -> jlong {
    with_env(env, |env| {
        let layout = if columns {
            Layout::Columns
        } else {
            Layout::Plain(options(option_bits))
        };
        let owner = Owner::new(
            "",
            &operator.try_to_string(env)?,
            &partition.try_to_string(env)?,
            &store.try_to_string(env)?,
        );
        let folder = FOLDERS.get(folder)?;
        let run = folder.runs.lock().remove(&owner.tag());
        let mut state = StateStore::within(owner, layout, Arc::clone(&MEMORY));
        state.record_operations(journal);
        if let Some(run) = run {
            state.accept(run);
        }
        Ok(STORES.insert(Store {
            folder,
            state: Mutex::new(state),
        }))
    })
}

/// `Native.closeStore(long store)`. Closing twice does nothing.
#[unsafe(no_mangle)]
extern "system" fn Java_io_holdfast_spark_Native_closeStore<'local>(
    env: EnvUnowned<'local>,
    _class: JClass<'local>,
    store: jlong,
) {
    primitive(env, || {
        if let Some(store) = STORES.remove(store) {
            let mut state = store.state.lock();
            if let Some(run) = state.take_pending_run() {
                let mut runs = store.folder.runs.lock();
                runs.insert(state.owner().tag(), run);
            }
        }
        Ok(())
    });
}

/// `Native.retain(long store, int versions)`: see [`StateStore::retain`].
#[unsafe(no_mangle)]
extern "system" fn Java_io_holdfast_spark_Native_retain<'local>(
    env: EnvUnowned<'local>,
    _class: JClass<'local>,
    store: jlong,
    versions: jint,
) {
    primitive(env, || {
        let versions = u32::try_from(versions).unwrap_or(0);
        STORES.with(store, |store| {
            store.state.lock().retain(versions);
            Ok(())
        })
    });
}

/// `Native.load(long store, long version, String id): String`: positions the store; `id` is null for
/// version 0. Returns what damage was worked around, null when there was none.
#[unsafe(no_mangle)]
extern "system" fn Java_io_holdfast_spark_Native_load<'local>(
    env: EnvUnowned<'local>,
    _class: JClass<'local>,
    store: jlong,
    version: jlong,
    id: JString<'local>,
) -> JString<'local> {
    with_env(env, |env| {
        let id = if id.is_null() {
            None
        } else {
            Some(id.try_to_string(env)?)
        };
        let store = STORES.get(store)?;
        let mut state = store.state.lock();
        let version = version_of(version)?;
        let entry = || format!("commits/{}, {}", version.saturating_sub(1), state.owner());
        let id = id
            .map(|text| text.parse::<CommitId>())
            .transpose()
            .map_err(|e| e.context(entry()))?;
        state.open(store.folder.storage.as_ref(), version, id.as_ref())?;
        match state.take_warning() {
            Some(warning) => Ok(env.new_string(warning)?),
            None => Ok(JString::null()),
        }
    })
}

/// `Native.ownId(long store, long version, String[] ids): String`: the store's own id of a version
/// among those of all stores of the partition; null without one.
#[unsafe(no_mangle)]
extern "system" fn Java_io_holdfast_spark_Native_ownId<'local>(
    env: EnvUnowned<'local>,
    _class: JClass<'local>,
    store: jlong,
    version: jlong,
    ids: JObjectArray<'local, JString<'local>>,
) -> JString<'local> {
    with_env(env, |env| {
        let ids = commit_ids(env, &ids)?;
        let version = version_of(version)?;
        let store = STORES.get(store)?;
        let state = store.state.lock();
        match find_own(store.folder.storage.as_ref(), state.owner(), version, &ids)? {
            Some(id) => Ok(env.new_string(id.to_string())?),
            None => Ok(JString::null()),
        }
    })
}

/// What `Native.begin` says, added up; the numbers are in Native.java as well.
const WANTS_HYDRATION: jint = 1;
const WANTS_MERGE: jint = 2;

/// `Native.begin(long store): int`: what is to be done beside the session.
#[unsafe(no_mangle)]
extern "system" fn Java_io_holdfast_spark_Native_begin<'local>(
    env: EnvUnowned<'local>,
    _class: JClass<'local>,
    store: jlong,
) -> jint {
    primitive(env, || {
        STORES.with(store, |store| {
            let mut state = store.state.lock();
            state.mend(store.folder.writer()?)?;
            state.begin()?;
            malloc::give_back(&MEMORY);
            let hydration = jint::from(state.is_hydrating()) * WANTS_HYDRATION;
            let merge = jint::from(state.wants_merge()) * WANTS_MERGE;
            Ok(hydration + merge)
        })
    })
}

/// What `Native.hydrate` says; the numbers are in Native.java as well.
const HYDRATED: jint = 0;
const MORE_TO_HYDRATE: jint = 1;
const HYDRATE_LATER: jint = 2;

/// `Native.hydrate(long store): int`: brings some of what the store left in runs into memory.
#[unsafe(no_mangle)]
extern "system" fn Java_io_holdfast_spark_Native_hydrate<'local>(
    env: EnvUnowned<'local>,
    _class: JClass<'local>,
    store: jlong,
) -> jint {
    primitive(env, || {
        let store = STORES.get(store)?;
        let next = store.state.lock().next_hydration();
        let mut hydration = match next {
            NextHydration::Read(hydration) => hydration,
            NextHydration::Later => return Ok(HYDRATE_LATER),
            NextHydration::Over => return Ok(HYDRATED),
        };
        // The store is not locked while runs are read.
        let read = hydration.read(HYDRATION_BYTES);
        let mut state = store.state.lock();
        state.hydrate(hydration, read)?;
        Ok(match state.is_hydrating() {
            true => MORE_TO_HYDRATE,
            false => HYDRATED,
        })
    })
}

/// `Native.replay(long store, long fromVersion, String fromId, String toId, String[] ids)`: positions
/// the store at `toId` by loading an older version and applying what later commits changed. `ids`
/// are those of the versions in between and of the last one, of all stores of the partition.
#[unsafe(no_mangle)]
extern "system" fn Java_io_holdfast_spark_Native_replay<'local>(
    env: EnvUnowned<'local>,
    _class: JClass<'local>,
    store: jlong,
    from_version: jlong,
    from_id: JString<'local>,
    to_id: JString<'local>,
    ids: JObjectArray<'local, JString<'local>>,
) {
    with_env(env, |env| {
        let from_id = if from_id.is_null() {
            None
        } else {
            Some(from_id.try_to_string(env)?.parse::<CommitId>()?)
        };
        let to_id = to_id.try_to_string(env)?.parse::<CommitId>()?;
        let ids = commit_ids(env, &ids)?;
        let from = (version_of(from_version)?, from_id.as_ref());
        let store = STORES.get(store)?;
        let storage = store.folder.storage.as_ref();
        Ok(store.state.lock().replay(storage, from, &to_id, &ids)?)
    });
}

/// `Native.changes(long store, long version, String[] ids, int family, int options): byte[]`: what
/// the commit of a version changed in one family, as `kind u8, key_len u32, value_len u32, key,
/// value`; kind is 0 for put, 1 for remove, 2 for append. Where the commit recorded every operation,
/// they are all there. `ids` are those of the version, of all stores of the partition.
#[unsafe(no_mangle)]
extern "system" fn Java_io_holdfast_spark_Native_changes<'local>(
    env: EnvUnowned<'local>,
    _class: JClass<'local>,
    store: jlong,
    version: jlong,
    ids: JObjectArray<'local, JString<'local>>,
    family: jint,
    option_bits: jint,
) -> JByteArray<'local> {
    with_env(env, |env| {
        let ids = commit_ids(env, &ids)?;
        let version = version_of(version)?;
        let store = STORES.get(store)?;
        let state = store.state.lock();
        let storage = store.folder.storage.as_ref();
        let mut bytes = Vec::new();
        if let Some(changes) = read_changes(storage, state.owner(), version, &ids)? {
            let interest = FamilyOfInterest {
                number: family as u32,
                several_values: options(option_bits).several_values,
            };
            changes.for_each(state.layout(), interest, |kind, key, value| {
                bytes.push(kind.tag());
                bytes.extend_from_slice(&(key.len() as u32).to_le_bytes());
                bytes.extend_from_slice(&(value.len() as u32).to_le_bytes());
                bytes.extend_from_slice(key);
                bytes.extend_from_slice(value);
            })?;
        }
        to_java(env, &bytes)
    })
}

fn commit_ids<'local>(
    env: &mut Env<'local>,
    ids: &JObjectArray<'local, JString<'local>>,
) -> Result<Vec<CommitId>, Failure> {
    let parsed = strings(env, ids)?
        .iter()
        .map(|text| text.parse::<CommitId>())
        .collect::<Result<_, _>>()?;
    Ok(parsed)
}

/// `Native.openEmpty(long store, long version)`: positions the store at a version without content.
#[unsafe(no_mangle)]
extern "system" fn Java_io_holdfast_spark_Native_openEmpty<'local>(
    env: EnvUnowned<'local>,
    _class: JClass<'local>,
    store: jlong,
    version: jlong,
) {
    primitive(env, || {
        let version = version_of(version)?;
        STORES.with(store, |store| Ok(store.state.lock().open_empty(version)?))
    });
}

/// `Native.findFamily(long store, String name): int`: number of a column family, 0 without it.
#[unsafe(no_mangle)]
extern "system" fn Java_io_holdfast_spark_Native_findFamily<'local>(
    env: EnvUnowned<'local>,
    _class: JClass<'local>,
    store: jlong,
    name: JString<'local>,
) -> jint {
    with_env(env, |env| {
        let name = name.try_to_string(env)?;
        let store = STORES.get(store)?;
        let found = store.state.lock().families().find(&name)?;
        Ok(found.unwrap_or(0) as jint)
    })
}

/// `Native.openFamily(long store, String name, int options): int`: number of a column family, which
/// is made when it is not there.
#[unsafe(no_mangle)]
extern "system" fn Java_io_holdfast_spark_Native_openFamily<'local>(
    env: EnvUnowned<'local>,
    _class: JClass<'local>,
    store: jlong,
    name: JString<'local>,
    option_bits: jint,
) -> jint {
    with_env(env, |env| {
        let name = name.try_to_string(env)?;
        let store = STORES.get(store)?;
        let number = store
            .state
            .lock()
            .open_family(&name, options(option_bits))?;
        Ok(number as jint)
    })
}

/// `Native.removeFamily(long store, String name): boolean`: false when it was not there.
#[unsafe(no_mangle)]
extern "system" fn Java_io_holdfast_spark_Native_removeFamily<'local>(
    env: EnvUnowned<'local>,
    _class: JClass<'local>,
    store: jlong,
    name: JString<'local>,
) -> jboolean {
    with_env(env, |env| {
        let name = name.try_to_string(env)?;
        let store = STORES.get(store)?;
        store.call(|state| state.remove_family(&name))
    })
}

/// `Native.familyNames(long store): String[]`.
#[unsafe(no_mangle)]
extern "system" fn Java_io_holdfast_spark_Native_familyNames<'local>(
    env: EnvUnowned<'local>,
    _class: JClass<'local>,
    store: jlong,
) -> JObjectArray<'local, JString<'local>> {
    with_env(env, |env| {
        let names = STORES.get(store)?.state.lock().families().names();
        Ok(java_strings(env, &names)?)
    })
}

/// `Native.get(long store, int family, long key, int keyLen, long out, int outLen): int`: copies the
/// value of a key to `out`. Returns its length, -1 when there is no such key; a length above
/// `outLen` means that nothing was copied.
#[unsafe(no_mangle)]
extern "system" fn Java_io_holdfast_spark_Native_get<'local>(
    env: EnvUnowned<'local>,
    _class: JClass<'local>,
    store: jlong,
    family: jint,
    key: jlong,
    key_len: jint,
    out: jlong,
    out_len: jint,
) -> jint {
    primitive(env, || {
        STORES.with(store, |store| {
            // SAFETY: Java passes a buffer that this thread alone uses.
            let key = unsafe { lent(key, key_len)? };
            let mut state = store.state.lock();
            if let Err(damage) = state.read(family as u32, key) {
                store.go_around(&mut state, damage)?;
                state.read(family as u32, key)?;
            }
            let Some(value) = state.families().family(family as u32)?.get(key) else {
                return Ok(-1);
            };
            let len = jint::try_from(value.len()).map_err(|_| {
                Error::invalid_input(format!(
                    "a value of {} bytes does not fit a row",
                    value.len()
                ))
            })?;
            if len <= out_len && len > 0 {
                // SAFETY: `out` has `out_len` writable bytes, owned by the calling Java thread and
                // never part of a table.
                unsafe {
                    std::ptr::copy_nonoverlapping(value.as_ptr(), out as *mut u8, value.len())
                };
            }
            Ok(len)
        })
    })
}

/// `Native.put(long store, int family, long key, int keyLen, long value, int valueLen)`.
#[unsafe(no_mangle)]
extern "system" fn Java_io_holdfast_spark_Native_put<'local>(
    env: EnvUnowned<'local>,
    _class: JClass<'local>,
    store: jlong,
    family: jint,
    key: jlong,
    key_len: jint,
    value: jlong,
    value_len: jint,
) {
    primitive(env, || {
        STORES.with(store, |store| {
            // SAFETY: Java passes buffers that this thread alone uses.
            let (key, value) = unsafe { (lent(key, key_len)?, lent(value, value_len)?) };
            store.call(|state| state.put(family as u32, key, value))
        })
    });
}

/// `Native.writeList(long store, int family, long key, int keyLen, long values, int valuesLen,
/// boolean append)`: sets the values of a key, or appends to them. `values` are `len u32, bytes`
/// each.
#[unsafe(no_mangle)]
extern "system" fn Java_io_holdfast_spark_Native_writeList<'local>(
    env: EnvUnowned<'local>,
    _class: JClass<'local>,
    store: jlong,
    family: jint,
    key: jlong,
    key_len: jint,
    values: jlong,
    values_len: jint,
    append: jboolean,
) {
    primitive(env, || {
        STORES.with(store, |store| {
            // SAFETY: Java passes buffers that this thread alone uses.
            let (key, bytes) = unsafe { (lent(key, key_len)?, lent(values, values_len)?) };
            let values = parts(bytes).ok_or_else(|| bad_buffer(values, values_len))?;
            store.call(|state| match append {
                true => state.append(family as u32, key, &values),
                false => state.put_list(family as u32, key, &values),
            })
        })
    });
}

fn parts(mut bytes: &[u8]) -> Option<Vec<&[u8]>> {
    let mut parts = Vec::new();
    while !bytes.is_empty() {
        let (len, rest) = bytes.split_first_chunk::<4>()?;
        let (part, rest) = rest.split_at_checked(u32::from_le_bytes(*len) as usize)?;
        parts.push(part);
        bytes = rest;
    }
    Some(parts)
}

/// `Native.remove(long store, int family, long key, int keyLen): boolean`: false when there was no
/// such key.
#[unsafe(no_mangle)]
extern "system" fn Java_io_holdfast_spark_Native_remove<'local>(
    env: EnvUnowned<'local>,
    _class: JClass<'local>,
    store: jlong,
    family: jint,
    key: jlong,
    key_len: jint,
) -> jboolean {
    primitive(env, || {
        STORES.with(store, |store| {
            // SAFETY: Java passes a buffer that this thread alone uses.
            let key = unsafe { lent(key, key_len)? };
            store.call(|state| state.remove(family as u32, key))
        })
    })
}

/// What `Native.scan` is asked for; the numbers are in Native.java as well.
fn scan_of<'a>(
    what: jint,
    from: Option<&'a [u8]>,
    to: Option<&'a [u8]>,
) -> Result<ScanOf<'a>, Failure> {
    let range = match (from, to) {
        (None, None) => KeyRange::All,
        _ => KeyRange::Between { from, to },
    };
    Ok(match (what, from) {
        (0, _) => ScanOf::Keys(range),
        (1, _) => ScanOf::Values(range),
        (2, Some(prefix)) => ScanOf::Keys(KeyRange::Prefix(prefix)),
        (3, Some(prefix)) => ScanOf::Values(KeyRange::Prefix(prefix)),
        (4, Some(key)) => ScanOf::ValuesOfKey(key),
        _ => return Err(Error::invalid_input(format!("unknown scan {what}")).into()),
    })
}

/// Room that a scan begins with: what most of them find, so that it need not grow.
const FEW_ENTRIES_BYTES: usize = 1 << 10;

/// `Native.scan(long store, int family, int what, long from, int fromLen, long to, int toLen,
/// int maxBytes, long[] progress): byte[]`: starts a scan and returns its first entries as
/// `key_len u32, value_len u32, key, value`, as many as fit `maxBytes`, at least one if there is one.
/// A negative length stands for no bound. `progress[0]` is the scan to go on with, 0 when it is
/// over, `progress[1]` the number of entries.
#[unsafe(no_mangle)]
extern "system" fn Java_io_holdfast_spark_Native_scan<'local>(
    env: EnvUnowned<'local>,
    _class: JClass<'local>,
    store: jlong,
    family: jint,
    what: jint,
    from: jlong,
    from_len: jint,
    to: jlong,
    to_len: jint,
    max_bytes: jint,
    progress: JLongArray<'local>,
) -> JByteArray<'local> {
    with_env(env, |env| {
        let mut bytes = Vec::with_capacity(FEW_ENTRIES_BYTES);
        // SAFETY: Java passes buffers that this thread alone uses.
        let (from, to) = unsafe { (bound(from, from_len)?, bound(to, to_len)?) };
        let what = scan_of(what, from, to)?;
        // Not a short call: it may bring all of the store into memory.
        let store = STORES.get(store)?;
        let batch = store.call(|state| {
            bytes.clear();
            state.scan(family as u32, what, max_bytes.max(0) as usize, &mut bytes)
        })?;
        batch_to_java(env, &batch, &bytes, &progress)
    })
}

/// `Native.scanOn(long store, int scan, int maxBytes, long[] progress): byte[]`: the next entries,
/// see [`Java_io_holdfast_spark_Native_scan`].
#[unsafe(no_mangle)]
extern "system" fn Java_io_holdfast_spark_Native_scanOn<'local>(
    env: EnvUnowned<'local>,
    _class: JClass<'local>,
    store: jlong,
    scan: jint,
    max_bytes: jint,
    progress: JLongArray<'local>,
) -> JByteArray<'local> {
    with_env(env, |env| {
        let mut bytes = Vec::with_capacity(max_bytes.max(0) as usize);
        let batch = STORES.with(store, |store| {
            let mut state = store.state.lock();
            Ok(state.scan_on(scan as u32, max_bytes.max(0) as usize, &mut bytes)?)
        })?;
        batch_to_java(env, &batch, &bytes, &progress)
    })
}

/// `Native.closeScan(long store, int scan)`: nothing happens when it is over already.
#[unsafe(no_mangle)]
extern "system" fn Java_io_holdfast_spark_Native_closeScan<'local>(
    env: EnvUnowned<'local>,
    _class: JClass<'local>,
    store: jlong,
    scan: jint,
) {
    primitive(env, || {
        STORES.with(store, |store| {
            store.state.lock().close_scan(scan as u32);
            Ok(())
        })
    });
}

/// A bound of a scan; a negative length stands for none.
///
/// # Safety
/// As [`lent`].
unsafe fn bound<'a>(address: jlong, len: jint) -> Result<Option<&'a [u8]>, Failure> {
    if len < 0 {
        return Ok(None);
    }
    // SAFETY: the caller vouches for the range.
    unsafe { lent(address, len).map(Some) }
}

fn batch_to_java<'local>(
    env: &mut Env<'local>,
    batch: &ScanBatch,
    bytes: &[u8],
    progress: &JLongArray<'local>,
) -> Result<JByteArray<'local>, Failure> {
    let scan = jlong::from(batch.scan.unwrap_or(0));
    progress.set_region(env, 0, &[scan, jlong::from(batch.entries)])?;
    to_java(env, bytes)
}

fn to_java<'local>(env: &mut Env<'local>, bytes: &[u8]) -> Result<JByteArray<'local>, Failure> {
    let array = JByteArray::new(env, bytes.len())?;
    // SAFETY: i8 and u8 have the same layout.
    let signed = unsafe { std::slice::from_raw_parts(bytes.as_ptr().cast::<i8>(), bytes.len()) };
    array.set_region(env, 0, signed)?;
    Ok(array)
}

/// `Native.takeWarning(long store): String`: the damage that the store went around since this was last
/// asked; null when there was none.
#[unsafe(no_mangle)]
extern "system" fn Java_io_holdfast_spark_Native_takeWarning<'local>(
    env: EnvUnowned<'local>,
    _class: JClass<'local>,
    store: jlong,
) -> JString<'local> {
    with_env(env, |env| {
        let warning = STORES.with(store, |store| Ok(store.state.lock().take_warning()))?;
        match warning {
            Some(warning) => Ok(env.new_string(warning)?),
            None => Ok(JString::null()),
        }
    })
}

/// `Native.commit(long store): String`: the id of the next version.
#[unsafe(no_mangle)]
extern "system" fn Java_io_holdfast_spark_Native_commit<'local>(
    env: EnvUnowned<'local>,
    _class: JClass<'local>,
    store: jlong,
) -> JString<'local> {
    with_env(env, |env| {
        let store = STORES.get(store)?;
        let id = store.state.lock().commit(store.folder.writer()?)?;
        Ok(env.new_string(id.to_string())?)
    })
}

/// `Native.abort(long store)`: takes the open session back; nothing happens without one.
#[unsafe(no_mangle)]
extern "system" fn Java_io_holdfast_spark_Native_abort<'local>(
    env: EnvUnowned<'local>,
    _class: JClass<'local>,
    store: jlong,
) {
    primitive(env, || {
        STORES.with(store, |store| {
            store.state.lock().abort();
            Ok(())
        })
    });
}

/// `Native.mergeChangelogs(long store, int minChangelogs, FileId[] wasteful): long`: merges the store's
/// lineage from files when enough changelogs have gathered, see `StateStore::merge_task`, or
/// when a part of it lies in one of the `wasteful` files. Where memory is short, a store that rests gives
/// some back first, see `StateStore::rest`. Returns the newest version that is as good
/// as a snapshot, see `StateStore::snapshot_version`, -1 without one.
#[unsafe(no_mangle)]
extern "system" fn Java_io_holdfast_spark_Native_mergeChangelogs<'local>(
    env: EnvUnowned<'local>,
    _class: JClass<'local>,
    store: jlong,
    min_changelogs: jint,
    wasteful: JObjectArray<'local>,
) -> jlong {
    with_env(env, |env| {
        let wasteful: HashSet<_> = file_ids(env, &wasteful)?.into_iter().collect();
        let store = STORES.get(store)?;
        let writer = store.folder.writer()?;
        let overdue = store.state.lock().overdue_run(writer);
        if let Some(file) = overdue {
            // When this fails, the file is lost and the image with it: the next one is written.
            let _ = writer.sync_soon(file);
        }
        let (task, snapshot) = {
            let mut state = store.state.lock();
            state.rest(writer)?;
            let least = min_changelogs.max(1) as usize;
            let task = state.merge_task(writer, least, &wasteful);
            (task, state.snapshot_version(writer, least))
        };
        if let Some(task) = task {
            // The store is not locked while files are read, merged and written.
            let image = task.run(store.folder.storage.as_ref(), writer)?;
            store.state.lock().accept(image);
        }
        // Where all stores rest, no session comes that would.
        malloc::give_back(&MEMORY);
        Ok(snapshot.map_or(-1, |version| version.0 as jlong))
    })
}

/// `record StoreStats(long keys, long memoryBytes, long loads, long rewinds, long writtenBytes, long
/// emptyCommits, long rebuilds, long changelogs, long coldReads, long unmerged, long
/// runs)`.
const STORE_STATS: LongRecord = LongRecord {
    class: jni_str!("io/holdfast/spark/store/StoreStats"),
    constructor: jni_sig!("(JJJJJJJJJJJ)V"),
};

/// `Native.storeStats(long store): StoreStats`.
#[unsafe(no_mangle)]
extern "system" fn Java_io_holdfast_spark_Native_storeStats<'local>(
    env: EnvUnowned<'local>,
    _class: JClass<'local>,
    store: jlong,
) -> JObject<'local> {
    with_env(env, |env| {
        let values = STORES.with(store, |store| {
            let state = store.state.lock();
            let (content, stats) = (state.families(), state.stats());
            Ok([
                content.keys(),
                content.memory_bytes() as u64,
                stats.loads,
                stats.rewinds,
                stats.written_bytes,
                stats.empty_commits,
                stats.rebuilds,
                stats.commits,
                stats.cold_reads,
                state.unmerged() as u64,
                state.merged_runs() as u64,
            ])
        })?;
        STORE_STATS.object(env, &values)
    })
}
