//! A restarted manager that learns the segments of checkpoints before its first message.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::common::{faulty, owner};
use crate::snapshot_manager::{append, checkpoint, id, manager, names_when_done, retained};
use holdfast_core::manager::{PostponedCheckpoints, RestoredCheckpoint};
use holdfast_core::storage::Storage;
use holdfast_core::{ErrorKind, SegmentRef};
use holdfast_sim::FaultyStorage;

/// Checkpoints, and how often the manager asked for their segments.
fn postponed(checkpoints: Vec<RestoredCheckpoint>) -> (PostponedCheckpoints, Arc<AtomicU64>) {
    let mut files = BTreeMap::new();
    for (_, _, reference) in checkpoints.iter().flat_map(|one| &one.segments) {
        let bytes: &mut u64 = files.entry(reference.file).or_default();
        *bytes = (*bytes).max(reference.end());
    }
    let asked = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&asked);
    let newest = checkpoints.iter().map(|one| one.id).max();
    let postponed = PostponedCheckpoints::new(files, newest, move || {
        counted.fetch_add(1, Ordering::Relaxed);
        Ok(checkpoints.clone())
    });
    (postponed, asked)
}

/// Segments of `a` and `b` for checkpoint 1, in files of their own, and one that no checkpoint has.
fn written(storage: &Arc<FaultyStorage>) -> [SegmentRef; 3] {
    let first = manager(storage, true);
    let segments = [("a", 1), ("b", 1), ("a", 2)].map(|(region, created)| {
        let segment = append(&first, &owner(region), created).unwrap();
        first.seal().unwrap();
        segment
    });
    first.persist(id(1)).unwrap();
    segments
}

#[test]
fn a_start_lists_no_segments() {
    let (_dir, storage) = faulty();
    let [a, b, orphan] = written(&storage);
    let second = manager(&storage, true);
    let (checkpoints, asked) = postponed(vec![checkpoint(1, &[("a", 1, a), ("b", 1, b)])]);
    second.restore_later(checkpoints).unwrap();
    assert_eq!(second.sweep().unwrap(), 1);
    let left = names_when_done(&second, &storage);
    assert!(left.contains(&a.file) && left.contains(&b.file));
    assert!(!left.contains(&orphan.file));
    let late = append(&second, &owner("a"), 1).unwrap_err();
    assert_eq!(late.kind(), ErrorKind::AttemptEnded, "1 is decided");
    // An attempt reuses one segment and replaces the other.
    assert_eq!(second.lease(&owner("b"), id(2), &[b]).unwrap(), [true]);
    let new = append(&second, &owner("a"), 2).unwrap();
    second.persist(id(2)).unwrap();
    second
        .persist_segments(id(2), &owner("b"), &[b])
        .expect("it survived the last manager");
    assert_eq!(asked.load(Ordering::Relaxed), 0);
    second.completed(id(2), &retained(2, &[(2, &[])])).unwrap();
    assert_eq!(asked.load(Ordering::Relaxed), 1);
    let left = names_when_done(&second, &storage);
    assert!(left.contains(&b.file), "checkpoint 2 reuses it");
    assert!(!left.contains(&a.file));
    assert!(left.contains(&new.file));
    assert_eq!(second.stats().live_segments, 2);
    second.completed(id(3), &retained(3, &[(3, &[])])).unwrap();
    assert_eq!(names_when_done(&second, &storage).len(), 0);
    assert_eq!(asked.load(Ordering::Relaxed), 1);
}

#[test]
fn attempts_without_a_message_keep_what_they_reuse() {
    let (_dir, storage) = faulty();
    let [a, b, _] = written(&storage);
    let second = manager(&storage, true);
    let (checkpoints, _) = postponed(vec![checkpoint(1, &[("a", 1, a), ("b", 1, b)])]);
    second.restore_later(checkpoints).unwrap();
    for attempt in 2..5 {
        assert_eq!(
            second.lease(&owner("a"), id(attempt), &[a]).unwrap(),
            [true]
        );
    }
    let view = retained(4, &[(3, &[("b", 1)]), (4, &[("b", 1)])]);
    let fallen = view.checkpoints[&id(4)].clone();
    second.partially_completed(id(4), &fallen, &view).unwrap();
    second.read(&a, &owner("a")).unwrap();
    second.read(&b, &owner("b")).unwrap();
    assert_eq!(second.stats().live_segments, 2);
}

#[test]
fn what_is_missing_is_found_at_the_start() {
    let (_dir, storage) = faulty();
    let [a, b, _] = written(&storage);
    storage.delete(&b.file.file_name()).unwrap();
    let second = manager(&storage, true);
    let (checkpoints, _) = postponed(vec![checkpoint(1, &[("a", 1, a), ("b", 1, b)])]);
    let error = second.restore_later(checkpoints).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.to_string().contains("region b"), "{error}");
    second.sweep().unwrap();
    second.read(&a, &owner("a")).unwrap();
}

#[test]
fn a_file_that_no_checkpoint_needs_any_more_may_be_gone() {
    let (_dir, storage) = faulty();
    let [a, b, _] = written(&storage);
    storage.delete(&b.file.file_name()).unwrap();
    let second = manager(&storage, true);
    let (mut checkpoints, asked) = postponed(vec![checkpoint(1, &[("a", 1, a)])]);
    checkpoints.files.insert(b.file, b.end());
    second.restore_later(checkpoints).unwrap();
    assert_eq!(asked.load(Ordering::Relaxed), 1);
    assert_eq!(second.stats().live_segments, 1);
}

#[test]
fn segments_of_other_owners_are_refused_before_anything_is_decided() {
    let (_dir, storage) = faulty();
    let [a, b, _] = written(&storage);
    let second = manager(&storage, true);
    let (checkpoints, _) = postponed(vec![checkpoint(1, &[("b", 1, a), ("a", 1, b)])]);
    second.restore_later(checkpoints).unwrap();
    for decided in 2..4 {
        let error = second
            .completed(id(decided), &retained(decided, &[(decided, &[])]))
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
        assert!(
            error.to_string().contains("is named as state of"),
            "{error}"
        );
    }
    let left = names_when_done(&second, &storage);
    assert!(left.contains(&a.file) && left.contains(&b.file));
    assert_eq!(second.sweep().unwrap_err().kind(), ErrorKind::InvalidInput);
}

#[test]
fn a_second_restore_adds_to_the_first() {
    let (_dir, storage) = faulty();
    let [a, b, _] = written(&storage);
    let second = manager(&storage, true);
    let (checkpoints, _) = postponed(vec![checkpoint(1, &[("a", 1, a)])]);
    second.restore_later(checkpoints).unwrap();
    second.restore(&[checkpoint(1, &[("b", 1, b)])]).unwrap();
    assert_eq!(second.stats().live_segments, 2);
    let (again, _) = postponed(vec![checkpoint(1, &[("a", 1, a), ("b", 1, b)])]);
    second.restore_later(again).unwrap();
    assert_eq!(second.stats().live_segments, 2);
    assert_eq!(second.sweep().unwrap(), 1);
}
