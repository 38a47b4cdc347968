//! A store over real files: commits, loads by lineage, rewinds, base images, damage.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fs;
use std::sync::Arc;

use crate::common::{content, plain};
use holdfast_core::format::read_head;
use holdfast_core::segment::{SegmentWriter, WriterOptions};
use holdfast_core::state::{CommitId, FIRST_FAMILY, StateStore};
use holdfast_core::storage::{LocalStorage, Storage};
use holdfast_core::{CheckpointId, ErrorKind, FileId, Owner, Term};
use holdfast_sim::{FaultyStorage, Operation};

struct World {
    dir: tempfile::TempDir,
    storage: Arc<FaultyStorage>,
    writer: SegmentWriter,
}

fn world() -> World {
    let dir = tempfile::tempdir().unwrap();
    let local = Arc::new(LocalStorage::new(dir.path()));
    let storage = Arc::new(FaultyStorage::new(local));
    let writer = SegmentWriter::open(storage.clone(), Term(1), WriterOptions::default());
    World {
        dir,
        storage,
        writer,
    }
}

fn owner() -> Owner {
    Owner::new("", "0", "17", "default")
}

fn commit(
    store: &mut StateStore,
    world: &World,
    puts: &[(&str, &str)],
    removes: &[&str],
) -> CommitId {
    store.begin().unwrap();
    for (key, value) in puts {
        store
            .put(FIRST_FAMILY, key.as_bytes(), value.as_bytes())
            .unwrap();
    }
    for key in removes {
        store.remove(FIRST_FAMILY, key.as_bytes()).unwrap();
    }
    store.commit(&world.writer).unwrap()
}

fn loaded(world: &World, id: &CommitId) -> BTreeMap<String, String> {
    let mut store = StateStore::new(owner(), plain());
    store
        .open(world.storage.as_ref(), id.version, Some(id))
        .unwrap();
    content(&mut store)
}

fn map(entries: &[(&str, &str)]) -> BTreeMap<String, String> {
    entries
        .iter()
        .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
        .collect()
}

fn opened(world: &World) -> StateStore {
    let mut store = StateStore::new(owner(), plain());
    store.open(world.storage.as_ref(), 0, None).unwrap();
    store
}

#[test]
fn every_version_loads_from_its_id_alone() {
    let world = world();
    let mut store = opened(&world);
    let first = commit(&mut store, &world, &[("a", "1"), ("b", "2")], &[]);
    let second = commit(&mut store, &world, &[("b", "3"), ("c", "4")], &["a"]);
    let third = commit(&mut store, &world, &[("a", "5")], &[]);
    assert_eq!(loaded(&world, &first), map(&[("a", "1"), ("b", "2")]));
    assert_eq!(loaded(&world, &second), map(&[("b", "3"), ("c", "4")]));
    assert_eq!(
        loaded(&world, &third),
        map(&[("a", "5"), ("b", "3"), ("c", "4")])
    );
    assert_eq!(world.storage.list().unwrap().len(), 1, "one physical file");
}

#[test]
fn a_commit_without_changes_writes_nothing_and_gets_a_new_id_for_the_same_segment() {
    let world = world();
    let mut store = opened(&world);
    let empty = commit(&mut store, &world, &[], &[]);
    assert_eq!(empty.segment, None);
    assert!(world.storage.list().unwrap().is_empty());
    let first = commit(&mut store, &world, &[("a", "1")], &[]);
    let bytes = world.storage.list().unwrap()[0].len;
    // Writing what is there already is no change either.
    let second = commit(&mut store, &world, &[("a", "1")], &["nothing"]);
    assert_eq!(world.storage.list().unwrap()[0].len, bytes);
    assert_eq!(second.segment, first.segment);
    assert_ne!(second.to_string(), first.to_string());
    assert_eq!(loaded(&world, &second), map(&[("a", "1")]));
}

#[test]
fn a_retry_of_the_same_version_is_served_by_undo_and_a_foreign_attempt_by_loading() {
    let world = world();
    let mut store = opened(&world);
    let first = commit(&mut store, &world, &[("a", "1")], &[]);
    let lost = commit(&mut store, &world, &[("a", "lost"), ("x", "lost")], &[]);
    store.open(world.storage.as_ref(), 1, Some(&first)).unwrap();
    assert_eq!(store.stats().rewinds, 1);
    assert_eq!(content(&mut store), map(&[("a", "1")]));
    let won = commit(&mut store, &world, &[("a", "won")], &[]);
    assert_ne!(lost, won);
    // The other attempt's id of the same version is another state.
    store.open(world.storage.as_ref(), 2, Some(&lost)).unwrap();
    assert_eq!(store.stats().loads, 2);
    assert_eq!(content(&mut store), map(&[("a", "lost"), ("x", "lost")]));
    store.open(world.storage.as_ref(), 2, Some(&won)).unwrap();
    assert_eq!(content(&mut store), map(&[("a", "won")]));
}

#[test]
fn as_many_versions_stay_in_memory_as_were_asked_for() {
    // Loads and rewinds that the newest version costs, and then the one before it.
    for (versions, newest, before) in [
        (2, (0, 0), (0, 1)),
        (1, (0, 0), (1, 0)),
        (0, (1, 0), (1, 0)),
    ] {
        let world = world();
        let mut store = opened(&world);
        let first = commit(&mut store, &world, &[("a", "1")], &[]);
        let second = commit(&mut store, &world, &[("a", "2"), ("b", "2")], &[]);
        let full = store.families().memory_bytes();
        for (id, costs) in [(&second, newest), (&first, before)] {
            store.retain(versions);
            let memory = store.families().memory_bytes();
            assert_eq!(
                memory < full,
                versions < 2,
                "{versions} versions: {memory} of {full}"
            );
            let stats = store.stats();
            store
                .open(world.storage.as_ref(), id.version, Some(id))
                .unwrap();
            let loads = store.stats().loads - stats.loads;
            let rewinds = store.stats().rewinds - stats.rewinds;
            assert_eq!(
                (loads, rewinds),
                costs,
                "{versions} versions, {}",
                id.version
            );
        }
        assert_eq!(content(&mut store), map(&[("a", "1")]));
        store.begin().unwrap();
        store.put(FIRST_FAMILY, b"a", b"3").unwrap();
        store.retain(versions);
        let third = store.commit(&world.writer).unwrap();
        assert_eq!(
            loaded(&world, &third),
            map(&[("a", "3")]),
            "a session keeps what it needs"
        );
    }
}

#[test]
fn the_first_of_two_equal_runs_is_adopted_without_loading() {
    let world = world();
    let mut store = opened(&world);
    let base = commit(&mut store, &world, &[("a", "1")], &[]);
    let first = commit(&mut store, &world, &[("b", "2")], &[]);
    store.open(world.storage.as_ref(), 1, Some(&base)).unwrap();
    let second = commit(&mut store, &world, &[("b", "2")], &[]);
    assert_ne!(first, second, "both runs wrote a segment");
    // The driver kept the first run's id.
    store.open(world.storage.as_ref(), 2, Some(&first)).unwrap();
    assert_eq!(store.stats().loads, 1, "only the empty version was loaded");
    let next = commit(&mut store, &world, &[("c", "3")], &[]);
    let head = read_head(world.storage.as_ref(), &next.segment.unwrap(), &owner()).unwrap();
    assert_eq!(
        head.lineage,
        [base.segment.unwrap(), first.segment.unwrap()],
        "the second run's segment is not built on: it was not made durable"
    );
}

#[test]
fn an_abort_leaves_the_version_as_it_was() {
    let world = world();
    let mut store = opened(&world);
    commit(&mut store, &world, &[("a", "1"), ("b", "2")], &[]);
    store.begin().unwrap();
    store.put(FIRST_FAMILY, b"a", b"9").unwrap();
    store.remove(FIRST_FAMILY, b"b").unwrap();
    store.put(FIRST_FAMILY, b"c", b"9").unwrap();
    store.abort();
    assert_eq!(content(&mut store), map(&[("a", "1"), ("b", "2")]));
    assert_eq!(
        store.put(FIRST_FAMILY, b"a", b"1").unwrap_err().kind(),
        ErrorKind::InvalidInput
    );
}

#[test]
fn base_images_shorten_the_lineage_and_older_versions_stay_loadable() {
    let world = world();
    let mut store = opened(&world);
    let mut ids = Vec::new();
    let mut contents = Vec::new();
    for i in 0..12 {
        let (key, value) = (format!("k{}", i % 5), format!("v{i}"));
        let gone = format!("k{}", (i + 2) % 5);
        ids.push(commit(&mut store, &world, &[(&key, &value)], &[&gone]));
        contents.push(content(&mut store));
    }
    world.writer.sync().unwrap();
    assert!(
        store
            .merge_task(&world.writer, 12, &HashSet::new())
            .is_none()
    );
    let task = store
        .merge_task(&world.writer, 10, &HashSet::new())
        .unwrap();
    // The store moves on while the image is merged.
    ids.push(commit(&mut store, &world, &[("late", "1")], &[]));
    contents.push(content(&mut store));
    let image = task.run(world.storage.as_ref(), &world.writer).unwrap();
    store.accept(image);
    world.writer.sync().unwrap();
    // The lineage is image + late: an unchanged commit still names the old lineage and its floor.
    let unchanged = commit(&mut store, &world, &[], &[]);
    assert_eq!(unchanged.floor, CheckpointId(1));
    assert_eq!(loaded(&world, &unchanged), contents[12]);
    let next = commit(&mut store, &world, &[("next", "1")], &[]);
    assert_eq!(
        next.floor,
        CheckpointId(12),
        "older segments are not needed any more"
    );
    assert_eq!(loaded(&world, &next), content(&mut store));
    for (id, content) in ids.iter().zip(&contents) {
        assert_eq!(&loaded(&world, id), content);
    }
}

#[test]
fn segments_that_lie_in_one_file_are_read_with_one_opening() {
    let world = world();
    let mut store = opened(&world);
    for i in 0..12 {
        commit(&mut store, &world, &[(&format!("k{i}"), "v")], &[]);
    }
    world.writer.sync().unwrap();
    let task = store.merge_task(&world.writer, 10, &HashSet::new());
    let opened_before = world.storage.calls(Operation::Open);
    let image = task.unwrap().run(world.storage.as_ref(), &world.writer);
    assert_eq!(world.storage.calls(Operation::Open) - opened_before, 1);
    store.accept(image.unwrap());
    world.writer.sync().unwrap();
    let id = commit(&mut store, &world, &[("late", "1")], &[]);
    // A commit after the image, in a file that the image is not in.
    world.writer.seal().unwrap();
    let last = commit(&mut store, &world, &[("later", "1")], &[]);
    for (id, files) in [(id, 1), (last, 2)] {
        let opened_before = world.storage.calls(Operation::Open);
        assert!(loaded(&world, &id).contains_key("late"));
        // The newest segment comes first: it names the others.
        let openings = world.storage.calls(Operation::Open) - opened_before;
        assert_eq!(openings, files, "of {files} files");
    }
}

#[test]
fn an_idle_store_ends_up_as_one_base_image() {
    let world = world();
    let mut store = opened(&world);
    for i in 0..3 {
        commit(&mut store, &world, &[("k", &i.to_string())], &[]);
    }
    write_image(&mut store, &world);
    world.writer.sync().unwrap();
    let idle = commit(&mut store, &world, &[], &[]);
    assert_eq!(idle.floor, CheckpointId(3));
    assert_eq!(loaded(&world, &idle), map(&[("k", "2")]));
}

/// Makes the lineage durable and merges it, as maintenance between two batches does.
fn write_image(store: &mut StateStore, world: &World) {
    world.writer.sync().unwrap();
    let task = store.merge_task(&world.writer, 1, &HashSet::new()).unwrap();
    let image = task.run(world.storage.as_ref(), &world.writer).unwrap();
    store.accept(image);
}

fn only_file(world: &World) -> FileId {
    let listed = world.storage.list().unwrap();
    assert_eq!(listed.len(), 1);
    FileId::parse(&listed[0].name).unwrap()
}

fn lineage_of(world: &World, id: &CommitId) -> usize {
    let head = read_head(world.storage.as_ref(), &id.segment.unwrap(), &owner()).unwrap();
    head.lineage.len()
}

#[test]
fn a_base_image_is_cited_only_once_it_is_durable() {
    let world = world();
    let mut store = opened(&world);
    for i in 0..3 {
        commit(&mut store, &world, &[("k", &i.to_string())], &[]);
    }
    let syncs = world.writer.stats().syncs;
    write_image(&mut store, &world);
    let after_image = world.writer.stats().syncs;
    assert_eq!(after_image, syncs + 1, "only the test's own sync");
    let before = commit(&mut store, &world, &[("k", "before")], &[]);
    assert_eq!(lineage_of(&world, &before), 3, "three changelogs");
    world.writer.sync().unwrap();
    let after = commit(&mut store, &world, &[("k", "after")], &[]);
    assert_eq!(lineage_of(&world, &after), 2, "the image and a changelog");
    assert_eq!(after.floor, CheckpointId(3));
    assert_eq!(loaded(&world, &after), map(&[("k", "after")]));
}

#[test]
fn a_version_is_as_good_as_a_snapshot_while_few_changelogs_lie_above_its_image() {
    let world = world();
    let mut store = opened(&world);
    let version = |store: &StateStore| {
        let version = store.snapshot_version(&world.writer, 3);
        version.map(|version| version.0)
    };
    assert_eq!(version(&store), Some(0), "nothing is stored");
    commit(&mut store, &world, &[("k", "0")], &[]);
    assert_eq!(version(&store), Some(0), "the commit is not durable");
    world.writer.sync().unwrap();
    assert_eq!(version(&store), Some(1));
    for _ in 0..20 {
        commit(&mut store, &world, &[], &[]);
    }
    assert_eq!(version(&store), Some(21), "a store that rests");
    for value in ["1", "2", "3"] {
        commit(&mut store, &world, &[("k", value)], &[]);
        world.writer.sync().unwrap();
    }
    assert_eq!(version(&store), Some(1), "the oldest of four changelogs");
    write_image(&mut store, &world);
    world.writer.sync().unwrap();
    for i in 0..3 {
        commit(&mut store, &world, &[("k", &i.to_string())], &[]);
        world.writer.sync().unwrap();
        let near = if i < 2 { 25 + i } else { 24 };
        assert_eq!(
            version(&store),
            Some(near),
            "{i} above an image of version 24"
        );
    }
}

#[test]
fn a_base_image_in_a_lost_file_is_never_cited() {
    let world = world();
    let mut store = opened(&world);
    for i in 0..3 {
        commit(&mut store, &world, &[("k", &i.to_string())], &[]);
    }
    world.writer.seal().unwrap();
    write_image(&mut store, &world);
    world.storage.fail_nth(Operation::Sync, 1);
    world.writer.sync().unwrap_err();
    // Another process syncs the same file successfully, which proves nothing.
    for object in world.storage.list().unwrap() {
        world.storage.sync(&object.name).unwrap();
    }
    let next = commit(&mut store, &world, &[("k", "next")], &[]);
    assert_eq!(lineage_of(&world, &next), 3, "three changelogs, no image");
    assert_eq!(next.floor, CheckpointId(1));
    // Maintenance writes another one.
    write_image(&mut store, &world);
    world.writer.seal().unwrap();
    let last = commit(&mut store, &world, &[("k", "last")], &[]);
    assert_eq!(lineage_of(&world, &last), 1);
}

#[test]
fn only_durable_changelogs_are_merged() {
    let world = world();
    let mut store = opened(&world);
    for i in 0..2 {
        commit(&mut store, &world, &[("k", &i.to_string())], &[]);
    }
    assert!(
        store
            .merge_task(&world.writer, 1, &HashSet::new())
            .is_none(),
        "nothing is durable"
    );
    world.writer.sync().unwrap();
    // A batch is under way: this commit may never become part of a checkpoint.
    let third = commit(&mut store, &world, &[("k", "2")], &[]);
    let task = store.merge_task(&world.writer, 1, &HashSet::new()).unwrap();
    let image = task.run(world.storage.as_ref(), &world.writer).unwrap();
    store.accept(image);
    world.writer.sync().unwrap();
    assert_eq!(lineage_of(&world, &third), 2);
    let next = commit(&mut store, &world, &[("k", "3")], &[]);
    assert_eq!(lineage_of(&world, &next), 2, "the image and the third");
    assert_eq!(next.floor, CheckpointId(2), "the image holds version 2");
    assert_eq!(loaded(&world, &next), map(&[("k", "3")]));
}

#[test]
fn without_maintenance_the_lineage_is_bounded_by_the_writer() {
    let world = world();
    let mut store = opened(&world);
    let mut ids = Vec::new();
    for i in 0..600 {
        let (key, value) = (format!("k{}", i % 7), i.to_string());
        let gone = format!("k{}", (i + 3) % 7);
        ids.push((
            commit(&mut store, &world, &[(&key, &value)], &[&gone]),
            content(&mut store),
        ));
    }
    for (version, (id, content)) in ids.iter().enumerate().skip(1) {
        let head = read_head(world.storage.as_ref(), &id.segment.unwrap(), &owner()).unwrap();
        assert!(head.lineage.len() <= 256, "{} segments", head.lineage.len());
        if version % 60 == 0 || head.lineage.is_empty() {
            assert_eq!(&loaded(&world, id), content);
        }
    }
    assert_eq!(
        ids[599].0.floor,
        CheckpointId(513),
        "two base images were written"
    );
}

#[test]
fn a_lineage_continues_across_writers_and_terms() {
    let world = world();
    let mut store = opened(&world);
    let first = commit(&mut store, &world, &[("a", "1")], &[]);
    drop(store);
    let second_writer =
        SegmentWriter::open(world.storage.clone(), Term(2), WriterOptions::default());
    let mut moved = StateStore::new(owner(), plain());
    moved.open(world.storage.as_ref(), 1, Some(&first)).unwrap();
    moved.begin().unwrap();
    moved.put(FIRST_FAMILY, b"b", b"2").unwrap();
    let second = moved.commit(&second_writer).unwrap();
    assert_eq!(loaded(&world, &second), map(&[("a", "1"), ("b", "2")]));
    assert_eq!(world.storage.list().unwrap().len(), 2);
}

#[test]
fn damage_is_reported_with_file_offset_and_owner_and_a_retry_succeeds_after_repair() {
    let world = world();
    let mut store = opened(&world);
    commit(&mut store, &world, &[("a", "1")], &[]);
    let id = commit(&mut store, &world, &[("b", "2")], &[]);
    let segment = id.segment.unwrap();
    let path = world.dir.path().join(segment.file.file_name());
    let good = fs::read(&path).unwrap();

    let mut reader = StateStore::new(owner(), plain());
    let mut open = |what: &str| {
        let error = reader
            .open(world.storage.as_ref(), 2, Some(&id))
            .unwrap_err();
        for part in [
            segment.file.file_name(),
            segment.offset.to_string(),
            "partition 17".to_owned(),
        ] {
            assert!(
                error.to_string().contains(&part),
                "{what}: {error} does not name {part}"
            );
        }
        error.kind()
    };
    let mut flipped = good.clone();
    flipped[segment.offset as usize + 3] ^= 1;
    fs::write(&path, &flipped).unwrap();
    assert_eq!(open("altered"), ErrorKind::Corrupt);
    fs::write(&path, &good[..good.len() - 1]).unwrap();
    assert_eq!(open("truncated"), ErrorKind::Corrupt);
    fs::remove_file(&path).unwrap();
    assert_eq!(open("deleted"), ErrorKind::NotFound);
    fs::write(&path, &good).unwrap();
    assert_eq!(loaded(&world, &id), map(&[("a", "1"), ("b", "2")]));

    let other = StateStore::new(Owner::new("", "0", "18", "default"), plain());
    let mut other = other;
    let error = other
        .open(world.storage.as_ref(), 2, Some(&id))
        .unwrap_err();
    assert!(error.to_string().contains("partition 18"), "{error}");
}

#[test]
fn versions_without_an_id_and_with_a_wrong_one_are_refused() {
    let world = world();
    let mut store = opened(&world);
    let id = commit(&mut store, &world, &[("a", "1")], &[]);
    let error = store.open(world.storage.as_ref(), 1, None).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("format 2"), "{error}");
    let error = store
        .open(world.storage.as_ref(), 5, Some(&id))
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
}

#[test]
fn an_idle_store_moves_out_of_a_wasteful_file() {
    let world = world();
    let mut store = opened(&world);
    commit(&mut store, &world, &[("k", "1")], &[]);
    world.writer.seal().unwrap();
    let old = only_file(&world);
    let wasteful = HashSet::from([old]);
    let mut last = None;
    for _ in 0..3 {
        last = Some(commit(&mut store, &world, &[], &[]));
        if let Some(task) = store.merge_task(&world.writer, 10, &wasteful) {
            store.accept(task.run(world.storage.as_ref(), &world.writer).unwrap());
            world.writer.sync().unwrap();
        }
    }
    let last = last.unwrap();
    assert_eq!(last.floor.0, 2, "the version that the image was written at");
    assert!(
        store.merge_task(&world.writer, 10, &wasteful).is_none(),
        "it has moved"
    );
    std::fs::remove_file(world.dir.path().join(old.file_name())).unwrap();
    assert_eq!(loaded(&world, &last), map(&[("k", "1")]));
}

#[test]
fn a_load_keeps_no_memory_for_values_that_later_commits_replaced() {
    let world = world();
    let mut store = opened(&world);
    let write = |store: &mut StateStore, value: &[u8]| {
        store.begin().unwrap();
        for key in 0..10_000u32 {
            store.put(FIRST_FAMILY, &key.to_be_bytes(), value).unwrap();
        }
        store.commit(&world.writer).unwrap()
    };
    let memory = |id: &CommitId| {
        let mut store = StateStore::new(owner(), plain());
        store
            .open(world.storage.as_ref(), id.version, Some(id))
            .unwrap();
        store.families().memory_bytes()
    };
    let once = write(&mut store, &[1; 32]);
    let twice = write(&mut store, &[2; 32]);
    assert_eq!(memory(&twice), memory(&once));
}

#[test]
fn an_image_in_a_file_that_no_commit_refers_to_is_overdue_when_it_is_looked_at_again() {
    let world = world();
    let mut store = opened(&world);
    commit(&mut store, &world, &[("k", "1")], &[]);
    world.writer.seal().unwrap();
    assert_eq!(store.overdue_run(&world.writer), None, "there is none");
    let old = only_file(&world);
    let wasteful = HashSet::from([old]);
    let task = store.merge_task(&world.writer, 10, &wasteful).unwrap();
    store.accept(task.run(world.storage.as_ref(), &world.writer).unwrap());
    // The store rests: no commit writes, and none refers to the image's file.
    commit(&mut store, &world, &[], &[]);
    assert_eq!(store.overdue_run(&world.writer), None, "just written");
    let file = store.overdue_run(&world.writer).unwrap();
    assert_ne!(file, old);
    world.writer.sync_files(&BTreeSet::from([file])).unwrap();
    assert_eq!(store.overdue_run(&world.writer), None, "it is durable");
    let id = commit(&mut store, &world, &[], &[]);
    assert_eq!(id.segment.unwrap().file, file, "the store has moved");
}

#[test]
fn an_image_of_a_store_that_was_closed_serves_the_next_one_of_its_owner() {
    let world = world();
    let mut store = opened(&world);
    for i in 0..3 {
        commit(&mut store, &world, &[("k", &i.to_string())], &[]);
    }
    let id = commit(&mut store, &world, &[("k", "4")], &[]);
    write_image(&mut store, &world);
    let image = store.take_pending_run();
    let next = |image, value| {
        let mut store = StateStore::new(owner(), plain());
        store.accept(image);
        store
            .open(world.storage.as_ref(), id.version, Some(&id))
            .unwrap();
        commit(&mut store, &world, &[("k", value)], &[])
    };
    world.writer.sync().unwrap();
    let after = next(image.clone().unwrap(), "5");
    assert_eq!(lineage_of(&world, &after), 1, "the image");
    assert_eq!(loaded(&world, &after), map(&[("k", "5")]));
    // A store that was written elsewhere in between does not take it.
    let mut elsewhere = opened(&world);
    let other = commit(&mut elsewhere, &world, &[("other", "1")], &[]);
    let mut store = StateStore::new(owner(), plain());
    store.accept(image.unwrap());
    store.open(world.storage.as_ref(), 1, Some(&other)).unwrap();
    let after = commit(&mut store, &world, &[("k", "1")], &[]);
    assert_eq!(lineage_of(&world, &after), 1, "the changelog");
    assert_eq!(loaded(&world, &after), map(&[("k", "1"), ("other", "1")]));
}

#[test]
fn an_image_outlives_what_is_in_memory() {
    let world = world();
    let mut store = opened(&world);
    commit(&mut store, &world, &[("k", "1")], &[]);
    let id = commit(&mut store, &world, &[("k", "2")], &[]);
    write_image(&mut store, &world);
    store.retain(0);
    world.writer.sync().unwrap();
    // Maintenance comes between two tasks.
    let task = store.merge_task(&world.writer, 1, &HashSet::new());
    assert!(task.is_none(), "there is nothing to merge");
    store
        .open(world.storage.as_ref(), id.version, Some(&id))
        .unwrap();
    let after = commit(&mut store, &world, &[("k", "3")], &[]);
    assert_eq!(lineage_of(&world, &after), 1, "the image");
    assert_eq!(loaded(&world, &after), map(&[("k", "3")]));
}

#[test]
fn a_store_that_is_closed_after_every_commit_is_made_of_a_bounded_number_of_segments() {
    let world = world();
    let mut store = opened(&world);
    let mut id = commit(&mut store, &world, &[("first", "1")], &[]);
    for version in 1..300 {
        // Nothing that commits or maintenance leave in memory lives on.
        store = StateStore::new(owner(), plain());
        store
            .open(world.storage.as_ref(), version, Some(&id))
            .unwrap();
        store.mend(&world.writer).unwrap();
        id = commit(&mut store, &world, &[("n", &version.to_string())], &[]);
        assert!(lineage_of(&world, &id) <= 257, "version {version}");
    }
    assert_eq!(loaded(&world, &id), map(&[("first", "1"), ("n", "299")]));
}
