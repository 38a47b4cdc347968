//! The snapshot manager over real files.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};

use crate::common::{faulty, owner, payload};
use holdfast_core::format::{Compression, NewSegment, SegmentKind, read_index};
use holdfast_core::manager::{
    Fallbacks, ManagerOptions, RestoredCheckpoint, Retained, SnapshotManager,
};
use holdfast_core::storage::{
    AppendFile, Capabilities, LocalStorage, ObjectMeta, ReadFile, Storage,
};
use holdfast_core::{CheckpointId, ErrorKind, FileId, Owner, Result, SegmentRef, Term};
use holdfast_sim::{FaultyStorage, Operation};

pub fn id(number: u64) -> CheckpointId {
    CheckpointId(number)
}

pub fn manager(storage: &Arc<FaultyStorage>, across: bool) -> SnapshotManager {
    let options = ManagerOptions {
        across_checkpoints: Some(across),
        ..Default::default()
    };
    SnapshotManager::open_next_term(storage.clone(), options, 1).unwrap()
}

pub fn append(manager: &SnapshotManager, owner: &Owner, created: u64) -> Result<SegmentRef> {
    let kind = SegmentKind::Snapshot;
    let new = NewSegment {
        owner,
        created: id(created),
        kind,
        lineage: &[],
        replaced: None,
        entries: 1,
        tables: &[],
        runs: 0,
    };
    manager.append(&new, &payload(created, 2000))
}

fn fallbacks(list: &[(&str, u64)]) -> Fallbacks {
    list.iter()
        .map(|(region, origin)| (owner(region), id(*origin)))
        .collect()
}

pub fn retained(decided: u64, checkpoints: &[(u64, &[(&str, u64)])]) -> Retained {
    Retained {
        decided: id(decided),
        checkpoints: checkpoints
            .iter()
            .map(|(c, f)| (id(*c), fallbacks(f)))
            .collect(),
    }
}

pub fn checkpoint(number: u64, segments: &[(&str, u64, SegmentRef)]) -> RestoredCheckpoint {
    let segments = segments
        .iter()
        .map(|(region, origin, r)| (owner(region), id(*origin), *r));
    RestoredCheckpoint {
        id: id(number),
        segments: segments.collect(),
    }
}

pub fn names_when_done(
    manager: &SnapshotManager,
    storage: &Arc<FaultyStorage>,
) -> BTreeSet<FileId> {
    manager.wait_for_deletes();
    names(storage)
}

fn names(storage: &Arc<impl Storage>) -> BTreeSet<FileId> {
    let objects = storage.list().unwrap();
    let files = objects
        .iter()
        .map(|object| FileId::parse(&object.name).unwrap());
    // A file with the number 0 is a manager's claim.
    files.filter(|file| file.seq > 0).collect()
}

/// Storage that learns from its first object whether appends are durable, as Hadoop's does, and
/// whose objects only their writer can sync.
#[derive(Debug)]
struct Learning {
    storage: LocalStorage,
    learned: OnceLock<()>,
}

#[derive(Debug)]
struct SyncedByItsWriter(Box<dyn AppendFile>);

impl AppendFile for SyncedByItsWriter {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.0.append(bytes)
    }

    fn sync(&mut self) -> Result<()> {
        self.0.sync()
    }

    fn finish(self: Box<Self>) -> Result<()> {
        self.0.finish()
    }
}

impl Storage for Learning {
    fn location(&self) -> String {
        self.storage.location()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            durable_append: self.learned.get().is_some(),
            sync_by_name: false,
        }
    }

    fn create(&self, name: &str) -> Result<Box<dyn AppendFile>> {
        let file = self.storage.create(name)?;
        // A claim is no file that is appended to.
        if FileId::parse(name).is_some_and(|file| file.seq > 0) {
            self.learned.get_or_init(|| ());
        }
        Ok(Box::new(SyncedByItsWriter(file)))
    }

    fn open(&self, name: &str) -> Result<Box<dyn ReadFile>> {
        self.storage.open(name)
    }

    fn len(&self, name: &str) -> Result<u64> {
        self.storage.len(name)
    }

    fn sync(&self, name: &str) -> Result<()> {
        self.storage.sync(name)
    }

    fn delete(&self, name: &str) -> Result<()> {
        self.storage.delete(name)
    }

    fn list(&self) -> Result<Vec<ObjectMeta>> {
        self.storage.list()
    }
}

#[test]
fn files_span_checkpoints_once_the_storage_has_shown_that_appends_are_durable() {
    let dir = tempfile::tempdir().unwrap();
    let storage = Arc::new(Learning {
        storage: LocalStorage::new(dir.path().join("segments")),
        learned: OnceLock::new(),
    });
    let manager =
        SnapshotManager::open_next_term(storage.clone(), ManagerOptions::default(), 1).unwrap();
    assert!(!manager.across_checkpoints());
    let mut last = Vec::new();
    for number in 1..=6 {
        manager.started(id(number));
        let segments = ["S1", "S2"].map(|s| append(&manager, &owner(s), number).unwrap());
        for (name, segment) in ["S1", "S2"].iter().zip(segments) {
            let owner = owner(name);
            manager
                .persist_segments(id(number), &owner, &[segment])
                .unwrap();
        }
        manager
            .completed(id(number), &retained(number, &[(number, &[])]))
            .unwrap();
        manager.wait_for_deletes();
        last = segments.to_vec();
    }
    assert!(manager.across_checkpoints());
    // The files that only the first checkpoint needed are gone; the later ones share a file.
    let files: BTreeSet<_> = last.iter().map(|segment| segment.file.seq).collect();
    assert_eq!(files.len(), 1);
    let seqs: Vec<_> = names(&storage).iter().map(|file| file.seq).collect();
    assert!(seqs.len() == 1 && seqs[0] <= 3, "{seqs:?}");
    for (name, segment) in ["S1", "S2"].iter().zip(&last) {
        assert_eq!(
            manager.read(segment, &owner(name)).unwrap().payload,
            payload(6, 2000)
        );
    }
}

#[test]
fn within_checkpoint_files_follow_the_worked_example() {
    let (_dir, storage) = faulty();
    let manager = manager(&storage, false);
    let mut refs = Vec::new();
    let mut step = |number: u64| {
        manager.started(id(number));
        let segments = ["S1", "S2", "S3"].map(|s| append(&manager, &owner(s), number).unwrap());
        manager.persist(id(number)).unwrap();
        refs.push(segments);
    };
    let seqs = || {
        names_when_done(&manager, &storage)
            .iter()
            .map(|f| f.seq)
            .collect::<Vec<_>>()
    };
    step(1);
    manager.completed(id(1), &retained(1, &[(1, &[])])).unwrap();
    assert_eq!(seqs(), [1]);
    step(2);
    let two = retained(2, &[(2, &[("S3", 1)])]);
    manager
        .partially_completed(id(2), &fallbacks(&[("S3", 1)]), &two)
        .unwrap();
    manager.subsumed(id(1), &two).unwrap();
    assert_eq!(seqs(), [1, 2]);
    assert!(manager.stats().pinned_bytes > 0);
    step(3);
    let three = fallbacks(&[("S1", 2), ("S2", 2)]);
    manager
        .partially_completed(id(3), &three, &retained(3, &[(3, &[("S1", 2), ("S2", 2)])]))
        .unwrap();
    assert_eq!(seqs(), [2, 3]);
    step(4);
    manager
        .aborted(id(4), &retained(4, &[(3, &[("S1", 2), ("S2", 2)])]))
        .unwrap();
    assert_eq!(seqs(), [2, 3]);
    step(5);
    manager.completed(id(5), &retained(5, &[(5, &[])])).unwrap();
    assert_eq!(seqs(), [5]);
    let stats = manager.stats();
    assert_eq!(
        (stats.physical_files, stats.live_segments, stats.deletes),
        (1, 3, 4)
    );
    assert_eq!(
        (stats.pinned_bytes, stats.seals),
        (0, 4),
        "what was aborted needs no footer"
    );
}

#[test]
fn across_checkpoints_one_file_takes_all() {
    let (_dir, storage) = faulty();
    let manager = manager(&storage, true);
    for number in 1..=5 {
        append(&manager, &owner("a"), number).unwrap();
        append(&manager, &owner("b"), number).unwrap();
        manager.persist(id(number)).unwrap();
        manager
            .completed(id(number), &retained(number, &[(number, &[])]))
            .unwrap();
    }
    assert_eq!(names_when_done(&manager, &storage).len(), 1);
    let stats = manager.stats();
    assert_eq!(
        (stats.live_segments, stats.appends, stats.syncs, stats.seals),
        (2, 10, 5, 0)
    );
}

#[test]
fn an_open_file_goes_when_everything_in_it_is_dead() {
    let (_dir, storage) = faulty();
    for across in [false, true] {
        let manager = manager(&storage, across);
        append(&manager, &owner("a"), 1).unwrap();
        manager.aborted(id(1), &retained(1, &[])).unwrap();
        assert!(names_when_done(&manager, &storage).is_empty());
        assert_eq!(manager.stats().physical_files, 0);
        append(&manager, &owner("a"), 2).unwrap();
        manager.aborted(id(2), &retained(2, &[])).unwrap();
        manager.wait_for_deletes();
    }
}

#[test]
fn late_work_is_refused_and_leaves_nothing() {
    let (_dir, storage) = faulty();
    let manager = manager(&storage, false);
    append(&manager, &owner("a"), 1).unwrap();
    manager.aborted(id(1), &retained(1, &[])).unwrap();
    let kind = |result: Result<()>| result.unwrap_err().kind();
    assert_eq!(
        kind(append(&manager, &owner("b"), 1).map(|_| ())),
        ErrorKind::AttemptEnded
    );
    assert_eq!(kind(manager.persist(id(1))), ErrorKind::AttemptEnded);
    assert_eq!(
        kind(manager.lease(&owner("a"), id(1), &[]).map(|_| ())),
        ErrorKind::AttemptEnded
    );
    assert!(names_when_done(&manager, &storage).is_empty());
}

#[test]
fn leases_are_refused_for_what_is_unknown_foreign_dead_or_changed() {
    let (_dir, storage) = faulty();
    let manager = manager(&storage, true);
    let a1 = append(&manager, &owner("a"), 1).unwrap();
    let b1 = append(&manager, &owner("b"), 1).unwrap();
    manager.completed(id(1), &retained(1, &[(1, &[])])).unwrap();
    let dead = append(&manager, &owner("a"), 2).unwrap();
    manager.aborted(id(2), &retained(2, &[(1, &[])])).unwrap();
    let unknown = SegmentRef {
        offset: a1.offset + 1,
        ..a1
    };
    let changed = SegmentRef { digest: 1, ..a1 };
    let refs = [a1, b1, dead, unknown, changed];
    let leased = manager.lease(&owner("a"), id(3), &refs).unwrap();
    assert_eq!(leased, [true, false, false, false, false]);
}

#[test]
fn a_leased_segment_survives_a_subsumption_in_between_and_then_its_use() {
    let (_dir, storage) = faulty();
    let manager = manager(&storage, true);
    let base = append(&manager, &owner("a"), 1).unwrap();
    manager.completed(id(1), &retained(1, &[(1, &[])])).unwrap();
    append(&manager, &owner("a"), 2).unwrap();
    assert_eq!(manager.lease(&owner("a"), id(3), &[base]).unwrap(), [true]);
    manager.completed(id(2), &retained(2, &[(2, &[])])).unwrap();
    assert_eq!(
        manager.read(&base, &owner("a")).unwrap().payload,
        payload(1, 2000)
    );
    manager.completed(id(3), &retained(3, &[(3, &[])])).unwrap();
    assert_eq!(
        manager.stats().live_segments,
        1,
        "used by 3, and what 2 wrote is dead"
    );
    manager.completed(id(4), &retained(4, &[(4, &[])])).unwrap();
    assert_eq!(manager.stats().live_segments, 0);
}

#[test]
fn segments_of_wasteful_files_are_not_offered_for_reuse() {
    let (_dir, storage) = faulty();
    let manager = manager(&storage, false);
    let kept = append(&manager, &owner("a"), 1).unwrap();
    for _ in 0..4 {
        append(&manager, &owner("b"), 1).unwrap();
    }
    manager.persist(id(1)).unwrap();
    manager.completed(id(1), &retained(1, &[(1, &[])])).unwrap();
    assert_eq!(manager.lease(&owner("a"), id(2), &[kept]).unwrap(), [true]);
    append(&manager, &owner("b"), 2).unwrap();
    manager.persist(id(2)).unwrap();
    manager.completed(id(2), &retained(2, &[(2, &[])])).unwrap();
    // One of five segments is live in the first file: 2 live segments in 6.
    assert!(manager.stats().space_amplification > 2.0);
    assert!(
        manager
            .files()
            .iter()
            .any(|file| file.file == kept.file && file.wasteful)
    );
    assert_eq!(manager.lease(&owner("a"), id(3), &[kept]).unwrap(), [false]);
    append(&manager, &owner("a"), 3).unwrap();
    manager.persist(id(3)).unwrap();
    let fallback = [("b", 2)];
    manager
        .partially_completed(
            id(3),
            &fallbacks(&fallback),
            &retained(3, &[(3, &fallback)]),
        )
        .unwrap();
    assert!(
        !names_when_done(&manager, &storage).contains(&kept.file),
        "written again, so the wasteful file went"
    );
    assert!(manager.stats().space_amplification < 2.0);
}

#[test]
fn sealing_ends_the_open_files_and_work_goes_on_in_new_ones() {
    let (_dir, storage) = faulty();
    let manager = manager(&storage, true);
    let first = append(&manager, &owner("a"), 1).unwrap();
    manager.seal().unwrap();
    assert!(read_index(storage.as_ref(), first.file).unwrap().sealed);
    assert_ne!(append(&manager, &owner("a"), 1).unwrap().file, first.file);
}

#[test]
fn a_released_segment_dies_at_once_but_not_what_others_use() {
    let (_dir, storage) = faulty();
    let manager = manager(&storage, true);
    let base = append(&manager, &owner("a"), 1).unwrap();
    manager.completed(id(1), &retained(1, &[(1, &[])])).unwrap();
    let new = append(&manager, &owner("a"), 2).unwrap();
    assert_eq!(manager.lease(&owner("a"), id(2), &[base]).unwrap(), [true]);
    manager.release(&owner("b"), &[new]);
    assert_eq!(
        manager.stats().live_segments,
        2,
        "only its owner's acknowledgement counts"
    );
    for _ in 0..2 {
        manager.release(&owner("a"), &[base, new]);
        assert_eq!(manager.stats().live_segments, 1);
    }
    manager.read(&base, &owner("a")).unwrap();
}

#[test]
fn failed_deletes_are_tried_again_at_the_next_message() {
    let (_dir, storage) = faulty();
    let manager = manager(&storage, false);
    append(&manager, &owner("a"), 1).unwrap();
    manager.persist(id(1)).unwrap();
    storage.fail_nth(Operation::Delete, 1);
    manager.aborted(id(1), &retained(1, &[])).unwrap();
    assert_eq!(names_when_done(&manager, &storage).len(), 1);
    assert_eq!(manager.stats().delete_failures, 1, "once per message");
    manager.started(id(2));
    assert!(names_when_done(&manager, &storage).is_empty());
    assert_eq!(manager.stats().deletes, 1);
}

#[test]
fn a_message_does_not_wait_for_deletes() {
    let dir = tempfile::tempdir().unwrap();
    let local = LocalStorage::new(dir.path().join("root"));
    let storage = Arc::new(SlowDeletes::new(local));
    let options = ManagerOptions {
        across_checkpoints: Some(false),
        ..Default::default()
    };
    let manager = SnapshotManager::open_next_term(storage.clone(), options, 1).unwrap();
    let held = storage.hold();
    for number in 1..=3 {
        append(&manager, &owner("a"), number).unwrap();
        manager
            .completed(id(number), &retained(number, &[(number, &[])]))
            .unwrap();
    }
    // Every message has returned, and no delete has.
    assert_eq!(manager.stats().deletes, 0);
    assert_eq!(names(&storage).len(), 3);
    append(&manager, &owner("a"), 4).unwrap();
    drop(held);
    manager.wait_for_deletes();
    assert_eq!(
        (manager.stats().deletes, manager.stats().physical_files),
        (2, 2)
    );
    manager.completed(id(4), &retained(4, &[(4, &[])])).unwrap();
    manager.seal().unwrap();
    assert_eq!(
        manager.stats().deletes,
        3,
        "a clean end leaves nothing to do"
    );
}

/// Local files whose deletes wait as long as they are held.
#[derive(Debug)]
struct SlowDeletes {
    local: LocalStorage,
    gate: parking_lot::Mutex<()>,
}

impl SlowDeletes {
    fn new(local: LocalStorage) -> Self {
        Self {
            local,
            gate: parking_lot::Mutex::default(),
        }
    }

    fn hold(&self) -> parking_lot::MutexGuard<'_, ()> {
        self.gate.lock()
    }
}

impl Storage for SlowDeletes {
    fn location(&self) -> String {
        self.local.location()
    }

    fn capabilities(&self) -> Capabilities {
        self.local.capabilities()
    }

    fn create(&self, name: &str) -> Result<Box<dyn AppendFile>> {
        self.local.create(name)
    }

    fn open(&self, name: &str) -> Result<Box<dyn ReadFile>> {
        self.local.open(name)
    }

    fn len(&self, name: &str) -> Result<u64> {
        self.local.len(name)
    }

    fn sync(&self, name: &str) -> Result<()> {
        self.local.sync(name)
    }

    fn delete(&self, name: &str) -> Result<()> {
        let _open = self.gate.lock();
        self.local.delete(name)
    }

    fn list(&self) -> Result<Vec<ObjectMeta>> {
        self.local.list()
    }
}

#[test]
fn an_owner_costs_what_it_wrote_however_many_others_there_are() {
    let (_dir, storage) = faulty();
    let manager = manager(&storage, true);
    let others = 500;
    let view = |decided| retained(decided, &[(1, &[])]);
    for number in 0..others {
        append(&manager, &owner(&number.to_string()), 1).unwrap();
    }
    manager.persist(id(1)).unwrap();
    manager.completed(id(1), &view(1)).unwrap();
    let before = manager.stats().judgements;
    assert_eq!(before, others);
    for number in 2..=20 {
        let in_flight = Owner::new("query", "in-flight", "7", &number.to_string());
        let kept = append(&manager, &in_flight, number).unwrap();
        let refused = append(&manager, &owner("7"), number).unwrap();
        manager.release(&owner("7"), &[refused]);
        manager
            .persist_segments(id(number), &in_flight, &[kept])
            .unwrap();
        manager.aborted(id(number), &view(number)).unwrap();
    }
    assert_eq!(manager.stats().judgements - before, 19, "one per message");
    assert_eq!(manager.stats().owners, others, "none of in-flight data");
}

#[test]
fn owners_that_acknowledge_one_after_another_share_a_file_of_their_checkpoint() {
    let (_dir, storage) = faulty();
    let manager = manager(&storage, false);
    let mut files = BTreeSet::new();
    for number in 0..20 {
        let owner = owner(&number.to_string());
        let reference = append(&manager, &owner, 1).unwrap();
        manager
            .persist_segments(id(1), &owner, &[reference])
            .unwrap();
        files.insert(reference.file);
    }
    assert_eq!(files.len(), 1);
    let file = *files.first().unwrap();
    manager.completed(id(1), &retained(1, &[(1, &[])])).unwrap();
    manager.wait_for_deletes();
    assert!(
        read_index(storage.as_ref(), file).unwrap().sealed,
        "sealed once its checkpoint is decided"
    );
    assert_eq!(manager.stats().seals, 1);
    assert_ne!(append(&manager, &owner("0"), 2).unwrap().file, file);
}

#[test]
fn the_space_of_the_open_file_is_bounded() {
    for (state_bytes, num_retained, checkpoints) in
        [(100, 1, 5000), (100_000, 1, 40), (100_000, 3, 40)]
    {
        let (_dir, storage) = faulty();
        let options = ManagerOptions {
            writer: crate::common::options(32 << 20, Compression::None),
            ..Default::default()
        };
        let manager = SnapshotManager::open_next_term(storage.clone(), options, 1).unwrap();
        let state = payload(1, state_bytes);
        let mut created = 0;
        for number in 1..=checkpoints {
            let owner = owner("a");
            let new = NewSegment {
                owner: &owner,
                created: id(number),
                kind: SegmentKind::Snapshot,
                lineage: &[],
                replaced: None,
                entries: 1,
                tables: &[],
                runs: 0,
            };
            created = manager.append(&new, &state).unwrap().file.seq;
            let oldest = number.saturating_sub(num_retained - 1).max(1);
            let kept: Vec<_> = (oldest..=number).map(|kept| (kept, &[][..])).collect();
            manager
                .completed(id(number), &retained(number, &kept))
                .unwrap();
            manager.wait_for_deletes();
            let stats = manager.stats();
            assert!(
                stats.physical_bytes <= 2 * stats.live_bytes + (80 << 10),
                "checkpoint {number} of {state_bytes} bytes: {stats:?}"
            );
        }
        assert!(u64::from(created) <= checkpoints / 2 + 1, "{created} files");
        if state_bytes == 100 {
            assert!(
                (10..40).contains(&created),
                "tiny states share files: {created}"
            );
        }
    }
}

#[test]
fn a_failed_sync_costs_only_the_segments_of_that_file() {
    for across in [false, true] {
        let (_dir, storage) = faulty();
        let manager = manager(&storage, across);
        let (a, b) = (owner("a"), owner("b"));
        let lost = append(&manager, &a, 1).unwrap();
        storage.fail_nth(Operation::Sync, 1);
        assert!(manager.persist(id(1)).is_err());
        let fine = append(&manager, &b, 1).unwrap();
        assert_ne!(lost.file, fine.file);
        manager
            .persist_segments(id(1), &b, &[fine])
            .expect("its own file is fine");
        let error = manager.persist(id(1)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Poisoned, "{error}");
        assert!(error.to_string().contains("region a"), "{error}");
        assert_eq!(manager.lease(&a, id(1), &[lost]).unwrap(), [false]);
        manager.release(&a, &[lost]);
        append(&manager, &a, 1).unwrap();
        manager.persist(id(1)).unwrap();
        assert!(
            !names_when_done(&manager, &storage).contains(&lost.file),
            "nothing needs the lost file"
        );
    }
}

#[test]
fn a_restarted_manager_rebuilds_from_retained_checkpoints_and_sweeps_the_rest() {
    let (_dir, storage) = faulty();
    let first = manager(&storage, false);
    let one = [
        append(&first, &owner("a"), 1).unwrap(),
        append(&first, &owner("b"), 1).unwrap(),
    ];
    first.persist(id(1)).unwrap();
    first.completed(id(1), &retained(1, &[(1, &[])])).unwrap();
    let two = [
        append(&first, &owner("a"), 2).unwrap(),
        append(&first, &owner("b"), 2).unwrap(),
    ];
    first.persist(id(2)).unwrap();
    let orphan = append(&first, &owner("a"), 3).unwrap();
    first.persist(id(3)).unwrap();
    drop(first);

    let second = manager(&storage, false);
    assert_eq!(second.term(), Term(2));
    assert_eq!(second.sweep().unwrap_err().kind(), ErrorKind::InvalidInput);
    let checkpoints = [
        checkpoint(1, &[("a", 1, one[0]), ("b", 1, one[1])]),
        checkpoint(2, &[("a", 2, two[0]), ("b", 1, one[1])]),
    ];
    second.restore(&checkpoints).unwrap();
    second.restore(&checkpoints[1..]).unwrap();
    assert_eq!(
        second.stats().live_segments,
        3,
        "upsert: b's segment of 1 counts once"
    );
    assert_eq!(second.sweep().unwrap(), 1);
    assert!(!names_when_done(&second, &storage).contains(&orphan.file));
    assert_eq!(names_when_done(&second, &storage).len(), 2);
    // b's attempt at 2 was never acknowledged, and 1 goes; its origin stays.
    second
        .subsumed(id(1), &retained(2, &[(2, &[("b", 1)])]))
        .unwrap();
    assert_eq!(second.stats().live_segments, 2);
    second.read(&one[1], &owner("b")).unwrap();
    assert_eq!(append(&second, &owner("a"), 3).unwrap().file.term, Term(2));
    second.completed(id(3), &retained(3, &[(3, &[])])).unwrap();
    assert_eq!(names_when_done(&second, &storage).len(), 1);
}

#[test]
fn restore_names_what_is_missing_and_knows_the_rest() {
    let (_dir, storage) = faulty();
    let first = manager(&storage, false);
    let a = append(&first, &owner("a"), 1).unwrap();
    first.seal().unwrap();
    let b = append(&first, &owner("b"), 1).unwrap();
    first.persist(id(1)).unwrap();
    drop(first);
    storage.delete(&b.file.file_name()).unwrap();
    let second = manager(&storage, false);
    let error = second
        .restore(&[checkpoint(1, &[("a", 1, a), ("b", 1, b)])])
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    for part in ["region b", "checkpoint 1", &b.file.to_string()] {
        assert!(error.to_string().contains(part), "{part} in {error}");
    }
    second.sweep().unwrap();
    second.read(&a, &owner("a")).unwrap();
}

#[test]
fn names_that_are_prefixes_of_others_are_different_owners() {
    let (_dir, storage) = faulty();
    let manager = manager(&storage, true);
    let one = append(&manager, &owner("1_3"), 1).unwrap();
    assert_eq!(
        manager.lease(&owner("1_30"), id(1), &[one]).unwrap(),
        [false]
    );
    assert_eq!(manager.lease(&owner("1_3"), id(1), &[one]).unwrap(), [true]);
    manager
        .partially_completed(
            id(1),
            &fallbacks(&[("1_30", 0)]),
            &retained(1, &[(1, &[("1_30", 0)])]),
        )
        .unwrap();
    assert_eq!(manager.stats().live_segments, 1);
}

#[test]
fn a_message_that_contradicts_its_view_changes_nothing() {
    let (_dir, storage) = faulty();
    let manager = manager(&storage, true);
    append(&manager, &owner("a"), 1).unwrap();
    let results = [
        manager.completed(id(1), &retained(1, &[])),
        manager.completed(id(1), &retained(1, &[(1, &[("a", 0)])])),
        manager.completed(id(2), &retained(1, &[(1, &[])])),
        manager.aborted(id(1), &retained(1, &[(1, &[])])),
        manager.subsumed(id(0), &retained(1, &[(2, &[])])),
    ];
    for result in results {
        assert_eq!(result.unwrap_err().kind(), ErrorKind::InvalidInput);
    }
    assert_eq!(manager.stats().live_segments, 1);
}

/// A manager in which checkpoint 2 has `b` at origin 1, with these segments: of `b` for 1, of `a`
/// for 2.
fn after_a_fallback(storage: &Arc<FaultyStorage>) -> (SnapshotManager, [SegmentRef; 2]) {
    let manager = manager(storage, true);
    let b = append(&manager, &owner("b"), 1).unwrap();
    manager.completed(id(1), &retained(1, &[(1, &[])])).unwrap();
    let a = append(&manager, &owner("a"), 2).unwrap();
    let fallback: &[_] = &[("b", 1)];
    manager
        .partially_completed(id(2), &fallbacks(fallback), &retained(2, &[(2, fallback)]))
        .unwrap();
    (manager, [b, a])
}

#[test]
fn fallbacks_that_contradict_a_view_are_refused_and_delete_nothing() {
    let (_dir, storage) = faulty();
    let (manager, segments) = after_a_fallback(&storage);
    let partial = |number, told: &[(&str, u64)], view| {
        manager.partially_completed(id(number), &fallbacks(told), &view)
    };
    let none: &[(&str, u64)] = &[];
    let contradictions = [
        // Its view does not have it, whatever was decided since.
        partial(3, &[("b", 1)], retained(4, &[(4, none)])),
        partial(3, &[("b", 1)], retained(4, &[])),
        manager.completed(id(3), &retained(4, &[])),
        // An origin is older than the checkpoint it is named in.
        partial(3, &[("b", 3)], retained(3, &[(3, &[("b", 3)])])),
        partial(3, &[("b", 4)], retained(4, &[(3, &[("b", 4)])])),
        manager.aborted(id(4), &retained(4, &[(3, &[("b", 3)])])),
        // In 2, `b` has not its own state but the state of 1: by the same view, or by an earlier one.
        partial(
            3,
            &[("b", 2)],
            retained(3, &[(2, &[("b", 1)]), (3, &[("b", 2)])]),
        ),
        partial(3, &[("b", 2)], retained(3, &[(3, &[("b", 2)])])),
        // A checkpoint does not change.
        manager.aborted(id(3), &retained(3, &[(2, &[("b", 0)])])),
        manager.aborted(id(3), &retained(2, &[(2, &[("b", 1)])])),
    ];
    for (number, result) in contradictions.into_iter().enumerate() {
        let error = result.expect_err(&number.to_string());
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    }
    for (segment, name) in segments.iter().zip(["b", "a"]) {
        manager.read(segment, &owner(name)).unwrap();
    }
    assert_eq!(manager.stats().live_segments, 2, "nothing changed");
    append(&manager, &owner("a"), 3).expect("3 was not decided by any of them");
    let fallback: &[_] = &[("b", 1)];
    let view = retained(3, &[(2, fallback), (3, fallback)]);
    partial(3, fallback, view).expect("the truth is taken");
    manager.read(&segments[0], &owner("b")).unwrap();
}

#[test]
fn views_that_name_segments_of_other_owners_are_not_restored() {
    for sealed in [false, true] {
        let (_dir, storage) = faulty();
        let first = manager(&storage, true);
        let a = append(&first, &owner("a"), 1).unwrap();
        let b = append(&first, &owner("b"), 1).unwrap();
        first.persist(id(1)).unwrap();
        if sealed {
            first.seal().unwrap();
        }
        drop(first);
        let second = manager(&storage, true);
        let refused: [&[_]; 4] = [
            &[("a", 1, b), ("b", 1, a)],
            &[("a", 1, a), ("b", 1, a)],
            &[("a", 1, a), ("a", 0, b)],
            &[("a", 2, a)],
        ];
        for segments in refused {
            let error = second.restore(&[checkpoint(1, segments)]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
            let swept = second.sweep().unwrap_err();
            assert_eq!(
                swept.kind(),
                ErrorKind::InvalidInput,
                "nothing was restored"
            );
        }
        let truth = [checkpoint(1, &[("a", 1, a), ("b", 1, b)])];
        second.restore(&truth).unwrap();
        let error = second
            .restore(&[checkpoint(1, &[("b", 1, a)])])
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
        let swept = second.sweep().unwrap_err();
        assert_eq!(swept.kind(), ErrorKind::InvalidInput, "one was refused");
        second.restore(&truth).unwrap();
        second.sweep().unwrap();
        second.read(&a, &owner("a")).unwrap();
        second.read(&b, &owner("b")).unwrap();
    }
}

#[test]
fn many_threads_and_messages_at_once_lose_nothing() {
    let (_dir, storage) = faulty();
    for across in [false, true] {
        let manager = manager(&storage, across);
        for number in 1..=20u64 {
            let refs: Vec<_> = std::thread::scope(|scope| {
                let handles: Vec<_> = (0..4)
                    .map(|thread| {
                        let manager = &manager;
                        scope.spawn(move || {
                            let owner = owner(&thread.to_string());
                            let reference = append(manager, &owner, number).unwrap();
                            let garbage = append(manager, &owner, number).unwrap();
                            manager.release(&owner, &[garbage]);
                            manager
                                .persist_segments(id(number), &owner, &[reference])
                                .unwrap();
                            (owner, reference)
                        })
                    })
                    .collect();
                handles.into_iter().map(|h| h.join().unwrap()).collect()
            });
            manager
                .completed(id(number), &retained(number, &[(number, &[])]))
                .unwrap();
            for (owner, reference) in refs {
                manager.read(&reference, &owner).unwrap();
            }
            assert_eq!(manager.stats().live_segments, 4);
        }
    }
}
