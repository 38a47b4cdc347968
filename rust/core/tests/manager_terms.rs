//! Several managers of one folder: which of them may write, and files that are gone.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use crate::common::{faulty, owner};
use holdfast_core::format::{NewSegment, SegmentKind};
use holdfast_core::manager::{ManagerOptions, Retained, SnapshotManager};
use holdfast_core::storage::{LocalStorage, Storage};
use holdfast_core::{CheckpointId, ErrorKind, FileId, Result, SegmentRef, Term};
use holdfast_sim::Operation;

/// All managers of these tests are opened in the same millisecond.
const NOW_MS: u64 = 1_000;

fn open(storage: &Arc<impl Storage + 'static>) -> SnapshotManager {
    let options = ManagerOptions::default();
    SnapshotManager::open_next_term(storage.clone(), options, NOW_MS).unwrap()
}

fn append(manager: &SnapshotManager, created: u64) -> Result<SegmentRef> {
    let new = NewSegment {
        owner: &owner("a"),
        created: CheckpointId(created),
        kind: SegmentKind::Snapshot,
        lineage: &[],
        replaced: None,
        entries: 1,
        tables: &[],
        runs: 0,
    };
    manager.append(&new, b"state")
}

fn only(id: u64) -> (CheckpointId, Retained) {
    let id = CheckpointId(id);
    let retained = Retained {
        decided: id,
        checkpoints: [(id, Default::default())].into(),
    };
    (id, retained)
}

#[test]
fn managers_opened_in_the_same_millisecond_have_terms_of_their_own() {
    let (_dir, storage) = faulty();
    let managers: Vec<SnapshotManager> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(|| open(&storage))).collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    });
    let terms: BTreeSet<Term> = managers.iter().map(SnapshotManager::term).collect();
    assert_eq!(terms.len(), 8, "{terms:?}");
    assert!(open(&storage).term() > *terms.last().unwrap());
}

#[test]
fn a_manager_whose_folder_was_taken_over_neither_writes_nor_deletes() {
    let (_dir, storage) = faulty();
    let first = open(&storage);
    let reference = append(&first, 1).unwrap();
    first.persist(CheckpointId(1)).unwrap();
    let second = open(&storage);
    let (id, retained) = only(1);
    first
        .completed(id, &retained)
        .expect("opening takes nothing over");
    append(&second, 2).unwrap();
    let newer = second.term().to_string();
    let (next, nothing_of_the_first) = only(3);
    let refs = [reference];
    for refused in [
        append(&first, 2).map(drop),
        first.persist(CheckpointId(2)),
        first.persist_segments(CheckpointId(2), &owner("a"), &refs),
        first.lease(&owner("a"), CheckpointId(2), &refs).map(drop),
        first.completed(next, &nothing_of_the_first),
        first.restore(&[]),
        first.sweep().map(drop),
    ] {
        let error = refused.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Fenced, "{error}");
        assert!(error.to_string().contains(&newer), "{error}");
    }
    first.started(CheckpointId(4));
    first.seal().expect("its own files it closes");
    assert!(storage.len(&reference.file.file_name()).is_ok());
    assert_eq!(
        first.read(&reference, &owner("a")).unwrap().payload,
        b"state"
    );
    append(&second, 4).unwrap();
    // Opened again, it takes over in turn.
    let third = open(&storage);
    append(&third, 5).unwrap();
    assert_eq!(append(&second, 5).unwrap_err().kind(), ErrorKind::Fenced);
}

#[test]
fn a_manager_that_only_reads_takes_nothing_over_and_leaves_nothing() {
    let (_dir, storage) = faulty();
    let first = open(&storage);
    let reference = append(&first, 1).unwrap();
    let reader = open(&storage);
    assert_eq!(
        reader.read(&reference, &owner("a")).unwrap().payload,
        b"state"
    );
    let names = || storage.list().unwrap().len();
    let before = names();
    drop(reader);
    assert_eq!(names(), before - 1);
    append(&first, 2).unwrap();
}

#[test]
fn a_folder_that_cannot_be_claimed_can_still_be_read() {
    let (_dir, storage) = faulty();
    let reference = append(&open(&storage), 1).unwrap();
    (1..=100).for_each(|nth| storage.fail_nth(Operation::Create, nth));
    let reader = open(&storage);
    assert_eq!(
        reader.read(&reference, &owner("a")).unwrap().payload,
        b"state"
    );
    let refused = append(&reader, 2).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Storage);
    assert!(
        refused.to_string().contains("writing to this folder"),
        "{refused}"
    );
    storage.heal();
    append(&reader, 2).unwrap();
}

#[test]
fn a_manager_goes_on_in_a_folder_that_was_emptied() {
    let (dir, storage) = faulty();
    let manager = open(&storage);
    let lost = append(&manager, 1).unwrap();
    std::fs::remove_dir_all(dir.path().join("root")).unwrap();
    let error = manager
        .persist_segments(CheckpointId(1), &owner("a"), &[lost])
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Poisoned, "{error}");
    let again = append(&manager, 2).unwrap();
    assert_ne!(again.file, lost.file);
    manager
        .persist_segments(CheckpointId(2), &owner("a"), &[again])
        .unwrap();
    assert!(open(&storage).term() > manager.term());
}

/// Deletes a file without its manager.
fn removed(dir: &Path, file: FileId) {
    std::fs::remove_file(dir.join("root").join(file.file_name())).unwrap();
}

#[test]
fn segments_of_a_file_that_is_gone_are_not_acknowledged() {
    for across in [true, false] {
        for max_file_bytes in [1, 32 << 20] {
            let (dir, storage) = faulty();
            let mut options = ManagerOptions {
                across_checkpoints: Some(across),
                ..ManagerOptions::default()
            };
            options.writer.max_file_bytes = max_file_bytes;
            let manager = SnapshotManager::open_next_term(storage.clone(), options, 1).unwrap();
            let gone = append(&manager, 1).unwrap();
            removed(dir.path(), gone.file);
            for _ in 0..2 {
                let error = manager
                    .persist_segments(CheckpointId(1), &owner("a"), &[gone])
                    .unwrap_err();
                assert!(
                    matches!(error.kind(), ErrorKind::Poisoned | ErrorKind::NotFound),
                    "{across} {max_file_bytes}: {error}"
                );
                assert!(
                    error.to_string().contains(&gone.file.to_string()),
                    "{error}"
                );
            }
            let again = append(&manager, 1).unwrap();
            manager
                .persist_segments(CheckpointId(1), &owner("a"), &[again])
                .unwrap();
        }
    }
}

#[test]
fn a_file_that_vanishes_after_its_sync_is_noticed_by_the_next_acknowledgement() {
    let (dir, storage) = faulty();
    let manager = open(&storage);
    let gone = append(&manager, 1).unwrap();
    manager.persist(CheckpointId(1)).unwrap();
    removed(dir.path(), gone.file);
    let error = manager
        .persist_segments(CheckpointId(1), &owner("a"), &[gone])
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
}

#[test]
fn a_relative_folder_is_the_one_it_was_when_it_was_named() {
    let storage = LocalStorage::new("some/folder");
    let expected = std::env::current_dir().unwrap().join("some/folder");
    assert_eq!(storage.location(), expected.display().to_string());
}

#[test]
fn what_was_appended_last_is_read_without_storage() {
    let (_dir, storage) = faulty();
    let options = ManagerOptions {
        recent_bytes: 1 << 20,
        ..ManagerOptions::default()
    };
    let manager = SnapshotManager::open_next_term(storage.clone(), options, NOW_MS).unwrap();
    let reference = append(&manager, 1).unwrap();
    (1..=100).for_each(|nth| storage.fail_nth(Operation::Open, nth));
    let found = manager.read(&reference, &owner("a")).unwrap();
    assert_eq!(found.payload, b"state");
    // It is verified all the same.
    let error = manager.read(&reference, &owner("b")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    let mut other = reference;
    other.digest ^= 1;
    let error = manager.read(&other, &owner("a")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Storage, "{error}");
}

#[test]
fn a_file_of_another_manager_is_opened_once_in_an_attempt_and_again_once_it_has_grown() {
    let (_dir, storage) = faulty();
    let options = |recent_bytes| ManagerOptions {
        recent_bytes,
        ..ManagerOptions::default()
    };
    let writer = SnapshotManager::open(storage.clone(), Term(1), options(0)).unwrap();
    let reader = SnapshotManager::open(storage.clone(), Term(2), options(1 << 20)).unwrap();
    let payload_of = |reference: &SegmentRef| {
        let found = reader.read(reference, &owner("a"));
        found.map(|segment| segment.payload)
    };
    let refuse_to_open = || (1..=100).for_each(|nth| storage.fail_nth(Operation::Open, nth));
    let (first, second) = (append(&writer, 1).unwrap(), append(&writer, 1).unwrap());
    assert_eq!(payload_of(&first).unwrap(), b"state");
    refuse_to_open();
    for _ in 0..2 {
        assert_eq!(payload_of(&second).unwrap(), b"state");
        assert_eq!(payload_of(&first).unwrap(), b"state");
    }
    storage.heal();
    // A read that fails, because a connection is gone for example, is retried with the file opened again.
    storage.fail_nth(Operation::Read, 1);
    assert_eq!(payload_of(&second).unwrap(), b"state");
    let third = append(&writer, 1).unwrap();
    refuse_to_open();
    assert_eq!(payload_of(&third).unwrap_err().kind(), ErrorKind::Storage);
    storage.heal();
    assert_eq!(payload_of(&third).unwrap(), b"state");
    let (id, view) = only(1);
    reader.completed(id, &view).unwrap();
    refuse_to_open();
    assert_eq!(payload_of(&third).unwrap_err().kind(), ErrorKind::Storage);
}

#[test]
fn without_memory_for_what_was_appended_no_file_stays_open() {
    let (_dir, storage) = faulty();
    let manager =
        SnapshotManager::open(storage.clone(), Term(1), ManagerOptions::default()).unwrap();
    let reference = append(&manager, 1).unwrap();
    assert_eq!(
        manager.read(&reference, &owner("a")).unwrap().payload,
        b"state"
    );
    storage.fail_nth(Operation::Open, 1);
    let error = manager.read(&reference, &owner("a")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Storage, "{error}");
}

#[test]
fn owners_of_an_attempt_look_for_their_files_once_and_the_next_attempt_looks_again() {
    let (dir, storage) = faulty();
    // Without a claim on the folder, which it would ask for as well.
    let options = ManagerOptions::default();
    let manager = SnapshotManager::open(storage.clone(), Term(1), options).unwrap();
    let persist = |id: u64, reference: SegmentRef| {
        manager.persist_segments(CheckpointId(id), &owner("a"), &[reference])
    };
    let reference = append(&manager, 1).unwrap();
    persist(1, reference).unwrap();
    (1..=100).for_each(|nth| storage.fail_nth(Operation::Open, nth));
    persist(1, reference).unwrap();
    storage.heal();
    removed(dir.path(), reference.file);
    persist(1, reference).unwrap();
    let error = persist(2, reference).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
}
