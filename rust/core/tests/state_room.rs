//! Memory of stores that work without maintenance: what sessions take, how it is freed again, and when
//! stores ask for that.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::common::{faulty, plain};
use holdfast_core::segment::{SegmentWriter, WriterOptions};
use holdfast_core::state::{CommitId, FIRST_FAMILY, MemoryBudget, StateStore};
use holdfast_core::{Owner, Term};
use holdfast_sim::FaultyStorage;

const MIB: u64 = 1 << 20;

/// Memory that an entry takes: 8 + 96 bytes, their lengths, slot and index.
const ENTRY_BYTES: u64 = 140;

struct World {
    _dir: tempfile::TempDir,
    storage: Arc<FaultyStorage>,
    writer: SegmentWriter,
    budget: Arc<MemoryBudget>,
}

fn world() -> World {
    let (dir, storage) = faulty();
    let writer = SegmentWriter::open(storage.clone(), Term(1), WriterOptions::default());
    World {
        _dir: dir,
        storage,
        writer,
        budget: Arc::new(MemoryBudget::unlimited()),
    }
}

fn key(n: u64) -> [u8; 8] {
    n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()
}

fn value(n: u64) -> Vec<u8> {
    (0..12u64)
        .flat_map(|i| (n ^ i).wrapping_mul(0xbf58_476d_1ce4_e5b9).to_le_bytes())
        .collect()
}

impl World {
    fn unopened(&self, partition: u64) -> StateStore {
        let owner = Owner::new("", "0", &partition.to_string(), "default");
        StateStore::within(owner, plain(), Arc::clone(&self.budget))
    }

    fn store(&self, partition: u64) -> StateStore {
        let mut store = self.unopened(partition);
        store.open(self.storage.as_ref(), 0, None).unwrap();
        store
    }

    /// Begins a session, and merges during it if the store asks for that. Returns whether it did.
    fn begin(&self, store: &mut StateStore) -> bool {
        store.mend(&self.writer).unwrap();
        store.begin().unwrap();
        let wants = store.wants_merge();
        if wants {
            let task = store.merge_task(&self.writer, 100, &HashSet::new());
            let task = task.expect("a merge that is asked for is due");
            let run = task.run(self.storage.as_ref(), &self.writer).unwrap();
            store.accept(run);
        }
        wants
    }

    /// A batch that puts so many values; whether the store asked for a merge.
    fn put(&self, store: &mut StateStore, numbers: impl Iterator<Item = u64>, batch: u64) -> bool {
        let merges = self.begin(store);
        for n in numbers {
            store.put(FIRST_FAMILY, &key(n), &value(n + batch)).unwrap();
        }
        store.commit(&self.writer).unwrap();
        self.writer.sync().unwrap();
        merges
    }

    fn commit_one(&self, store: &mut StateStore) -> CommitId {
        self.begin(store);
        store.put(FIRST_FAMILY, b"last", b"").unwrap();
        let id = store.commit(&self.writer).unwrap();
        self.writer.sync().unwrap();
        id
    }
}

#[test]
fn without_maintenance_stores_keep_to_the_target_because_they_ask_for_merges() {
    let (keys, changed) = (200_000, 4_000);
    let target = 4 * MIB;
    let world = world();
    world.budget.set_target_bytes(Some(target));
    let mut stores = [world.store(0), world.store(1)];
    let (mut merges, mut used) = (0, Vec::new());
    for batch in 0..60 {
        for store in &mut stores {
            // Far apart, so that few of them were touched by a batch before.
            let numbers = (0..changed / 2).map(|i| (batch * changed / 2 + i) * 7 % (keys / 2));
            merges += u64::from(world.put(store, numbers, batch));
            used.push(world.budget.used_bytes());
        }
    }
    let state = stores
        .iter()
        .map(|store| store.families().keys())
        .sum::<u64>()
        * ENTRY_BYTES;
    assert!(state > 4 * target, "{state}");
    let most = |used: &[u64]| used.iter().copied().max().unwrap_or(0) as f64 / target as f64;
    // A growing table doubles its room for keys, unless it has its final size.
    assert!(most(&used) < 1.25, "{}", most(&used));
    assert!(most(&used[20..]) < 1.05, "{}", most(&used[20..]));
    // Runs of as much as is worth it: not one for every session.
    assert!((10..=100).contains(&merges), "{merges}");
}

#[test]
fn memory_of_records_that_leave_is_released_before_it_is_freed() {
    static RELEASED: AtomicU64 = AtomicU64::new(0);
    fn release(bytes: &mut [u8]) {
        RELEASED.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        bytes.fill(0xab);
    }
    let released = || RELEASED.swap(0, Ordering::Relaxed);
    let (keys, of_record) = (20_000, 8 + 8 + 96);
    let world = world();
    world.budget.release_by(release);
    let mut store = world.store(0);
    // The second one leaves all of the first as garbage, which the third lets go of.
    for batch in 0..4 {
        world.put(&mut store, 0..keys, batch);
    }
    assert_eq!(released(), 0, "nothing leaves memory");
    world.budget.set_target_bytes(Some(MIB));
    let mut sessions = 0;
    while RELEASED.load(Ordering::Relaxed) == 0 {
        sessions += 1;
        assert!(sessions < 10, "nothing was given up");
        world.begin(&mut store);
        for n in 0..keys {
            let found = store.get(FIRST_FAMILY, &key(n)).unwrap();
            assert_eq!(found.unwrap(), value(n + 3));
        }
        store.put(FIRST_FAMILY, b"last", b"").unwrap();
        store.commit(&world.writer).unwrap();
        world.writer.sync().unwrap();
    }
    // All of it: what stays was copied first.
    let expected = keys * of_record;
    let found = released();
    assert!((expected..expected * 11 / 10).contains(&found), "{found}");
    store.begin().unwrap();
    for n in 0..keys {
        let found = store.get(FIRST_FAMILY, &key(n)).unwrap();
        assert_eq!(found.unwrap(), value(n + 3));
    }
}

#[test]
fn a_batch_finds_the_room_that_the_one_before_it_took() {
    let (keys, read) = (100_000, 12_000);
    let world = world();
    let mut store = world.store(0);
    for batch in 0..10 {
        world.put(&mut store, batch * keys / 10..(batch + 1) * keys / 10, 0);
    }
    let target = 4 * MIB;
    world.budget.set_target_bytes(Some(target));
    let mut most = Vec::new();
    for batch in 0..12 {
        world.begin(&mut store);
        for i in 0..read {
            let n = (batch * read + i) % keys;
            let found = store.get(FIRST_FAMILY, &key(n)).unwrap();
            assert_eq!(found, Some(value(n).as_slice()));
        }
        most.push(world.budget.used_bytes());
        store.commit(&world.writer).unwrap();
        world.writer.sync().unwrap();
    }
    // A batch takes about 2 MiB: half of the target. At first nothing is known of that.
    let room = read * ENTRY_BYTES;
    assert!(room > target * 3 / 8, "{room}");
    assert!(most[4..].iter().all(|most| *most <= target), "{most:?}");
}

#[test]
fn a_store_that_came_into_memory_at_once_gives_up_no_more_than_it_has_to() {
    let keys = 100_000;
    let world = world();
    world.budget.set_target_bytes(Some(1 << 40));
    world.budget.set_load_bytes(0);
    let mut store = world.store(0);
    world.put(&mut store, 0..keys / 2, 0);
    world.put(&mut store, keys / 2..keys, 0);
    let task = store.merge_task(&world.writer, 1, &HashSet::new()).unwrap();
    store.accept(task.run(world.storage.as_ref(), &world.writer).unwrap());
    world.writer.sync().unwrap();
    let id = world.commit_one(&mut store);
    drop(store);
    let mut store = world.unopened(0);
    store
        .open(world.storage.as_ref(), id.version, Some(&id))
        .unwrap();
    while let Some(mut hydration) = store.take_hydration() {
        let entries = hydration.read(1 << 20);
        store.hydrate(hydration, entries).unwrap();
    }
    let all = world.budget.used_bytes();
    assert!(all > keys * 120, "all keys are in memory: {all}");
    let target = all / 10 * 9;
    world.budget.set_target_bytes(Some(target));
    for batch in 0..4 {
        world.begin(&mut store);
        let before = store.families().cold_reads();
        for n in (batch..keys).step_by(100) {
            let found = store.get(FIRST_FAMILY, &key(n)).unwrap();
            assert_eq!(found, Some(value(n).as_slice()));
        }
        // About a quarter of the keys left.
        let read = store.families().cold_reads() - before;
        assert!(read < keys / 100 / 3, "{read} reads in batch {batch}");
        store.commit(&world.writer).unwrap();
        let used = world.budget.used_bytes();
        assert!(
            used <= target && used > target / 4 * 3,
            "{used} of {target}"
        );
    }
}

#[test]
fn where_a_limit_is_near_sessions_wait_for_what_lets_their_changelogs_leave_memory() {
    let (stores, keys) = (30, 10_000);
    let elsewhere = world();
    // Elsewhere there was room, and nothing was merged.
    let ids: Vec<_> = (0..stores)
        .map(|partition| {
            let mut store = elsewhere.store(partition);
            for batch in 0..3 {
                let numbers = batch * keys / 3..(batch + 1) * keys / 3;
                elsewhere.put(&mut store, numbers, 0);
            }
            elsewhere.commit_one(&mut store)
        })
        .collect();
    let limit = 20 * MIB;
    assert!(stores * keys * ENTRY_BYTES > 2 * limit);
    let world = World {
        budget: Arc::new(MemoryBudget::unlimited()),
        ..elsewhere
    };
    world.budget.set_limit_bytes(limit);
    let mut here = Vec::new();
    for (partition, id) in (0..).zip(&ids) {
        let mut store = world.unopened(partition);
        store
            .open(world.storage.as_ref(), id.version, Some(id))
            .unwrap();
        world.put(&mut store, keys..keys + 10, 0);
        here.push(store);
    }
    for store in &mut here {
        assert_eq!(store.families().keys(), keys + 11);
        world.begin(store);
        for n in (0..keys).step_by(1_997) {
            let found = store.get(FIRST_FAMILY, &key(n)).unwrap();
            assert_eq!(found, Some(value(n).as_slice()));
        }
        store.abort();
    }
    assert!(world.budget.used_bytes() <= limit);
}

#[test]
fn many_stores_that_rest_keep_no_blocks_that_they_read() {
    let (stores, keys) = (40, 4_000);
    let world = world();
    let mut resting: Vec<_> = (0..stores)
        .map(|partition| world.store(partition))
        .collect();
    for store in &mut resting {
        world.put(store, 0..keys, 0);
    }
    let all = world.budget.used_bytes();
    world.budget.set_target_bytes(Some(2 * MIB));
    for round in 0..6 {
        for store in &mut resting {
            world.begin(store);
            // Ten of each block of 16 KiB.
            for n in (0..keys).step_by(400) {
                let found = store.get(FIRST_FAMILY, &key(n)).unwrap();
                assert_eq!(found, Some(value(n).as_slice()));
            }
            store.put(FIRST_FAMILY, b"round", &value(round)).unwrap();
            store.commit(&world.writer).unwrap();
            world.writer.sync().unwrap();
        }
    }
    let used = world.budget.used_bytes();
    assert!(all > 10 * MIB, "{all}");
    assert!(used <= 2 * MIB, "{used} of {all}");
}

#[test]
fn state_whose_indexes_and_filters_alone_exceed_the_limit_can_be_used() {
    // About 1.4 bytes for each key, in groups of 65,536 keys.
    let keys: u64 = 1_600_000;
    let world = world();
    let mut store = world.store(0);
    for batch in 0..4 {
        world.begin(&mut store);
        for n in batch * keys / 4..(batch + 1) * keys / 4 {
            store
                .put(FIRST_FAMILY, &n.to_be_bytes(), &batch.to_le_bytes())
                .unwrap();
        }
        store.commit(&world.writer).unwrap();
        world.writer.sync().unwrap();
    }
    let task = store.merge_task(&world.writer, 1, &HashSet::new()).unwrap();
    let run = task.run(world.storage.as_ref(), &world.writer).unwrap();
    store.accept(run);
    world.writer.sync().unwrap();
    let id = world.commit_one(&mut store);
    drop(store);
    let limit = MIB;
    world.budget.set_limit_bytes(limit);
    let mut store = world.unopened(0);
    store
        .open(world.storage.as_ref(), id.version, Some(&id))
        .unwrap();
    for batch in 0..24 {
        world.begin(&mut store);
        // Three groups in a batch, and all of them in the end.
        for n in (batch * keys / 24..(batch + 1) * keys / 24).step_by(5_000) {
            let found = store.get(FIRST_FAMILY, &n.to_be_bytes()).unwrap();
            let written = n / (keys / 4);
            assert_eq!(found, Some(written.to_le_bytes().as_slice()));
        }
        store.commit(&world.writer).unwrap();
        let used = world.budget.used_bytes();
        assert!(used <= limit, "{used} in batch {batch}");
    }
    assert_eq!(store.families().keys(), keys + 1);
}

#[test]
fn small_stores_ask_for_no_merges_of_a_few_keys_however_short_memory_is() {
    let world = world();
    world.budget.set_target_bytes(Some(0));
    let mut store = world.store(0);
    for batch in 0..30 {
        assert!(!world.put(&mut store, batch..batch + 10, batch));
    }
}

#[test]
fn a_store_asks_for_a_merge_long_before_too_many_changelogs_have_gathered() {
    let world = world();
    let mut store = world.store(0);
    let asked: Vec<u64> = (0..400)
        .filter(|batch| world.put(&mut store, *batch..batch + 1, 0))
        .collect();
    assert_eq!(asked.first(), Some(&64));
    assert!(asked.len() < 8, "{asked:?}");
    assert!(store.unmerged() <= 66, "{}", store.unmerged());
    // All were merges during sessions: no commit wrote the whole state.
    assert_eq!(store.families().keys(), 400);
}
