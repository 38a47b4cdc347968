//! A server whose process can open no further file. The limit is the process's, so this test has one of
//! its own.
#![allow(clippy::unwrap_used)]

use std::io::Read;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use holdfast_core::{Error, Result};
use holdfast_wire::{Hello, Host, Server, Session};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

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

struct Refusing;

impl Host for Refusing {
    fn open(&self, _: &Hello) -> Result<Box<dyn Session>> {
        Err(Error::invalid_input("this server refuses every client"))
    }
}

#[test]
fn a_server_accepts_clients_again_once_a_descriptor_is_free() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("private/1.sock");
    let server = Server::start(&path, Arc::new(Refusing)).unwrap();
    // The client takes the last descriptor.
    let last = std::fs::File::open("/dev/null").unwrap().as_raw_fd();
    let exhausted = exhaust(last as u64 + 1);
    let mut client = UnixStream::connect(&path).unwrap();
    client
        .set_read_timeout(Some(Duration::from_millis(300)))
        .unwrap();
    let mut answer = [0; 1];
    let waits = client.read(&mut answer).unwrap_err();
    assert_eq!(
        waits.kind(),
        std::io::ErrorKind::WouldBlock,
        "the server listens no more"
    );
    drop(exhausted);
    client.set_read_timeout(None).unwrap();
    // No hello, so that the server ends the connection once it has it.
    client.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(client.read(&mut answer).unwrap(), 0);
    server.stop();
}
