//! Stores whose keys stay in a run because memory is limited, against plain maps: sessions, aborts,
//! rewinds, loads, merges, scans; and what happens when the run cannot be read.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use crate::common::{Entries, faulty, parse};
use holdfast_core::segment::{SegmentWriter, WriterOptions};
use holdfast_core::state::{
    CommitId, FIRST_FAMILY, FamilyOptions, KeyLayout, KeyRange, MemoryBudget, MergedRun, ScanBatch,
    ScanOf, SharedStore, StateStore, StoreFolder,
};
use holdfast_core::storage::Storage;
use holdfast_core::{ErrorKind, FileId, Owner, Result, Term};
use holdfast_sim::{FaultyStorage, Operation};
use proptest::prelude::*;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

const MIB: u64 = 1 << 20;

struct World {
    dir: tempfile::TempDir,
    storage: Arc<FaultyStorage>,
    folder: Arc<StoreFolder>,
    budget: Arc<MemoryBudget>,
    layout: KeyLayout,
}

fn world(ordered: bool, limit_bytes: u64) -> World {
    let (dir, storage) = faulty();
    let writer = SegmentWriter::open(storage.clone(), Term(1), WriterOptions::default());
    let budget = Arc::new(MemoryBudget::unlimited());
    budget.set_limit_bytes(limit_bytes);
    let layout = KeyLayout::Plain(FamilyOptions {
        ordered,
        ..FamilyOptions::default()
    });
    World {
        dir,
        folder: StoreFolder::new(storage.clone(), Some(writer)),
        storage,
        budget,
        layout,
    }
}

impl World {
    fn owner(&self) -> Owner {
        Owner::new("", "0", "7", "default")
    }

    fn store(&self) -> StateStore {
        StateStore::within(self.owner(), self.layout, Arc::clone(&self.budget))
    }

    fn writer(&self) -> &SegmentWriter {
        self.folder.writer().unwrap()
    }

    fn shared(&self, store: StateStore) -> SharedStore {
        SharedStore::new(Arc::clone(&self.folder), store)
    }

    fn load(&self, id: &CommitId) -> StateStore {
        let mut store = self.store();
        store
            .open(self.storage.as_ref(), id.version, Some(id))
            .unwrap();
        store
    }

    /// Another store of the process that has so much that the others keep in memory what they use.
    fn ballast(&self, bytes: u64) -> StateStore {
        let owner = Owner::new("", "1", "0", "default");
        let layout = KeyLayout::Plain(FamilyOptions::default());
        let mut store = StateStore::within(owner, layout, Arc::clone(&self.budget));
        store.open(self.storage.as_ref(), 0, None).unwrap();
        store.begin().unwrap();
        store
            .put(FIRST_FAMILY, b"ballast", &vec![0; bytes as usize])
            .unwrap();
        store
    }

    fn begin(&self, store: &mut StateStore) {
        store.mend(self.writer()).unwrap();
        store.begin().unwrap();
    }

    /// Merges what is due to a run, which the next session builds on, or everything to a base image.
    fn merge(&self, store: &mut StateStore, always: bool) {
        if let Some(image) = self.merged(store, always) {
            store.accept(image);
        }
    }

    /// Every file, where everything is to be merged.
    fn wasteful(&self, always: bool) -> HashSet<FileId> {
        let files = self.storage.list().unwrap();
        let files = files.iter().filter(|_| always);
        files.filter_map(|o| FileId::parse(&o.name)).collect()
    }

    fn merged(&self, store: &mut StateStore, always: bool) -> Option<MergedRun> {
        self.writer().sync().unwrap();
        let files = self.wasteful(always);
        let task = store.merge_task(self.writer(), 1, &files)?;
        let image = task.run(self.storage.as_ref(), self.writer()).unwrap();
        self.writer().sync().unwrap();
        Some(image)
    }
}

/// A scan that is read batch by batch.
struct Scan {
    batch: ScanBatch,
    entries: Entries,
    max_bytes: usize,
}

impl Scan {
    fn begin(store: &mut StateStore, range: KeyRange<'_>, max_bytes: usize) -> Self {
        let (mut bytes, mut entries) = (Vec::new(), Entries::new());
        let what = ScanOf::Keys(range);
        let batch = store
            .scan(FIRST_FAMILY, what, max_bytes, &mut bytes)
            .unwrap();
        parse(&bytes, &mut entries);
        assert_eq!(entries.len(), batch.entries as usize);
        Self {
            batch,
            entries,
            max_bytes,
        }
    }

    fn end(mut self, store: &mut StateStore, ordered: bool) -> Entries {
        while let Some(scan) = self.batch.scan {
            let mut bytes = Vec::new();
            self.batch = store.scan_on(scan, self.max_bytes, &mut bytes).unwrap();
            assert!(self.batch.entries > 0);
            parse(&bytes, &mut self.entries);
        }
        if !ordered {
            self.entries.sort();
        }
        self.entries
    }
}

fn scan(store: &mut StateStore, range: KeyRange<'_>, max_bytes: usize, ordered: bool) -> Entries {
    Scan::begin(store, range, max_bytes).end(store, ordered)
}

fn check(store: &mut StateStore, model: &Model, max_bytes: usize, ordered: bool) {
    assert_eq!(store.families().keys(), model.len() as u64);
    let all = scan(store, KeyRange::All, max_bytes, ordered);
    assert!(all.into_iter().eq(model.clone()));
    if !ordered {
        return;
    }
    let (low, high) = (key_of(20), key_of(70));
    for (from, to) in [
        (Some(&low), None),
        (None, Some(&high)),
        (Some(&low), Some(&high)),
    ] {
        let range = KeyRange::Between {
            from: from.map(Vec::as_slice),
            to: to.map(Vec::as_slice),
        };
        let found = scan(store, range, max_bytes, ordered);
        let inside = model.iter().filter(|(key, _)| {
            from.is_none_or(|from| *key >= from) && to.is_none_or(|to| *key < to)
        });
        assert!(found.iter().map(|(k, v)| (k, v)).eq(inside));
    }
    for prefix in [&[][..], &[2], &[2, 2, 2], &[9]] {
        let found = scan(store, KeyRange::Prefix(prefix), max_bytes, ordered);
        let inside = model.iter().filter(|(key, _)| key.starts_with(prefix));
        assert!(found.iter().map(|(k, v)| (k, v)).eq(inside));
    }
}

/// Keys that are prefixes of others, and shared beginnings.
fn key_of(k: u8) -> Vec<u8> {
    vec![k / 12; usize::from(k % 12) + 1]
}

/// A store of many keys with changes above them: values that are new, keys that are new, and removals.
fn changed_store(world: &World) -> (CommitId, Model) {
    let mut store = world.store();
    let mut model = Model::new();
    store.open(world.storage.as_ref(), 0, None).unwrap();
    let key = |number: u32| number.to_be_bytes().to_vec();
    let mut session = |store: &mut StateStore, puts: &[u32], removals: &[u32], value: u8| {
        world.begin(store);
        for number in puts {
            let value = vec![value; 100];
            store.put(FIRST_FAMILY, &key(*number), &value).unwrap();
            model.insert(key(*number), value);
        }
        for number in removals {
            let was_there = model.remove(&key(*number)).is_some();
            assert_eq!(
                store.remove(FIRST_FAMILY, &key(*number)).unwrap(),
                was_there
            );
        }
        store.commit(world.writer()).unwrap()
    };
    let all: Vec<u32> = (0..20_000).collect();
    session(&mut store, &all, &[], 0);
    world.merge(&mut store, true);
    let every: Vec<u32> = all.iter().copied().step_by(37).collect();
    session(&mut store, &every, &[5, 6, 30_000], 1);
    session(&mut store, &[5, 40_000, 40_001], &every[..9], 2);
    let id = session(&mut store, &[40_001], &[40_000, 7], 3);
    world.writer().sync().unwrap();
    (id, model)
}

#[test]
fn a_load_over_a_run_reads_none_of_its_entries() {
    let world = world(false, u64::MAX);
    world.budget.set_target_bytes(Some(1));
    let (id, model) = changed_store(&world);
    let mut store = world.load(&id);
    assert_eq!(store.stats().cold_reads, 0);
    assert_eq!(store.families().keys(), model.len() as u64);
    assert_eq!(store.stats().cold_reads, 0);
    let known = 11u32.to_be_bytes();
    assert_eq!(
        store.get(FIRST_FAMILY, &known).unwrap(),
        Some(&[0; 100][..])
    );
    assert_eq!(store.stats().cold_reads, 1);
    check(&mut store, &model, 4096, false);
    // Later changes count right as well.
    world.begin(&mut store);
    assert!(!store.remove(FIRST_FAMILY, &7u32.to_be_bytes()).unwrap());
    assert!(store.remove(FIRST_FAMILY, &8u32.to_be_bytes()).unwrap());
    assert_eq!(store.families().keys(), model.len() as u64 - 1);
}

#[test]
fn changelogs_that_do_not_say_how_many_keys_there_are_are_loaded_over_a_run() {
    let world = world(false, u64::MAX);
    let (id, model) = changed_store(&world);
    world.budget.set_target_bytes(Some(1));
    let mut store = world.load(&id);
    assert!(store.stats().cold_reads > 0);
    check(&mut store, &model, 4096, false);
}

#[derive(Clone, Debug)]
enum Step {
    Put(u8, u8, u16),
    Remove(u8),
    Get(u8),
    /// A scan that begins, and is read to its end when the next one begins or the session ends.
    Scan,
    Commit,
    Abort,
    CommitAndRewind,
    /// Commit, then continue in another store.
    CommitAndLoad,
    /// Commit, and merge to a base image, or what is due.
    CommitAndMerge(bool),
    /// Like the one before, with a run on which the next session but one builds.
    CommitAndMergeLate(bool),
    /// Commit, and let maintenance come until the store gives back what it can.
    CommitAndRest,
    /// Commit, then a load that a damaged base image forces to write a new one.
    CommitAndReplay,
    /// There is room for all from here on, or for what is used.
    Room(bool),
}

fn step() -> impl Strategy<Value = Step> {
    let key = 0u8..96;
    prop_oneof![
        10 => (key.clone(), any::<u8>(), 0u16..1500).prop_map(|(k, fill, len)| Step::Put(k, fill, len)),
        6 => key.clone().prop_map(Step::Remove),
        6 => key.prop_map(Step::Get),
        2 => Just(Step::Scan),
        3 => Just(Step::Commit),
        1 => Just(Step::Abort),
        1 => Just(Step::CommitAndRewind),
        1 => Just(Step::CommitAndLoad),
        3 => any::<bool>().prop_map(Step::CommitAndMerge),
        3 => any::<bool>().prop_map(Step::CommitAndMergeLate),
        2 => Just(Step::CommitAndRest),
        1 => Just(Step::CommitAndReplay),
        1 => any::<bool>().prop_map(Step::Room),
    ]
}

fn goes_on_elsewhere(step: &Step) -> bool {
    matches!(step, Step::CommitAndLoad | Step::CommitAndReplay)
}

/// One history: every step against a map.
fn play(steps: &[Step], max_bytes: usize, ordered: bool) {
    let world = world(ordered, 8 * MIB);
    let _ballast = world.ballast(7 * MIB);
    let mut shared = world.shared(world.store());
    shared.open(0, None).unwrap();
    let mut now = Model::new();
    shared.begin().unwrap();
    let mut store = shared.lock();
    for k in (0..96).step_by(2) {
        store.put(FIRST_FAMILY, &key_of(k), &[k; 900]).unwrap();
        now.insert(key_of(k), vec![k; 900]);
    }
    let mut id = store.commit(world.writer()).unwrap();
    world.merge(&mut store, true);
    let mut committed = now.clone();
    let mut open: Option<(Scan, Model)> = None;
    let mut late = None;
    let mut held = None;
    world.budget.set_load_bytes(0);
    drop(store);
    shared.begin().unwrap();
    let reads = world.storage.calls(Operation::Read);
    check(&mut shared.lock(), &now, max_bytes, ordered);
    assert!(world.storage.calls(Operation::Read) > reads, "from the run");
    for step in steps {
        let mut store = shared.lock();
        // The bytes that one step reads are handed over in the next one, whatever that is.
        if let Some((hydration, read)) = held.take() {
            store.hydrate(hydration, read).unwrap();
        }
        held = store.take_hydration().map(|mut hydration| {
            let read = hydration.read(max_bytes);
            (hydration, read)
        });
        if !matches!(
            step,
            Step::Put(..) | Step::Remove(_) | Step::Get(_) | Step::Room(_)
        ) && let Some((scan, then)) = open.take()
        {
            assert!(scan.end(&mut store, ordered).into_iter().eq(then));
        }
        match step {
            Step::Put(k, fill, len) => {
                let value = vec![*fill; usize::from(*len)];
                store.put(FIRST_FAMILY, &key_of(*k), &value).unwrap();
                now.insert(key_of(*k), value);
                continue;
            }
            Step::Remove(k) => {
                let there = now.remove(&key_of(*k)).is_some();
                assert_eq!(store.remove(FIRST_FAMILY, &key_of(*k)).unwrap(), there);
                continue;
            }
            Step::Get(k) => {
                let found = store.get(FIRST_FAMILY, &key_of(*k)).unwrap();
                assert_eq!(found, now.get(&key_of(*k)).map(Vec::as_slice));
                continue;
            }
            Step::Scan => {
                let begun = Scan::begin(&mut store, KeyRange::All, max_bytes);
                open = Some((begun, now.clone()));
                continue;
            }
            Step::Room(for_all) => {
                world
                    .budget
                    .set_limit_bytes(if *for_all { 64 * MIB } else { 8 * MIB });
                continue;
            }
            Step::Abort => {
                store.abort();
                drop(store);
                now = committed.clone();
            }
            Step::CommitAndRewind => {
                store.commit(world.writer()).unwrap();
                let loads = store.stats().loads;
                store
                    .open(world.storage.as_ref(), id.version, Some(&id))
                    .unwrap();
                assert_eq!(store.stats().loads, loads, "served by undo");
                drop(store);
                now = committed.clone();
            }
            _ => {
                let before = id;
                id = store.commit(world.writer()).unwrap();
                committed = now.clone();
                world.writer().sync().unwrap();
                if let Some(image) = late.take().filter(|_| !goes_on_elsewhere(step)) {
                    store.accept(image);
                }
                if let Step::CommitAndMergeLate(always) = step {
                    late = world.merged(&mut store, *always);
                }
                drop(store);
                match step {
                    Step::CommitAndMerge(always) => {
                        shared.maintain(1, &world.wasteful(*always)).unwrap();
                        world.writer().sync().unwrap();
                    }
                    Step::CommitAndRest => {
                        for _ in 0..4 {
                            shared.maintain(usize::MAX, &HashSet::new()).unwrap();
                        }
                    }
                    Step::CommitAndLoad => shared = world.shared(world.load(&id)),
                    Step::CommitAndReplay => {
                        shared = world.shared(world.store());
                        let from = (before.version, Some(&before));
                        shared
                            .lock()
                            .replay(world.storage.as_ref(), from, &id.into(), &[id])
                            .unwrap();
                    }
                    _ => {}
                }
            }
        }
        check(&mut shared.lock(), &now, max_bytes, ordered);
        shared.begin().unwrap();
    }
    check(&mut shared.lock(), &now, max_bytes, ordered);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]
    #[test]
    fn the_content_equals_a_map(
        steps in prop::collection::vec(step(), 1..80), max_bytes in 16usize..4000, ordered in any::<bool>()
    ) {
        play(&steps, max_bytes, ordered);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10_000))]
    /// `cargo test -p holdfast-core --test all state_over_run -- --ignored` takes minutes.
    #[test]
    #[ignore = "10,000 histories"]
    fn the_content_equals_a_map_in_many_histories(
        steps in prop::collection::vec(step(), 1..120), max_bytes in 16usize..4000, ordered in any::<bool>()
    ) {
        play(&steps, max_bytes, ordered);
    }
}

fn number(n: u64) -> [u8; 16] {
    let mut key = [0; 16];
    let mixed = n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
    key[8..].copy_from_slice(&mixed);
    key
}

fn value(n: u64) -> Vec<u8> {
    n.to_le_bytes().repeat(12)
}

/// A store of so many keys in memory for a fraction of them, and its newest id.
fn grown(world: &World, keys: u64) -> (StateStore, CommitId) {
    let mut store = world.store();
    store.open(world.storage.as_ref(), 0, None).unwrap();
    for batch in 0..keys / 4_000 {
        world.begin(&mut store);
        for n in batch * 4_000..(batch + 1) * 4_000 {
            store.put(FIRST_FAMILY, &number(n), &value(n)).unwrap();
        }
        store.commit(world.writer()).unwrap();
        world.merge(&mut store, false);
    }
    world.merge(&mut store, true);
    world.begin(&mut store);
    store.put(FIRST_FAMILY, b"last", b"").unwrap();
    let id = store.commit(world.writer()).unwrap();
    world.writer().sync().unwrap();
    (store, id)
}

#[test]
fn a_store_several_times_as_large_as_the_limit_is_read_scanned_changed_and_loaded() {
    let keys = 120_000;
    let limit = 6 * MIB;
    for ordered in [false, true] {
        let world = world(ordered, limit);
        let (store, id) = grown(&world, keys);
        assert_eq!(store.families().keys(), keys + 1);
        assert!(world.budget.used_bytes() <= limit);
        drop(store);
        let mut store = world.load(&id);
        assert_eq!(store.families().keys(), keys + 1);
        assert!(
            world.budget.used_bytes() < MIB,
            "{}",
            world.budget.used_bytes()
        );
        world.begin(&mut store);
        for n in (0..keys).step_by(1_009) {
            let found = store.get(FIRST_FAMILY, &number(n)).unwrap();
            assert_eq!(found, Some(value(n).as_slice()));
            assert_eq!(store.get(FIRST_FAMILY, &number(keys + n)).unwrap(), None);
        }
        // Looks at everything and removes some, like an eviction by watermark.
        let mut begun = Scan::begin(&mut store, KeyRange::All, 32 << 10);
        let mut seen = 0;
        loop {
            for (key, found) in std::mem::take(&mut begun.entries) {
                seen += 1;
                if found.first().is_some_and(|byte| byte % 16 == 3) {
                    assert!(store.remove(FIRST_FAMILY, &key).unwrap());
                }
            }
            let Some(scan) = begun.batch.scan else { break };
            let mut bytes = Vec::new();
            begun.batch = store.scan_on(scan, 32 << 10, &mut bytes).unwrap();
            parse(&bytes, &mut begun.entries);
        }
        assert_eq!(seen, keys + 1);
        let left = keys - keys / 16 + 1;
        assert_eq!(store.families().keys(), left);
        let id = store.commit(world.writer()).unwrap();
        assert!(world.budget.used_bytes() <= limit);
        world.writer().sync().unwrap();
        let mut other = world.load(&id);
        assert_eq!(other.families().keys(), left);
        assert_eq!(other.get(FIRST_FAMILY, &number(3)).unwrap(), None);
        assert_eq!(
            other.get(FIRST_FAMILY, &number(4)).unwrap(),
            Some(value(4).as_slice())
        );
        world.merge(&mut store, false);
        world.begin(&mut store);
        assert_eq!(store.families().keys(), left);
        assert_eq!(store.get(FIRST_FAMILY, &number(3)).unwrap(), None);
        store.abort();
    }
}

#[test]
fn what_was_not_touched_for_longest_leaves_memory_first() {
    let world = world(false, u64::MAX);
    let (store, id) = grown(&world, 40_000);
    drop(store);
    world.budget.set_target_bytes(Some(1));
    let mut store = world.load(&id);
    world.budget.set_target_bytes(None);
    let keys_of = |session: u64| session * 2_000..(session + 1) * 2_000;
    for session in 0..6 {
        world.begin(&mut store);
        for n in keys_of(session) {
            store.get(FIRST_FAMILY, &number(n)).unwrap();
        }
        store.commit(world.writer()).unwrap();
    }
    let all = world.budget.used_bytes();
    let target = all / 3 * 2;
    world.budget.set_target_bytes(Some(target));
    world.begin(&mut store);
    let left = world.budget.used_bytes();
    assert!(left <= target, "{left} of {all}, the target is {target}");
    // Not everything: the next sessions have some room and need not look again.
    assert!(left > target / 3, "{left} of {all}, the target is {target}");
    assert_eq!(store.families().keys(), 40_001);
    let cold = |store: &mut StateStore, session: u64| {
        let before = store.stats().cold_reads;
        for n in keys_of(session) {
            let found = store.get(FIRST_FAMILY, &number(n)).unwrap();
            assert_eq!(found, Some(value(n).as_slice()));
        }
        store.stats().cold_reads > before
    };
    let found: Vec<bool> = (0..6).rev().map(|n| cold(&mut store, n)).collect();
    assert_eq!(found[..2], [false; 2], "{found:?}");
    assert!(found[4] && found[5], "{found:?}");
}

#[test]
fn stores_give_up_their_part_of_what_is_too_much() {
    let world = world(false, u64::MAX);
    let (store, id) = grown(&world, 20_000);
    drop(store);
    world.budget.set_target_bytes(Some(1));
    let [mut one, mut other] = [world.load(&id), world.load(&id)];
    world.budget.set_target_bytes(None);
    for store in [&mut one, &mut other] {
        for keys in [0..10_000, 10_000..20_000, 0..1] {
            world.begin(store);
            for n in keys {
                store.get(FIRST_FAMILY, &number(n)).unwrap();
            }
            store.commit(world.writer()).unwrap();
        }
    }
    let all = world.budget.used_bytes();
    world.budget.set_target_bytes(Some(all / 4 * 3));
    world.begin(&mut one);
    let of_one = one.families().memory_bytes();
    let of_other = other.families().memory_bytes();
    // About half of its own: not all that is too much.
    assert!(
        of_one > of_other / 4 && of_one < of_other,
        "{of_one}, {of_other}"
    );
    world.begin(&mut other);
    assert!(world.budget.used_bytes() <= all / 4 * 3);
}

#[test]
fn a_store_that_rests_gives_back_what_a_base_image_has() {
    let world = world(true, u64::MAX);
    let (mut store, id) = grown(&world, 20_000);
    let all = store.families().memory_bytes();
    let rest = |store: &mut StateStore| {
        store.rest(world.writer()).unwrap();
        store.families().memory_bytes()
    };
    // There is room for all.
    assert_eq!([rest(&mut store), rest(&mut store)], [all, all]);
    let ballast = world.ballast(MIB);
    world.budget.set_target_bytes(Some(MIB));
    // A used one is kept: when maintenance comes first after that, and while it is read.
    world.begin(&mut store);
    store.abort();
    let before = store.families().memory_bytes();
    assert_eq!(rest(&mut store), before);
    let reader = Scan::begin(&mut store, KeyRange::All, 4096);
    assert_eq!(rest(&mut store), before);
    assert_eq!(reader.end(&mut store, true).len(), 20_001);
    // Then it rests: what was touched last goes, too, in the end.
    rest(&mut store);
    rest(&mut store);
    assert!(rest(&mut store) < all / 10, "{}", rest(&mut store));
    assert_eq!(store.families().keys(), 20_001);
    drop(ballast);
    // It continues where it was, and the version before it is loaded instead of undone.
    let (loads, version) = (store.stats().loads, id.version);
    store
        .open(world.storage.as_ref(), version, Some(&id))
        .unwrap();
    assert_eq!(store.stats().loads, loads);
    world.begin(&mut store);
    assert_eq!(
        store.get(FIRST_FAMILY, &number(77)).unwrap(),
        Some(value(77).as_slice())
    );
    store.put(FIRST_FAMILY, &number(77), b"other").unwrap();
    let next = store.commit(world.writer()).unwrap();
    world.writer().sync().unwrap();
    let found = world
        .load(&next)
        .get(FIRST_FAMILY, &number(77))
        .map(|v| v.map(<[u8]>::to_vec));
    assert_eq!(found.unwrap(), Some(b"other".to_vec()));
}

#[test]
fn a_store_that_rests_with_what_no_base_image_has_is_due_for_one() {
    let world = world(false, u64::MAX);
    let mut store = world.store();
    store.open(world.storage.as_ref(), 0, None).unwrap();
    for batch in 0..2 {
        world.begin(&mut store);
        for n in 0..5_000 {
            store
                .put(FIRST_FAMILY, &number(batch * 5_000 + n), &value(n))
                .unwrap();
        }
        store.commit(world.writer()).unwrap();
        world.merge(&mut store, batch == 0);
    }
    world.begin(&mut store);
    store.put(FIRST_FAMILY, &number(1), b"").unwrap();
    store.commit(world.writer()).unwrap();
    let all = store.families().memory_bytes();
    let _ballast = world.ballast(MIB);
    world.budget.set_target_bytes(Some(MIB));
    let maintain = |store: &mut StateStore| {
        store.rest(world.writer()).unwrap();
        world.merge(store, false);
    };
    for _ in 0..6 {
        maintain(&mut store);
    }
    assert!(store.families().memory_bytes() < all / 10);
    assert_eq!(store.families().keys(), 10_000);
    assert_eq!(store.get(FIRST_FAMILY, &number(1)).unwrap(), Some(&b""[..]));
}

#[test]
fn without_a_limit_everything_is_in_memory() {
    let world = world(false, 6 * MIB);
    let (store, id) = grown(&world, 40_000);
    drop(store);
    world.budget.set_limit_bytes(u64::MAX);
    let mut store = world.load(&id);
    assert!(world.budget.used_bytes() > 5 * MIB);
    (1..=100).for_each(|nth| world.storage.fail_nth(Operation::Read, nth));
    assert_eq!(
        store.get(FIRST_FAMILY, &number(1)).unwrap(),
        Some(value(1).as_slice())
    );
}

#[test]
fn a_read_that_fails_changes_nothing_and_is_tried_again() {
    let world = world(true, 6 * MIB);
    let (store, id) = grown(&world, 40_000);
    drop(store);
    let _ballast = world.ballast(4 * MIB);
    let mut store = world.load(&id);
    world.begin(&mut store);
    let acts: [fn(&mut StateStore) -> Result<()>; 4] = [
        |store| store.get(FIRST_FAMILY, &number(1)).map(|_| ()),
        |store| store.put(FIRST_FAMILY, &number(2), b"new"),
        |store| store.remove(FIRST_FAMILY, &number(3)).map(|_| ()),
        |store| {
            let what = ScanOf::Keys(KeyRange::All);
            store
                .scan(FIRST_FAMILY, what, 100, &mut Vec::new())
                .map(|_| ())
        },
    ];
    for (act, keys) in acts.into_iter().zip([40_001, 40_001, 40_001, 40_000]) {
        (1..=100).for_each(|nth| world.storage.fail_nth(Operation::Read, nth));
        let error = act(&mut store).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Storage, "{error}");
        assert_eq!(store.families().keys(), keys);
        world.storage.heal();
        act(&mut store).unwrap();
    }
    assert_eq!(store.families().keys(), 40_000);
    let id = store.commit(world.writer()).unwrap();
    world.writer().sync().unwrap();
    let mut other = world.load(&id);
    assert_eq!(
        other.get(FIRST_FAMILY, &number(2)).unwrap(),
        Some(b"new".as_slice())
    );
    assert_eq!(other.get(FIRST_FAMILY, &number(3)).unwrap(), None);
}

#[test]
fn a_damaged_block_is_reported_with_its_place_and_the_state_is_rebuilt_around_it() {
    let world = world(false, 6 * MIB);
    let (store, id) = grown(&world, 40_000);
    drop(store);
    let _ballast = world.ballast(4 * MIB);
    let mut store = world.load(&id);
    let head = holdfast_core::format::read_head(
        world.storage.as_ref(),
        &id.segment.unwrap(),
        &world.owner(),
    )
    .unwrap();
    let image = head.lineage[0];
    let path = world.dir.path().join("root").join(image.file.file_name());
    let good = std::fs::read(&path).unwrap();
    let mut damaged = good.clone();
    // Every block of entries: which one a key is in makes no difference.
    for at in (image.offset + 1_000..image.offset + image.len / 2).step_by(500) {
        damaged[at as usize] ^= 1;
    }
    std::fs::write(&path, &damaged).unwrap();
    world.begin(&mut store);
    let mut errors = (0..200).filter_map(|n| store.get(FIRST_FAMILY, &number(n)).err());
    let error = errors.next().unwrap();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    let text = error.to_string();
    for part in [
        path.to_str().unwrap(),
        &format!("offset {}", image.offset),
        "partition 7",
    ] {
        assert!(text.contains(part), "{part:?} is missing in {text:?}");
    }
    drop(errors);
    // The task fails; the next one loads, and finds a way around the damage.
    store.abort();
    world.budget.set_limit_bytes(64 * MIB);
    store
        .open(world.storage.as_ref(), id.version, Some(&id))
        .unwrap();
    assert!(
        store
            .take_warning()
            .unwrap()
            .contains(path.to_str().unwrap())
    );
    assert_eq!(store.families().keys(), 40_001);
    assert_eq!(
        store.get(FIRST_FAMILY, &number(39_999)).unwrap(),
        Some(value(39_999).as_slice())
    );
}

#[test]
fn where_what_changed_fills_the_memory_a_base_image_is_due_sooner() {
    let due = |target| {
        let world = world(false, 64 * MIB);
        let (mut store, _) = grown(&world, 20_000);
        world.budget.set_target_bytes(Some(target));
        for batch in 0..3u64 {
            world.begin(&mut store);
            for n in 0..1_000 {
                store.put(FIRST_FAMILY, &number(n), &value(batch)).unwrap();
            }
            store.commit(world.writer()).unwrap();
        }
        world.begin(&mut store);
        store.abort();
        world.writer().sync().unwrap();
        let files = HashSet::new();
        store.merge_task(world.writer(), 2, &files).is_some()
    };
    assert!(due(0), "most of what is in memory is in no base image");
    assert!(!due(32 * MIB));
}
