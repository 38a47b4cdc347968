//! Managers of regional pipelines, and the socket through which the executor's Python workers reach
//! them. Java starts the threads as daemons, so they never hold up the end of the JVM.

use std::io;
use std::sync::Arc;

use holdfast_core::manager::{EarlierManagers, ManagerOptions, SnapshotManager};
use holdfast_core::segment::WriterOptions;
use holdfast_core::{Error, ErrorKind, FileId, Term};
use holdfast_wire::{Address, Connection, Hello, Host, Listener, ManagerMessage, Session};
use jni::errors::Error as JniError;
use jni::objects::JObject;
use jni::sys::{jint, jlong};
use jni::{Env, JValue, jni_sig, jni_str};
use parking_lot::Mutex;

use crate::convert::{JavaObject, call_up};
use crate::folders::{compression, storage};
use crate::guard::{Failure, Result, natives};
use crate::handles::Handles;
use crate::store::MEMORY;

/// Memory of a manager for its latest segments, if Hadoop reads and writes its files.
const RECENT_BYTES: u64 = 64 << 20;

static LISTENERS: Handles<Listener> = Handles::new("socket");
static CONNECTIONS: Handles<Mutex<Option<Connection>>> = Handles::new("connection");
pub(crate) static REGIONAL: Handles<SnapshotManager> = Handles::new("regional manager");

fn listen(local_dirs: String) -> Result<jlong> {
    let address = Address::of_executor(&local_dirs)?;
    Ok(LISTENERS.insert(Listener::bind(address)?))
}

fn socket_address(listener: jlong) -> Result<String> {
    Ok(LISTENERS.get(listener)?.address().to_string())
}

fn accept(listener: jlong) -> Result<jlong> {
    let accepted = LISTENERS.get(listener)?.accept()?;
    Ok(accepted.map_or(0, |connection| {
        CONNECTIONS.insert(Mutex::new(Some(connection)))
    }))
}

fn serve(env: &mut Env<'_>, connection: jlong, host: JObject<'_>) -> Result<()> {
    let host = Executor(env.new_global_ref(host)?);
    let connection = CONNECTIONS.remove(connection);
    let connection = connection.and_then(|connection| connection.lock().take());
    connection
        .ok_or(Failure::Closed("connection"))?
        .serve(&host);
    Ok(())
}

/// Closes the socket and all connections.
fn stop_listening(listener: jlong) -> Result<()> {
    if let Some(listener) = LISTENERS.remove(listener) {
        listener.stop();
    }
    Ok(())
}

fn open_regional(
    env: &mut Env<'_>,
    dir: String,
    files: JObject<'_>,
    term: jlong,
    live_terms: Vec<jlong>,
    wasteful: String,
    max_file_bytes: jlong,
    code: jint,
) -> Result<jlong> {
    let live = live_terms.into_iter();
    let earlier = EarlierManagers {
        live: live.map(|term| Term(term as u64)).collect(),
        wasteful: wasteful.lines().filter_map(FileId::parse).collect(),
    };
    let options = ManagerOptions {
        writer: WriterOptions {
            max_file_bytes: max_file_bytes.max(1) as u64,
            compression: compression(code)?,
            copies: false,
            tells: false,
        },
        recent_bytes: if files.is_null() { 0 } else { RECENT_BYTES },
        tables: Arc::clone(&MEMORY),
        earlier: Some(earlier),
        ..ManagerOptions::default()
    };
    let storage = storage(env, dir, &files)?;
    let manager = SnapshotManager::open(storage, Term(term as u64), options)?;
    Ok(REGIONAL.insert(manager))
}

/// Seals its files and returns warnings for the log. Refuses workers that still use it.
fn close_regional(manager: jlong) -> Result<Vec<String>> {
    let Some(manager) = REGIONAL.remove(manager) else {
        return Ok(Vec::new());
    };
    manager.seal()?;
    Ok(manager.take_warnings())
}

fn tell_regional(manager: jlong, message: Vec<u8>) -> Result<Vec<String>> {
    let message = ManagerMessage::from_bytes(&message)?;
    let manager = REGIONAL.get(manager)?;
    message.tell(&manager)?;
    Ok(manager.take_warnings())
}

natives! {
    rust fn listen(local_dirs: JString) -> jlong;
    rust fn socket_address(listener: jlong) -> JString;
    raw fn accept(listener: jlong) -> jlong;
    env fn serve(connection: jlong, host: "io.holdfast.spark.executor.WorkerHost");
    raw fn stop_listening(listener: jlong);
    env fn open_regional(
        dir: JString, files: "io.holdfast.spark.merged.HadoopFolder", term: jlong,
        live_terms: [jlong], wasteful: JString, max_file_bytes: jlong, code: jint
    ) -> jlong;
    rust fn close_regional(manager: jlong) -> [JString];
    rust fn tell_regional(manager: jlong, message: [jbyte]) -> [JString];
}

/// The error that a worker gets for a failure in Java. Holdfast's exceptions have readable texts.
fn said(error: JniError) -> Error {
    let JniError::CaughtJavaException { name, msg, .. } = error else {
        return Error::new(ErrorKind::Storage, error.to_string());
    };
    let kind = match name.as_str() {
        "java.lang.IllegalStateException" => ErrorKind::Fenced,
        "java.lang.IllegalArgumentException" => ErrorKind::InvalidInput,
        "java.io.FileNotFoundException" => ErrorKind::NotFound,
        "org.apache.hadoop.fs.FileAlreadyExistsException" => ErrorKind::AlreadyExists,
        "org.apache.hadoop.security.AccessControlException" => {
            return Error::io(msg, io::ErrorKind::PermissionDenied.into());
        }
        "java.io.IOException" | "io.holdfast.spark.HoldfastException" => ErrorKind::Storage,
        _ => return Error::new(ErrorKind::Storage, format!("{name}: {msg}")),
    };
    Error::new(kind, msg)
}

/// A `WorkerHost`.
struct Executor(JavaObject);

impl Host for Executor {
    fn open(&self, hello: &Hello) -> Result<Box<dyn Session>, Error> {
        let (worker, manager) = call_up(&self.0, |env, host| {
            let pipeline = env.new_string(&hello.pipeline)?;
            let folder = env.new_string(&hello.folder)?;
            let max_file_bytes = jlong::try_from(hello.max_file_bytes);
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
                        JValue::Int(hello.compression as jint),
                    ],
                )?
                .l()?;
            let manager = env
                .call_method(&worker, jni_str!("manager"), jni_sig!("()J"), &[])?
                .j()?;
            Ok((env.new_global_ref(worker)?, manager))
        })
        .map_err(said)?;
        Ok(Box::new(Worker { worker, manager }))
    }
}

/// A `WorkerHost.Worker`.
struct Worker {
    worker: JavaObject,
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
        call_up(&self.worker, |env, worker| {
            let data = env.byte_array_from_slice(&data)?;
            let data = [JValue::Object(&data)];
            env.call_method(worker, jni_str!("send"), jni_sig!("([B)V"), &data)?;
            Ok(())
        })
        .map_err(said)
    }

    fn stage(&self, local: &str, staged: &str, target: &str) -> Result<(), Error> {
        call_up(&self.worker, |env, worker| {
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
        .map_err(said)
    }
}
