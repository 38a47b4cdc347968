//! The folder of a query's state stores in one executor: storage, and the writer of merged files.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, LazyLock};

use holdfast_core::format::Compression;
use holdfast_core::leases::{BranchStorage, read_parent};
use holdfast_core::reclaim::encode_finished;
use holdfast_core::segment::{SegmentWriter, WriterOptions};
use holdfast_core::state::StoreFolder;
use holdfast_core::storage::{
    CachedStorage, HandlePool, LocalCache, LocalStorage, NearbyStorage, PooledStorage, Storage,
};
use holdfast_core::{Error, Term};
use jni::objects::JObject;
use jni::sys::{jboolean, jint, jlong};
use jni::{Env, JValue, jni_sig, jni_str};
use rustix::process::{Resource, getrlimit};

use crate::convert::{LongRecord, file_id};
use crate::guard::{Result, natives};
use crate::hadoop::HadoopStorage;
use crate::handles::Handles;

pub(crate) struct SegmentFolder {
    /// Shared by the stores in it. Java closes a folder that no store uses for a minute.
    pub(crate) stores: Arc<StoreFolder>,
    /// Its storage, if that is an object store.
    nearby: Option<Arc<NearbyStorage>>,
    /// The term of all files that the writer makes; 0 in a folder that is only read.
    term: Term,
}

impl SegmentFolder {
    fn writer(&self) -> Result<&SegmentWriter> {
        Ok(self.stores.writer()?)
    }

    /// Frees the memory of objects that several stores read.
    fn forget_nearby(&self) {
        if let Some(nearby) = &self.nearby {
            nearby.forget();
        }
    }
}

pub(crate) static FOLDERS: Handles<SegmentFolder> = Handles::new("folder of state stores");

natives! {
    rust fn keep_locally(dir: JString, bytes: jlong);
    rust fn local_cache() -> [jlong];
    rust fn take_cache_failure() -> JString;
    env fn open_folder(
        dir: JString, files: "io.holdfast.spark.merged.HadoopFolder", term: jlong,
        max_file_bytes: jlong, compression_code: jint, copies: jboolean
    ) -> jlong;
    raw fn leave_deleted_file(folder: jlong);
    raw fn seal(folder: jlong);
    raw fn has_pending_runs(folder: jlong) -> jboolean;
    raw fn seal_pending_runs(folder: jlong);
    raw fn close_folder(folder: jlong);
    rust fn sync_files(folder: jlong, numbers: [jlong]);
    rust fn take_uncopied(folder: jlong) -> [jbyte];
    rust fn take_finished(folder: jlong) -> [jbyte];
    rust fn writer_stats(folder: jlong) -> "io.holdfast.spark.merged.WriterStats";
    rust fn take_warnings(folder: jlong) -> [JString];
    rust fn lost_files(folder: jlong) -> [jlong];
}

/// Java's `Compression.code`.
pub(crate) fn compression(code: jint) -> Result<Compression> {
    let known = u32::try_from(code).ok().and_then(Compression::from_tag);
    known.ok_or_else(|| Error::invalid_input(format!("unknown compression code {code}")).into())
}

/// The folder `dir`. `files` is a `HadoopFolder` that reaches it, or null if it is local.
pub(crate) fn storage(env: &Env<'_>, dir: String, files: &JObject<'_>) -> Result<Arc<dyn Storage>> {
    Ok(if files.is_null() {
        Arc::new(LocalStorage::new(dir))
    } else {
        Arc::new(HadoopStorage::new(env, files, dir)?)
    })
}

/// The folder `dir` for reading: a branch finds files in the folder of its parent, too.
pub(crate) fn readable(
    env: &mut Env<'_>,
    dir: String,
    files: &JObject<'_>,
) -> Result<Arc<dyn Storage>> {
    let own = storage(env, dir, files)?;
    let Some(parent) = read_parent(own.as_ref())? else {
        return Ok(own);
    };
    let until = parent.until();
    let reached = if files.is_null() {
        JObject::null()
    } else {
        let uri = env.new_string(&parent.folder)?;
        let signature = jni_sig!("(Ljava/lang/String;)Lio/holdfast/spark/merged/HadoopFolder;");
        env.call_method(files, jni_str!("at"), signature, &[JValue::Object(&uri)])?
            .l()?
    };
    let parent = storage(env, parent.folder, &reached)?;
    Ok(Arc::new(BranchStorage::new(own, parent, until)))
}

/// Bound on open handles for reading files of state stores: 64 tasks that read four runs each. On
/// S3A a handle may hold a connection, and S3A has 500 of them by default.
const MAX_HANDLES: u64 = 256;

/// Bound on a copy: arrays of Java and blocks of Spark are bounded, and commits are not.
const COPY_BYTES: usize = 32 << 20;

/// Handles take at most an eighth of the descriptors that the process may have, so 128 of 1,024. A
/// JVM with Spark's jars has 340 open, and for a moment 100 more.
fn max_handles() -> usize {
    let descriptors = getrlimit(Resource::Nofile).current;
    descriptors.map_or(MAX_HANDLES, |all| MAX_HANDLES.min(all / 8)) as usize
}

/// Handles for reading files, shared by all folders of state stores of this process.
static HANDLES: LazyLock<Arc<HandlePool>> =
    LazyLock::new(|| Arc::new(HandlePool::new(max_handles())));

/// Pages of remote files, shared by all folders of state stores of this process.
static CACHE: LazyLock<Arc<LocalCache>> = LazyLock::new(Arc::default);

fn keep_locally(dir: String, bytes: jlong) -> Result<()> {
    let bytes = u64::try_from(bytes).unwrap_or(0);
    Ok(CACHE.keep_in(Path::new(&dir), bytes)?)
}

fn local_cache() -> Result<Vec<jlong>> {
    let counts = [CACHE.used_bytes(), CACHE.hits(), CACHE.misses()];
    Ok(counts.map(|count| count as jlong).to_vec())
}

fn take_cache_failure() -> Result<Option<String>> {
    Ok(CACHE.take_failure().map(|failure| failure.to_string()))
}

/// Memory for parts of objects that several stores read while they are opened.
pub(crate) const NEARBY_BYTES: u64 = 64 << 20;

/// Returns whether readers see files before they are finished. Only object stores hide them.
pub(crate) fn seen_while_written(env: &mut Env<'_>, files: &JObject<'_>) -> Result<bool> {
    let seen = env.call_method(files, jni_str!("seenWhileWritten"), jni_sig!("()Z"), &[])?;
    Ok(seen.z()?)
}

fn open_folder(
    env: &mut Env<'_>,
    dir: String,
    files: JObject<'_>,
    term: jlong,
    max_file_bytes: jlong,
    compression_code: jint,
    copies: jboolean,
) -> Result<jlong> {
    let handles = Arc::clone(&HANDLES);
    let mut storage: Arc<dyn Storage> =
        Arc::new(PooledStorage::new(readable(env, dir, &files)?, handles));
    if !files.is_null() {
        storage = Arc::new(CachedStorage::new(storage, Arc::clone(&CACHE)));
    }
    let mut nearby = None;
    if !files.is_null() && !seen_while_written(env, &files)? {
        let shared = Arc::new(NearbyStorage::new(storage, NEARBY_BYTES));
        storage = Arc::clone(&shared) as _;
        nearby = Some(shared);
    }
    let term = Term(u64::try_from(term).unwrap_or(0));
    let writer = if term == Term(0) {
        None
    } else {
        let options = WriterOptions {
            max_file_bytes: max_file_bytes.max(1) as u64,
            compression: compression(compression_code)?,
            copies,
            tells: nearby.is_some(),
        };
        Some(SegmentWriter::open(Arc::clone(&storage), term, options))
    };
    Ok(FOLDERS.insert(SegmentFolder {
        stores: StoreFolder::new(storage, writer),
        nearby,
        term,
    }))
}

fn leave_deleted_file(folder: jlong) -> Result<()> {
    Ok(FOLDERS.get(folder)?.writer()?.leave_deleted()?)
}

fn seal(folder: jlong) -> Result<()> {
    Ok(FOLDERS.get(folder)?.writer()?.seal()?)
}

/// See [`SegmentWriter::has_pending_runs`].
fn has_pending_runs(folder: jlong) -> Result<jboolean> {
    Ok(FOLDERS.get(folder)?.writer()?.has_pending_runs())
}

/// See [`SegmentWriter::seal_pending_runs`].
fn seal_pending_runs(folder: jlong) -> Result<()> {
    let folder = FOLDERS.get(folder)?;
    // Maintenance is over, so no reader needs its inputs again.
    folder.forget_nearby();
    Ok(folder.writer()?.seal_pending_runs()?)
}

fn close_folder(folder: jlong) -> Result<()> {
    FOLDERS.remove(folder);
    Ok(())
}

fn sync_files(folder: jlong, numbers: Vec<jlong>) -> Result<()> {
    let folder = FOLDERS.get(folder)?;
    let files = numbers
        .into_iter()
        .map(|number| file_id(folder.term, number))
        .collect::<Result<BTreeSet<_>, _>>()?;
    // The batch ends. Stores are opened at its beginning, so none needs these pages any more.
    folder.forget_nearby();
    Ok(folder.writer()?.sync_files(&files)?)
}

/// For each file its number and the number of its bytes, 8 bytes each, then its bytes. Java asks again
/// until there is nothing.
fn take_uncopied(folder: jlong) -> Result<Vec<u8>> {
    let mut all = Vec::new();
    for (file, bytes) in FOLDERS.get(folder)?.writer()?.take_uncopied(COPY_BYTES) {
        all.extend_from_slice(&u64::from(file.seq).to_be_bytes());
        all.extend_from_slice(&(bytes.len() as u64).to_be_bytes());
        all.extend_from_slice(&bytes);
    }
    Ok(all)
}

/// Facts about the files that were finished since the last call, for the driver.
fn take_finished(folder: jlong) -> Result<Vec<u8>> {
    let finished = FOLDERS.get(folder)?.writer()?.take_finished();
    Ok(encode_finished(finished)?)
}

/// `record WriterStats(long filesCreated, long filesSealed, long segments, long storedBytes)`.
fn writer_stats(folder: jlong) -> Result<LongRecord<4>> {
    let stats = FOLDERS.get(folder)?.writer()?.stats();
    let values = [
        stats.files_created,
        stats.files_sealed,
        stats.segments,
        stats.bytes,
    ];
    Ok(LongRecord(
        jni_str!("io/holdfast/spark/merged/WriterStats"),
        values,
    ))
}

fn take_warnings(folder: jlong) -> Result<Vec<String>> {
    Ok(FOLDERS.get(folder)?.writer()?.take_warnings())
}

fn lost_files(folder: jlong) -> Result<Vec<jlong>> {
    let lost = FOLDERS.get(folder)?.writer()?.lost_files();
    Ok(lost.iter().map(|file| jlong::from(file.seq)).collect())
}
