//! A process that can open no further file. The limit is the process's, so these tests have one of
//! their own and take turns.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::collections::BTreeSet;
use std::io::Read;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use common::{append, owner};
use holdfast_core::format::read_segment;
use holdfast_core::segment::{Durability, SegmentWriter, WriterOptions};
use holdfast_core::storage::LocalStorage;
use holdfast_core::wire::{Hello, Host, Server, Session};
use holdfast_core::{Error, ErrorKind, Result, Term};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

static TURN: Mutex<()> = Mutex::new(());

fn turn() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// No descriptor is free until this is dropped.
struct Exhausted(Rlimit);

/// Descriptors below `first_free` can be used, no others.
fn exhaust(first_free: u64) -> Exhausted {
    let before = getrlimit(Resource::Nofile);
    let none = Rlimit {
        current: Some(first_free),
        maximum: before.maximum,
    };
    setrlimit(Resource::Nofile, none).unwrap();
    Exhausted(before)
}

impl Drop for Exhausted {
    fn drop(&mut self) {
        setrlimit(Resource::Nofile, self.0).unwrap();
    }
}

#[test]
fn what_was_appended_is_synced_and_nothing_is_lost() {
    let _turn = turn();
    let dir = tempfile::tempdir().unwrap();
    let storage = Arc::new(LocalStorage::new(dir.path().join("new/root")));
    let writer = SegmentWriter::open(storage.clone(), Term(1), WriterOptions::default());
    let first = append(&writer, &owner("a"), 1, b"first").unwrap();
    let exhausted = exhaust(3);
    let wanted = BTreeSet::from([first.file]);
    writer.sync_files(&wanted).expect("a sync opens nothing");
    assert_eq!(writer.durability(&first), Durability::Durable);
    let second = append(&writer, &owner("a"), 2, b"second").unwrap();
    assert_eq!(second.file, first.file, "the file takes appends still");
    writer.seal().expect("sealing opens nothing");
    // A new file cannot be made now. That is told, and passes.
    let refused = append(&writer, &owner("a"), 3, b"third").unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Storage);
    drop(exhausted);
    let third = append(&writer, &owner("a"), 3, b"third").unwrap();
    writer.sync().unwrap();
    assert_eq!(writer.lost_files(), []);
    for (reference, bytes) in [
        (first, &b"first"[..]),
        (second, b"second"),
        (third, b"third"),
    ] {
        let found = read_segment(storage.as_ref(), &reference, &owner("a")).unwrap();
        assert_eq!(found.payload, bytes);
    }
}

struct Nobody;

impl Host for Nobody {
    fn open(&self, _: &Hello) -> Result<Box<dyn Session>> {
        Err(Error::invalid_input("nobody is served here"))
    }
}

#[test]
fn a_server_accepts_clients_again_once_a_descriptor_is_free() {
    let _turn = turn();
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path().join("private/1.sock"), Arc::new(Nobody)).unwrap();
    // The client takes the last descriptor.
    let last = std::fs::File::open("/dev/null").unwrap().as_raw_fd();
    let exhausted = exhaust(last as u64 + 1);
    let mut client = UnixStream::connect(server.path()).unwrap();
    client
        .set_read_timeout(Some(Duration::from_millis(300)))
        .unwrap();
    let mut answer = [0; 1];
    let waits = client.read(&mut answer).unwrap_err();
    assert_eq!(
        waits.kind(),
        std::io::ErrorKind::WouldBlock,
        "nobody listens any more"
    );
    drop(exhausted);
    client.set_read_timeout(None).unwrap();
    // No hello, so that the server ends the connection once it has it.
    client.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(client.read(&mut answer).unwrap(), 0);
    server.stop();
}
