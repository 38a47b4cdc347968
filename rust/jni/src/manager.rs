//! One manager per executor process and checkpoint root: storage, and the writer of its merged
//! files.

use std::sync::Arc;

use holdfast_core::format::Compression;
use holdfast_core::manager::{SegmentWriter, WriterOptions};
use holdfast_core::storage::{LocalStorage, Storage};
use holdfast_core::{Error, FileId, Term};
use jni::EnvUnowned;
use jni::objects::{JClass, JString};
use jni::sys::{jint, jlong};

use crate::guard::{Failure, with_env};
use crate::handles::Handles;

pub(crate) struct Manager {
    pub(crate) storage: Arc<dyn Storage>,
    /// Absent in a manager that only reads.
    writer: Option<SegmentWriter>,
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

fn compression(code: jint) -> Result<Compression, Failure> {
    match code {
        0 => Ok(Compression::None),
        1 => Ok(Compression::Lz4),
        other => Err(Failure::Core(Error::invalid_input(format!(
            "unknown compression code {other}"
        )))),
    }
}

/// `Native.openManager(String dir, long term, long maxFileBytes, int compression): long`. Term 0
/// opens for reading only.
#[unsafe(no_mangle)]
extern "system" fn Java_io_holdfast_spark_Native_openManager<'local>(
    env: EnvUnowned<'local>,
    _class: JClass<'local>,
    dir: JString<'local>,
    term: jlong,
    max_file_bytes: jlong,
    compression_code: jint,
) -> jlong {
    with_env(env, |env| {
        let storage: Arc<dyn Storage> = Arc::new(LocalStorage::new(dir.try_to_string(env)?));
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
        Ok(MANAGERS.insert(Manager { storage, writer }))
    })
}

/// `Native.closeManager(long manager)`: seals the open file. Closing twice does nothing.
#[unsafe(no_mangle)]
extern "system" fn Java_io_holdfast_spark_Native_closeManager<'local>(
    env: EnvUnowned<'local>,
    _class: JClass<'local>,
    manager: jlong,
) {
    with_env(env, |_| {
        if let Some(writer) = MANAGERS
            .remove(manager)
            .as_ref()
            .and_then(|m| m.writer.as_ref())
        {
            writer.seal()?;
        }
        Ok(())
    });
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
