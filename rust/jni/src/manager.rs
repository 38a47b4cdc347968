//! One manager per executor process and checkpoint root: storage, and the writer of its merged
//! files.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use holdfast_core::format::Compression;
use holdfast_core::manager::{SegmentWriter, WriterOptions};
use holdfast_core::state::BaseImage;
use holdfast_core::storage::{LocalStorage, Storage};
use holdfast_core::{Error, FileId, OwnerTag, Term};
use jni::objects::{JClass, JLongArray, JObject, JObjectArray, JString};
use jni::sys::{jint, jlong};
use jni::{Env, EnvUnowned};
use parking_lot::Mutex;

use crate::guard::{Failure, primitive, with_env};
use crate::hadoop::HadoopStorage;
use crate::handles::Handles;

pub(crate) struct Manager {
    pub(crate) storage: Arc<dyn Storage>,
    /// Absent in a manager that only reads.
    writer: Option<SegmentWriter>,
    /// Base images of stores that were closed before commits could build on them, as they are after
    /// every batch with Spark's `unloadOnCommit`: the next store of the owner goes on with them.
    pub(crate) images: Mutex<HashMap<OwnerTag, BaseImage>>,
}

impl Manager {
    pub(crate) fn writer(&self) -> Result<&SegmentWriter, Failure> {
        self.writer.as_ref().ok_or_else(|| {
            Failure::Core(Error::invalid_input(format!(
                "{} was opened for reading only",
                self.storage.location()
            )))
        })
    }
}

pub(crate) static MANAGERS: Handles<Manager> = Handles::new("manager");

pub(crate) fn compression(code: jint) -> Result<Compression, Failure> {
    match code {
        0 => Ok(Compression::None),
        1 => Ok(Compression::Lz4),
        other => Err(Failure::Core(Error::invalid_input(format!(
            "unknown compression code {other}"
        )))),
    }
}

/// Inverse of [`compression`].
pub(crate) fn compression_code(compression: Compression) -> jint {
    match compression {
        Compression::None => 0,
        Compression::Lz4 => 1,
    }
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

/// Java strings as Rust strings.
pub(crate) fn strings<'local>(
    env: &mut Env<'local>,
    array: &JObjectArray<'local, JString<'local>>,
) -> Result<Vec<String>, Failure> {
    let mut texts = Vec::new();
    for i in 0..array.len(env)? {
        let text = array.get_element(env, i)?;
        texts.push(text.try_to_string(env)?);
        // Thousands of partitions must not pile up in the local reference table.
        env.delete_local_ref(text);
    }
    Ok(texts)
}

/// Rust strings as Java strings.
pub(crate) fn java_strings<'local>(
    env: &mut Env<'local>,
    texts: &[String],
) -> Result<JObjectArray<'local, JString<'local>>, Failure> {
    let array = JObjectArray::<JString>::new(env, texts.len(), JString::null())?;
    for (i, text) in texts.iter().enumerate() {
        let text = env.new_string(text)?;
        array.set_element(env, i, &text)?;
        env.delete_local_ref(text);
    }
    Ok(array)
}

/// Rust numbers as Java numbers.
pub(crate) fn java_longs<'local>(
    env: &mut Env<'local>,
    values: &[u64],
) -> Result<JLongArray<'local>, Failure> {
    let values: Vec<jlong> = values.iter().map(|n| *n as jlong).collect();
    let array = JLongArray::new(env, values.len())?;
    array.set_region(env, 0, &values)?;
    Ok(array)
}

/// `Native.openManager(String dir, HadoopFiles files, long term, long maxFileBytes, int
/// compression): long`. Term 0 opens for reading only.
#[unsafe(no_mangle)]
extern "system" fn Java_io_holdfast_spark_Native_openManager<'local>(
    env: EnvUnowned<'local>,
    _class: JClass<'local>,
    dir: JString<'local>,
    files: JObject<'local>,
    term: jlong,
    max_file_bytes: jlong,
    compression_code: jint,
) -> jlong {
    with_env(env, |env| {
        let storage = storage(env, &dir, &files)?;
        let writer = match u64::try_from(term) {
            Ok(0) | Err(_) => None,
            Ok(term) => {
                let options = WriterOptions {
                    max_file_bytes: max_file_bytes.max(1) as u64,
                    compression: compression(compression_code)?,
                };
                Some(SegmentWriter::open(
                    Arc::clone(&storage),
                    Term(term),
                    options,
                ))
            }
        };
        Ok(MANAGERS.insert(Manager {
            storage,
            writer,
            images: Mutex::default(),
        }))
    })
}

/// `Native.leaveDeletedFile(long manager)`: closes the open file if somebody else deleted it.
#[unsafe(no_mangle)]
extern "system" fn Java_io_holdfast_spark_Native_leaveDeletedFile<'local>(
    env: EnvUnowned<'local>,
    _class: JClass<'local>,
    manager: jlong,
) {
    primitive(env, || {
        Ok(MANAGERS.get(manager)?.writer()?.leave_deleted()?)
    });
}

/// `Native.seal(long manager)`: seals the open file.
#[unsafe(no_mangle)]
extern "system" fn Java_io_holdfast_spark_Native_seal<'local>(
    env: EnvUnowned<'local>,
    _class: JClass<'local>,
    manager: jlong,
) {
    primitive(env, || Ok(MANAGERS.get(manager)?.writer()?.seal()?));
}

/// `Native.closeManager(long manager)`. Closing twice does nothing.
#[unsafe(no_mangle)]
extern "system" fn Java_io_holdfast_spark_Native_closeManager<'local>(
    env: EnvUnowned<'local>,
    _class: JClass<'local>,
    manager: jlong,
) {
    primitive(env, || {
        MANAGERS.remove(manager);
        Ok(())
    });
}

/// `Native.syncFiles(long manager, String[] names)`: makes files of this manager survive a machine
/// crash; on object stores this seals them.
#[unsafe(no_mangle)]
extern "system" fn Java_io_holdfast_spark_Native_syncFiles<'local>(
    env: EnvUnowned<'local>,
    _class: JClass<'local>,
    manager: jlong,
    names: JObjectArray<'local, JString<'local>>,
) {
    with_env(env, |env| {
        let manager = MANAGERS.get(manager)?;
        let mut files = BTreeSet::new();
        for name in strings(env, &names)? {
            files.insert(FileId::parse(&name).ok_or_else(|| {
                Error::invalid_input(format!("{name:?} is not the name of a physical file"))
            })?);
        }
        Ok(manager.writer()?.sync_files(&files)?)
    });
}

/// `Native.writerStats(long manager): long[]`: files created, files sealed, segments, bytes of these
/// as stored.
#[unsafe(no_mangle)]
extern "system" fn Java_io_holdfast_spark_Native_writerStats<'local>(
    env: EnvUnowned<'local>,
    _class: JClass<'local>,
    manager: jlong,
) -> JLongArray<'local> {
    with_env(env, |env| {
        let stats = MANAGERS.get(manager)?.writer()?.stats();
        let values = [
            stats.files_created,
            stats.files_sealed,
            stats.segments,
            stats.bytes,
        ];
        java_longs(env, &values)
    })
}

/// `Native.takeWarnings(long manager): String[]`: what went wrong with files and failed no call, for
/// the log; told once.
#[unsafe(no_mangle)]
extern "system" fn Java_io_holdfast_spark_Native_takeWarnings<'local>(
    env: EnvUnowned<'local>,
    _class: JClass<'local>,
    manager: jlong,
) -> JObjectArray<'local, JString<'local>> {
    with_env(env, |env| {
        let warnings = MANAGERS.get(manager)?.writer()?.take_warnings();
        java_strings(env, &warnings)
    })
}

/// `Native.lostFiles(long manager): String`: names of the files that could not be made durable, one
/// a line; null without any.
#[unsafe(no_mangle)]
extern "system" fn Java_io_holdfast_spark_Native_lostFiles<'local>(
    env: EnvUnowned<'local>,
    _class: JClass<'local>,
    manager: jlong,
) -> JString<'local> {
    with_env(env, |env| {
        let lost = MANAGERS.get(manager)?.writer()?.lost_files();
        if lost.is_empty() {
            return Ok(JString::null());
        }
        let names: Vec<String> = lost.iter().map(FileId::file_name).collect();
        Ok(env.new_string(names.join("\n"))?)
    })
}
