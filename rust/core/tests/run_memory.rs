//! Memory of merging, writing and loading runs, by a counting allocator: it does not follow
//! the size of the store. The allocator is the process's, so these tests have one of their own, and
//! take turns.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::collections::HashSet;
use std::sync::Arc;

use common::memory::{Counting, peak_of, turn};
use common::plain;
use holdfast_core::segment::{SegmentWriter, WriterOptions};
use holdfast_core::state::{CommitId, FIRST_FAMILY, MemoryBudget, StateStore};
use holdfast_core::storage::{LocalStorage, Storage};
use holdfast_core::{Owner, Term};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const MIB: usize = 1 << 20;

/// Memory of a merge in addition to its inputs.
const OUTPUT_BYTES: usize = 10 * MIB;

/// 1 MiB of read-ahead and a page of the large input. Ten changelogs of 2,000 entries of 80 bytes
/// are held whole, twice.
const INPUT_BYTES: usize = 5 * MIB;

const BOUND_BYTES: usize = OUTPUT_BYTES + INPUT_BYTES;

/// A run of all that is in memory: nothing says how large it will be, and a buffer that grows takes three
/// times what is in it.
const UNEXPECTED_BYTES: usize = 5 * MIB;

struct World {
    _dir: tempfile::TempDir,
    storage: Arc<dyn Storage>,
    writer: SegmentWriter,
    store: StateStore,
    commits: u64,
}

fn key(n: u64) -> [u8; 16] {
    let mixed = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut key = [0; 16];
    for (to, from) in key.iter_mut().zip(mixed.to_be_bytes().iter().cycle()) {
        *to = *from;
    }
    key
}

/// Bytes that do not compress.
fn value(n: u64) -> Vec<u8> {
    let mut state = n;
    let bytes = std::iter::repeat_with(move || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 56) as u8
    });
    bytes.take(64).collect()
}

fn owner() -> Owner {
    Owner::new("", "0", "0", "default")
}

/// A store of so many keys, all of them in the first commit.
fn store_of(keys: u64) -> (World, CommitId) {
    let dir = tempfile::tempdir().unwrap();
    let storage: Arc<dyn Storage> = Arc::new(LocalStorage::new(dir.path()));
    let writer = SegmentWriter::open(Arc::clone(&storage), Term(1), WriterOptions::default());
    let mut store = StateStore::new(owner(), plain());
    store.open(storage.as_ref(), 0, None).unwrap();
    store.begin().unwrap();
    for n in 0..keys {
        store.put(FIRST_FAMILY, &key(n), &value(n)).unwrap();
    }
    let id = store.commit(&writer).unwrap();
    let world = World {
        _dir: dir,
        storage,
        writer,
        store,
        commits: 0,
    };
    (world, id)
}

impl World {
    fn commit(&mut self, changed: std::ops::Range<u64>) -> CommitId {
        self.store.begin().unwrap();
        self.commits += 1;
        for n in changed {
            let value = value(n + self.commits);
            self.store.put(FIRST_FAMILY, &key(n), &value).unwrap();
        }
        self.store.commit(&self.writer).unwrap()
    }

    /// Merges all there is to a run, and returns what that took.
    fn merge(&mut self) -> usize {
        self.writer.sync().unwrap();
        let due = self.store.merge_task(&self.writer, 1, &HashSet::new());
        let task = due.expect("a merge is due");
        let run = || task.run(self.storage.as_ref(), &self.writer).unwrap();
        let (image, peak) = peak_of(run);
        self.store.accept(image);
        peak
    }
}

/// Memory of merging a store of so many keys with ten changelogs, the first time from a changelog that
/// has everything, the second time from a run.
fn merges_of(keys: u64) -> [usize; 2] {
    let (mut world, _) = store_of(keys);
    [(); 2].map(|()| {
        for batch in 0..10 {
            world.commit(batch * 1_000..(batch + 2) * 1_000);
        }
        let peak = world.merge();
        // The image is what the next commits build on.
        world.commit(0..1);
        peak
    })
}

#[test]
fn a_merge_takes_as_much_for_a_small_store_as_for_a_large_one() {
    let _turn = turn();
    let small = merges_of(120_000);
    let large = merges_of(600_000);
    for (small, large) in small.into_iter().zip(large) {
        // 600,000 entries are 50 MiB.
        assert!(large < BOUND_BYTES, "{large} bytes");
        assert!(large < small + MIB, "{small} and {large} bytes");
    }
}

#[test]
fn a_run_from_memory_takes_16_bytes_a_key_and_no_copy_of_the_store() {
    let _turn = turn();
    let keys = 400_000;
    let (mut world, _) = store_of(keys);
    // A version that is made of more segments than a head may name is written as a whole.
    let files = |world: &World| world.storage.list().unwrap().len();
    let before = files(&world);
    let mut peak = 0;
    for batch in 1..=256 {
        (_, peak) = peak_of(|| world.commit(batch..batch + 1));
    }
    assert!(files(&world) > before, "the last commit wrote it all");
    let bound = 16 * keys as usize + BOUND_BYTES + UNEXPECTED_BYTES;
    assert!(peak < bound, "{peak} bytes, at most {bound}");
}

#[test]
fn a_load_takes_little_more_than_what_it_loads() {
    let _turn = turn();
    let keys = 400_000;
    let (mut world, _) = store_of(keys);
    for _ in 0..10 {
        world.commit(0..keys / 10);
    }
    world.merge();
    world.writer.sync().unwrap();
    let id = world.commit(0..100);
    world.writer.sync().unwrap();
    let mut other = StateStore::new(owner(), plain());
    let open = || other.open(world.storage.as_ref(), id.version, Some(&id));
    let (opened, peak) = peak_of(open);
    opened.unwrap();
    assert_eq!(other.families().keys(), keys);
    let kept = other.families().memory_bytes();
    // 8 bytes a key put the index in order while it is made.
    let bound = kept + 9 * keys as usize + BOUND_BYTES;
    assert!(peak < bound, "{peak} bytes, at most {bound}");
}

#[test]
fn what_leaves_memory_takes_no_copy_of_what_stays() {
    let _turn = turn();
    let keys = 400_000;
    let (mut world, _) = store_of(keys);
    for _ in 0..10 {
        world.commit(0..1);
    }
    world.merge();
    let id = world.commit(0..1);
    world.writer.sync().unwrap();
    let budget = Arc::new(MemoryBudget::unlimited());
    budget.set_target_bytes(Some(1));
    let mut store = StateStore::within(owner(), plain(), Arc::clone(&budget));
    store
        .open(world.storage.as_ref(), id.version, Some(&id))
        .unwrap();
    budget.set_target_bytes(None);
    // Changes of one session after the other: all of it was read, and is in the run.
    for session in 0..8 {
        store.begin().unwrap();
        for n in (0..keys).filter(|n| n % 8 == session) {
            assert!(store.get(FIRST_FAMILY, &key(n)).unwrap().is_some());
        }
        store.commit(&world.writer).unwrap();
    }
    let all = store.families().memory_bytes();
    // Room for all but about a fifth.
    budget.set_target_bytes(Some(all as u64 / 10 * 9));
    let (begun, peak) = peak_of(|| store.begin());
    begun.unwrap();
    let left = store.families().memory_bytes();
    assert!(left < all / 10 * 9 && left > all / 2, "{left} of {all}");
    assert_eq!(store.families().keys(), keys);
    // Slots in the order of their records, and the index in the order of its buckets.
    let bound = 16 * keys as usize + 4 * MIB;
    assert!(
        peak < bound,
        "{peak} bytes, at most {bound}, for {left} that stay"
    );
}

#[test]
fn a_session_that_leaves_memory_merges_its_runs_when_its_tables_are_gone() {
    let _turn = turn();
    let (mut world, _) = store_of(1);
    let keys_of_run = 100_000;
    let mut tables = 0;
    let (_, peak) = peak_of(|| {
        world.store.begin().unwrap();
        // One run more than a version may have, so that some are merged.
        for n in 0..10 * keys_of_run {
            world.store.put(FIRST_FAMILY, &key(n), &value(n)).unwrap();
            if (n + 1) % keys_of_run == 0 {
                tables = tables.max(world.store.families().memory_bytes());
                world.store.spill(&world.writer).unwrap();
            }
        }
        world.store.commit(&world.writer).unwrap()
    });
    // Changes are sorted by 16 bytes for each.
    let bound = tables + OUTPUT_BYTES + 16 * keys_of_run as usize;
    assert!(
        peak < bound,
        "{peak} bytes, at most {bound}, of which {tables} are tables"
    );
}
