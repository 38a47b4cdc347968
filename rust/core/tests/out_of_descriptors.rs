//! A process that can open no further file. The limit is the process's, so this test has one of its own.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::collections::BTreeSet;
use std::sync::Arc;

use common::{append, owner};
use holdfast_core::format::read_segment;
use holdfast_core::segment::{Durability, SegmentWriter, WriterOptions};
use holdfast_core::storage::LocalStorage;
use holdfast_core::{ErrorKind, Term};
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

#[test]
fn what_was_appended_is_synced_and_nothing_is_lost() {
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
    // A new file cannot be made now: the append fails, and a later one succeeds.
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
