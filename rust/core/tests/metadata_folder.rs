//! Metadata files in a folder: whole or absent, whatever fails and whenever it crashes.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::path::Path;

use crate::common::faulty;
use crate::common::metadata::{facts, metadata, regions};
use holdfast_core::checkpoint::{Metadata, delete, file_name, list, parse_name, read, write};
use holdfast_core::storage::{LocalStorage, Storage};
use holdfast_core::{CheckpointId, ErrorKind};
use holdfast_sim::{FaultyStorage, Operation};

const ID: CheckpointId = CheckpointId(42);
const ALL: [Operation; 8] = [
    Operation::Create,
    Operation::Append,
    Operation::Sync,
    Operation::Open,
    Operation::Read,
    Operation::Rename,
    Operation::Delete,
    Operation::List,
];

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).map(Iterator::collect::<Vec<_>>);
    let mut names: Vec<_> = entries
        .unwrap_or_default()
        .into_iter()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// The metadata that another process finds.
fn found(folder: &Path) -> Option<Metadata> {
    let storage = LocalStorage::new(folder);
    match list(&storage).unwrap().as_slice() {
        [] => None,
        [ID] => Some(read(&storage, ID).unwrap()),
        other => panic!("{other:?}"),
    }
}

/// Number of calls of each operation by a write without failures, after a crash that left this file.
fn calls(leftover: &[u8]) -> Vec<(Operation, u64)> {
    let (dir, storage) = crashed_folder(leftover);
    write(&*storage, &metadata(42)).unwrap();
    assert_eq!(names(&dir.path().join("root")), [file_name(ID)]);
    ALL.into_iter()
        .map(|operation| (operation, storage.calls(operation)))
        .collect()
}

fn crashed_folder(leftover: &[u8]) -> (tempfile::TempDir, std::sync::Arc<FaultyStorage>) {
    let (dir, storage) = faulty();
    let root = dir.path().join("root");
    std::fs::create_dir(&root).unwrap();
    std::fs::write(root.join(format!("{}.tmp", file_name(ID))), leftover).unwrap();
    (dir, storage)
}

#[test]
fn names_of_files_are_canonical() {
    assert_eq!(file_name(ID), "000000000000002a.hfc");
    assert_eq!(
        parse_name(&file_name(CheckpointId(u64::MAX))),
        Some(CheckpointId(u64::MAX))
    );
    for name in [
        "2a.hfc",
        "000000000000002A.hfc",
        "+00000000000002a.hfc",
        "000000000000002a.hfc.tmp",
        "000000000000002a.hf",
        "000000000000002a",
        "",
    ] {
        assert_eq!(parse_name(name), None, "{name:?}");
    }
}

#[test]
fn checkpoints_are_listed_in_order_and_deleted_once_or_twice() {
    let dir = tempfile::tempdir().unwrap();
    let storage = LocalStorage::new(dir.path().join("metadata"));
    assert_eq!(list(&storage).unwrap(), []);
    for id in [300, 5, 42] {
        write(&storage, &metadata(id)).unwrap();
    }
    std::fs::write(dir.path().join("metadata/notes.txt"), "of somebody else").unwrap();
    assert_eq!(list(&storage).unwrap(), [5, 42, 300].map(CheckpointId));
    delete(&storage, ID).unwrap();
    delete(&storage, ID).unwrap();
    assert_eq!(list(&storage).unwrap(), [5, 300].map(CheckpointId));
    assert_eq!(read(&storage, ID).unwrap_err().kind(), ErrorKind::NotFound);
}

#[test]
fn a_file_is_never_overwritten() {
    let (dir, storage) = faulty();
    write(&*storage, &metadata(42)).unwrap();
    let mut other = facts(42);
    other.created_ms += 1;
    let error = write(&*storage, &Metadata::new(other, regions(42)).unwrap()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AlreadyExists, "{error}");
    assert_eq!(found(&dir.path().join("root")), Some(metadata(42)));
    assert_eq!(names(&dir.path().join("root")), [file_name(ID)]);
}

#[test]
fn what_a_crash_left_is_ignored_by_readers_and_removed_by_the_next_writer() {
    let (dir, storage) = crashed_folder(b"half a fi");
    let root = dir.path().join("root");
    let whole = metadata(7).to_bytes().unwrap();
    std::fs::write(root.join("0000000000000007.hfc.tmp"), whole).unwrap();
    std::fs::write(root.join("mine.tmp"), "of somebody else").unwrap();
    assert_eq!(list(&*storage).unwrap(), []);
    write(&*storage, &metadata(42)).unwrap();
    assert_eq!(names(&root), [file_name(ID), "mine.tmp".to_owned()]);
}

#[test]
fn after_one_failed_call_nothing_is_there_and_a_retry_works() {
    for (operation, count) in calls(b"left") {
        for nth in 1..=count {
            let (dir, storage) = crashed_folder(b"left");
            let root = dir.path().join("root");
            storage.fail_nth(operation, nth);
            let error = write(&*storage, &metadata(42)).unwrap_err();
            assert_eq!(
                error.kind(),
                ErrorKind::Storage,
                "{operation:?} {nth}: {error}"
            );
            assert!(error.to_string().contains("checkpoint 42"), "{error}");
            assert_eq!(found(&root), None, "{operation:?} {nth}");
            write(&*storage, &metadata(42)).unwrap();
            assert_eq!(found(&root), Some(metadata(42)));
            assert_eq!(names(&root), [file_name(ID)], "{operation:?} {nth}");
        }
    }
}

#[test]
fn a_cut_append_leaves_nothing_that_a_reader_finds() {
    let len = metadata(42).to_bytes().unwrap().len();
    for kept in [0, 1, len / 2, len - 1, len] {
        let (dir, storage) = faulty();
        storage.short_append_nth(1, kept);
        write(&*storage, &metadata(42)).unwrap_err();
        assert_eq!(found(&dir.path().join("root")), None);
        write(&*storage, &metadata(42)).unwrap();
        assert_eq!(found(&dir.path().join("root")), Some(metadata(42)));
    }
}

/// The process dies with the call, so its clean-up does not happen either.
#[test]
fn after_a_crash_at_any_call_nothing_is_there_and_a_retry_works() {
    let calls = calls(b"left");
    for (operation, count) in &calls {
        for nth in 1..=*count {
            let (dir, storage) = crashed_folder(b"left");
            let root = dir.path().join("root");
            storage.fail_nth(*operation, nth);
            // The first delete removes what was left before, the second cleans up.
            storage.fail_nth(Operation::Delete, 2);
            write(&*storage, &metadata(42)).unwrap_err();
            assert_eq!(found(&root), None, "{operation:?} {nth}");
            let restarted = LocalStorage::new(&root);
            write(&restarted, &metadata(42)).unwrap();
            assert_eq!(found(&root), Some(metadata(42)));
            assert_eq!(names(&root), [file_name(ID)]);
        }
    }
}

#[test]
fn a_crash_after_the_rename_leaves_the_whole_file() {
    let dir = tempfile::tempdir().unwrap();
    let storage = LocalStorage::new(dir.path());
    let name = write(&storage, &metadata(42)).unwrap();
    // Under both names, as a crash inside of the rename leaves it.
    std::fs::hard_link(
        dir.path().join(&name),
        dir.path().join(format!("{name}.tmp")),
    )
    .unwrap();
    assert_eq!(found(dir.path()), Some(metadata(42)));
    write(&storage, &metadata(43)).unwrap();
    assert_eq!(list(&storage).unwrap(), [42, 43].map(CheckpointId));
    assert_eq!(names(dir.path()).len(), 2);
    assert_eq!(read(&storage, ID).unwrap(), metadata(42));
}

#[test]
fn a_folder_that_cannot_be_written_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("file"), "not a folder").unwrap();
    let storage = LocalStorage::new(dir.path().join("file/metadata"));
    let error = write(&storage, &metadata(42)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Storage, "{error}");
    assert!(error.to_string().contains(&storage.location()), "{error}");
}
