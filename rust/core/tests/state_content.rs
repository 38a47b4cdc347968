//! The content of a store against plain maps: sessions, aborts, rewinds, loads, scans, lists,
//! column families.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::collections::HashSet;
use std::sync::Arc;

use crate::common::families::{
    Change, FAMILIES, Model, apply, change, check, every_key, open, options, scan, sorted,
};
use crate::common::{Entries, parse};
use holdfast_core::segment::{SegmentWriter, WriterOptions};
use holdfast_core::state::{
    CommitId, FIRST_FAMILY, KeyLayout, KeyRange, MemoryBudget, ScanOf, StateStore,
};
use holdfast_core::storage::{LocalStorage, Storage};
use holdfast_core::{ErrorKind, Owner, Term};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Step {
    Change(Change),
    Commit,
    Abort,
    /// Commit, then go back, as a retried task does.
    CommitAndRewind,
    /// Commit, then load it in another store.
    CommitAndLoad,
    /// Commit, merge a base image from files, then load in another store.
    CommitAndMerge,
    /// Commit, and merge a base image that commits build on after the next one only.
    CommitAndMergeLate,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        21 => change().prop_map(Step::Change),
        2 => Just(Step::Commit),
        1 => Just(Step::Abort),
        1 => Just(Step::CommitAndRewind),
        1 => Just(Step::CommitAndLoad),
        1 => Just(Step::CommitAndMerge),
        1 => Just(Step::CommitAndMergeLate),
    ]
}

struct World {
    storage: Arc<dyn Storage>,
    writer: SegmentWriter,
    _dir: tempfile::TempDir,
}

fn world() -> World {
    let dir = tempfile::tempdir().unwrap();
    let storage: Arc<dyn Storage> = Arc::new(LocalStorage::new(dir.path()));
    let writer = SegmentWriter::open(Arc::clone(&storage), Term(1), WriterOptions::default());
    World {
        storage,
        writer,
        _dir: dir,
    }
}

fn store(layout: KeyLayout) -> StateStore {
    StateStore::new(Owner::new("", "0", "7", "default"), layout)
}

fn load(world: &World, id: &CommitId) -> StateStore {
    let mut store = store(KeyLayout::Columns);
    store
        .open(world.storage.as_ref(), id.version, Some(id))
        .unwrap();
    store
}

/// The part that stays in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Memory {
    Everything,
    /// Only the keys that stores use. All else is left in runs.
    Used,
    /// Loaded keys come there step by step.
    Hydrated,
}

/// One history: every step against maps.
fn play(steps: &[Step], max_bytes: usize, memory: Memory) -> StateStore {
    let world = world();
    let budget = Arc::new(MemoryBudget::unlimited());
    match memory {
        Memory::Everything => {}
        Memory::Used => budget.set_target_bytes(Some(0)),
        Memory::Hydrated => {
            budget.set_target_bytes(Some(1 << 30));
            budget.set_load_bytes(0);
        }
    }
    let goes_on_elsewhere = memory != Memory::Everything;
    let store = || {
        let owner = Owner::new("", "0", "7", "default");
        StateStore::within(owner, KeyLayout::Columns, Arc::clone(&budget))
    };
    let load = |id: &CommitId| {
        let mut store = store();
        store
            .open(world.storage.as_ref(), id.version, Some(id))
            .unwrap();
        store
    };
    let mut store = store();
    store.open(world.storage.as_ref(), 0, None).unwrap();
    let (mut now, mut committed) = (Model::new(), Model::new());
    let mut id: Option<CommitId> = None;
    let mut late = None;
    let mut held = None;
    store.begin().unwrap();
    for (nth, step) in steps.iter().enumerate() {
        // The bytes that one step reads are handed over in the next one, whatever that is.
        if let Some((hydration, read)) = held.take() {
            store.hydrate(hydration, read).unwrap();
        }
        held = store.take_hydration().map(|mut hydration| {
            let read = hydration.read(max_bytes);
            (hydration, read)
        });
        match step {
            Step::Abort => {
                store.abort();
                now = committed.clone();
            }
            Step::CommitAndRewind => {
                store.commit(&world.writer).unwrap();
                let (version, loads) = (id.map_or(0, |id| id.version), store.stats().loads);
                store
                    .open(world.storage.as_ref(), version, id.as_ref())
                    .unwrap();
                assert_eq!(store.stats().loads, loads, "served by undo");
                now = committed.clone();
            }
            Step::Commit
            | Step::CommitAndLoad
            | Step::CommitAndMerge
            | Step::CommitAndMergeLate => {
                let new = store.commit(&world.writer).unwrap();
                id = Some(new);
                committed = now.clone();
                // Runs that are not durable are neither merged nor built on.
                world.writer.sync().unwrap();
                if let Some(image) = late.take() {
                    store.accept(image);
                }
                let merges = matches!(step, Step::CommitAndMerge | Step::CommitAndMergeLate);
                if merges && let Some(task) = store.merge_task(&world.writer, 1, &HashSet::new()) {
                    let image = task.run(world.storage.as_ref(), &world.writer).unwrap();
                    world.writer.sync().unwrap();
                    match step {
                        Step::CommitAndMerge => store.accept(image),
                        _ => late = Some(image),
                    }
                }
                if matches!(step, Step::CommitAndLoad | Step::CommitAndMerge) {
                    let mut loaded = load(&new);
                    check(&mut loaded, &committed, max_bytes);
                    if goes_on_elsewhere && matches!(step, Step::CommitAndLoad) {
                        store = load(&new);
                        late = None;
                    }
                }
            }
            Step::Change(change) => {
                apply(&mut store, &mut now, change);
                continue;
            }
        }
        // Which brings everything into memory.
        if memory == Memory::Everything || nth % 3 == 0 {
            check(&mut store, &now, max_bytes);
        }
        store.mend(&world.writer).unwrap();
        store.begin().unwrap();
    }
    check(&mut store, &now, max_bytes);
    store
}

/// Every family with every key, in a base image.
fn filled() -> Vec<Step> {
    let all = || every_key().map(Step::Change);
    let twice = all().chain([Step::Commit]).chain(all());
    twice.chain([Step::CommitAndMerge, Step::Commit]).collect()
}

#[test]
fn keys_that_are_not_in_memory_are_read_from_the_base_image() {
    for steps in [vec![], vec![Step::Commit; 3], vec![Step::CommitAndLoad]] {
        let steps = [filled(), steps].concat();
        assert!(play(&steps, 100, Memory::Used).stats().cold_reads > 0);
        let everything = play(&steps, 100, Memory::Everything);
        assert_eq!(everything.stats().cold_reads, 0);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn the_content_equals_maps_through_sessions_aborts_rewinds_and_loads(
        steps in prop::collection::vec(step(), 1..120), max_bytes in 16usize..400
    ) {
        play(&steps, max_bytes, Memory::Everything);
    }

    #[test]
    fn the_content_equals_maps_where_keys_leave_memory(
        steps in prop::collection::vec(step(), 1..120), max_bytes in 16usize..400
    ) {
        play(&[filled(), steps].concat(), max_bytes, Memory::Used);
    }

    #[test]
    fn the_content_equals_maps_where_keys_come_into_memory_later(
        steps in prop::collection::vec(step(), 1..120), max_bytes in 16usize..400
    ) {
        play(&[filled(), vec![Step::CommitAndLoad], steps].concat(), max_bytes, Memory::Hydrated);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10_000))]
    /// `cargo test -p holdfast-core --test all state_content -- --ignored` takes minutes.
    #[test]
    #[ignore = "10,000 histories"]
    fn the_content_equals_maps_where_keys_leave_memory_in_many_histories(
        steps in prop::collection::vec(step(), 1..120), max_bytes in 16usize..400
    ) {
        play(&[filled(), steps.clone()].concat(), max_bytes, Memory::Used);
        play(&[filled(), vec![Step::CommitAndLoad], steps].concat(), max_bytes, Memory::Hydrated);
    }
}

#[test]
fn a_scan_sees_the_content_as_it_was_when_it_began() {
    for (family, (name, _)) in FAMILIES.iter().enumerate() {
        let world = world();
        let mut store = store(KeyLayout::Columns);
        store.open(world.storage.as_ref(), 0, None).unwrap();
        store.begin().unwrap();
        let number = open(&mut store, family);
        for k in 0..100u8 {
            store.put(number, &[k], &[k; 8]).unwrap();
        }
        let (mut entries, mut bytes) = (Entries::new(), Vec::new());
        let what = ScanOf::Values(KeyRange::All);
        let mut batch = store.scan(number, what, 50, &mut bytes).unwrap();
        // Overwritten in place, removed, added, before the scan and after it.
        for k in 0..100u8 {
            match k % 3 {
                0 => store.put(number, &[k], &[0xff; 8]).unwrap(),
                1 => assert!(store.remove(number, &[k]).unwrap()),
                _ => store.put(number, &[k, k], b"new").unwrap(),
            }
        }
        loop {
            parse(&bytes, &mut entries);
            let Some(more) = batch.scan else { break };
            bytes.clear();
            batch = store.scan_on(more, 50, &mut bytes).unwrap();
        }
        let expected: Entries = (0..100u8).map(|k| (vec![k], vec![k; 8])).collect();
        assert_eq!(sorted(entries, false), expected, "{name}");
    }
}

#[test]
fn a_scan_ends_when_the_next_session_begins_or_when_it_is_closed() {
    let world = world();
    let mut store = store(KeyLayout::Plain(options(true, false)));
    store.open(world.storage.as_ref(), 0, None).unwrap();
    store.begin().unwrap();
    for k in 0..50u8 {
        store.put(FIRST_FAMILY, &[k], &[k]).unwrap();
    }
    let mut bytes = Vec::new();
    let all = ScanOf::Keys(KeyRange::All);
    let mut start = |store: &mut StateStore| {
        let batch = store.scan(FIRST_FAMILY, all, 10, &mut bytes).unwrap();
        batch.scan.unwrap()
    };
    let first = start(&mut store);
    store.close_scan(first);
    let second = start(&mut store);
    store.commit(&world.writer).unwrap();
    assert!(
        store.scan_on(second, 10, &mut Vec::new()).is_ok(),
        "also after the commit"
    );
    store.begin().unwrap();
    for scan in [first, second] {
        let error = store.scan_on(scan, 10, &mut Vec::new()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
    }
}

#[test]
fn appending_to_a_long_list_writes_what_was_appended() {
    let world = world();
    let mut store = store(KeyLayout::Columns);
    store.open(world.storage.as_ref(), 0, None).unwrap();
    let long = vec![vec![7u8; 100]; 1_000];
    let long: Vec<&[u8]> = long.iter().map(Vec::as_slice).collect();
    store.begin().unwrap();
    let number = open(&mut store, 2);
    store.append(number, b"k", &long).unwrap();
    store.commit(&world.writer).unwrap();
    let before = store.stats().written_bytes;
    store.begin().unwrap();
    store.append(number, b"k", &[b"one more"]).unwrap();
    store.commit(&world.writer).unwrap();
    assert!(store.stats().written_bytes - before < 100);
}

#[test]
fn an_aborted_session_leaves_no_family_behind_and_a_dropped_one_comes_back_empty() {
    let world = world();
    let mut store = store(KeyLayout::Columns);
    store.open(world.storage.as_ref(), 0, None).unwrap();
    store.begin().unwrap();
    let number = open(&mut store, 1);
    store.put(number, b"k", b"1").unwrap();
    store.abort();
    assert!(store.families().names().is_empty());
    store.begin().unwrap();
    let number = open(&mut store, 1);
    store.put(number, b"k", b"2").unwrap();
    store.commit(&world.writer).unwrap();
    store.begin().unwrap();
    assert!(store.remove_family("ordered").unwrap());
    // The same name again, with lists this time.
    let number = store.open_family("ordered", options(true, true)).unwrap();
    store.append(number, b"l", &[b"3", b"4"]).unwrap();
    let id = store.commit(&world.writer).unwrap();
    let mut loaded = load(&world, &id);
    assert_eq!(loaded.families().names(), ["ordered"]);
    let number = loaded.families().find("ordered").unwrap().unwrap();
    let values = scan(&mut loaded, number, ScanOf::Values(KeyRange::All), 1 << 20);
    assert_eq!(values.len(), 2);
    loaded.begin().unwrap();
    let error = loaded
        .open_family("ordered", options(true, false))
        .unwrap_err();
    assert!(error.to_string().contains("several values"), "{error}");
}

#[test]
fn ranges_of_an_unordered_family_and_families_of_a_plain_store_are_refused() {
    let world = world();
    let mut store = store(KeyLayout::Plain(options(false, false)));
    store.open(world.storage.as_ref(), 0, None).unwrap();
    store.begin().unwrap();
    let prefix = ScanOf::Keys(KeyRange::Prefix(b"a"));
    let refused = [
        store
            .scan(FIRST_FAMILY, prefix, 10, &mut Vec::new())
            .unwrap_err(),
        store.open_family("f", options(false, false)).unwrap_err(),
        store.append(FIRST_FAMILY, b"k", &[b"v"]).unwrap_err(),
        store.put(9, b"k", b"v").unwrap_err(),
    ];
    for error in refused {
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    }
}

#[test]
fn a_store_opened_empty_writes_the_whole_of_its_next_version() {
    let world = world();
    let mut store = store(KeyLayout::Plain(options(false, false)));
    store.open(world.storage.as_ref(), 0, None).unwrap();
    store.begin().unwrap();
    store.put(FIRST_FAMILY, b"old", b"1").unwrap();
    let first = store.commit(&world.writer).unwrap();
    store.open_empty(1).unwrap();
    store.begin().unwrap();
    store.put(FIRST_FAMILY, b"new", b"2").unwrap();
    let second = store.commit(&world.writer).unwrap();
    assert_eq!(second.floor.0, 2, "nothing older is needed");
    let mut loaded = StateStore::new(
        store.owner().clone(),
        KeyLayout::Plain(options(false, false)),
    );
    loaded
        .open(world.storage.as_ref(), 2, Some(&second))
        .unwrap();
    assert_eq!(loaded.families().keys(), 1);
    // Its last version is not confused with the one at which it was opened empty.
    store.open_empty(1).unwrap();
    store.open(world.storage.as_ref(), 1, Some(&first)).unwrap();
    let family = store.families().family(FIRST_FAMILY).unwrap();
    assert_eq!(family.get(b"old"), Some(b"1".as_slice()));
}

#[test]
fn memory_stays_bounded_when_the_same_keys_are_rewritten() {
    let world = world();
    let mut store = store(KeyLayout::Plain(options(true, false)));
    store.open(world.storage.as_ref(), 0, None).unwrap();
    let mut most = 0;
    for round in 0..200u32 {
        store.begin().unwrap();
        for key in 0..500u32 {
            let value = [round.to_le_bytes(), key.to_le_bytes()].concat();
            store.put(FIRST_FAMILY, &key.to_le_bytes(), &value).unwrap();
        }
        store.commit(&world.writer).unwrap();
        most = most.max(store.families().memory_bytes());
    }
    assert!(most < 500 * 400, "{most} bytes for 500 small entries");
}

#[test]
fn stores_share_a_memory_budget_and_fail_with_its_limit_before_they_exceed_it_by_much() {
    let world = world();
    let budget = Arc::new(MemoryBudget::unlimited());
    let open = |name: &str| {
        let owner = Owner::new("", "0", "7", name);
        let layout = KeyLayout::Plain(options(true, false));
        let mut store = StateStore::within(owner, layout, Arc::clone(&budget));
        store.open(world.storage.as_ref(), 0, None).unwrap();
        store.begin().unwrap();
        store
    };
    let fill = |store: &mut StateStore, entries: u32| {
        (0..entries).try_for_each(|n| store.put(FIRST_FAMILY, &n.to_be_bytes(), &[0; 100]))
    };
    let (mut first, mut second) = (open("first"), open("second"));
    fill(&mut first, 10_000).unwrap();
    let id = first.commit(&world.writer).unwrap();
    let of_first = first.families().memory_bytes() as u64;
    assert_eq!(budget.used_bytes(), of_first);
    budget.set_limit_bytes(of_first * 3 / 2);
    let error = fill(&mut second, 10_000).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::LimitExceeded);
    assert!(error.to_string().contains("Raise the limit"), "{error}");
    assert!(
        budget.used_bytes() < of_first * 3 / 2 + (2 << 20),
        "a page and its index"
    );
    drop(second);
    assert_eq!(budget.used_bytes(), of_first);
    // A load counts as well, and a store that failed holds nothing.
    let mut third = open("first");
    third.abort();
    let error = third
        .open(world.storage.as_ref(), 1, Some(&id))
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::LimitExceeded);
    budget.set_limit_bytes(of_first * 3);
    third.open(world.storage.as_ref(), 1, Some(&id)).unwrap();
    drop((first, third));
    assert_eq!(budget.used_bytes(), 0);
}
