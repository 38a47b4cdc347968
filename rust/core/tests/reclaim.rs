//! Reclaiming files that no manager looks after.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

mod common;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use common::{append, faulty, options, owner};
use holdfast_core::format::Compression;
use holdfast_core::gc::{FileFacts, ReclaimReport, SegmentFacts, plan, reclaim, space};
use holdfast_core::manager::SegmentWriter;
use holdfast_core::storage::{FaultyStorage, Operation, Storage};
use holdfast_core::{CheckpointId, ErrorKind, FileId, Owner, Term};
use proptest::prelude::*;

fn file(term: u64, seq: u32) -> FileId {
    FileId {
        term: Term(term),
        seq,
    }
}

fn floors(list: &[(&str, u64)]) -> impl Fn(&Owner) -> Option<CheckpointId> + use<> {
    let known: HashMap<Owner, CheckpointId> = list
        .iter()
        .map(|(region, floor)| (owner(region), CheckpointId(*floor)))
        .collect();
    move |owner| known.get(owner).copied()
}

fn terms(list: &[u64]) -> impl Fn(Term) -> bool + 'static {
    let live: HashSet<u64> = list.iter().copied().collect();
    move |term| live.contains(&term.0)
}

fn segment(region: &str, created: u64, len: u64) -> SegmentFacts {
    SegmentFacts {
        owner: owner(region),
        created: CheckpointId(created),
        len,
    }
}

/// One file of `term` with these segments.
fn write(storage: &Arc<FaultyStorage>, term: u64, segments: &[(&str, u64)], seal: bool) -> FileId {
    let options = options(1 << 20, Compression::Lz4);
    let writer = SegmentWriter::open(storage.clone(), Term(term), options);
    for (region, created) in segments {
        append(&writer, &owner(region), *created, b"state").unwrap();
    }
    if seal {
        writer.seal().unwrap();
    }
    file(term, 1)
}

/// A pass with these floors, terms that may still append, and no newer term about.
fn clean(storage: &Arc<FaultyStorage>, known: &[(&str, u64)], live: &[u64]) -> ReclaimReport {
    reclaim(storage.as_ref(), &floors(known), &terms(live), Term(99)).unwrap()
}

fn left(storage: &Arc<FaultyStorage>) -> Vec<FileId> {
    storage
        .list()
        .unwrap()
        .iter()
        .filter_map(|o| FileId::parse(&o.name))
        .collect()
}

#[test]
fn only_closed_files_below_every_floor_go() {
    let (_dir, storage) = faulty();
    let old_sealed = write(&storage, 1, &[("a", 3), ("b", 4)], true);
    let half_needed = write(&storage, 2, &[("a", 3), ("b", 5)], true);
    let unknown_owner = write(&storage, 3, &[("a", 3), ("z", 0)], true);
    let open_and_live = write(&storage, 4, &[("a", 1)], false);
    let open_and_dead = write(&storage, 5, &[("a", 1)], false);
    let sealed_and_live = write(&storage, 6, &[("a", 1)], true);
    let report = clean(&storage, &[("a", 4), ("b", 5)], &[4, 6]);
    assert_eq!(report.deleted, [old_sealed, open_and_dead, sealed_and_live]);
    assert_eq!(report.kept, [half_needed, unknown_owner, open_and_live]);
    assert_eq!(left(&storage), report.kept);
    assert!(report.deleted_bytes > 0 && report.unreadable.is_empty() && report.failed.is_empty());
}

#[test]
fn files_of_dead_terms_without_a_segment_go() {
    let (dir, storage) = faulty();
    let torn = write(&storage, 1, &[("a", 9)], false);
    let path = dir.path().join("root").join(torn.file_name());
    let bytes = std::fs::read(&path).unwrap();
    std::fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();
    for (term, len) in [(2, 0), (3, 10)] {
        std::fs::write(
            path.with_file_name(file(term, 1).file_name()),
            vec![0x48; len],
        )
        .unwrap();
    }
    std::fs::write(path.with_file_name("notes.txt"), b"not ours").unwrap();
    let report = clean(&storage, &[], &[2]);
    assert_eq!(report.deleted, [torn]);
    assert_eq!(report.kept, [file(2, 1)], "its writer is alive");
    assert_eq!(report.unreadable.len(), 1, "ten bytes that are no header");
    assert!(path.with_file_name("notes.txt").exists());
}

#[test]
fn damaged_and_unreadable_files_are_kept_and_reported() {
    let (dir, storage) = faulty();
    let damaged = write(&storage, 1, &[("a", 1), ("a", 2)], false);
    let path = dir.path().join("root").join(damaged.file_name());
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[60] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let unreadable = write(&storage, 2, &[("a", 1)], true);
    let fine = write(&storage, 3, &[("a", 1)], true);
    // Reading: the trailer of file 1, its two windows, then the trailer of file 2.
    let calls = storage.calls(Operation::Read);
    clean(&storage, &[], &[]);
    let per_run = storage.calls(Operation::Read) - calls;
    storage.fail_nth(Operation::Read, per_run - 3);
    let report = clean(&storage, &[("a", 9)], &[]);
    let names: Vec<_> = report.unreadable.iter().map(|(file, _)| *file).collect();
    assert_eq!(names, [damaged, unreadable]);
    assert_eq!(report.deleted, [fine]);
    assert!(report.unreadable[0].1.to_string().contains("do not verify"));
}

#[test]
fn a_delete_that_fails_does_not_stop_the_others() {
    let (_dir, storage) = faulty();
    let first = write(&storage, 1, &[("a", 1)], true);
    let second = write(&storage, 2, &[("a", 1)], true);
    storage.fail_nth(Operation::Delete, 1);
    let report = clean(&storage, &[("a", 9)], &[]);
    assert_eq!(
        report
            .failed
            .iter()
            .map(|(file, _)| *file)
            .collect::<Vec<_>>(),
        [first]
    );
    assert_eq!(report.deleted, [second]);
    let report = clean(&storage, &[("a", 9)], &[]);
    assert_eq!(report.deleted, [first]);
}

#[test]
fn nothing_is_deleted_once_a_newer_incarnation_writes() {
    let (_dir, storage) = faulty();
    let files = [
        write(&storage, 1, &[("a", 1)], true),
        write(&storage, 2, &[], true),
        write(&storage, 5, &[("a", 1)], true),
    ];
    let floor = floors(&[("a", 9)]);
    let error = reclaim(storage.as_ref(), &floor, &terms(&[4]), Term(4)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Fenced);
    assert!(error.to_string().contains(&files[2].file_name()), "{error}");
    assert_eq!(left(&storage), [files[0], files[2]]);
    let report = reclaim(storage.as_ref(), &floor, &terms(&[5]), Term(5)).unwrap();
    assert_eq!(report.deleted, [files[0], files[2]]);
}

#[test]
fn an_absent_root_has_nothing_to_reclaim() {
    let (_dir, storage) = faulty();
    let report = clean(&storage, &[("a", 9)], &[]);
    assert!(report.deleted.is_empty() && report.kept.is_empty());
}

#[test]
fn the_most_wasteful_files_are_named_until_the_bound_holds() {
    let facts = |seq, sealed, physical_bytes, segments: &[(&str, u64, u64)]| FileFacts {
        file: file(1, seq),
        sealed,
        damaged: false,
        physical_bytes,
        segments: segments
            .iter()
            .map(|(region, created, len)| segment(region, *created, *len))
            .collect(),
    };
    let files = [
        // One idle owner keeps a large file alive.
        facts(1, true, 10_000, &[("idle", 5, 100), ("busy", 1, 9_900)]),
        facts(2, true, 5_000, &[("busy", 3, 4_000), ("busy", 9, 1_000)]),
        facts(3, true, 6_000, &[("busy", 9, 6_000)]),
        // Still written to: not counted.
        facts(4, false, 90_000, &[]),
    ];
    let floors = floors(&[("idle", 5), ("busy", 8)]);
    let report = space(&files, &floors, &terms(&[1]), 2.0);
    assert_eq!(
        (report.physical_bytes, report.needed_bytes),
        (21_000, 7_100)
    );
    assert_eq!(report.pinned_bytes(), 13_900);
    assert_eq!(report.wasteful, [file(1, 1)], "without it the bound holds");
    let report = space(&files, &floors, &terms(&[1]), 1.1);
    assert_eq!(report.wasteful, [file(1, 1), file(1, 2)]);
    assert_eq!(space(&files, &floors, &terms(&[1]), 3.0).wasteful, []);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

    /// The plan against its rule, said the other way round: a file stays iff something protects it.
    #[test]
    fn a_file_stays_iff_something_protects_it(
        files in prop::collection::vec(
            (0..4u64, any::<bool>(), prop::bool::weighted(0.1),
             prop::collection::vec((0..4usize, 0..6u64), 0..4)),
            0..12,
        ),
        floor in prop::collection::vec(0..7u64, 3),
        live in prop::collection::hash_set(0..4u64, 0..4),
    ) {
        let regions = ["a", "b", "c", "unknown"];
        let facts: Vec<FileFacts> = files
            .iter()
            .enumerate()
            .map(|(seq, (term, sealed, damaged, segments))| FileFacts {
                file: file(*term, seq as u32),
                sealed: *sealed,
                damaged: *damaged,
                physical_bytes: 1_000,
                segments: segments
                    .iter()
                    .map(|(region, created)| segment(regions[*region], *created, 100))
                    .collect(),
            })
            .collect();
        let floors: Vec<_> = regions.iter().copied().zip(floor.iter().copied()).collect();
        let live: Vec<u64> = live.into_iter().collect();
        let going = plan(&facts, &self::floors(&floors), &terms(&live));
        for (facts, (term, sealed, damaged, segments)) in facts.iter().zip(&files) {
            let protected = *damaged
                || (!sealed && live.contains(term))
                || segments.iter().any(|(region, created)| {
                    floor.get(*region).is_none_or(|floor| created >= floor)
                });
            prop_assert_eq!(going.contains(&facts.file), !protected);
        }
    }
}
