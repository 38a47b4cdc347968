//! State stores. Rows cross as addresses of memory that Java owns; scans cross in batches.

use std::collections::HashSet;
use std::sync::{Arc, LazyLock};

use holdfast_core::state::{
    CommitId, FamilyOfInterest, FamilyOptions, Hydrated, KeyLayout, KeyRange, MemoryBudget,
    ScanBatch, ScanOf, SharedStore, StateStore, VersionId, find_own, read_changes,
};
use holdfast_core::{Error, FileId, Owner};
use jni::objects::JLongArray;
use jni::sys::{jboolean, jint, jlong};
use jni::{Env, jni_str};

use crate::convert::LongRecord;
use crate::folders::FOLDERS;
use crate::guard::{Failure, Result, natives};
use crate::handles::Handles;
use crate::malloc;

pub(crate) static STORES: Handles<SharedStore> = Handles::new("state store");

natives! {
    raw fn limit_memory(limit: jlong, target: jlong);
    raw fn was_short_of_memory() -> jboolean;
    raw fn used_memory() -> jlong;
    rust fn open_store(
        folder: jlong, operator: JString, partition: JString, store: JString, columns: jboolean,
        option_bits: jint, journal: jboolean
    ) -> jlong;
    raw fn close_store(store: jlong);
    raw fn retain(store: jlong, versions: jint);
    rust fn load(store: jlong, version: jlong, id: JString) -> JString;
    rust fn own_id(store: jlong, version: jlong, ids: [JString]) -> JString;
    raw fn begin(store: jlong) -> jint;
    raw fn hydrate(store: jlong) -> jint;
    rust fn replay(store: jlong, from_version: jlong, from_id: JString, to_id: JString, ids: [JString]);
    rust fn changes(
        store: jlong, version: jlong, ids: [JString], family: jint, option_bits: jint
    ) -> [jbyte];
    raw fn open_empty(store: jlong, version: jlong);
    rust fn find_family(store: jlong, name: JString) -> jint;
    rust fn open_family(store: jlong, name: JString, option_bits: jint) -> jint;
    rust fn remove_family(store: jlong, name: JString) -> jboolean;
    rust fn family_names(store: jlong) -> [JString];
    raw fn get(
        store: jlong, family: jint, key: jlong, key_len: jint, out: jlong, out_len: jint
    ) -> jint;
    raw fn put(
        store: jlong, family: jint, key: jlong, key_len: jint, value: jlong, value_len: jint
    );
    raw fn write_list(
        store: jlong, family: jint, key: jlong, key_len: jint, values: jlong, values_len: jint,
        append: jboolean
    );
    raw fn remove(store: jlong, family: jint, key: jlong, key_len: jint) -> jboolean;
    env fn scan(
        store: jlong, family: jint, what: jint, from: jlong, from_len: jint, to: jlong,
        to_len: jint, max_bytes: jint, progress: [jlong]
    ) -> [jbyte];
    env fn scan_on(store: jlong, scan: jint, max_bytes: jint, progress: [jlong]) -> [jbyte];
    raw fn close_scan(store: jlong, scan: jint);
    rust fn take_warning(store: jlong) -> JString;
    rust fn commit(store: jlong) -> JString;
    raw fn abort(store: jlong);
    rust fn merge_changelogs(
        store: jlong, min_changelogs: jint, wasteful: ["io.holdfast.spark.merged.FileId"]
    ) -> jlong;
    rust fn store_stats(store: jlong) -> "io.holdfast.spark.store.StoreStats";
}

/// Native memory of all stores of this process.
pub(crate) static MEMORY: LazyLock<Arc<MemoryBudget>> = LazyLock::new(|| {
    let memory = MemoryBudget::unlimited();
    memory.release_by(malloc::release);
    memory.give_back_by(malloc::give_back);
    Arc::new(memory)
});

fn limit_memory(limit: jlong, target: jlong) -> Result<()> {
    let given = |bytes: jlong| u64::try_from(bytes).ok().filter(|bytes| *bytes > 0);
    MEMORY.limit(given(limit), given(target));
    Ok(())
}

fn was_short_of_memory() -> Result<jboolean> {
    Ok(MEMORY.was_short())
}

fn used_memory() -> Result<jlong> {
    Ok(MEMORY.used_bytes() as jlong)
}

/// Bytes that Java lends for the time of one call.
///
/// # Safety
/// `address` must be the start of `len` readable bytes that no thread writes during the call.
unsafe fn lent<'a>(address: jlong, len: jint) -> Result<&'a [u8]> {
    let len = usize::try_from(len).map_err(|_| bad_buffer(address, len))?;
    if len == 0 {
        return Ok(&[]);
    }
    if address == 0 {
        return Err(bad_buffer(address, len as jint));
    }
    // SAFETY: the caller guarantees the range.
    Ok(unsafe { std::slice::from_raw_parts(address as *const u8, len) })
}

pub(crate) fn version_of(version: jlong) -> Result<u64> {
    u64::try_from(version)
        .map_err(|_| Error::invalid_input(format!("version {version} is negative")).into())
}

fn bad_buffer(address: jlong, len: jint) -> Failure {
    Error::invalid_input(format!("bad buffer: address {address:#x}, {len} bytes")).into()
}

fn options(bits: jint) -> FamilyOptions {
    FamilyOptions::from_bits(bits as u8)
}

fn open_store(
    folder: jlong,
    operator: String,
    partition: String,
    store: String,
    columns: jboolean,
    option_bits: jint,
    journal: jboolean,
) -> Result<jlong> {
    let layout = if columns {
        KeyLayout::Columns
    } else {
        KeyLayout::Plain(options(option_bits))
    };
    let owner = Owner::new("", &operator, &partition, &store);
    let stores = Arc::clone(&FOLDERS.get(folder)?.stores);
    let mut state = StateStore::within(owner, layout, Arc::clone(&MEMORY));
    state.record_operations(journal);
    Ok(STORES.insert(SharedStore::new(stores, state)))
}

fn close_store(store: jlong) -> Result<()> {
    if let Some(store) = STORES.remove(store) {
        store.close();
    }
    Ok(())
}

/// See [`StateStore::retain`].
fn retain(store: jlong, versions: jint) -> Result<()> {
    let versions = u32::try_from(versions).unwrap_or(0);
    STORES.with(store, |store| {
        store.lock().retain(versions);
        Ok(())
    })
}

fn load(store: jlong, version: jlong, id: Option<String>) -> Result<Option<String>> {
    let store = STORES.get(store)?;
    let version = version_of(version)?;
    let entry = || {
        let owner = store.lock().owner().clone();
        format!("commits/{}, {owner}", version.saturating_sub(1))
    };
    let id = id
        .map(|text| text.parse::<VersionId>())
        .transpose()
        .map_err(|e| e.context(entry()))?;
    store.open_version(version, id.as_ref())?;
    Ok(store.lock().take_warning())
}

fn own_id(store: jlong, version: jlong, texts: Vec<String>) -> Result<Option<String>> {
    let ids = texts.iter().map(|text| text.parse::<VersionId>());
    let ids = commit_ids(ids.collect::<Result<_, _>>()?);
    let version = version_of(version)?;
    let store = STORES.get(store)?;
    let state = store.lock();
    let own = find_own(state.owner(), version, &ids);
    let place = ids.iter().position(|id| Some(*id) == own);
    // The text also has the pending input.
    Ok(place.and_then(|place| texts.into_iter().nth(place)))
}

/// Bits of the answer to `Native.begin`. Native.java has the same numbers.
const WANTS_HYDRATION: jint = 1;
const WANTS_MERGE: jint = 2;

fn begin(store: jlong) -> Result<jint> {
    STORES.with(store, |store| {
        let beside = store.begin()?;
        malloc::give_back(&MEMORY);
        let hydration = jint::from(beside.hydration) * WANTS_HYDRATION;
        let merge = jint::from(beside.merge) * WANTS_MERGE;
        Ok(hydration + merge)
    })
}

/// Answers to `Native.hydrate`. Native.java has the same numbers.
const HYDRATED: jint = 0;
const MORE_TO_HYDRATE: jint = 1;
const HYDRATE_LATER: jint = 2;

fn hydrate(store: jlong) -> Result<jint> {
    Ok(match STORES.get(store)?.hydrate()? {
        Hydrated::Over => HYDRATED,
        Hydrated::More => MORE_TO_HYDRATE,
        Hydrated::Later => HYDRATE_LATER,
    })
}

fn replay(
    store: jlong,
    from_version: jlong,
    from_id: Option<VersionId>,
    to_id: VersionId,
    ids: Vec<VersionId>,
) -> Result<()> {
    let from_id = from_id.as_ref().map(|id| &id.state);
    let from = (version_of(from_version)?, from_id);
    let store = STORES.get(store)?;
    let storage = store.folder().storage();
    Ok(store
        .lock()
        .replay(storage, from, &to_id, &commit_ids(ids))?)
}

fn changes(
    store: jlong,
    version: jlong,
    ids: Vec<VersionId>,
    family: jint,
    option_bits: jint,
) -> Result<Vec<u8>> {
    let ids = commit_ids(ids);
    let version = version_of(version)?;
    let store = STORES.get(store)?;
    let state = store.lock();
    let storage = store.folder().storage();
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
    Ok(bytes)
}

/// The content that ids name.
fn commit_ids(ids: Vec<VersionId>) -> Vec<CommitId> {
    ids.into_iter().map(|id| id.state).collect()
}

fn open_empty(store: jlong, version: jlong) -> Result<()> {
    let version = version_of(version)?;
    STORES.with(store, |store| Ok(store.lock().open_empty(version)?))
}

fn find_family(store: jlong, name: String) -> Result<jint> {
    let store = STORES.get(store)?;
    let found = store.lock().families().find(&name)?;
    Ok(found.unwrap_or(0) as jint)
}

fn open_family(store: jlong, name: String, option_bits: jint) -> Result<jint> {
    let store = STORES.get(store)?;
    let number = store.lock().open_family(&name, options(option_bits))?;
    Ok(number as jint)
}

fn remove_family(store: jlong, name: String) -> Result<jboolean> {
    let store = STORES.get(store)?;
    Ok(store.call(|state| state.remove_family(&name))?)
}

fn family_names(store: jlong) -> Result<Vec<String>> {
    Ok(STORES.get(store)?.lock().families().names())
}

fn get(
    store: jlong,
    family: jint,
    key: jlong,
    key_len: jint,
    out: jlong,
    out_len: jint,
) -> Result<jint> {
    STORES.with(store, |store| {
        // SAFETY: Java passes a buffer that only this thread uses.
        let key = unsafe { lent(key, key_len)? };
        let len = store.call(|state| {
            let Some(value) = state.get(family as u32, key)? else {
                return Ok(-1);
            };
            let len = value.len();
            if len > 0 && len <= out_len.max(0) as usize {
                // SAFETY: `out` has `out_len` writable bytes that the calling Java thread owns, and
                // is never part of a table.
                unsafe { std::ptr::copy_nonoverlapping(value.as_ptr(), out as *mut u8, len) };
            }
            jint::try_from(len).map_err(|_| {
                Error::invalid_input(format!("a value of {len} bytes does not fit a row"))
            })
        })?;
        Ok(len)
    })
}

fn put(
    store: jlong,
    family: jint,
    key: jlong,
    key_len: jint,
    value: jlong,
    value_len: jint,
) -> Result<()> {
    STORES.with(store, |store| {
        // SAFETY: Java passes buffers that only this thread uses.
        let (key, value) = unsafe { (lent(key, key_len)?, lent(value, value_len)?) };
        Ok(store.call(|state| state.put(family as u32, key, value))?)
    })
}

fn write_list(
    store: jlong,
    family: jint,
    key: jlong,
    key_len: jint,
    values: jlong,
    values_len: jint,
    append: jboolean,
) -> Result<()> {
    STORES.with(store, |store| {
        // SAFETY: Java passes buffers that only this thread uses.
        let (key, bytes) = unsafe { (lent(key, key_len)?, lent(values, values_len)?) };
        let values = parts(bytes).ok_or_else(|| bad_buffer(values, values_len))?;
        Ok(store.call(|state| match append {
            true => state.append(family as u32, key, &values),
            false => state.put_list(family as u32, key, &values),
        })?)
    })
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

/// False when there was no such key.
fn remove(store: jlong, family: jint, key: jlong, key_len: jint) -> Result<jboolean> {
    STORES.with(store, |store| {
        // SAFETY: Java passes a buffer that only this thread uses.
        let key = unsafe { lent(key, key_len)? };
        Ok(store.call(|state| state.remove(family as u32, key))?)
    })
}

/// The scan that Java asks for by a number. Native.java has the same numbers.
fn scan_of<'a>(what: jint, from: Option<&'a [u8]>, to: Option<&'a [u8]>) -> Result<ScanOf<'a>> {
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

/// Initial room of a scan. Most scans find less, so their buffer never grows.
const FEW_ENTRIES_BYTES: usize = 1 << 10;

fn scan(
    env: &mut Env<'_>,
    store: jlong,
    family: jint,
    what: jint,
    from: jlong,
    from_len: jint,
    to: jlong,
    to_len: jint,
    max_bytes: jint,
    progress: JLongArray<'_>,
) -> Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(FEW_ENTRIES_BYTES);
    // SAFETY: Java passes buffers that only this thread uses.
    let (from, to) = unsafe { (bound(from, from_len)?, bound(to, to_len)?) };
    let what = scan_of(what, from, to)?;
    // `get` and not `with`: the call is not short when it brings all of the store into memory.
    let store = STORES.get(store)?;
    let batch = store.call(|state| {
        bytes.clear();
        state.scan(family as u32, what, max_bytes.max(0) as usize, &mut bytes)
    })?;
    tell_progress(env, &batch, &progress)?;
    Ok(bytes)
}

fn scan_on(
    env: &mut Env<'_>,
    store: jlong,
    scan: jint,
    max_bytes: jint,
    progress: JLongArray<'_>,
) -> Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(max_bytes.max(0) as usize);
    let batch = STORES.with(store, |store| {
        let mut state = store.lock();
        Ok(state.scan_on(scan as u32, max_bytes.max(0) as usize, &mut bytes)?)
    })?;
    tell_progress(env, &batch, &progress)?;
    Ok(bytes)
}

/// Does nothing when the scan is over.
fn close_scan(store: jlong, scan: jint) -> Result<()> {
    STORES.with(store, |store| {
        store.lock().close_scan(scan as u32);
        Ok(())
    })
}

/// A bound of a scan; a negative length means none.
///
/// # Safety
/// Like [`lent`].
unsafe fn bound<'a>(address: jlong, len: jint) -> Result<Option<&'a [u8]>> {
    if len < 0 {
        return Ok(None);
    }
    // SAFETY: the caller guarantees the range.
    unsafe { lent(address, len).map(Some) }
}

fn tell_progress(env: &Env<'_>, batch: &ScanBatch, progress: &JLongArray<'_>) -> Result<()> {
    let scan = jlong::from(batch.scan.unwrap_or(0));
    Ok(progress.set_region(env, 0, &[scan, jlong::from(batch.entries)])?)
}

fn take_warning(store: jlong) -> Result<Option<String>> {
    Ok(STORES.get(store)?.lock().take_warning())
}

fn commit(store: jlong) -> Result<String> {
    Ok(STORES.get(store)?.commit()?.to_string())
}

/// Rolls the open session back. Does nothing without one.
fn abort(store: jlong) -> Result<()> {
    STORES.with(store, |store| {
        store.lock().abort();
        Ok(())
    })
}

/// See [`SharedStore::maintain`]. Returns -1 if no version is as good as a snapshot.
fn merge_changelogs(store: jlong, min_changelogs: jint, wasteful: Vec<FileId>) -> Result<jlong> {
    let wasteful: HashSet<_> = wasteful.into_iter().collect();
    let least = min_changelogs.max(1) as usize;
    let snapshot = STORES.get(store)?.maintain(least, &wasteful)?;
    // If every store is idle, no `begin` trims malloc, so maintenance does.
    malloc::give_back(&MEMORY);
    Ok(snapshot.map_or(-1, |version| version.0 as jlong))
}

/// `record StoreStats(long keys, long memoryBytes, long loads, long rewinds, long writtenBytes,
/// long emptyCommits, long rebuilds, long changelogs, long coldReads, long unmerged, long runs,
/// long storedBytes)`.
fn store_stats(store: jlong) -> Result<LongRecord<12>> {
    let values = STORES.with(store, |store| {
        let state = store.lock();
        let (families, stats) = (state.families(), state.stats());
        Ok([
            families.keys(),
            families.memory_bytes() as u64,
            stats.loads,
            stats.rewinds,
            stats.written_bytes,
            stats.empty_commits,
            stats.rebuilds,
            stats.commits,
            stats.cold_reads,
            state.unmerged() as u64,
            state.merged_runs() as u64,
            state.stored_bytes(),
        ])
    })?;
    Ok(LongRecord(
        jni_str!("io/holdfast/spark/store/StoreStats"),
        values,
    ))
}
