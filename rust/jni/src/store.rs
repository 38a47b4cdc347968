//! State stores. Rows cross as addresses of memory that Java owns; scans cross in batches.

use std::sync::Arc;

use holdfast_core::state::{CommitId, StateStore};
use holdfast_core::{Error, Owner};
use jni::EnvUnowned;
use jni::objects::{JByteArray, JClass, JLongArray, JString};
use jni::sys::{jboolean, jint, jlong};
use parking_lot::Mutex;

use crate::guard::{Failure, primitive, with_env};
use crate::handles::Handles;
use crate::manager::{MANAGERS, Manager};

struct Store {
    manager: Arc<Manager>,
    state: Mutex<StateStore>,
}

static STORES: Handles<Store> = Handles::new("state store");

/// Bytes that Java lends for the time of one call.
///
/// # Safety
/// `address` must be the start of `len` readable bytes that nobody writes during the call.
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

fn bad_buffer(address: jlong, len: jint) -> Failure {
    Error::invalid_input(format!("bad buffer: address {address:#x}, {len} bytes")).into()
}

/// `Native.openStore(long manager, String operator, String partition, String store): long`.
#[unsafe(no_mangle)]
extern "system" fn Java_io_holdfast_spark_Native_openStore<'local>(
    env: EnvUnowned<'local>,
    _class: JClass<'local>,
    manager: jlong,
    operator: JString<'local>,
    partition: JString<'local>,
    store: JString<'local>,
) -> jlong {
    with_env(env, |env| {
        let owner = Owner::new(
            "",
            &operator.try_to_string(env)?,
            &partition.try_to_string(env)?,
            &store.try_to_string(env)?,
        );
        let manager = MANAGERS.get(manager)?;
        Ok(STORES.insert(Store {
            manager,
            state: Mutex::new(StateStore::new(owner)),
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
        STORES.remove(store);
        Ok(())
    });
}

/// `Native.load(long store, long version, String id)`: positions the store; `id` is null for
/// version 0.
#[unsafe(no_mangle)]
extern "system" fn Java_io_holdfast_spark_Native_load<'local>(
    env: EnvUnowned<'local>,
    _class: JClass<'local>,
    store: jlong,
    version: jlong,
    id: JString<'local>,
) {
    with_env(env, |env| {
        let id = if id.is_null() {
            None
        } else {
            Some(id.try_to_string(env)?)
        };
        let store = STORES.get(store)?;
        let mut state = store.state.lock();
        let id = id
            .map(|text| text.parse::<CommitId>())
            .transpose()
            .map_err(|e| e.context(state.owner()))?;
        let version = u64::try_from(version)
            .map_err(|_| Error::invalid_input(format!("version {version} is negative")))?;
        Ok(state.open(store.manager.storage.as_ref(), version, id.as_ref())?)
    });
}

/// `Native.begin(long store)`.
#[unsafe(no_mangle)]
extern "system" fn Java_io_holdfast_spark_Native_begin<'local>(
    env: EnvUnowned<'local>,
    _class: JClass<'local>,
    store: jlong,
) {
    primitive(env, || {
        STORES.with(store, |store| Ok(store.state.lock().begin()?))
    });
}

/// `Native.get(long store, long key, int keyLen, long out, int outLen): int`: copies the value of
/// a key to `out`. Returns its length, -1 when there is no such key; a length above `outLen` means
/// that nothing was copied.
#[unsafe(no_mangle)]
extern "system" fn Java_io_holdfast_spark_Native_get<'local>(
    env: EnvUnowned<'local>,
    _class: JClass<'local>,
    store: jlong,
    key: jlong,
    key_len: jint,
    out: jlong,
    out_len: jint,
) -> jint {
    primitive(env, || {
        STORES.with(store, |store| {
            // SAFETY: Java passes a buffer that this thread alone uses.
            let key = unsafe { lent(key, key_len)? };
            let state = store.state.lock();
            let Some(value) = state.table().get(key) else {
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

/// `Native.put(long store, long key, int keyLen, long value, int valueLen)`.
#[unsafe(no_mangle)]
extern "system" fn Java_io_holdfast_spark_Native_put<'local>(
    env: EnvUnowned<'local>,
    _class: JClass<'local>,
    store: jlong,
    key: jlong,
    key_len: jint,
    value: jlong,
    value_len: jint,
) {
    primitive(env, || {
        STORES.with(store, |store| {
            // SAFETY: Java passes buffers that this thread alone uses.
            let (key, value) = unsafe { (lent(key, key_len)?, lent(value, value_len)?) };
            Ok(store.state.lock().put(key, value)?)
        })
    });
}

/// `Native.remove(long store, long key, int keyLen): boolean`: false when there was no such key.
#[unsafe(no_mangle)]
extern "system" fn Java_io_holdfast_spark_Native_remove<'local>(
    env: EnvUnowned<'local>,
    _class: JClass<'local>,
    store: jlong,
    key: jlong,
    key_len: jint,
) -> jboolean {
    primitive(env, || {
        STORES.with(store, |store| {
            // SAFETY: Java passes a buffer that this thread alone uses.
            let key = unsafe { lent(key, key_len)? };
            Ok(store.state.lock().remove(key)?)
        })
    })
}

/// `Native.scanEnd(long store): int`: end position for [`Java_io_holdfast_spark_Native_scan`].
#[unsafe(no_mangle)]
extern "system" fn Java_io_holdfast_spark_Native_scanEnd<'local>(
    env: EnvUnowned<'local>,
    _class: JClass<'local>,
    store: jlong,
) -> jint {
    primitive(env, || {
        STORES.with(store, |store| {
            Ok(store.state.lock().table().scan_end() as jint)
        })
    })
}

/// `Native.scan(long store, int from, int end, int maxBytes, long[] progress): byte[]`: entries as
/// `key_len u32, value_len u32, key, value`, as many as fit `maxBytes`, at least one.
/// `progress[0]` is where the next scan continues, `progress[1]` the number of entries.
#[unsafe(no_mangle)]
extern "system" fn Java_io_holdfast_spark_Native_scan<'local>(
    env: EnvUnowned<'local>,
    _class: JClass<'local>,
    store: jlong,
    from: jint,
    end: jint,
    max_bytes: jint,
    progress: JLongArray<'local>,
) -> JByteArray<'local> {
    with_env(env, |env| {
        let mut bytes = Vec::new();
        let batch = STORES.with(store, |store| {
            let state = store.state.lock();
            let table = state.table();
            let first = table.scan(
                from as u32,
                end as u32,
                max_bytes.max(0) as usize,
                &mut bytes,
            );
            if first.needed_bytes == 0 {
                return Ok(first);
            }
            // The next entry alone is larger than a batch.
            Ok(table.scan(first.next, end as u32, first.needed_bytes, &mut bytes))
        })?;
        progress.set_region(
            env,
            0,
            &[jlong::from(batch.next), jlong::from(batch.entries)],
        )?;
        let array = JByteArray::new(env, bytes.len())?;
        // SAFETY: i8 and u8 have the same layout.
        let signed =
            unsafe { std::slice::from_raw_parts(bytes.as_ptr().cast::<i8>(), bytes.len()) };
        array.set_region(env, 0, signed)?;
        Ok(array)
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
        let id = store.state.lock().commit(store.manager.writer()?)?;
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

/// `Native.writeBaseImage(long store, int minChangelogs): long`: merges the store's lineage from
/// files when at least that many changelogs have gathered. Returns the version of the base image
/// that commits began to build on since the last call, -1 without one.
#[unsafe(no_mangle)]
extern "system" fn Java_io_holdfast_spark_Native_writeBaseImage<'local>(
    env: EnvUnowned<'local>,
    _class: JClass<'local>,
    store: jlong,
    min_changelogs: jint,
) -> jlong {
    primitive(env, || {
        let store = STORES.get(store)?;
        let writer = store.manager.writer()?;
        let (task, installed) = {
            let mut state = store.state.lock();
            let task = state.base_image_task(writer, min_changelogs.max(1) as usize);
            (task, state.take_installed_image())
        };
        if let Some(task) = task {
            // The store is not locked while files are read, merged and written.
            let image = task.run(store.manager.storage.as_ref(), writer)?;
            store.state.lock().accept(image);
        }
        Ok(installed.map_or(-1, |created| created.0 as jlong))
    })
}

/// `Native.storeStats(long store): long[]`: keys, memory bytes, loads, rewinds, bytes written,
/// commits without changes, commits with changes.
#[unsafe(no_mangle)]
extern "system" fn Java_io_holdfast_spark_Native_storeStats<'local>(
    env: EnvUnowned<'local>,
    _class: JClass<'local>,
    store: jlong,
) -> JLongArray<'local> {
    with_env(env, |env| {
        let values = STORES.with(store, |store| {
            let state = store.state.lock();
            let (table, stats) = (state.table(), state.stats());
            Ok([
                table.len() as u64,
                table.memory_bytes() as u64,
                stats.loads,
                stats.rewinds,
                stats.written_bytes,
                stats.empty_commits,
                stats.commits,
            ]
            .map(|n| n as jlong))
        })?;
        let array = JLongArray::new(env, values.len())?;
        array.set_region(env, 0, &values)?;
        Ok(array)
    })
}
