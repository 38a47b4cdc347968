//! Requests to remote storage for keys that are not in memory, with and without a cache on the
//! local disk.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::collections::HashSet;
use std::sync::Arc;

use crate::common::faulty;
use holdfast_core::Term;
use holdfast_core::segment::{SegmentWriter, WriterOptions};
use holdfast_core::state::{
    CommitId, FIRST_FAMILY, FamilyOptions, KeyLayout, KeyRange, MemoryBudget, ScanOf, StateStore,
    inspect_segment,
};
use holdfast_core::storage::{CachedStorage, LocalCache, NearbyStorage, Storage};
use holdfast_core::{Owner, SegmentRef};
use holdfast_sim::{FaultyStorage, Operation};

/// Four groups of blocks, with values that do not compress: blocks of 120 keys.
const KEYS: u64 = 250_000;
const GROUPS: u64 = 4;

const CACHE_BYTES: u64 = 256 << 20;
const PAGE_BYTES: u64 = 256 << 10;

struct Remote {
    dir: tempfile::TempDir,
    storage: Arc<FaultyStorage>,
}

/// Requests so far: objects that were opened, and ranges that were read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Requests {
    opened: u64,
    read: u64,
}

impl Remote {
    fn empty() -> Self {
        let (dir, storage) = faulty();
        Self { dir, storage }
    }

    fn writer(&self, term: u64) -> SegmentWriter {
        let options = WriterOptions::default();
        SegmentWriter::open(self.storage.clone(), Term(term), options)
    }

    fn requests(&self) -> Requests {
        Requests {
            opened: self.storage.calls(Operation::Open),
            read: self.storage.calls(Operation::Read),
        }
    }

    fn since(&self, before: Requests) -> Requests {
        let now = self.requests();
        Requests {
            opened: now.opened - before.opened,
            read: now.read - before.read,
        }
    }

    /// This storage as another process reaches it.
    fn behind_cache(&self, cache_bytes: u64) -> Arc<CachedStorage> {
        let cache = Arc::new(LocalCache::default());
        let folder = self.dir.path().join("cache");
        cache.keep_in(&folder, cache_bytes).unwrap();
        Arc::new(CachedStorage::new(self.storage.clone(), cache))
    }
}

fn key(n: u64) -> [u8; 16] {
    let mut key = [0; 16];
    let mixed = n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
    key[8..].copy_from_slice(&mixed);
    key
}

fn value(n: u64) -> Vec<u8> {
    let mut mixed = n + 1;
    let words = std::iter::repeat_with(|| {
        mixed ^= mixed << 13;
        mixed ^= mixed >> 7;
        mixed ^= mixed << 17;
        mixed.to_le_bytes()
    });
    words.take(12).flatten().collect()
}

fn store(target_bytes: Option<u64>) -> StateStore {
    let budget = Arc::new(MemoryBudget::unlimited());
    budget.set_target_bytes(target_bytes);
    let layout = KeyLayout::Plain(FamilyOptions::default());
    StateStore::within(Owner::new("", "0", "7", "default"), layout, budget)
}

/// A base image of all keys and one changelog above it.
fn written(remote: &Remote) -> CommitId {
    let writer = remote.writer(1);
    let mut store = store(Some(u64::MAX - 1));
    store.open(remote.storage.as_ref(), 0, None).unwrap();
    store.begin().unwrap();
    for n in 0..KEYS {
        store.put(FIRST_FAMILY, &key(n), &value(n)).unwrap();
    }
    store.commit(&writer).unwrap();
    writer.sync().unwrap();
    // Every file wasteful: a base image is due.
    let files = remote.storage.list().unwrap().into_iter();
    let files = files.filter_map(|object| holdfast_core::FileId::parse(&object.name));
    let task = store.merge_task(&writer, 1, &files.collect()).unwrap();
    let image = task.run(remote.storage.as_ref(), &writer).unwrap();
    writer.sync().unwrap();
    store.accept(image);
    store.begin().unwrap();
    store.put(FIRST_FAMILY, b"last", b"").unwrap();
    let id = store.commit(&writer).unwrap();
    writer.seal().unwrap();
    id
}

fn remote() -> (Remote, CommitId) {
    let remote = Remote::empty();
    let id = written(&remote);
    (remote, id)
}

/// Reads keys far from each other, after one of each group.
fn look_up(store: &mut StateStore, keys: impl Iterator<Item = u64>) -> u64 {
    let before = store.stats().cold_reads;
    for n in keys {
        let found = store.get(FIRST_FAMILY, &key(n)).unwrap();
        assert_eq!(found, Some(value(n).as_slice()), "{n}");
    }
    store.stats().cold_reads - before
}

#[test]
fn a_cold_key_costs_one_request_once_its_group_is_there() {
    let (remote, id) = remote();
    let storage = remote.behind_cache(0);
    let before = remote.requests();
    let mut store = store(Some(1));
    store.open(storage.as_ref(), id.version, Some(&id)).unwrap();
    // Changelog and base image: an object each; head, body; trailer, directory, head in two parts.
    let opening = remote.since(before);
    assert!(opening.opened <= 2 && opening.read <= 5, "{opening:?}");
    // Keys in the order of their numbers are in any group: soon one of every group was asked for.
    let before = remote.requests();
    let blocks = look_up(&mut store, 0..64);
    let first = remote.since(before);
    assert_eq!(first.opened, 0);
    assert_eq!(first.read, blocks + GROUPS);
    let before = remote.requests();
    let blocks = look_up(&mut store, 1_000..2_000);
    let more = remote.since(before);
    assert_eq!(
        more,
        Requests {
            opened: 0,
            read: blocks
        }
    );
    assert!(blocks <= 1_000);
    // A key that is not there costs nothing, but where its group's filter takes it for another.
    let before = remote.requests();
    for n in KEYS..KEYS + 1_000 {
        assert_eq!(store.get(FIRST_FAMILY, &key(n)).unwrap(), None);
    }
    let absent = remote.since(before);
    assert_eq!(absent.opened, 0);
    assert!(absent.read < 20, "{absent:?}");
}

/// Deltas are small compared with an image, and above all of its keys.
#[test]
fn below_a_small_delta_run_a_cold_key_costs_one_read_and_a_key_that_is_nowhere_none() {
    let (remote, mut id) = remote();
    let writer = remote.writer(2);
    // With enough memory, lookups go to the run above the image.
    let mut changed = store(Some(u64::MAX - 1));
    changed
        .open(remote.storage.as_ref(), id.version, Some(&id))
        .unwrap();
    for batch in 0..8 {
        changed.mend(&writer).unwrap();
        changed.begin().unwrap();
        // A changed value: the one after the end of the others.
        for n in 200 * batch..200 * (batch + 1) {
            changed
                .put(FIRST_FAMILY, &key(n), &value(KEYS + n))
                .unwrap();
        }
        id = changed.commit(&writer).unwrap();
        writer.sync().unwrap();
        if batch == 6 {
            let due = changed.merge_task(&writer, 1, &HashSet::new()).unwrap();
            assert!(!due.makes_base_image());
            changed.accept(due.run(remote.storage.as_ref(), &writer).unwrap());
            writer.sync().unwrap();
        }
    }
    writer.seal().unwrap();
    assert_eq!((changed.merged_runs(), changed.unmerged()), (2, 1));
    let delta = inspect_segment(remote.storage.as_ref(), &id.segment.unwrap());
    let delta = delta.unwrap().head.lineage[1];
    let index = inspect_segment(remote.storage.as_ref(), &delta)
        .unwrap()
        .index;
    assert!(delta.len < 256 << 10 && index.unwrap().blocks > 8);
    let mut store = store(Some(1));
    store
        .open(remote.storage.as_ref(), id.version, Some(&id))
        .unwrap();
    let blocks = look_up(&mut store, 2_000..4_000);
    assert!(blocks <= 2_020, "{blocks} of 2,000 keys");
    let before = store.stats().cold_reads;
    for n in KEYS..KEYS + 1_000 {
        assert_eq!(store.get(FIRST_FAMILY, &key(n)).unwrap(), None);
    }
    let absent = store.stats().cold_reads - before;
    assert!(absent < 20, "{absent} of 1,000 keys");
    for n in 0..1_400 {
        let found = store.get(FIRST_FAMILY, &key(n)).unwrap();
        assert_eq!(found, Some(value(KEYS + n).as_slice()), "{n}");
    }
}

/// If memory is short, small stores are not in memory either.
#[test]
fn small_runs_have_filters_where_memory_was_short() {
    for is_short in [false, true] {
        let remote = Remote::empty();
        let writer = remote.writer(1);
        let mut store = store(Some(if is_short { 1 } else { u64::MAX - 1 }));
        store.open(remote.storage.as_ref(), 0, None).unwrap();
        for batch in 0..4 {
            store.mend(&writer).unwrap();
            store.begin().unwrap();
            for n in 400 * batch..400 * (batch + 1) {
                store.put(FIRST_FAMILY, &key(n), &value(n)).unwrap();
            }
            store.commit(&writer).unwrap();
            writer.sync().unwrap();
        }
        let image = store.merge_task(&writer, 1, &HashSet::new()).unwrap();
        assert!(image.makes_base_image());
        let image = image.run(remote.storage.as_ref(), &writer).unwrap();
        writer.sync().unwrap();
        store.accept(image);
        store.begin().unwrap();
        let id = store.commit(&writer).unwrap();
        let inspect = |s: &SegmentRef| inspect_segment(remote.storage.as_ref(), s).unwrap();
        let changelog = inspect(&id.segment.unwrap());
        let report = inspect(&changelog.head.lineage[0]);
        let index = report.index.unwrap();
        assert!(index.blocks > 8);
        // Loaded whole, it needs none.
        assert_eq!(index.filters, u64::from(is_short));
    }
}

#[test]
fn with_a_local_cache_each_page_is_fetched_once() {
    let (remote, id) = remote();
    let storage = remote.behind_cache(CACHE_BYTES);
    let before = remote.requests();
    let mut store = store(Some(1));
    store.open(storage.as_ref(), id.version, Some(&id)).unwrap();
    let opening = remote.since(before);
    assert!(opening.opened <= 2 && opening.read <= 3, "{opening:?}");
    let bytes: u64 = remote.storage.list().unwrap().iter().map(|o| o.len).sum();
    let pages = bytes.div_ceil(PAGE_BYTES) + 2;
    let before = remote.requests();
    let blocks = look_up(&mut store, 0..2_000);
    let fetched = remote.since(before);
    assert!(blocks > pages);
    assert!(fetched.read <= pages, "{fetched:?}, {pages} pages");
    let before = remote.requests();
    look_up(&mut store, 2_000..4_000);
    let again = remote.since(before);
    assert!(fetched.read + again.read <= pages);
}

#[test]
fn a_scan_of_cold_keys_reads_ahead() {
    let (remote, id) = remote();
    // A read for each block and group, or for 4 MiB at a time.
    for (cache_bytes, most_reads) in [(0, KEYS / 100), (CACHE_BYTES, 16)] {
        let storage = remote.behind_cache(cache_bytes);
        let mut store = store(Some(1));
        store.open(storage.as_ref(), id.version, Some(&id)).unwrap();
        let before = remote.requests();
        let mut out = Vec::new();
        let all = ScanOf::Keys(KeyRange::All);
        let mut batch = store.scan(FIRST_FAMILY, all, 64 << 10, &mut out).unwrap();
        let mut entries = batch.entries;
        while let Some(scan) = batch.scan {
            out.clear();
            batch = store.scan_on(scan, 64 << 10, &mut out).unwrap();
            entries += batch.entries;
        }
        assert_eq!(u64::from(entries), KEYS + 1);
        let requests = remote.since(before);
        assert!(requests.read <= most_reads, "{requests:?}");
    }
}

/// A new executor opens many stores, of which batches changed a little each.
#[test]
fn stores_that_are_opened_together_read_each_object_once() {
    for merges in [false, true] {
        let remote = Remote::empty();
        let writer = remote.writer(1);
        let budget = Arc::new(MemoryBudget::unlimited());
        budget.set_target_bytes(Some(1 << 30));
        let store_of = |partition: usize| {
            let owner = Owner::new("", "0", &partition.to_string(), "default");
            let layout = KeyLayout::Plain(FamilyOptions::default());
            StateStore::within(owner, layout, Arc::clone(&budget))
        };
        let mut stores: Vec<_> = (0..20).map(store_of).collect();
        for store in &mut stores {
            store.open(remote.storage.as_ref(), 0, None).unwrap();
        }
        let mut ids = Vec::new();
        for batch in 0..8 {
            ids.clear();
            for store in &mut stores {
                store.mend(&writer).unwrap();
                store.begin().unwrap();
                for n in 50 * batch..50 * (batch + 1) {
                    store.put(FIRST_FAMILY, &key(n), &value(n)).unwrap();
                }
                ids.push(store.commit(&writer).unwrap());
            }
            writer.seal().unwrap();
            if merges && batch == 4 {
                for store in &mut stores {
                    let task = store.merge_task(&writer, 1, &HashSet::new()).unwrap();
                    store.accept(task.run(remote.storage.as_ref(), &writer).unwrap());
                }
                writer.seal().unwrap();
            }
        }
        drop(stores);
        let objects = remote.storage.list().unwrap().len() as u64;
        assert_eq!(objects, if merges { 9 } else { 8 });
        let nearby = NearbyStorage::new(remote.storage.clone(), 64 << 20);
        let before = remote.requests();
        for (partition, id) in ids.iter().enumerate() {
            let mut store = store_of(partition);
            store.open(&nearby, id.version, Some(id)).unwrap();
            assert_eq!(store.merged_runs(), usize::from(merges));
            assert_eq!(look_up(&mut store, 0..400), 0);
        }
        // A merged store needs only the later batches.
        let needed = if merges { 4 } else { 8 };
        let opened = remote.since(before);
        assert_eq!((opened.opened, opened.read), (needed, needed));
    }
}

#[test]
fn a_run_is_verified_with_a_read_for_each_mib() {
    let (remote, id) = remote();
    let storage = NearbyStorage::new(remote.storage.clone(), 64 << 20);
    let newest = inspect_segment(&storage, &id.segment.unwrap()).unwrap();
    let run = newest.head.lineage[0];
    let before = remote.requests();
    let report = inspect_segment(&storage, &run).unwrap();
    assert_eq!(report.head.entries, KEYS);
    let verified = remote.since(before);
    // Once in the order of the file, and once as single keys are looked up.
    let reads = 2 * (run.len.div_ceil(1 << 20) + GROUPS);
    assert!(run.len > 20 << 20);
    assert!(
        verified.opened <= 1 && verified.read <= reads,
        "{verified:?}, expected {reads} reads"
    );
}
