//! The files of runs: small ones go into the file that all share, large ones into files of large runs (see
//! `run_files`), and what is not finished nowhere.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::collections::BTreeSet;

use crate::common::{append, content, faulty, options, owner, payload, plain, writer};
use holdfast_core::format::{Compression, NewSegment, SegmentKind, read_index, read_segment};
use holdfast_core::segment::{Durability, RunWriter, SegmentWriter};
use holdfast_core::state::{CommitId, DeltaMarks, StateStore};
use holdfast_core::storage::Storage;
use holdfast_core::{CheckpointId, ErrorKind, Owner, Result, SegmentRef, Term};
use holdfast_sim::Operation;

fn begin<'w>(
    writer: &'w SegmentWriter,
    owner: &Owner,
    created: u64,
    lineage: &[SegmentRef],
) -> RunWriter<'w> {
    let new = NewSegment {
        owner,
        created: CheckpointId(created),
        kind: SegmentKind::Run,
        lineage,
        replaced: None,
        entries: 0,
        tables: &[],
        runs: 0,
    };
    writer.begin_run(&new).unwrap()
}

/// A run of as many KiB, or the first error.
fn run_of(writer: &SegmentWriter, owner: &Owner, kib: u64) -> Result<SegmentRef> {
    let mut run = begin(writer, owner, 1, &[]);
    for number in 0..kib {
        run.push(b"", &number.to_be_bytes(), Some(&payload(number, 1000)))?;
    }
    run.finish()
}

#[test]
fn small_runs_share_a_file_with_other_segments() {
    let (_dir, storage) = faulty();
    let writer = writer(&storage);
    for region in ["a", "b", "c"] {
        append(&writer, &owner(region), 1, b"changes").unwrap();
        let reference = run_of(&writer, &owner(region), 100).unwrap();
        assert_eq!(writer.durability(&reference), Durability::Pending);
    }
    assert_eq!(storage.list().unwrap().len(), 1);
    assert_eq!(writer.stats().segments, 6);
}

#[test]
fn a_large_run_goes_to_another_file_than_commits_and_is_durable() {
    let (_dir, storage) = faulty();
    let options = options(32 << 20, Compression::None);
    let writer = SegmentWriter::open(storage.clone(), Term(1), options);
    let first = append(&writer, &owner("a"), 1, b"changes").unwrap();
    let mut run = begin(&writer, &owner("a"), 1, &[]);
    for number in 0..10_000u64 {
        run.push(b"", &number.to_be_bytes(), Some(&payload(number, 1000)))
            .unwrap();
        if number == 7_000 {
            // Others write at the same time, and their work on the files does not cut the run.
            append(&writer, &owner("b"), 1, b"changes").unwrap();
            writer.sync().unwrap();
            writer.seal().unwrap();
        }
    }
    let reference = run.finish().unwrap();
    assert_ne!(reference.file, first.file);
    assert_eq!(writer.durability(&reference), Durability::Durable);
    let index = read_index(storage.as_ref(), reference.file).unwrap();
    assert!(index.sealed, "all files were to be closed");
    assert_eq!(index.segments.len(), 1);
    assert_eq!(index.segments[0].reference, reference);
    let segment = read_segment(storage.as_ref(), &reference, &owner("a")).unwrap();
    assert_eq!(segment.head.entries, 10_000);
    assert_eq!(storage.list().unwrap().len(), 2);
    writer
        .sync_files(&BTreeSet::from([reference.file]))
        .unwrap();
    // No append was larger than a part, or than what is gathered before the first one.
    assert!(storage.calls(Operation::Append) >= 6);
}

#[test]
fn a_run_that_fails_or_is_not_finished_leaves_nothing_behind() {
    for nth in 1..=8 {
        let (_dir, storage) = faulty();
        let options = options(32 << 20, Compression::None);
        let writer = SegmentWriter::open(storage.clone(), Term(1), options);
        let first = append(&writer, &owner("a"), 1, b"changes").unwrap();
        match nth % 3 {
            0 => storage.fail_nth(Operation::Append, nth),
            1 => storage.short_append_nth(nth, 1000),
            _ => storage.full_append_nth(nth, 1000),
        }
        // The header of its file, the first 4 MiB, and then 1 MiB each.
        let error = run_of(&writer, &owner("a"), 11 << 10).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Storage, "{error}");
        let names: Vec<_> = storage
            .list()
            .unwrap()
            .into_iter()
            .map(|o| o.name)
            .collect();
        assert_eq!(names, [first.file.file_name()], "append {nth}");
        assert_eq!(writer.lost_files(), []);
        // The next one continues.
        assert!(run_of(&writer, &owner("a"), 11 << 10).is_ok());
        let before = storage.list().unwrap().len();
        let mut run = begin(&writer, &owner("a"), 2, &[]);
        run.expect_bytes(1 << 30);
        for number in 0..8_000u64 {
            run.push(b"", &number.to_be_bytes(), Some(&payload(number, 1000)))
                .unwrap();
        }
        assert_eq!(storage.list().unwrap().len(), before + 1);
        drop(run);
        assert_eq!(storage.list().unwrap().len(), before);
        append(&writer, &owner("a"), 1, b"changes").unwrap();
        writer.seal().unwrap();
    }
}

#[test]
fn a_run_as_a_payload_is_refused() {
    let (_dir, storage) = faulty();
    let writer = writer(&storage);
    let new = NewSegment {
        owner: &owner("a"),
        created: CheckpointId(1),
        kind: SegmentKind::Run,
        lineage: &[],
        replaced: None,
        entries: 1,
        tables: &[],
        runs: 0,
    };
    let error = writer.append(&new, b"payload").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(storage.list().unwrap().is_empty());
}

/// A lineage of runs: what a newer one removes is gone, what it does not mention stays.
#[test]
fn a_run_on_top_of_runs_says_what_changed() {
    let (_dir, storage) = faulty();
    let writer = writer(&storage);
    let owner = owner("a");
    let mut lineage = Vec::new();
    let runs: [&[(&str, Option<&str>)]; 3] = [
        &[("a", Some("1")), ("b", Some("1")), ("c", Some("1"))],
        &[("a", None), ("b", Some("2")), ("nothing", None)],
        &[("a", Some("3")), ("d", Some("3"))],
    ];
    for (created, entries) in (1..).zip(runs) {
        let mut run = begin(&writer, &owner, created, &lineage);
        for (key, value) in entries {
            run.push(b"", key.as_bytes(), value.map(str::as_bytes))
                .unwrap();
        }
        lineage.push(run.finish().unwrap());
    }
    let id = CommitId {
        version: 3,
        floor: CheckpointId(1),
        deltas: DeltaMarks::NONE,
        owner: owner.tag(),
        segment: lineage.last().copied(),
        replaced: None,
    };
    let mut store = StateStore::new(owner, plain());
    store.open(storage.as_ref(), 3, Some(&id)).unwrap();
    let found = content(&mut store);
    let found: Vec<_> = found
        .iter()
        .map(|(k, v)| (k.as_str(), v.as_str()))
        .collect();
    assert_eq!(found, [("a", "3"), ("b", "2"), ("c", "1"), ("d", "3")]);
}
