//! Reclaiming files that no manager looks after.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;

use crate::common::{append, faulty, options, owner};
use holdfast_core::format::Compression;
use holdfast_core::liveness::{
    Floors, ListedFile, ListedKind, ListedSegment, RestoredCheckpoint, sort_out,
};
use holdfast_core::manager::{ManagerOptions, SnapshotManager};
use holdfast_core::reclaim::{IndexCache, ReclaimReport, reclaim, reclaim_orphans};
use holdfast_core::segment::SegmentWriter;
use holdfast_core::state::DeltaMarks;
use holdfast_core::storage::Storage;
use holdfast_core::{CheckpointId, ErrorKind, FileId, Result, SegmentRef, Term};
use holdfast_sim::{FaultyStorage, Operation};
use proptest::prelude::*;

fn file(term: u64, seq: u32) -> FileId {
    FileId {
        term: Term(term),
        seq,
    }
}

fn floors(list: &[(&str, u64)]) -> Floors {
    let mut floors = Floors::default();
    for (region, floor) in list {
        let floor = CheckpointId(*floor);
        floors.add(owner(region).tag(), floor, DeltaMarks::NONE);
    }
    floors
}

fn terms(list: &[u64]) -> impl Fn(Term) -> bool + 'static {
    let live: HashSet<u64> = list.iter().copied().collect();
    move |term| live.contains(&term.0)
}

fn segment(region: &str, created: u64, len: u64) -> ListedSegment {
    ListedSegment {
        owner: owner(region).into(),
        created: CheckpointId(created),
        len,
        kind: ListedKind::Other,
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

/// The first pass of a driver with these floors, terms that may still append, and no newer term
/// about.
fn clean(storage: &Arc<FaultyStorage>, known: &[(&str, u64)], live: &[u64]) -> ReclaimReport {
    clean_on(&mut IndexCache::default(), storage, known, live)
}

/// A pass like [`clean`] of a driver that made others before.
fn clean_on(
    indexes: &mut IndexCache,
    storage: &Arc<FaultyStorage>,
    known: &[(&str, u64)],
    live: &[u64],
) -> ReclaimReport {
    let (floors, live) = (floors(known), terms(live));
    reclaim(storage.as_ref(), indexes, &floors, &live, Term(99)).unwrap()
}

/// The number of times that `pass` opens a file, and its result.
fn opens<T>(storage: &Arc<FaultyStorage>, pass: impl FnOnce() -> T) -> (u64, T) {
    let before = storage.calls(Operation::Open);
    let done = pass();
    (storage.calls(Operation::Open) - before, done)
}

fn path(dir: &tempfile::TempDir, file: FileId) -> PathBuf {
    dir.path().join("root").join(file.file_name())
}

/// Takes the last `bytes` bytes of a file away; returns what it held.
fn cut(dir: &tempfile::TempDir, file: FileId, bytes: usize) -> Vec<u8> {
    let whole = std::fs::read(path(dir, file)).unwrap();
    std::fs::write(path(dir, file), &whole[..whole.len() - bytes]).unwrap();
    whole
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
    cut(&dir, torn, 1);
    let path = path(&dir, torn);
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
    let path = path(&dir, damaged);
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[60] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let unreadable = write(&storage, 2, &[("a", 1)], true);
    let fine = write(&storage, 3, &[("a", 1)], true);
    // The tails of files 2 and 3 are the last two reads of a pass.
    let calls = storage.calls(Operation::Read);
    clean(&storage, &[], &[]);
    let per_run = storage.calls(Operation::Read) - calls;
    storage.fail_nth(Operation::Read, per_run - 1);
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
    let mut indexes = IndexCache::default();
    let mut pass = |live: &[u64], newest| {
        reclaim(storage.as_ref(), &mut indexes, &floor, &terms(live), newest)
    };
    let error = pass(&[4], Term(4)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Fenced);
    assert!(error.to_string().contains(&files[2].file_name()), "{error}");
    assert_eq!(left(&storage), [files[0], files[2]]);
    let report = pass(&[5], Term(5)).unwrap();
    assert_eq!(report.deleted, [files[0], files[2]]);
}

#[test]
fn an_absent_root_has_nothing_to_reclaim() {
    let (_dir, storage) = faulty();
    let report = clean(&storage, &[("a", 9)], &[]);
    assert!(report.deleted.is_empty() && report.kept.is_empty());
    let report = orphans(&storage, &[], &[]).unwrap();
    assert!(report.deleted.is_empty() && report.kept.is_empty());
}

#[test]
fn a_pass_opens_a_file_once_and_a_sealed_one_never_again() {
    let (dir, storage) = faulty();
    let mut indexes = IndexCache::default();
    let mut pass = || {
        opens(&storage, || {
            clean_on(&mut indexes, &storage, &[("a", 1)], &[3])
        })
    };
    write(&storage, 1, &[("a", 1), ("b", 1)], true);
    write(&storage, 2, &[("a", 2)], true);
    write(&storage, 3, &[("a", 1)], false);
    let torn = write(&storage, 4, &[("a", 1)], true);
    cut(&dir, torn, 1);
    let (opened, first) = pass();
    assert_eq!((opened, first.kept.len()), (4, 4));
    let new = write(&storage, 5, &[("a", 3)], true);
    assert_eq!(pass().0, 3, "the open one, the torn one, the new one");
    let (opened, third) = pass();
    assert_eq!((opened, third.kept.len()), (2, 5));
    let grown = third.space.physical_bytes - first.space.physical_bytes;
    assert_eq!(grown, std::fs::metadata(path(&dir, new)).unwrap().len());
    let listed = third.kept.iter().map(|file| path(&dir, *file));
    let bytes = listed.map(|path| std::fs::metadata(path).unwrap().len());
    assert_eq!(third.kept_bytes, bytes.sum::<u64>());
}

#[test]
fn a_file_that_had_no_footer_is_read_again_once_it_has_one() {
    for live in [&[1][..], &[]] {
        let (dir, storage) = faulty();
        let mut indexes = IndexCache::default();
        let late = write(&storage, 1, &[("a", 9), ("b", 1), ("a", 2)], true);
        let whole = cut(&dir, late, 1);
        let mut pass = |floor| {
            let floors = [("a", floor), ("b", floor)];
            opens(&storage, || clean_on(&mut indexes, &storage, &floors, live))
        };
        assert_eq!(pass(3).1.kept, [late]);
        assert_eq!(pass(3).0, 1, "the writer may append more");
        std::fs::write(path(&dir, late), whole).unwrap();
        assert_eq!(pass(3).0, 1);
        assert_eq!(pass(9).0, 0);
        let (opened, report) = pass(10);
        assert_eq!((opened, report.deleted), (0, vec![late]));
    }
}

#[test]
fn a_file_of_another_size_than_it_had_sealed_is_read_again() {
    let (dir, storage) = faulty();
    let mut indexes = IndexCache::default();
    let longer = write(&storage, 1, &[("a", 1)], true);
    clean_on(&mut indexes, &storage, &[("a", 1)], &[1]);
    let mut bytes = std::fs::read(path(&dir, longer)).unwrap();
    bytes.extend_from_slice(b"what looked like a footer was none");
    std::fs::write(path(&dir, longer), bytes).unwrap();
    let (opened, report) = opens(&storage, || {
        clean_on(&mut indexes, &storage, &[("a", 9)], &[1])
    });
    assert_eq!((opened, report.kept), (1, vec![longer]));
    assert_eq!(indexes.files(), 0);
}

#[test]
fn what_is_known_about_a_file_goes_with_it() {
    let (_dir, storage) = faulty();
    let mut indexes = IndexCache::default();
    let files = [("a", 1), ("b", 2), ("c", 3)].map(|(region, term)| {
        let file = write(&storage, term, &[(region, 1)], true);
        (region, file)
    });
    clean_on(&mut indexes, &storage, &[], &[]);
    let of_three = indexes.bytes();
    assert_eq!(indexes.files(), 3);

    storage.fail_nth(Operation::Delete, 1);
    let (opened, report) = opens(&storage, || {
        clean_on(&mut indexes, &storage, &[("a", 9), ("b", 9)], &[])
    });
    assert_eq!((opened, report.deleted), (0, vec![files[1].1]));
    assert_eq!(indexes.files(), 2, "one could not be deleted");
    clean_on(&mut indexes, &storage, &[("a", 9)], &[]);
    assert_eq!(indexes.files(), 1);
    assert_eq!(
        indexes.bytes(),
        of_three / 3,
        "their owners are gone as well"
    );

    storage.delete(&files[2].1.file_name()).unwrap();
    clean_on(&mut indexes, &storage, &[], &[]);
    assert_eq!((indexes.files(), indexes.bytes()), (0, 0));
}

#[test]
fn the_bound_on_memory_holds() {
    let (_dir, storage) = faulty();
    let mut indexes = IndexCache::with_max_bytes(4096);
    for term in 1..=40 {
        write(
            &storage,
            term,
            &[(&format!("region {term}"), 1), ("a", 1)],
            true,
        );
    }
    let (opened, report) = opens(&storage, || clean_on(&mut indexes, &storage, &[], &[]));
    assert_eq!((opened, report.kept.len()), (40, 40));
    let known = indexes.files() as u64;
    assert!(
        indexes.bytes() <= 4096 && known > 5 && known < 40,
        "{indexes:?}"
    );
    let (opened, report) = opens(&storage, || clean_on(&mut indexes, &storage, &[], &[]));
    assert_eq!((opened, report.kept.len()), (40 - known, 40));
    assert_eq!(
        indexes.files() as u64,
        known,
        "none is forgotten for another"
    );
}

#[test]
fn the_folder_not_cleaned_for_longest_makes_room() {
    let folders = [(); 3].map(|()| faulty());
    for (_dir, storage) in &folders {
        write(storage, 1, &[("a", 1)], true);
    }
    let opened_in = |folder: usize, indexes: &mut IndexCache| {
        let storage = &folders[folder].1;
        opens(storage, || clean_on(indexes, storage, &[], &[])).0
    };
    let mut indexes = IndexCache::default();
    opened_in(0, &mut indexes);
    let mut indexes = IndexCache::with_max_bytes(2 * indexes.bytes());
    let opened = [0, 1, 0, 2, 0, 1].map(|folder| opened_in(folder, &mut indexes));
    assert_eq!(opened, [1, 1, 0, 1, 0, 1]);
}

fn listed(seq: u32, sealed: bool, bytes: u64, segments: &[(&str, u64, u64)]) -> ListedFile {
    let segments = segments.iter();
    ListedFile {
        file: file(1, seq),
        sealed,
        damaged: false,
        physical_bytes: bytes,
        segments: segments
            .map(|(region, created, len)| segment(region, *created, *len))
            .collect(),
    }
}

#[test]
fn the_most_wasteful_files_are_named_until_the_bound_holds() {
    let files = [
        // One idle owner keeps a large file alive.
        listed(1, true, 10_000, &[("idle", 5, 100), ("busy", 1, 9_900)]),
        listed(2, true, 5_000, &[("busy", 3, 4_000), ("busy", 9, 1_000)]),
        listed(3, true, 6_000, &[("busy", 9, 6_000)]),
        // Still written to: not counted.
        listed(4, false, 90_000, &[]),
    ];
    let floors = floors(&[("idle", 5), ("busy", 8)]);
    let space = |bound| {
        let sorted = sort_out(files.to_vec(), &floors, &terms(&[1]), bound);
        assert_eq!(sorted.staying, files);
        sorted.space
    };
    let report = space(2.0);
    assert_eq!(
        (report.physical_bytes, report.needed_bytes),
        (21_000, 7_100)
    );
    assert_eq!(report.pinned_bytes(), 13_900);
    assert_eq!(report.wasteful, [file(1, 1)], "without it the bound holds");
    assert_eq!(space(1.1).wasteful, [file(1, 1), file(1, 2)]);
    assert_eq!(space(3.0).wasteful, []);
}

/// The same as for the view of a manager, see the test of this name in `liveness`.
#[test]
fn a_file_within_the_bound_does_not_hide_a_smaller_one_that_is_not() {
    let files = [
        listed(1, true, 100, &[("a", 9, 60), ("a", 1, 40)]),
        listed(2, true, 30, &[("a", 9, 1), ("a", 1, 29)]),
    ];
    let sorted = sort_out(files.to_vec(), &floors(&[("a", 9)]), &terms(&[]), 2.0);
    assert_eq!(sorted.space.wasteful, [file(1, 2)]);
}

/// A pass of a driver over files of managers, of which those with these terms are alive.
fn orphans(
    storage: &Arc<FaultyStorage>,
    live: &[u64],
    retained: &[RestoredCheckpoint],
) -> Result<ReclaimReport> {
    let retained = || Ok(retained.to_vec());
    reclaim_orphans(storage.as_ref(), retained, &terms(live), Term(9))
}

/// A checkpoint with these segments: whose, origin, which.
fn checkpoint(id: u64, segments: &[(&str, u64, SegmentRef)]) -> RestoredCheckpoint {
    let segments = segments.iter();
    RestoredCheckpoint {
        id: CheckpointId(id),
        segments: segments
            .map(|(region, origin, at)| (owner(region), CheckpointId(*origin), *at))
            .collect(),
    }
}

#[test]
fn of_managers_that_are_gone_what_no_checkpoint_refers_to_goes() {
    let (_dir, storage) = faulty();
    let manager = |term| {
        SnapshotManager::open(storage.clone(), Term(term), ManagerOptions::default()).unwrap()
    };
    let write = |manager: &SnapshotManager, region: &str, id: u64| {
        let owner = owner(region);
        let new = holdfast_core::format::NewSegment {
            owner: &owner,
            created: CheckpointId(id),
            kind: holdfast_core::format::SegmentKind::Snapshot,
            lineage: &[],
            replaced: None,
            entries: 1,
            tables: &[],
            runs: 0,
        };
        manager.append(&new, b"state").unwrap()
    };
    let (gone, alive) = (manager(2), manager(3));
    let needed = write(&gone, "a", 1);
    gone.persist(CheckpointId(1)).unwrap();
    drop(gone);
    let gone = manager(4);
    let orphan = write(&gone, "a", 2);
    drop(gone);
    let open = write(&alive, "b", 1);
    let first = checkpoint(1, &[("a", 1, needed), ("b", 1, open)]);
    let report = orphans(&storage, &[3], std::slice::from_ref(&first)).unwrap();
    assert_eq!(report.deleted, [orphan.file]);
    assert_eq!(left(&storage), [needed.file, open.file]);
    // The state is reused, and the checkpoint that it was written for goes.
    let reused = [
        checkpoint(5, &[("a", 5, needed)]),
        checkpoint(6, &[("a", 5, needed)]),
    ];
    let report = orphans(&storage, &[3], &reused).unwrap();
    assert_eq!((report.kept, report.deleted), (vec![needed.file], vec![]));
    let report = orphans(&storage, &[3], &[]).unwrap();
    assert_eq!(report.deleted, [needed.file]);
    assert_eq!(left(&storage), [open.file], "its manager is alive");
    assert_eq!(orphans(&storage, &[], &[]).unwrap().deleted, [open.file]);
}

#[test]
fn nothing_of_a_manager_that_is_gone_is_read() {
    let (dir, storage) = faulty();
    let torn = write(&storage, 1, &[("a", 9)], false);
    cut(&dir, torn, 1);
    let garbage = file(2, 1);
    std::fs::write(path(&dir, garbage), b"no header").unwrap();
    let (opened, report) = opens(&storage, || orphans(&storage, &[], &[]).unwrap());
    assert_eq!((opened, report.deleted), (0, vec![torn, garbage]));
}

#[test]
fn a_claim_is_left_to_the_manager_that_takes_the_folder_over() {
    let (dir, storage) = faulty();
    write(&storage, 1, &[("a", 1)], true);
    for term in [1, 20] {
        std::fs::write(path(&dir, file(term, 0)), b"").unwrap();
    }
    orphans(&storage, &[], &[]).unwrap();
    clean(&storage, &[], &[]);
    assert_eq!(left(&storage), [file(1, 0), file(20, 0)]);
}

#[test]
fn nothing_goes_while_checkpoints_are_not_what_they_should_be() {
    let (_dir, storage) = faulty();
    let orphan = write(&storage, 1, &[("a", 1)], true);
    let at = |file| SegmentRef {
        file,
        offset: 0,
        len: 10,
        digest: 0,
    };
    let kind =
        |retained: &[RestoredCheckpoint]| orphans(&storage, &[3], retained).unwrap_err().kind();
    let missing = checkpoint(1, &[("a", 1, at(file(2, 1)))]);
    assert_eq!(kind(&[missing]), ErrorKind::NotFound);
    let cut = SegmentRef {
        len: 1 << 20,
        ..at(orphan)
    };
    assert_eq!(
        kind(&[checkpoint(1, &[("a", 1, cut)])]),
        ErrorKind::NotFound
    );
    let two = [("a", 1, at(orphan)), ("a", 2, at(orphan))];
    assert_eq!(kind(&[checkpoint(2, &two)]), ErrorKind::InvalidInput);
    assert_eq!(kind(&[checkpoint(1, &two[1..])]), ErrorKind::InvalidInput);
    let unreadable = || Err(holdfast_core::Error::corrupt("metadata"));
    let error = reclaim_orphans(storage.as_ref(), unreadable, &terms(&[]), Term(9)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    let newer = write(&storage, 10, &[("a", 1)], true);
    assert_eq!(kind(&[]), ErrorKind::Fenced);
    assert_eq!(left(&storage), [orphan, newer]);
    // A file that a living manager deletes is not missed.
    storage.delete(&newer.file_name()).unwrap();
    let deleted = checkpoint(1, &[("a", 1, at(file(3, 1)))]);
    assert_eq!(
        orphans(&storage, &[3], &[deleted]).unwrap().deleted,
        [orphan]
    );
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
        let facts: Vec<ListedFile> = files
            .iter()
            .enumerate()
            .map(|(seq, (term, sealed, damaged, segments))| ListedFile {
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
        let sorted = sort_out(facts.clone(), &self::floors(&floors), &terms(&live), 2.0);
        prop_assert_eq!(sorted.going.len() + sorted.staying.len(), facts.len());
        for (facts, (term, sealed, damaged, segments)) in facts.iter().zip(&files) {
            let protected = *damaged
                || (!sealed && live.contains(term))
                || segments.iter().any(|(region, created)| {
                    floor.get(*region).is_none_or(|floor| created >= floor)
                });
            prop_assert_eq!(sorted.going.contains(facts), !protected);
        }
    }
}
