//! Hadoop's file systems, for every scheme but `file:`. This module calls up into
//! `io.holdfast.spark.merged.HadoopFolder`, with the credentials and schemes of the user's Spark.

use std::fmt;
use std::sync::{Arc, OnceLock};

use holdfast_core::storage::{
    AppendFile, Capabilities, ObjectMeta, ReadFile, Storage, check_name, check_range,
};
use holdfast_core::{Error, ErrorKind, Result};
use jni::errors::Error as JniError;
use jni::objects::{JByteArray, JObject, JString};
use jni::signature::MethodSignature;
use jni::strings::JNIStr;
use jni::sys::{jint, jlong};
use jni::{Env, JValue, jni_sig, jni_str};

use crate::convert::{JavaObject, call_up};

/// Bound on the bytes of one call, and so on the memory that a read takes on the Java heap.
const MAX_READ_BYTES: u64 = 8 << 20;

/// A direct buffer of Java has at most 2 GiB; segments may be larger.
const MAX_APPEND_BYTES: usize = 1 << 30;

/// A Java object and its name in errors.
struct Remote {
    object: JavaObject,
    location: String,
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Remote").field(&self.location).finish()
    }
}

impl Remote {
    /// Calls up into Java; `what` names the call in its error.
    fn call<T>(
        &self,
        what: impl FnOnce() -> String,
        call: impl for<'a> FnOnce(&mut Env<'a>, &JObject<'static>) -> jni::errors::Result<T>,
    ) -> Result<T> {
        call_up(&self.object, call).map_err(|error| core_error(&what(), &error))
    }

    fn call_void(&self, name: &'static JNIStr, what: &str) -> Result<()> {
        let what = || format!("{what} {}", self.location);
        self.call(what, |env, object| {
            env.call_method(object, name, jni_sig!("()V"), &[])?;
            Ok(())
        })
    }

    /// The path of a file in this folder.
    fn path(&self, name: &str) -> Result<String> {
        check_name(name).map_err(|e| e.context(&self.location))?;
        Ok(format!("{}/{name}", self.location))
    }

    /// The length of a file in this folder, in bytes.
    fn len_of(&self, name: &str) -> Result<u64> {
        let path = self.path(name)?;
        let what = || format!("looking at {path}");
        self.call(what, |env, files| {
            let name = env.new_string(name)?;
            let signature = jni_sig!("(Ljava/lang/String;)J");
            let arguments = [JValue::Object(&name)];
            let len = env.call_method(files, jni_str!("length"), signature, &arguments)?;
            Ok(len.j()?.max(0) as u64)
        })
    }
}

fn core_error(what: &str, error: &JniError) -> Error {
    let JniError::CaughtJavaException { name, msg, .. } = error else {
        return Error::new(ErrorKind::Storage, format!("{what}: {error}"));
    };
    let kind = match name.as_str() {
        "java.io.FileNotFoundException" => ErrorKind::NotFound,
        "org.apache.hadoop.fs.FileAlreadyExistsException"
        | "org.apache.hadoop.hdfs.protocol.AlreadyBeingCreatedException" => {
            ErrorKind::AlreadyExists
        }
        _ => ErrorKind::Storage,
    };
    Error::new(kind, format!("{what}: {name}: {msg}"))
}

/// One folder of a Hadoop file system.
#[derive(Debug)]
pub(crate) struct HadoopStorage {
    files: Arc<Remote>,
    /// Known once a file was created: only its stream can tell.
    durable_append: OnceLock<bool>,
}

impl HadoopStorage {
    /// `files` is a `HadoopFolder`, `location` its URI.
    pub(crate) fn new(
        env: &Env<'_>,
        files: &JObject<'_>,
        location: String,
    ) -> jni::errors::Result<Self> {
        Ok(Self {
            files: Arc::new(Remote {
                object: env.new_global_ref(files)?,
                location,
            }),
            durable_append: OnceLock::new(),
        })
    }

    /// Calls a method that returns an object: its arguments are a name, and the length if known.
    fn opened(
        &self,
        name: &str,
        len: Option<u64>,
        method: &'static JNIStr,
        signature: MethodSignature<'static, 'static>,
        what: &str,
    ) -> Result<Remote> {
        let location = self.files.path(name)?;
        let what = || format!("{what} {location}");
        let object = self.files.call(what, |env, files| {
            let name = env.new_string(name)?;
            let mut arguments = vec![JValue::Object(&name)];
            arguments.extend(len.map(|len| JValue::Long(len as jlong)));
            let object = env.call_method(files, method, signature, &arguments)?;
            env.new_global_ref(object.l()?)
        })?;
        Ok(Remote { object, location })
    }

    fn delete_at_once(&self, names: &[String]) -> Result<()> {
        let paths: Vec<_> = names
            .iter()
            .map(|name| self.files.path(name))
            .collect::<Result<_>>()?;
        let what = || format!("deleting {}", paths.join(", "));
        self.files.call(what, |env, files| {
            let names = env.new_string(names.join("/"))?;
            let signature = jni_sig!("(Ljava/lang/String;)V");
            let arguments = [JValue::Object(&names)];
            env.call_method(files, jni_str!("delete"), signature, &arguments)?;
            Ok(())
        })
    }
}

impl Storage for HadoopStorage {
    fn location(&self) -> String {
        self.files.location.clone()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            durable_append: self.durable_append.get().copied().unwrap_or(false),
            sync_by_name: false,
        }
    }

    fn create(&self, name: &str) -> Result<Box<dyn AppendFile>> {
        let output = self.opened(
            name,
            None,
            jni_str!("create"),
            jni_sig!("(Ljava/lang/String;)Lio/holdfast/spark/merged/HadoopOutput;"),
            "creating",
        )?;
        let what = || format!("looking at {}", output.location);
        let durable = output.call(what, |env, object| {
            env.call_method(object, jni_str!("durableAppend"), jni_sig!("()Z"), &[])?
                .z()
        })?;
        self.durable_append.get_or_init(|| durable);
        Ok(Box::new(HadoopFile {
            output,
            durable_append: durable,
            finished: false,
        }))
    }

    fn open(&self, name: &str) -> Result<Box<dyn ReadFile>> {
        let input = self.opened(
            name,
            None,
            jni_str!("open"),
            jni_sig!("(Ljava/lang/String;)Lio/holdfast/spark/merged/HadoopInput;"),
            "opening",
        )?;
        Ok(Box::new(HadoopReader::new(input)?))
    }

    fn open_known(&self, name: &str, len: u64) -> Result<Box<dyn ReadFile>> {
        let input = self.opened(
            name,
            Some(len),
            jni_str!("openKnown"),
            jni_sig!("(Ljava/lang/String;J)Lio/holdfast/spark/merged/HadoopInput;"),
            "opening",
        )?;
        Ok(Box::new(KnownReader {
            reader: HadoopReader::new(input)?,
            files: Arc::clone(&self.files),
            name: name.to_owned(),
        }))
    }

    fn len(&self, name: &str) -> Result<u64> {
        self.files.len_of(name)
    }

    fn sync(&self, name: &str) -> Result<()> {
        // The writer synced a finished object, and no other process can sync an unfinished one.
        self.len(name).map(|_| ())
    }

    fn delete(&self, name: &str) -> Result<()> {
        self.delete_at_once(&[name.to_owned()])
    }

    fn delete_all(&self, names: &[String]) -> Vec<Result<()>> {
        if names.is_empty() {
            return Vec::new();
        }
        match self.delete_at_once(names) {
            Ok(()) => names.iter().map(|_| Ok(())).collect(),
            Err(e) if names.len() == 1 => vec![Err(e)],
            // The error does not say which files were refused, so delete them one by one.
            Err(_) => names.iter().map(|name| self.delete(name)).collect(),
        }
    }

    fn list(&self) -> Result<Vec<ObjectMeta>> {
        let what = || format!("listing {}", self.files.location);
        let lines = self.files.call(what, |env, files| {
            let signature = jni_sig!("()Ljava/lang/String;");
            let lines = env.call_method(files, jni_str!("list"), signature, &[])?;
            env.cast_local::<JString<'_>>(lines.l()?)?
                .try_to_string(env)
        })?;
        let mut objects = Vec::new();
        for line in lines.lines() {
            let meta = line.split_once(' ').and_then(|(len, name)| {
                Some(ObjectMeta {
                    name: name.to_owned(),
                    len: len.parse().ok()?,
                })
            });
            objects.push(meta.ok_or_else(|| {
                Error::new(ErrorKind::Storage, format!("{}: bad line {line:?}", what()))
            })?);
        }
        objects.sort();
        Ok(objects)
    }
}

/// A `HadoopInput`.
#[derive(Debug)]
struct HadoopReader {
    input: Remote,
    size_bytes: u64,
}

impl HadoopReader {
    fn new(input: Remote) -> Result<Self> {
        // Dropping the reader closes the input, also if the next call fails.
        let mut reader = Self {
            input,
            size_bytes: 0,
        };
        let what = || format!("looking at {}", reader.input.location);
        reader.size_bytes = reader.input.call(what, |env, object| {
            let len = env.call_method(object, jni_str!("length"), jni_sig!("()J"), &[])?;
            Ok(len.j()?.max(0) as u64)
        })?;
        Ok(reader)
    }
}

impl ReadFile for HadoopReader {
    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn read(&self, offset: u64, len: u64) -> Result<Vec<u8>> {
        let what = || format!("reading {}", self.input.location);
        check_range(&what(), self.size_bytes, offset, len)?;
        let room = usize::try_from(len)
            .map_err(|_| Error::corrupt(format!("{}: {len} bytes do not fit in memory", what())))?;
        let mut bytes = vec![0; room];
        let mut position = offset;
        for chunk in bytes.chunks_mut(MAX_READ_BYTES as usize) {
            self.input
                .call(what, |env, object| read_chunk(env, object, position, chunk))?;
            position += chunk.len() as u64;
        }
        Ok(bytes)
    }
}

impl Drop for HadoopReader {
    fn drop(&mut self) {
        // The bytes that were read are right, whether or not closing works.
        let _ = self.input.call_void(jni_str!("close"), "closing");
    }
}

/// A file that was opened without asking for its length.
#[derive(Debug)]
struct KnownReader {
    reader: HadoopReader,
    files: Arc<Remote>,
    name: String,
}

impl ReadFile for KnownReader {
    fn size_bytes(&self) -> u64 {
        self.reader.size_bytes
    }

    fn read(&self, offset: u64, bytes: u64) -> Result<Vec<u8>> {
        self.reader.read(offset, bytes).or_else(|failure| {
            // Java's exceptions do not tell whether the file is missing or too short.
            let found = self.files.len_of(&self.name)?;
            let what = format!("reading {}", self.reader.input.location);
            check_range(&what, found, offset, bytes)?;
            Err(failure)
        })
    }
}

fn read_chunk(
    env: &mut Env<'_>,
    input: &JObject<'static>,
    position: u64,
    chunk: &mut [u8],
) -> jni::errors::Result<()> {
    let arguments = [
        JValue::Long(position as jlong),
        JValue::Int(chunk.len() as jint),
    ];
    let array = env.call_method(input, jni_str!("read"), jni_sig!("(JI)[B"), &arguments)?;
    let array = env.cast_local::<JByteArray<'_>>(array.l()?)?;
    // SAFETY: i8 and u8 have the same layout, and the slice is borrowed for the call only.
    let signed =
        unsafe { std::slice::from_raw_parts_mut(chunk.as_mut_ptr().cast::<i8>(), chunk.len()) };
    array.get_region(env, 0, signed)
}

/// A `HadoopOutput`.
#[derive(Debug)]
struct HadoopFile {
    output: Remote,
    durable_append: bool,
    finished: bool,
}

impl AppendFile for HadoopFile {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        for part in bytes.chunks(MAX_APPEND_BYTES) {
            let what = || format!("appending {} bytes to {}", part.len(), self.output.location);
            self.output.call(what, |env, object| {
                // SAFETY: Java only reads the buffer, and lets go of it before it returns.
                let buffer =
                    unsafe { env.new_direct_byte_buffer(part.as_ptr().cast_mut(), part.len())? };
                let signature = jni_sig!("(Ljava/nio/ByteBuffer;)V");
                let arguments = [JValue::Object(&buffer)];
                env.call_method(object, jni_str!("append"), signature, &arguments)?;
                Ok(())
            })?;
        }
        Ok(())
    }

    fn sync(&mut self) -> Result<()> {
        if !self.durable_append {
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!("{} cannot be synced before its end", self.output.location),
            ));
        }
        self.output.call_void(jni_str!("sync"), "syncing")
    }

    fn finish(mut self: Box<Self>) -> Result<()> {
        self.finished = true;
        self.output.call_void(jni_str!("finish"), "finishing")
    }
}

impl Drop for HadoopFile {
    fn drop(&mut self) {
        if !self.finished {
            // The caller that drops an unfinished file has abandoned it.
            let _ = self.output.call_void(jni_str!("abandon"), "abandoning");
        }
    }
}
