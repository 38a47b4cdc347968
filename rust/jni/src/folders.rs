//! The folder of a query's state stores as one executor uses it: storage, and the writer of merged
//! files.

use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::sync::{Arc, LazyLock};

use holdfast_core::format::Compression;
use holdfast_core::segment::{SegmentWriter, WriterOptions};
use holdfast_core::state::MergedRun;
use holdfast_core::storage::{
    CachedStorage, HandlePool, LocalCache, LocalStorage, NearbyStorage, PooledStorage, Storage,
};
use holdfast_core::{Error, OwnerTag, Term};
use jni::objects::{JClass, JLongArray, JObject, JObjectArray, JString};
use jni::sys::{jboolean, jint, jlong};
use jni::{Env, EnvUnowned, jni_sig, jni_str};
use parking_lot::Mutex;
use rustix::process::{Resource, getrlimit};

use crate::convert::{LongRecord, file_id, java_longs, java_strings, longs};
use crate::guard::{Failure, primitive, with_env};
use crate::hadoop::HadoopStorage;
use crate::handles::Handles;

pub(crate) struct SegmentFolder {
    pub(crate) storage: Arc<dyn Storage>,
    /// The same, on object stores.
    nearby: Option<Arc<NearbyStorage>>,
    /// Of all files that the writer makes; 0 in a folder that is only read.
    term: Term,
    /// Absent in a folder that is only read.
    writer: Option<SegmentWriter>,
    /// Runs of stores that were closed before commits could build on them, as they are after
    /// every batch with Spark's `unloadOnCommit`: the next store of the owner goes on with them. At
    /// most one per store of the query, of references only: about 1 KiB after ten changelogs, so
    /// 1 MiB for a thousand stores. Java closes a folder that no store uses for a minute.
    pub(crate) runs: Mutex<HashMap<OwnerTag, MergedRun>>,
}

impl SegmentFolder {
    pub(crate) fn writer(&self) -> Result<&SegmentWriter, Failure> {
        self.writer.as_ref().ok_or_else(|| {
            Failure::Core(Error::invalid_input(format!(
                "{} was opened for reading only",
                self.storage.location()
            )))
        })
    }

    /// Gives up the memory for what others might have read as well.
    fn forget_nearby(&self) {
        if let Some(nearby) = &self.nearby {
            nearby.forget();
        }
    }
}

pub(crate) static FOLDERS: Handles<SegmentFolder> = Handles::new("folder of state stores");

/// Java's `Compression.code`.
pub(crate) fn compression(code: jint) -> Result<Compression, Failure> {
    let known = u32::try_from(code).ok().and_then(Compression::from_tag);
    known.ok_or_else(|| {
        let message = format!("unknown compression code {code}");
        Failure::Core(Error::invalid_input(message))
    })
}

/// Inverse of [`compression`].
pub(crate) fn compression_code(compression: Compression) -> jint {
    compression.tag() as jint
}

/// The folder `dir`: local, or reached through `files`, a `HadoopFiles`, unless that is null.
pub(crate) fn storage(
    env: &Env<'_>,
    dir: &JString<'_>,
    files: &JObject<'_>,
) -> Result<Arc<dyn Storage>, Failure> {
    let dir = dir.try_to_string(env)?;
    Ok(if files.is_null() {
        Arc::new(LocalStorage::new(dir))
    } else {
        Arc::new(HadoopStorage::new(env, files, dir)?)
    })
}

/// Most handles with which files of state stores are read, where the process may have that many
/// descriptors: 64 tasks that read four runs each. On S3A a handle may have a connection, of 500 by default.
const MAX_HANDLES: u64 = 256;

/// Handles take an eighth of the descriptors that the process may have, 128 of 1,024: a JVM with Spark's
/// jars has 340, and for a moment 100 more.
fn max_handles() -> usize {
    let descriptors = getrlimit(Resource::Nofile).current;
    descriptors.map_or(MAX_HANDLES, |all| MAX_HANDLES.min(all / 8)) as usize
}

/// Handles with which files are read, of all folders of state stores of this process.
static HANDLES: LazyLock<Arc<HandlePool>> =
    LazyLock::new(|| Arc::new(HandlePool::new(max_handles())));

/// Pages of remote files, of all folders of state stores of this process.
static CACHE: LazyLock<Arc<LocalCache>> = LazyLock::new(Arc::default);

/// `Native.keepLocally(String dir, long bytes)`: bounds the local cache and says where it is; less than a
/// page turns it off.
#[unsafe(no_mangle)]
extern "system" fn Java_io_holdfast_spark_Native_keepLocally<'local>(
    env: EnvUnowned<'local>,
    _class: JClass<'local>,
    dir: JString<'local>,
    bytes: jlong,
) {
    with_env(env, |env| {
        let dir = dir.try_to_string(env)?;
        let bytes = u64::try_from(bytes).unwrap_or(0);
        Ok(CACHE.keep_in(Path::new(&dir), bytes)?)
    });
}

/// `Native.localCache(): long[]`: bytes in the local cache, its hits and its misses.
#[unsafe(no_mangle)]
extern "system" fn Java_io_holdfast_spark_Native_localCache<'local>(
    env: EnvUnowned<'local>,
    _class: JClass<'local>,
) -> JLongArray<'local> {
    with_env(env, |env| {
        let counts = [CACHE.used_bytes(), CACHE.hits(), CACHE.misses()];
        java_longs(env, &counts.map(|count| count as jlong))
    })
}

/// `Native.takeCacheFailure(): String`: why the local cache is off although it was on, since this was
/// last asked; null when it is not.
#[unsafe(no_mangle)]
extern "system" fn Java_io_holdfast_spark_Native_takeCacheFailure<'local>(
    env: EnvUnowned<'local>,
    _class: JClass<'local>,
) -> JString<'local> {
    with_env(env, |env| match CACHE.take_failure() {
        Some(failure) => Ok(env.new_string(failure.to_string())?),
        None => Ok(JString::null()),
    })
}

/// What stores have in memory, while they are opened, of objects that others read as well.
pub(crate) const NEARBY_BYTES: u64 = 64 << 20;

/// Whether files are seen before they are finished, as they are but on object stores.
pub(crate) fn seen_while_written(env: &mut Env<'_>, files: &JObject<'_>) -> Result<bool, Failure> {
    let seen = env.call_method(files, jni_str!("seenWhileWritten"), jni_sig!("()Z"), &[])?;
    Ok(seen.z()?)
}

/// `Native.openFolder(String dir, HadoopFiles files, long term, long maxFileBytes, int
/// compression): long`. Term 0 opens for reading only.
#[unsafe(no_mangle)]
extern "system" fn Java_io_holdfast_spark_Native_openFolder<'local>(
    env: EnvUnowned<'local>,
    _class: JClass<'local>,
    dir: JString<'local>,
    files: JObject<'local>,
    term: jlong,
    max_file_bytes: jlong,
    compression_code: jint,
) -> jlong {
    with_env(env, |env| {
        let handles = Arc::clone(&HANDLES);
        let mut storage: Arc<dyn Storage> =
            Arc::new(PooledStorage::new(storage(env, &dir, &files)?, handles));
        if !files.is_null() {
            storage = Arc::new(CachedStorage::new(storage, Arc::clone(&CACHE)));
        }
        let nearby = if files.is_null() || seen_while_written(env, &files)? {
            None
        } else {
            Some(Arc::new(NearbyStorage::new(storage.clone(), NEARBY_BYTES)))
        };
        if let Some(nearby) = &nearby {
            storage = nearby.clone();
        }
        let term = Term(u64::try_from(term).unwrap_or(0));
        let writer = if term == Term(0) {
            None
        } else {
            let options = WriterOptions {
                max_file_bytes: max_file_bytes.max(1) as u64,
                compression: compression(compression_code)?,
            };
            Some(SegmentWriter::open(Arc::clone(&storage), term, options))
        };
        Ok(FOLDERS.insert(SegmentFolder {
            storage,
            nearby,
            term,
            writer,
            runs: Mutex::default(),
        }))
    })
}

/// `Native.leaveDeletedFile(long folder)`: closes the open file if it was deleted from outside.
#[unsafe(no_mangle)]
extern "system" fn Java_io_holdfast_spark_Native_leaveDeletedFile<'local>(
    env: EnvUnowned<'local>,
    _class: JClass<'local>,
    folder: jlong,
) {
    primitive(env, || {
        Ok(FOLDERS.get(folder)?.writer()?.leave_deleted()?)
    });
}

/// `Native.seal(long folder)`: seals the open file.
#[unsafe(no_mangle)]
extern "system" fn Java_io_holdfast_spark_Native_seal<'local>(
    env: EnvUnowned<'local>,
    _class: JClass<'local>,
    folder: jlong,
) {
    primitive(env, || Ok(FOLDERS.get(folder)?.writer()?.seal()?));
}

/// `Native.hasPendingRuns(long folder): boolean`: see [`SegmentWriter::has_pending_runs`].
#[unsafe(no_mangle)]
extern "system" fn Java_io_holdfast_spark_Native_hasPendingRuns<'local>(
    env: EnvUnowned<'local>,
    _class: JClass<'local>,
    folder: jlong,
) -> jboolean {
    primitive(env, || {
        Ok(FOLDERS.get(folder)?.writer()?.has_pending_runs())
    })
}

/// `Native.sealPendingRuns(long folder)`: see [`SegmentWriter::seal_pending_runs`].
#[unsafe(no_mangle)]
extern "system" fn Java_io_holdfast_spark_Native_sealPendingRuns<'local>(
    env: EnvUnowned<'local>,
    _class: JClass<'local>,
    folder: jlong,
) {
    primitive(env, || {
        let folder = FOLDERS.get(folder)?;
        // Maintenance is over, which read what it merged.
        folder.forget_nearby();
        Ok(folder.writer()?.seal_pending_runs()?)
    });
}

/// `Native.closeFolder(long folder)`. Closing twice does nothing.
#[unsafe(no_mangle)]
extern "system" fn Java_io_holdfast_spark_Native_closeFolder<'local>(
    env: EnvUnowned<'local>,
    _class: JClass<'local>,
    folder: jlong,
) {
    primitive(env, || {
        FOLDERS.remove(folder);
        Ok(())
    });
}

/// `Native.syncFiles(long folder, long[] numbers)`: makes files of this writer, which have its
/// term, survive a machine crash; on object stores this seals them.
#[unsafe(no_mangle)]
extern "system" fn Java_io_holdfast_spark_Native_syncFiles<'local>(
    env: EnvUnowned<'local>,
    _class: JClass<'local>,
    folder: jlong,
    numbers: JLongArray<'local>,
) {
    with_env(env, |env| {
        let folder = FOLDERS.get(folder)?;
        let files = longs(env, &numbers)?
            .into_iter()
            .map(|number| file_id(folder.term, number))
            .collect::<Result<BTreeSet<_>, _>>()?;
        // The batch ends: stores were opened at its beginning.
        folder.forget_nearby();
        Ok(folder.writer()?.sync_files(&files)?)
    });
}

/// `record WriterStats(long filesCreated, long filesSealed, long segments, long storedBytes)`.
const WRITER_STATS: LongRecord = LongRecord {
    class: jni_str!("io/holdfast/spark/files/WriterStats"),
    constructor: jni_sig!("(JJJJ)V"),
};

/// `Native.writerStats(long folder): WriterStats`.
#[unsafe(no_mangle)]
extern "system" fn Java_io_holdfast_spark_Native_writerStats<'local>(
    env: EnvUnowned<'local>,
    _class: JClass<'local>,
    folder: jlong,
) -> JObject<'local> {
    with_env(env, |env| {
        let stats = FOLDERS.get(folder)?.writer()?.stats();
        let values = [
            stats.files_created,
            stats.files_sealed,
            stats.segments,
            stats.bytes,
        ];
        WRITER_STATS.object(env, &values)
    })
}

/// `Native.takeWarnings(long folder): String[]`: what went wrong with files and failed no call, for
/// the log. Each warning is returned once.
#[unsafe(no_mangle)]
extern "system" fn Java_io_holdfast_spark_Native_takeWarnings<'local>(
    env: EnvUnowned<'local>,
    _class: JClass<'local>,
    folder: jlong,
) -> JObjectArray<'local, JString<'local>> {
    with_env(env, |env| {
        let warnings = FOLDERS.get(folder)?.writer()?.take_warnings();
        Ok(java_strings(env, &warnings)?)
    })
}

/// `Native.lostFiles(long folder): long[]`: numbers of the files that could not be made durable;
/// they have the term of the writer.
#[unsafe(no_mangle)]
extern "system" fn Java_io_holdfast_spark_Native_lostFiles<'local>(
    env: EnvUnowned<'local>,
    _class: JClass<'local>,
    folder: jlong,
) -> JLongArray<'local> {
    with_env(env, |env| {
        let lost = FOLDERS.get(folder)?.writer()?.lost_files();
        let numbers: Vec<_> = lost.iter().map(|file| jlong::from(file.seq)).collect();
        java_longs(env, &numbers)
    })
}
