//! Managers of regional pipelines, and the socket through which the executor's Python workers reach
//! them. Threads are Java's: they are daemons, so they never hold up the end of the JVM.

use std::path::Path;
use std::sync::Arc;

use holdfast_core::manager::{ManagerOptions, SnapshotManager};
use holdfast_core::segment::WriterOptions;
use holdfast_core::{Error, ErrorKind, Term};
use holdfast_wire::{Connection, Hello, Host, Listener, ManagerMessage, Session, socket_paths};
use jni::errors::Error as JniError;
use jni::objects::{JByteArray, JClass, JObject, JObjectArray, JString};
use jni::refs::Global;
use jni::sys::{jint, jlong};
use jni::{Env, EnvUnowned, JValue, JavaVM, jni_sig, jni_str};
use parking_lot::Mutex;

use crate::convert::java_strings;
use crate::folders::{compression, compression_code, storage};
use crate::guard::{Failure, primitive, with_env};
use crate::handles::Handles;

/// Memory of a manager for what it appended last, where it is read through Hadoop.
const RECENT_BYTES: u64 = 64 << 20;

static LISTENERS: Handles<Listener> = Handles::new("socket");
static CONNECTIONS: Handles<Mutex<Option<Connection>>> = Handles::new("connection");
pub(crate) static REGIONAL: Handles<SnapshotManager> = Handles::new("regional manager");

/// `Native.listen(String folder): long`: listens at this process's socket below the folder for
/// temporary files `folder`.
#[unsafe(no_mangle)]
extern "system" fn Java_io_holdfast_spark_Native_listen<'local>(
    env: EnvUnowned<'local>,
    _class: JClass<'local>,
    folder: JString<'local>,
) -> jlong {
    with_env(env, |env| {
        let folder = folder.try_to_string(env)?;
        let listener = Listener::bind_first(socket_paths(Path::new(&folder)))?;
        Ok(LISTENERS.insert(listener))
    })
}

/// `Native.socketPath(long listener): String`.
#[unsafe(no_mangle)]
extern "system" fn Java_io_holdfast_spark_Native_socketPath<'local>(
    env: EnvUnowned<'local>,
    _class: JClass<'local>,
    listener: jlong,
) -> JString<'local> {
    with_env(env, |env| {
        let path = LISTENERS.get(listener)?.path().display().to_string();
        Ok(env.new_string(path)?)
    })
}

/// `Native.accept(long listener): long`: waits for the next worker; 0 once the listener was stopped.
#[unsafe(no_mangle)]
extern "system" fn Java_io_holdfast_spark_Native_accept<'local>(
    env: EnvUnowned<'local>,
    _class: JClass<'local>,
    listener: jlong,
) -> jlong {
    primitive(env, || {
        let accepted = LISTENERS.get(listener)?.accept()?;
        Ok(accepted.map_or(0, |connection| {
            CONNECTIONS.insert(Mutex::new(Some(connection)))
        }))
    })
}

/// `Native.serve(long connection, WorkerHost host)`: serves a worker until it leaves.
#[unsafe(no_mangle)]
extern "system" fn Java_io_holdfast_spark_Native_serve<'local>(
    env: EnvUnowned<'local>,
    _class: JClass<'local>,
    connection: jlong,
    host: JObject<'local>,
) {
    with_env(env, |env| {
        let host = Executor(Upward(env.new_global_ref(host)?));
        let connection = CONNECTIONS.remove(connection);
        let connection = connection.and_then(|connection| connection.lock().take());
        connection
            .ok_or(Failure::Closed("connection"))?
            .serve(&host);
        Ok(())
    });
}

/// `Native.stopListening(long listener)`: closes the socket and all connections. Stopping twice does
/// nothing.
#[unsafe(no_mangle)]
extern "system" fn Java_io_holdfast_spark_Native_stopListening<'local>(
    env: EnvUnowned<'local>,
    _class: JClass<'local>,
    listener: jlong,
) {
    primitive(env, || {
        if let Some(listener) = LISTENERS.remove(listener) {
            listener.stop();
        }
        Ok(())
    });
}

/// `Native.openRegional(String dir, HadoopFiles files, long term, long maxFileBytes, int
/// compression): long`.
#[unsafe(no_mangle)]
extern "system" fn Java_io_holdfast_spark_Native_openRegional<'local>(
    env: EnvUnowned<'local>,
    _class: JClass<'local>,
    dir: JString<'local>,
    files: JObject<'local>,
    term: jlong,
    max_file_bytes: jlong,
    code: jint,
) -> jlong {
    with_env(env, |env| {
        let options = ManagerOptions {
            writer: WriterOptions {
                max_file_bytes: max_file_bytes.max(1) as u64,
                compression: compression(code)?,
            },
            recent_bytes: if files.is_null() { 0 } else { RECENT_BYTES },
            ..ManagerOptions::default()
        };
        let storage = storage(env, &dir, &files)?;
        let manager = SnapshotManager::open(storage, Term(term as u64), options)?;
        Ok(REGIONAL.insert(manager))
    })
}

/// `Native.closeRegional(long manager): String[]`: seals its files; returns what the log should know.
/// A worker that still uses it is refused. Closing twice does nothing.
#[unsafe(no_mangle)]
extern "system" fn Java_io_holdfast_spark_Native_closeRegional<'local>(
    env: EnvUnowned<'local>,
    _class: JClass<'local>,
    manager: jlong,
) -> JObjectArray<'local, JString<'local>> {
    with_env(env, |env| {
        let mut warnings = Vec::new();
        if let Some(manager) = REGIONAL.remove(manager) {
            manager.seal()?;
            warnings = manager.take_warnings();
        }
        Ok(java_strings(env, &warnings)?)
    })
}

/// `Native.tellRegional(long manager, byte[] message): String[]`: a message about a checkpoint;
/// returns what the log should know.
#[unsafe(no_mangle)]
extern "system" fn Java_io_holdfast_spark_Native_tellRegional<'local>(
    env: EnvUnowned<'local>,
    _class: JClass<'local>,
    manager: jlong,
    message: JByteArray<'local>,
) -> JObjectArray<'local, JString<'local>> {
    with_env(env, |env| {
        let message = ManagerMessage::from_bytes(&env.convert_byte_array(message)?)?;
        let manager = REGIONAL.get(manager)?;
        message.tell(&manager)?;
        Ok(java_strings(env, &manager.take_warnings())?)
    })
}

/// An object of Java that is called from a thread of Java.
struct Upward(Global<JObject<'static>>);

impl Upward {
    fn call<T>(
        &self,
        call: impl for<'a> FnOnce(&mut Env<'a>, &JObject<'static>) -> jni::errors::Result<T>,
    ) -> Result<T, Error> {
        JavaVM::singleton()
            .and_then(|vm| vm.attach_current_thread(|env| call(env, &self.0)))
            .map_err(|error| said(&error))
    }
}

/// What Java says to a worker. Its own exceptions carry texts for people.
fn said(error: &JniError) -> Error {
    let JniError::CaughtJavaException { name, msg, .. } = error else {
        return Error::new(ErrorKind::Storage, error.to_string());
    };
    match name.as_str() {
        "java.lang.IllegalStateException" => Error::new(ErrorKind::Fenced, msg.as_str()),
        "java.lang.IllegalArgumentException" => Error::invalid_input(msg.as_str()),
        "java.io.FileNotFoundException" => Error::new(ErrorKind::NotFound, msg.as_str()),
        "org.apache.hadoop.fs.FileAlreadyExistsException" => {
            Error::new(ErrorKind::AlreadyExists, msg.as_str())
        }
        "org.apache.hadoop.security.AccessControlException" => Error::io(
            msg.as_str(),
            std::io::Error::from(std::io::ErrorKind::PermissionDenied),
        ),
        "java.io.IOException" => Error::new(ErrorKind::Storage, msg.as_str()),
        "io.holdfast.spark.HoldfastException" => Error::new(ErrorKind::Storage, msg.as_str()),
        _ => Error::new(ErrorKind::Storage, format!("{name}: {msg}")),
    }
}

/// A `WorkerHost`.
struct Executor(Upward);

impl Host for Executor {
    fn open(&self, hello: &Hello) -> Result<Box<dyn Session>, Error> {
        let (worker, manager) = self.0.call(|env, host| {
            let pipeline = env.new_string(&hello.pipeline)?;
            let folder = env.new_string(&hello.folder)?;
            let max_file_bytes = jlong::try_from(hello.writer.max_file_bytes);
            let worker = env
                .call_method(
                    host,
                    jni_str!("connect"),
                    jni_sig!(
                        "(Ljava/lang/String;Ljava/lang/String;JI)Lio/holdfast/spark/executor/WorkerHost$Worker;"
                    ),
                    &[
                        JValue::Object(&pipeline),
                        JValue::Object(&folder),
                        JValue::Long(max_file_bytes.unwrap_or(jlong::MAX)),
                        JValue::Int(compression_code(hello.writer.compression)),
                    ],
                )?
                .l()?;
            let manager = env
                .call_method(&worker, jni_str!("manager"), jni_sig!("()J"), &[])?
                .j()?;
            Ok((Upward(env.new_global_ref(worker)?), manager))
        })?;
        Ok(Box::new(Worker { worker, manager }))
    }
}

/// A `WorkerHost.Worker`.
struct Worker {
    worker: Upward,
    manager: jlong,
}

impl Session for Worker {
    fn manager(&self) -> Result<Arc<SnapshotManager>, Error> {
        REGIONAL.get(self.manager).map_err(|_| {
            let why = "the pipeline of this worker was closed, or begun again";
            Error::new(ErrorKind::Fenced, why)
        })
    }

    fn send(&self, data: Vec<u8>) -> Result<(), Error> {
        self.worker.call(|env, worker| {
            let data = env.byte_array_from_slice(&data)?;
            let data = [JValue::Object(&data)];
            env.call_method(worker, jni_str!("send"), jni_sig!("([B)V"), &data)?;
            Ok(())
        })
    }

    fn stage(&self, local: &str, staged: &str, target: &str) -> Result<(), Error> {
        self.worker.call(|env, worker| {
            let names = [
                env.new_string(local)?,
                env.new_string(staged)?,
                env.new_string(target)?,
            ];
            env.call_method(
                worker,
                jni_str!("stage"),
                jni_sig!("(Ljava/lang/String;Ljava/lang/String;Ljava/lang/String;)V"),
                &names.each_ref().map(|name| JValue::Object(name)),
            )?;
            Ok(())
        })
    }
}
