//! A server and real sockets; clients of every kind, well-behaved and not.

#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

mod connections;
mod segments;
mod staged;
mod strangers;
mod tables;

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use holdfast_core::format::{NewSegment, SegmentKind};
use holdfast_core::manager::{Fallbacks, ManagerOptions, Retained, SnapshotManager};
use holdfast_core::segment::WriterOptions;
use holdfast_core::storage::LocalStorage;
use holdfast_core::{CheckpointId, Error, ErrorKind, Owner, Result, SegmentRef};
use parking_lot::Mutex;
use prost::Message;

use super::payload::PayloadMessage;
use super::protocol::{Answer, AppendCall, Call, Request, Response};
use super::*;

const ID: CheckpointId = CheckpointId(1);

/// Serves one manager and keeps what clients send.
struct Executor {
    folder: tempfile::TempDir,
    manager: Arc<SnapshotManager>,
    sent: Mutex<Vec<Vec<u8>>>,
    /// The next session is over once it was opened.
    over: AtomicBool,
    opened: AtomicUsize,
}

struct Served {
    executor: Arc<Executor>,
    over: bool,
}

impl Host for Arc<Executor> {
    fn open(&self, hello: &Hello) -> Result<Box<dyn Session>> {
        if hello.pipeline == "closed" {
            return Err(Error::new(ErrorKind::Fenced, "pipeline closed is not open"));
        }
        self.opened.fetch_add(1, Ordering::SeqCst);
        Ok(Box::new(Served {
            executor: Arc::clone(self),
            over: self.over.swap(false, Ordering::SeqCst),
        }))
    }
}

impl Session for Served {
    fn manager(&self) -> Result<Arc<SnapshotManager>> {
        if self.over {
            return Err(Error::new(ErrorKind::Fenced, "this session is over"));
        }
        Ok(Arc::clone(&self.executor.manager))
    }

    fn send(&self, data: Vec<u8>) -> Result<()> {
        if data == b"full disk" {
            let full = std::io::Error::from_raw_os_error(28);
            return Err(Error::io("taking bytes", full));
        }
        self.executor.sent.lock().push(data);
        Ok(())
    }
}

impl Executor {
    fn new() -> Arc<Self> {
        let folder = tempfile::tempdir().unwrap();
        let storage = Arc::new(LocalStorage::new(folder.path().join("segments")));
        // Files with a few bytes of state are mostly header: too wasteful to reuse otherwise.
        let options = ManagerOptions {
            max_space_amplification: 0.0,
            ..ManagerOptions::default()
        };
        let manager = SnapshotManager::open_next_term(storage, options, 1).unwrap();
        Arc::new(Self {
            folder,
            manager: Arc::new(manager),
            sent: Mutex::default(),
            over: AtomicBool::new(false),
            opened: AtomicUsize::new(0),
        })
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("private/1.sock")
    }

    fn serve(self: &Arc<Self>) -> Server {
        Server::start(self.socket(), Arc::new(Arc::clone(self))).unwrap()
    }

    fn client(&self) -> Client {
        Client::connect(self.socket(), hello()).unwrap()
    }

    /// A connection that speaks for itself; welcomed already.
    fn raw(&self) -> UnixStream {
        let mut stream = UnixStream::connect(self.socket()).unwrap();
        stream.write_all(&frame(&hello())).unwrap();
        assert_eq!(answer(&mut stream), Some(Answer::Welcome(PROTOCOL_VERSION)));
        stream
    }
}

fn hello() -> Hello {
    Hello::new("sales", "/data/segments", &WriterOptions::default())
}

fn owner(region: &str) -> Owner {
    Owner::new("sales", "stats", region, "default")
}

fn new_segment(owner: &Owner) -> NewSegment<'_> {
    NewSegment {
        owner,
        created: ID,
        kind: SegmentKind::Snapshot,
        lineage: &[],
        replaced: None,
        entries: 1,
        tables: &[],
        runs: 0,
    }
}

fn bytes(count: usize) -> Vec<u8> {
    (0..count).map(|i| (i * 31 % 251) as u8).collect()
}

/// A message as it is on the wire.
fn frame(message: &impl Message) -> Vec<u8> {
    let body = message.encode_to_vec();
    let mut frame = (body.len() as u32).to_le_bytes().to_vec();
    frame.extend(body);
    frame
}

/// Returns the answer of the server; `None` when it closed.
fn answer(stream: &mut UnixStream) -> Option<Answer> {
    let mut length = [0; 4];
    stream.read_exact(&mut length).ok()?;
    let mut body = vec![0; u32::from_le_bytes(length) as usize];
    stream.read_exact(&mut body).unwrap();
    Response::decode(body.as_slice()).unwrap().answer
}

/// The error of an answer, after which the server closed the connection.
fn refusal(stream: &mut UnixStream) -> Error {
    let Some(Answer::Failure(failure)) = answer(stream) else {
        panic!("the server did not refuse");
    };
    assert_eq!(answer(stream), None, "the connection is still open");
    failure.into_error()
}

fn append_call(payload: PayloadMessage) -> Request {
    let call = AppendCall {
        owner: Some(owner("east")),
        created: ID.0,
        kind: u32::from(SegmentKind::Snapshot.tag()),
        lineage: Vec::new(),
        entries: 0,
        payload: Some(payload),
    };
    Request {
        call: Some(Call::Append(call)),
    }
}

fn completed(manager: &SnapshotManager) {
    let retained = Retained {
        decided: ID,
        checkpoints: [(ID, Fallbacks::new())].into(),
    };
    manager.completed(ID, &retained).unwrap();
}
