//! Parked versions: the content of an older version, and the pending rows of the batches since then, which
//! a later commit replays.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use std::collections::{BTreeMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;

use crate::common::{content, faulty, options, plain};
use holdfast_core::format::{Compression, SegmentKind};
use holdfast_core::liveness::Floors;
use holdfast_core::reclaim::{IndexCache, reclaim};
use holdfast_core::segment::SegmentWriter;
use holdfast_core::state::{
    FIRST_FAMILY, SharedStore, StateStore, StoreFolder, VersionId, find_own, inspect_segment,
    read_changes,
};
use holdfast_core::storage::Storage;
use holdfast_core::{Error, ErrorKind, Owner, SegmentRef, Term};
use holdfast_sim::{FaultyStorage, Operation};

struct World {
    dir: tempfile::TempDir,
    storage: Arc<FaultyStorage>,
    folder: Arc<StoreFolder>,
}

/// Every segment has a file of its own.
fn world() -> World {
    let (dir, storage) = faulty();
    let writer = SegmentWriter::open(storage.clone(), Term(1), options(1, Compression::None));
    let folder = StoreFolder::new(storage.clone(), Some(writer));
    World {
        dir,
        storage,
        folder,
    }
}

fn owner() -> Owner {
    Owner::new("", "0", "7", "default")
}

impl World {
    fn store(&self) -> SharedStore {
        SharedStore::new(Arc::clone(&self.folder), StateStore::new(owner(), plain()))
    }

    fn writer(&self) -> &SegmentWriter {
        self.folder.writer().unwrap()
    }

    fn path(&self, segment: &SegmentRef) -> PathBuf {
        self.dir.path().join("root").join(segment.file.file_name())
    }

    /// Opens a version in another process, and returns its content.
    fn loaded(&self, id: &VersionId) -> BTreeMap<String, String> {
        let store = self.store();
        store.open_version(id.state.version, Some(id)).unwrap();
        content(&mut store.lock())
    }

    /// Deletes what is not needed from `oldest` on.
    fn reclaim(&self, oldest: &VersionId) {
        let mut floors = Floors::default();
        floors.add_version("0/7", oldest);
        let mut indexes = IndexCache::default();
        reclaim(
            self.storage.as_ref(),
            &mut indexes,
            &floors,
            &|_| true,
            Term(1),
        )
        .unwrap();
    }
}

fn commit(store: &SharedStore, puts: &[(&str, &str)]) -> VersionId {
    store.begin().unwrap();
    for (key, value) in puts {
        let mut state = store.lock();
        state
            .put(FIRST_FAMILY, key.as_bytes(), value.as_bytes())
            .unwrap();
    }
    let id = store.commit().unwrap();
    store.folder().writer().unwrap().sync().unwrap();
    id.into()
}

fn park(store: &SharedStore, id: Option<&VersionId>, input: &[u8]) -> VersionId {
    let version = id.map_or(0, |id| id.state.version);
    let mut parking = store.park(version, id).unwrap();
    parking.append(input).unwrap();
    let parked = parking.finish(1).unwrap();
    store.folder().writer().unwrap().sync().unwrap();
    // Spark's commit log has its text.
    parked.to_string().parse().unwrap()
}

fn input(store: &SharedStore, id: &VersionId, version: u64) -> Result<Vec<u8>, Error> {
    let mut input = store.pending_input(id, version)?;
    let mut all = Vec::new();
    loop {
        let bytes = input.read(3)?;
        if bytes.is_empty() {
            return Ok(all);
        }
        all.extend_from_slice(bytes);
    }
}

fn map(entries: &[(&str, &str)]) -> BTreeMap<String, String> {
    let entries = entries.iter();
    entries
        .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
        .collect()
}

/// Has maintenance make a run of everything, on which the next commit builds.
fn merge(store: &SharedStore, world: &World) {
    let files = world.storage.list().unwrap().into_iter();
    let all: HashSet<_> = files
        .filter_map(|object| holdfast_core::FileId::parse(&object.name))
        .collect();
    store.maintain(1, &all).unwrap();
    world.writer().sync().unwrap();
}

#[test]
fn a_parked_version_has_the_old_content_and_a_commit_waits_for_the_replay() {
    let world = world();
    let store = world.store();
    store.open(0, None).unwrap();
    let base = commit(&store, &[("a", "1")]);
    // The attempts that failed.
    store.begin().unwrap();
    store.lock().put(FIRST_FAMILY, b"a", b"lost").unwrap();
    store.lock().abort();
    let first = park(&store, Some(&base), b"first");
    let second = park(&store, Some(&first), b"");
    assert_eq!(second.to_string().parse::<VersionId>().unwrap(), second);
    assert_eq!(second.state.segment, base.state.segment);
    assert_eq!((second.state.version, second.pending_since()), (3, Some(2)));
    assert_eq!(world.loaded(&first), map(&[("a", "1")]));
    assert_eq!(world.loaded(&second), map(&[("a", "1")]));

    // The store moves on without a load.
    store.open_version(3, Some(&second)).unwrap();
    assert_eq!(store.lock().stats().loads, 1, "that of version 0");
    store.begin().unwrap();
    store.lock().put(FIRST_FAMILY, b"b", b"2").unwrap();
    let error = store.commit().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    let text = error.to_string();
    assert!(text.contains("partition 7"), "{text}");
    assert!(text.contains("the input of batch 1 waits"), "{text}");

    assert_eq!(input(&store, &second, 2).unwrap(), b"first");
    assert_eq!(input(&store, &second, 3).unwrap(), b"");
    let error = input(&store, &second, 1).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    store.lock().mark_replayed().unwrap();
    let id = VersionId::from(store.commit().unwrap());
    assert_eq!(id.to_string().parse::<VersionId>().unwrap(), id);
    assert_eq!(world.loaded(&id), map(&[("a", "1"), ("b", "2")]));
    // The next session needs nothing.
    let id = commit(&store, &[("c", "3")]);
    assert_eq!(id.state.version, 5);

    // Back to a parked version, as where the batch runs again: the session must replay again.
    store.open_version(3, Some(&second)).unwrap();
    assert_eq!(content(&mut store.lock()), map(&[("a", "1")]));
    store.begin().unwrap();
    assert!(store.commit().is_err());
    store.lock().abort();
    assert_eq!(
        store.lock().mark_replayed().unwrap_err().kind(),
        ErrorKind::InvalidInput
    );
}

#[test]
fn a_store_that_was_never_written_parks() {
    let world = world();
    let store = world.store();
    let first = park(&store, None, b"rows");
    let second = park(&store, Some(&first), b"more");
    assert_eq!((first.state.segment, second.state.version), (None, 2));
    store.open_version(2, Some(&second)).unwrap();
    store.begin().unwrap();
    store.lock().put(FIRST_FAMILY, b"a", b"1").unwrap();
    assert_eq!(input(&store, &second, 1).unwrap(), b"rows");
    assert_eq!(input(&store, &second, 2).unwrap(), b"more");
    store.lock().mark_replayed().unwrap();
    let id = VersionId::from(store.commit().unwrap());
    assert_eq!(world.loaded(&id), map(&[("a", "1")]));
}

#[test]
fn a_damaged_store_parks_without_a_read_and_goes_on_once_it_is_whole() {
    let world = world();
    let store = world.store();
    store.open(0, None).unwrap();
    commit(&store, &[("a", "1")]);
    commit(&store, &[("b", "2")]);
    merge(&store, &world);
    let base = commit(&store, &[]);
    let head = |segment: &SegmentRef| {
        let report = inspect_segment(world.storage.as_ref(), segment);
        report.unwrap().head
    };
    let run = head(&base.state.segment.unwrap()).lineage[0];
    assert_eq!(head(&run).kind, SegmentKind::Run);
    // Deletes the segments that the run replaced.
    world.reclaim(&base);
    let good = std::fs::read(world.path(&run)).unwrap();
    let mut bad = good.clone();
    bad[run.offset as usize + 30] ^= 1;
    std::fs::write(world.path(&run), bad).unwrap();

    let store = world.store();
    let error = store.open_version(3, Some(&base)).unwrap_err();
    assert!(error.is_damage(), "{error}");
    let reads = world.storage.calls(Operation::Read);
    let parked = park(&store, Some(&base), b"input");
    assert_eq!(world.storage.calls(Operation::Read), reads);
    assert_eq!(input(&store, &parked, 4).unwrap(), b"input");
    assert!(store.open_version(4, Some(&parked)).is_err());

    std::fs::write(world.path(&run), good).unwrap();
    store.open_version(4, Some(&parked)).unwrap();
    store.begin().unwrap();
    store.lock().mark_replayed().unwrap();
    let id = VersionId::from(store.commit().unwrap());
    assert_eq!(world.loaded(&id), map(&[("a", "1"), ("b", "2")]));
}

#[test]
fn reclaim_keeps_pending_input_as_long_as_a_retained_version_names_it() {
    let world = world();
    let store = world.store();
    store.open(0, None).unwrap();
    let mut ids = vec![commit(&store, &[("a", "1")])];
    merge(&store, &world);
    ids.push(commit(&store, &[("b", "2")]));
    for batch in 0..3 {
        let base = ids.last().unwrap();
        let parked = park(&store, Some(base), &[batch]);
        // The store moves to the parked version, and maintenance merges there.
        store
            .open_version(parked.state.version, Some(&parked))
            .unwrap();
        merge(&store, &world);
        ids.push(parked);
    }
    store.begin().unwrap();
    store.lock().mark_replayed().unwrap();
    ids.push(store.commit().unwrap().into());
    world.writer().sync().unwrap();
    let replayed = ids.len() - 1;
    let floor = ids[replayed].state.floor.0;
    assert!(
        floor > ids[1].state.version,
        "it builds on a run that was made meanwhile"
    );
    ids.push(commit(&store, &[("c", "3")]));
    merge(&store, &world);
    ids.push(commit(&store, &[("d", "4")]));

    let pending = ids[replayed - 1].pending.clone();
    assert_eq!(pending.len(), 3);
    for oldest in 0..ids.len() {
        world.reclaim(&ids[oldest]);
        for input in &pending {
            let is_there = world.path(&input.segment).exists();
            assert_eq!(is_there, oldest < replayed, "{oldest}, {}", input.version);
        }
        for id in &ids[oldest..] {
            world.loaded(id);
            for (place, pending) in id.pending.iter().enumerate() {
                let found = input(&store, id, pending.version).unwrap();
                assert_eq!(found, [place as u8], "{oldest}");
            }
        }
    }
}

#[test]
fn input_that_no_id_names_is_garbage() {
    let world = world();
    let store = world.store();
    store.open(0, None).unwrap();
    let base = commit(&store, &[("a", "1")]);
    // A process that dies between the segments and the id, here after the last one.
    let mut parking = store.park(1, Some(&base)).unwrap();
    parking.append(b"lost").unwrap();
    parking.finish(1).unwrap();
    let lost: Vec<_> = world.storage.list().unwrap().into_iter().collect();
    let store = world.store();
    let parked = park(&store, Some(&base), b"input");
    assert_eq!(input(&store, &parked, 2).unwrap(), b"input");
    store.open_version(2, Some(&parked)).unwrap();
    store.begin().unwrap();
    store.lock().put(FIRST_FAMILY, b"b", b"2").unwrap();
    store.lock().mark_replayed().unwrap();
    store.commit().unwrap();
    world.writer().sync().unwrap();
    merge(&store, &world);
    let last = commit(&store, &[("c", "3")]);
    world.reclaim(&last);
    let left = world.storage.list().unwrap();
    assert!(
        lost.iter()
            .all(|gone| left.iter().all(|object| object.name != gone.name))
    );
    assert_eq!(world.loaded(&last).len(), 3);
}

#[test]
fn storage_that_fails_leaves_no_id_and_a_second_try_may_succeed() {
    let world = world();
    let store = world.store();
    store.open(0, None).unwrap();
    let base = commit(&store, &[("a", "1")]);
    for operation in [Operation::Create, Operation::Append] {
        world.storage.fail_nth(operation, 1);
        let mut parking = store.park(1, Some(&base)).unwrap();
        parking.append(b"input").unwrap();
        let error = parking.finish(1).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Storage, "{error}");
    }
    let parked = park(&store, Some(&base), b"input");
    assert_eq!(input(&store, &parked, 2).unwrap(), b"input");
}

#[test]
fn lost_or_damaged_input_is_named_with_what_to_do() {
    let world = world();
    let store = world.store();
    store.open(0, None).unwrap();
    let base = commit(&store, &[("a", "1")]);
    let parked = park(&store, Some(&base), b"input");
    let segment = parked.pending[0].segment;
    let good = std::fs::read(world.path(&segment)).unwrap();
    let assert_named = |error: Error| {
        let text = error.to_string();
        let file = segment.file.to_string();
        for part in [
            &file,
            "input of batch 1",
            "partition 7",
            "from a copy",
            "batch before 1",
        ] {
            assert!(text.contains(part), "{part:?} is missing in {text:?}");
        }
    };
    for place in 0..segment.len as usize {
        let mut bad = good.clone();
        bad[segment.offset as usize + place] ^= 0x10;
        std::fs::write(world.path(&segment), bad).unwrap();
        let error = input(&store, &parked, 2).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
        assert_named(error);
    }
    std::fs::remove_file(world.path(&segment)).unwrap();
    let error = input(&store, &parked, 2).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    assert_named(error);
    // The content does not need it.
    assert_eq!(world.loaded(&parked), map(&[("a", "1")]));

    // A segment that is no input of that batch.
    let older = park(&store, Some(&base), b"x");
    let newer = park(&store, Some(&older), b"y");
    for wrong in [base.state.segment.unwrap(), newer.pending[1].segment] {
        let mut id = parked.clone();
        id.pending[0].segment = wrong;
        let error = input(&store, &id, id.pending[0].version).unwrap_err();
        assert!(
            error.to_string().contains("pending input: expected"),
            "{error}"
        );
    }
}

#[test]
fn readers_of_changes_see_none_in_a_parked_version_and_those_of_the_replay_in_its_batch() {
    let world = world();
    let store = world.store();
    store.open(0, None).unwrap();
    let base = commit(&store, &[("a", "1")]);
    let parked = park(&store, Some(&base), b"input");
    store.open_version(2, Some(&parked)).unwrap();
    store.begin().unwrap();
    store.lock().put(FIRST_FAMILY, b"b", b"2").unwrap();
    store.lock().mark_replayed().unwrap();
    let last = store.commit().unwrap();
    world.writer().sync().unwrap();
    let ids = [base.state, parked.state, last];
    let changed = |version| {
        let storage = world.storage.as_ref();
        let found = read_changes(storage, &owner(), version, &ids).unwrap();
        found.is_some()
    };
    assert_eq!([1, 2, 3].map(changed), [true, false, true]);
    let own = find_own(&owner(), 2, &ids);
    assert_eq!(own, Some(parked.state));

    // A reader that applies changes, and a session on top of it.
    for (to, commits) in [(parked, false), (last.into(), true)] {
        let store = world.store();
        let from = (1, Some(&base.state));
        let replayed = store.lock().replay(world.storage.as_ref(), from, &to, &ids);
        replayed.unwrap();
        assert_eq!(content(&mut store.lock()), world.loaded(&to));
        store.begin().unwrap();
        assert_eq!(store.commit().is_ok(), commits);
    }
}

#[test]
fn a_report_on_pending_input_verifies_it_and_does_not_look_into_it() {
    let world = world();
    let store = world.store();
    let parked = park(&store, None, b"\xff\xff no entries");
    let segment = parked.pending[0].segment;
    let report = inspect_segment(world.storage.as_ref(), &segment).unwrap();
    assert_eq!(report.head.kind, SegmentKind::InFlight);
    assert_eq!((report.head.payload_bytes, report.head.created.0), (13, 1));
    let path = world.path(&segment);
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[segment.end() as usize - 1] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let error = inspect_segment(world.storage.as_ref(), &segment).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
}

#[test]
fn wrong_calls_are_refused() {
    let world = world();
    let store = world.store();
    store.open(0, None).unwrap();
    let base = commit(&store, &[("a", "1")]);
    let mut foreign = base.clone();
    foreign.state.owner = Owner::new("", "0", "8", "default").tag();
    let mut full = base.clone();
    for _ in 0..holdfast_core::state::MAX_PENDING {
        full = park(&store, Some(&full), b"");
    }
    let version = full.state.version;
    for (version, id, part) in [
        (1, None, "with the id of version 0"),
        (0, Some(&base), "with the id of version 1"),
        (1, Some(&foreign), "the id of another store"),
        (version, Some(&full), "the input of 1024 batches is pending"),
    ] {
        let error = store.park(version, id).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.to_string().contains(part), "{error}");
    }
    let readers = StoreFolder::new(world.storage.clone(), None);
    let reader = SharedStore::new(readers, StateStore::new(owner(), plain()));
    assert!(reader.park(1, Some(&base)).is_err());
    // A reader sees both.
    reader.open_version(version, Some(&full)).unwrap();
    assert_eq!(input(&reader, &full, version).unwrap(), b"");
}

/// A commit that keeps a part of the pending input next to its changes.
fn keep(store: &SharedStore, puts: &[(&str, &str)], parts: &[(u64, &[u8])]) -> VersionId {
    store.begin().unwrap();
    for (key, value) in puts {
        let mut state = store.lock();
        state
            .put(FIRST_FAMILY, key.as_bytes(), value.as_bytes())
            .unwrap();
    }
    store.lock().mark_replayed().unwrap();
    let id = VersionId::from(store.commit().unwrap());
    let inputs: Vec<_> = parts
        .iter()
        .map(|(version, part)| {
            let mut parking = store.keep(*version, id.state.version).unwrap();
            parking.append(part).unwrap();
            let input = parking.finish(1).unwrap().to_string();
            input.parse::<VersionId>().unwrap()
        })
        .collect();
    store.folder().writer().unwrap().sync().unwrap();
    let kept = id.waiting_for(&inputs).to_string();
    kept.parse().unwrap()
}

#[test]
fn a_commit_keeps_a_part_of_the_pending_input_whatever_runs_its_content_has() {
    let world = world();
    let store = world.store();
    store.open(0, None).unwrap();
    let mut ids = vec![commit(&store, &[("a", "1")])];
    ids.push(park(&store, ids.last(), b"12"));
    ids.push(park(&store, ids.last(), b"34"));
    let part = |version: u64, parts: &[(u64, &'static [u8])]| {
        assert_eq!(parts.last().unwrap().0, version);
        parts.to_vec()
    };
    for (puts, parts) in [
        (("b", "2"), part(4, &[(2, b"1"), (3, b"3"), (4, b"5")])),
        (("c", "3"), part(5, &[(2, b"1"), (4, b"5"), (5, b"6")])),
        (("d", "4"), part(6, &[(2, b"1"), (6, b"")])),
    ] {
        let base = ids.last().unwrap();
        store.open_version(base.state.version, Some(base)).unwrap();
        ids.push(keep(&store, &[puts], &parts));
        let kept = ids.last().unwrap();
        store.open_version(kept.state.version, Some(kept)).unwrap();
        assert!(commit_is_refused(&store));
        merge(&store, &world);
    }
    ids.push(park(&store, ids.last(), b"7"));
    assert!(ids[5].state.floor.0 > 3, "the content is in a newer run");
    for oldest in 3..ids.len() {
        world.reclaim(&ids[oldest]);
        for id in &ids[oldest..] {
            assert_eq!(world.loaded(id).len() as u64, id.state.version.min(6) - 2);
            assert_eq!(input(&store, id, 2).unwrap(), b"1");
        }
    }
    let newest = ids.last().unwrap();
    assert_eq!(input(&store, newest, 6).unwrap(), b"");
    assert_eq!(input(&store, newest, 7).unwrap(), b"7");
    assert!(store.keep(8, 7).is_err() && store.keep(0, 7).is_err());
}

#[test]
fn input_that_stays_where_it_is_is_needed_longer_than_content_that_is_older() {
    let world = world();
    let store = world.store();
    store.open(0, None).unwrap();
    let mut ids = vec![commit(&store, &[("a", "1")])];
    ids.push(park(&store, ids.last(), b"12"));
    ids.push(park(&store, ids.last(), b"34"));
    for key in ["b", "c", "d", "e"] {
        let base = ids.last().unwrap().clone();
        let version = base.state.version + 1;
        store.open_version(version - 1, Some(&base)).unwrap();
        let own = keep(&store, &[(key, "2")], &[(version, b"")]);
        let inputs = [2, 3].map(|version| base.input_alone(version).unwrap());
        let state = VersionId::from(own.state);
        ids.push(state.waiting_for(inputs.iter().chain([&own])));
        merge(&store, &world);
    }
    let pending = ids[6].pending.clone();
    assert_eq!(pending[..2], ids[2].pending);
    assert!(ids[6].input_alone(4).is_none());
    assert!(ids[6].state.floor.0 > 3, "the content is in a newer run");
    for oldest in 2..7 {
        world.reclaim(&ids[oldest]);
        for id in &ids[oldest..] {
            assert_eq!(world.loaded(id).len() as u64, id.state.version - 2);
            assert_eq!(input(&store, id, 2).unwrap(), b"12");
            assert_eq!(input(&store, id, 3).unwrap(), b"34");
        }
    }
    store.open_version(7, ids.last()).unwrap();
    let last = keep(&store, &[], &[]);
    world.reclaim(&last);
    assert!(
        pending
            .iter()
            .all(|input| !world.path(&input.segment).exists())
    );
    assert_eq!(world.loaded(&last).len(), 5);
}

fn commit_is_refused(store: &SharedStore) -> bool {
    store.begin().unwrap();
    let refused = store.commit().is_err();
    store.lock().abort();
    refused
}
