//! A stray file with a term that no manager was given neither fences a manager nor ends terms.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use crate::common::{append, faulty, options, owner};
use holdfast_core::format::Compression;
use holdfast_core::liveness::Floors;
use holdfast_core::manager::{ManagerOptions, SnapshotManager};
use holdfast_core::reclaim::{IndexCache, reclaim};
use holdfast_core::segment::SegmentWriter;
use holdfast_core::state::DeltaMarks;
use holdfast_core::storage::Storage;
use holdfast_core::{CheckpointId, FileId, Term};

const STRAYS: [u64; 3] = [Term::END.0, i64::MAX as u64, u64::MAX];

fn stray(term: u64) -> FileId {
    FileId {
        term: Term(term),
        seq: 1,
    }
}

#[test]
fn the_next_term_is_above_those_that_were_given() {
    let (_dir, storage) = faulty();
    for term in [7].into_iter().chain(STRAYS) {
        storage
            .create(&stray(term).file_name())
            .unwrap()
            .finish()
            .unwrap();
    }
    let manager = SnapshotManager::open_next_term(storage, ManagerOptions::default(), 1).unwrap();
    assert_eq!(manager.term(), Term(8));
}

#[test]
fn a_clean_up_leaves_strays_alone_and_does_its_work() {
    let (_dir, storage) = faulty();
    let writer = SegmentWriter::open(storage.clone(), Term(7), options(1 << 20, Compression::Lz4));
    append(&writer, &owner("0"), 1, b"state").unwrap();
    writer.seal().unwrap();
    for term in STRAYS {
        storage
            .create(&stray(term).file_name())
            .unwrap()
            .finish()
            .unwrap();
    }
    let mut floors = Floors::default();
    let tag = owner("0").tag();
    floors.add(tag, CheckpointId(2), DeltaMarks::NONE);
    let report = reclaim(
        storage.as_ref(),
        &mut IndexCache::default(),
        &floors,
        &|_| false,
        Term(7),
    )
    .unwrap();
    assert_eq!(report.deleted, [stray(7)]);
    assert!(report.unreadable.is_empty());
    assert_eq!(storage.list().unwrap().len(), STRAYS.len());
}
