//! Stores that are opened over their runs although they fit: the rest is hydrated during their work.
//! And damage that a session meets where its state is still in a run.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use crate::common::{Entries, assert_damage, faulty, parse, plain};
use holdfast_core::format::read_head;
use holdfast_core::segment::{SegmentWriter, WriterOptions};
use holdfast_core::state::{
    CommitId, FIRST_FAMILY, FamilyOptions, HYDRATION_BYTES, Hydrated, KeyLayout, KeyRange,
    MemoryBudget, ScanOf, SharedStore, StateStore, StoreFolder,
};
use holdfast_core::storage::Storage;
use holdfast_core::{ErrorKind, FileId, Owner, Result, SegmentRef, Term};
use holdfast_sim::{FaultyStorage, Operation};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

const KEYS: u64 = 20_000;
/// Entries of 112 bytes in blocks of 16 KiB.
const BLOCKS: u64 = KEYS * 112 / (16 << 10);
const MIB: u64 = 1 << 20;

struct World {
    dir: tempfile::TempDir,
    storage: Arc<FaultyStorage>,
    folder: Arc<StoreFolder>,
    budget: Arc<MemoryBudget>,
}

/// With memory for all, and runs that are too large to wait for.
fn world() -> World {
    let (dir, storage) = faulty();
    let writer = SegmentWriter::open(storage.clone(), Term(1), WriterOptions::default());
    let budget = Arc::new(MemoryBudget::unlimited());
    budget.set_target_bytes(Some(64 * MIB));
    budget.set_load_bytes(0);
    World {
        dir,
        folder: StoreFolder::new(storage.clone(), Some(writer)),
        storage,
        budget,
    }
}

fn key(n: u64) -> Vec<u8> {
    n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes().to_vec()
}

fn value(n: u64) -> Vec<u8> {
    (0..12u64)
        .flat_map(|i| (n ^ i).wrapping_mul(0xbf58_476d_1ce4_e5b9).to_le_bytes())
        .collect()
}

impl World {
    fn store(&self, layout: KeyLayout) -> StateStore {
        let owner = Owner::new("", "0", "7", "default");
        StateStore::within(owner, layout, Arc::clone(&self.budget))
    }

    fn load(&self, id: &CommitId) -> StateStore {
        let mut store = self.store(plain());
        store
            .open(self.storage.as_ref(), id.version, Some(id))
            .unwrap();
        store
    }

    /// Shared like among tasks, which avoid damage.
    fn shared(&self, store: StateStore) -> SharedStore {
        SharedStore::new(Arc::clone(&self.folder), store)
    }

    fn writer(&self) -> &SegmentWriter {
        self.folder.writer().unwrap()
    }

    fn begin(&self, store: &mut StateStore) {
        store.mend(self.writer()).unwrap();
        store.begin().unwrap();
    }

    fn commit(&self, store: &mut StateStore) -> CommitId {
        let id = store.commit(self.writer()).unwrap();
        self.writer().sync().unwrap();
        id
    }

    /// Merges everything to a base image, or what is due.
    fn merge(&self, store: &mut StateStore, everything: bool) {
        let files = self.storage.list().unwrap();
        let files = files.iter().filter(|_| everything);
        let files: HashSet<_> = files.filter_map(|o| FileId::parse(&o.name)).collect();
        let task = store.merge_task(self.writer(), 1, &files).unwrap();
        let run = task.run(self.storage.as_ref(), self.writer()).unwrap();
        self.writer().sync().unwrap();
        store.accept(run);
    }

    /// A base image of all keys, `deltas` delta runs above it that change a few, and a changelog.
    fn written(&self, deltas: u64) -> (CommitId, Model) {
        let mut store = self.store(plain());
        let mut model = Model::new();
        store.open(self.storage.as_ref(), 0, None).unwrap();
        let mut session = |store: &mut StateStore, puts: &mut dyn Iterator<Item = u64>, by: u64| {
            self.begin(store);
            for n in puts {
                store.put(FIRST_FAMILY, &key(n), &value(n + by)).unwrap();
                model.insert(key(n), value(n + by));
            }
            if by > 0 {
                for n in [by, 3 * by] {
                    store.remove(FIRST_FAMILY, &key(n)).unwrap();
                    model.remove(&key(n));
                }
            }
            self.commit(store)
        };
        session(&mut store, &mut (0..KEYS), 0);
        self.merge(&mut store, true);
        for delta in 0..deltas {
            let few = (KEYS >> 5) >> (2 * delta);
            let mut puts = (0..few).map(|n| n * 31 + delta);
            session(&mut store, &mut puts, delta + 1);
            // So many that a merge is due.
            for n in 0..3 {
                session(&mut store, &mut std::iter::once(n), delta + 10 + n);
            }
            self.merge(&mut store, false);
        }
        let mut last = [KEYS, 17].into_iter();
        let id = session(&mut store, &mut last, 100);
        let head = read_head(self.storage.as_ref(), &id.segment.unwrap(), store.owner()).unwrap();
        assert_eq!(head.lineage.len() as u64, 1 + deltas, "{head:?}");
        (id, model)
    }

    fn reads(&self) -> u64 {
        self.storage.calls(Operation::Read)
    }

    fn damage(&self, run: &SegmentRef) {
        let path = self.dir.path().join("root").join(run.file.file_name());
        let mut bytes = std::fs::read(&path).unwrap();
        // Every block of entries, but neither the head nor the frames after the entries.
        for at in (run.offset + 1_000..run.offset + run.len / 10 * 8).step_by(500) {
            bytes[at as usize] ^= 1;
        }
        std::fs::write(&path, &bytes).unwrap();
    }

    /// The runs of a version, oldest first.
    fn runs(&self, store: &StateStore, id: &CommitId) -> Vec<SegmentRef> {
        read_head(self.storage.as_ref(), &id.segment.unwrap(), store.owner())
            .unwrap()
            .lineage
    }
}

fn hydrate(store: &mut StateStore) -> Result<u64> {
    let mut steps = 0;
    while let Some(mut hydration) = store.take_hydration() {
        let read = hydration.read(HYDRATION_BYTES);
        store.hydrate(hydration, read)?;
        steps += 1;
    }
    Ok(steps)
}

fn all_of(store: &mut StateStore) -> Model {
    let (mut bytes, mut entries) = (Vec::new(), Entries::new());
    let what = ScanOf::Keys(KeyRange::All);
    store
        .scan(FIRST_FAMILY, what, usize::MAX, &mut bytes)
        .unwrap();
    parse(&bytes, &mut entries);
    entries.into_iter().collect()
}

#[test]
fn a_store_is_open_before_its_runs_are_read_and_stands_on_its_own_in_the_end() {
    for deltas in [0, 2] {
        let world = world();
        let (id, model) = world.written(deltas);
        let mut store = world.load(&id);
        assert_eq!(store.families().keys(), model.len() as u64);
        let opened = world.budget.used_bytes();
        assert!(opened < MIB / 4, "{opened}");
        assert!(store.is_hydrating());
        assert!(hydrate(&mut store).unwrap() > 10, "in small steps");
        assert_eq!(store.families().keys(), model.len() as u64);
        // From here on nothing is read, in this session or a later one.
        let reads = world.reads();
        assert_eq!(
            store.get(FIRST_FAMILY, &key(5)).unwrap(),
            Some(&model[&key(5)][..])
        );
        assert_eq!(store.get(FIRST_FAMILY, &key(KEYS + 5)).unwrap(), None);
        assert_eq!(all_of(&mut store), model);
        world.begin(&mut store);
        assert!(store.remove(FIRST_FAMILY, &key(9)).unwrap());
        store.put(FIRST_FAMILY, &key(KEYS + 9), b"new").unwrap();
        let next = world.commit(&mut store);
        assert_eq!(store.stats().cold_reads, 0);
        assert_eq!(world.reads(), reads);
        // A removed key takes no memory, as in a store that never had a run.
        world.begin(&mut store);
        store.abort();
        let mut changed = model.clone();
        changed.remove(&key(9));
        changed.insert(key(KEYS + 9), b"new".to_vec());
        assert_eq!(all_of(&mut store), changed);
        assert_eq!(world.reads(), reads);
        let mut other = world.load(&next);
        assert_eq!(all_of(&mut other), changed);
    }
}

#[test]
fn what_a_session_changes_stays_whatever_was_read_before() {
    let world = world();
    let (id, mut model) = world.written(1);
    let mut store = world.load(&id);
    let mut session = 0;
    while let Some(mut hydration) = store.take_hydration() {
        // No other caller reads at the same time.
        assert!(store.take_hydration().is_none());
        let read = hydration.read(HYDRATION_BYTES);
        world.begin(&mut store);
        let mut changed = model.clone();
        for n in session * 50..session * 50 + 50 {
            let (put, removed) = (key(n * 7), key(n * 7 + 3));
            store.put(FIRST_FAMILY, &put, b"changed").unwrap();
            changed.insert(put, b"changed".to_vec());
            let was_there = changed.remove(&removed).is_some();
            assert_eq!(store.remove(FIRST_FAMILY, &removed).unwrap(), was_there);
        }
        store.hydrate(hydration, read).unwrap();
        if session % 2 == 0 {
            world.commit(&mut store);
            model = changed;
        } else {
            store.abort();
        }
        assert_eq!(store.families().keys(), model.len() as u64);
        session += 1;
    }
    assert!(session > 10);
    assert_eq!(all_of(&mut store), model);
}

#[test]
fn a_session_that_wants_all_keys_reads_about_as_much_as_a_load() {
    let world = world();
    let (id, model) = world.written(0);
    let mut store = world.load(&id);
    world.begin(&mut store);
    let before = world.reads();
    for n in 0..KEYS {
        let found = store.get(FIRST_FAMILY, &key(n)).unwrap();
        assert_eq!(found, model.get(&key(n)).map(Vec::as_slice));
    }
    let cold = store.stats().cold_reads;
    assert!(cold > 0 && cold < BLOCKS, "{cold} of {BLOCKS} blocks");
    let reads = world.reads() - before;
    assert!(reads < BLOCKS + BLOCKS / 4, "{reads} for {BLOCKS} blocks");
}

#[test]
fn other_callers_leave_hydration_to_a_session_that_reads_along() {
    let world = world();
    let (id, model) = world.written(0);
    let store = world.shared(world.load(&id));
    let mut held = store.lock().take_hydration().unwrap();
    let read = held.read(HYDRATION_BYTES);
    store.begin().unwrap();
    // Last of those in the order of the run.
    let (last, _) = model.last_key_value().unwrap();
    assert!(store.lock().get(FIRST_FAMILY, last).unwrap().is_some());
    assert_eq!(store.lock().stats().cold_reads, 1);
    store.lock().hydrate(held, read).unwrap();
    assert_eq!(store.hydrate().unwrap(), Hydrated::Later);
    // The session does without.
    assert_eq!(store.hydrate().unwrap(), Hydrated::More);
    let held = store.lock().take_hydration();
    assert!(held.is_some());
    assert_eq!(store.hydrate().unwrap(), Hydrated::Over, "one at a time");
}

#[test]
fn a_full_scan_brings_all_into_memory_first() {
    let world = world();
    let (id, model) = world.written(1);
    let mut store = world.load(&id);
    assert_eq!(all_of(&mut store), model);
    let reads = world.reads();
    assert_eq!(all_of(&mut store), model);
    assert_eq!(world.reads(), reads);
    assert_eq!(store.stats().cold_reads, 0);
}

#[test]
fn what_was_changed_last_comes_first_and_memory_bounds_the_rest() {
    let world = world();
    let (id, model) = world.written(2);
    // For the delta runs, not for the base image.
    let target = MIB;
    world.budget.set_target_bytes(Some(target));
    let mut store = world.load(&id);
    hydrate(&mut store).unwrap();
    let used = world.budget.used_bytes();
    assert!(used <= target);
    let reads = world.reads();
    for n in 0..KEYS >> 7 {
        let changed = key(n * 31 + 1);
        let found = store.get(FIRST_FAMILY, &changed).unwrap();
        assert_eq!(found, model.get(&changed).map(Vec::as_slice));
    }
    assert_eq!(store.stats().cold_reads, 0);
    assert_eq!(world.reads(), reads);
    store.get(FIRST_FAMILY, &key(16)).unwrap();
    assert!(store.stats().cold_reads > 0);
    assert_eq!(all_of(&mut store), model);
    drop(store);
    // If that is all the room, half of it is left to sessions.
    world.budget.set_target_bytes(Some(used));
    let mut store = world.load(&id);
    assert!(hydrate(&mut store).unwrap() > 0);
    assert!(world.budget.used_bytes() <= used * 5 / 8);
    assert_eq!(all_of(&mut store), model);
    // By now there is less room for another store.
    let mut store = world.load(&id);
    world.budget.set_target_bytes(Some(1));
    assert_eq!(hydrate(&mut store).unwrap(), 0);
    assert_eq!(all_of(&mut store), model);
}

#[test]
fn everything_comes_into_memory_but_half_of_the_target_is_left_to_the_first_batch() {
    let world = world();
    let (id, model) = world.written(1);
    let mut store = world.load(&id);
    hydrate(&mut store).unwrap();
    let all = world.budget.used_bytes();
    drop(store);
    // So much that all of it fits, and no more than half of it at first.
    let target = all + all / 2;
    world.budget.set_target_bytes(Some(target));
    let mut store = world.load(&id);
    world.begin(&mut store);
    assert!(hydrate(&mut store).unwrap() > 0);
    let at_first = world.budget.used_bytes();
    assert!(
        (target / 2..target / 8 * 5).contains(&at_first),
        "{at_first}"
    );
    store.put(FIRST_FAMILY, &key(5), b"now").unwrap();
    // Other stores of the batch may not have been opened yet.
    world.commit(&mut store);
    assert_eq!(hydrate(&mut store).unwrap(), 0);
    world.begin(&mut store);
    assert!(store.is_hydrating());
    assert!(hydrate(&mut store).unwrap() > 0);
    let mut changed = model.clone();
    changed.insert(key(5), b"now".to_vec());
    let reads = world.reads();
    for (key, value) in &changed {
        assert_eq!(store.get(FIRST_FAMILY, key).unwrap(), Some(&value[..]));
    }
    assert_eq!(world.reads(), reads);
    assert_eq!(store.stats().cold_reads, 0);
}

#[test]
fn a_store_follows_its_runs_also_where_memory_is_plenty() {
    let world = world();
    let (id, mut model) = world.written(1);
    let mut store = world.load(&id);
    let old = world.runs(&store, &id);
    let mut held = store.take_hydration().unwrap();
    let read = held.read(HYDRATION_BYTES);
    world.begin(&mut store);
    store.put(FIRST_FAMILY, &key(1_000), b"now").unwrap();
    model.insert(key(1_000), b"now".to_vec());
    world.commit(&mut store);
    world.merge(&mut store, true);
    world.begin(&mut store);
    store.put(FIRST_FAMILY, &key(1_500), b"now").unwrap();
    model.insert(key(1_500), b"now".to_vec());
    world.commit(&mut store);
    world.begin(&mut store);
    // Read from runs that the store has no longer.
    store.hydrate(held, read).unwrap();
    // The driver may delete them by now. Where this process has a file open that would not show.
    old.iter().for_each(|run| world.damage(run));
    store.put(FIRST_FAMILY, &key(2_000), b"now").unwrap();
    model.insert(key(2_000), b"now".to_vec());
    world.commit(&mut store);
    assert!(hydrate(&mut store).unwrap() > 0);
    assert_eq!(all_of(&mut store), model);
}

#[test]
fn what_cannot_be_read_beside_a_session_is_read_when_it_is_asked_for() {
    let world = world();
    let (id, model) = world.written(0);
    let mut store = world.load(&id);
    (1..=100).for_each(|nth| world.storage.fail_nth(Operation::Read, nth));
    assert_eq!(hydrate(&mut store).unwrap_err().kind(), ErrorKind::Storage);
    world.storage.heal();
    assert!(!store.is_hydrating());
    assert_eq!(all_of(&mut store), model);
}

#[test]
fn a_session_goes_on_around_damage_that_it_comes_upon() {
    let world = world();
    let (id, mut model) = world.written(1);
    let store = world.shared(world.load(&id));
    let runs = world.runs(&store.lock(), &id);
    store.begin().unwrap();
    for n in [1, 2, 17] {
        store.lock().put(FIRST_FAMILY, &key(n), b"before").unwrap();
        model.insert(key(n), b"before".to_vec());
    }
    assert!(store.lock().remove(FIRST_FAMILY, &key(KEYS)).unwrap());
    model.remove(&key(KEYS));
    world.damage(&runs[0]);
    // During the session the damage is found, too, and changes nothing.
    let found = hydrate(&mut store.lock()).unwrap_err();
    assert_eq!(found.kind(), ErrorKind::Corrupt);
    let cold = (3..KEYS)
        .map(key)
        .find(|k| store.lock().get(FIRST_FAMILY, k).is_err())
        .unwrap();
    let error = store.lock().put(FIRST_FAMILY, &cold, b"after").unwrap_err();
    let file = runs[0].file.file_name();
    assert_damage(
        &error,
        &[&file, &format!("offset {}", runs[0].offset), "partition 7"],
    );
    store
        .call(|state| state.put(FIRST_FAMILY, &cold, b"after"))
        .unwrap();
    model.insert(cold, b"after".to_vec());
    let mut store = store.lock();
    assert!(store.take_warning().unwrap().contains(&file));
    assert_eq!(store.stats().rebuilds, 1);
    assert_eq!(all_of(&mut store), model);
    assert_eq!(store.families().keys(), model.len() as u64);
    // Nothing builds on what is damaged any more.
    let id = world.commit(&mut store);
    assert!(!world.runs(&store, &id).contains(&runs[0]));
    assert_eq!(all_of(&mut world.load(&id)), model);
}

#[test]
fn what_a_session_did_before_damage_can_be_taken_back_and_lists_are_as_they_were() {
    let world = world();
    let options = FamilyOptions {
        several_values: true,
        ..FamilyOptions::default()
    };
    let mut store = world.store(KeyLayout::Columns);
    store.open(world.storage.as_ref(), 0, None).unwrap();
    world.begin(&mut store);
    let lists = store.open_family("lists", options).unwrap();
    for n in 0..4_000 {
        store
            .put_list(lists, &key(n), &[&value(n), b"second"])
            .unwrap();
    }
    world.commit(&mut store);
    world.merge(&mut store, true);
    world.begin(&mut store);
    store.append(lists, &key(1), &[b"third"]).unwrap();
    let id = world.commit(&mut store);
    let values = |store: &mut StateStore, n: u64| -> Result<Vec<Vec<u8>>> {
        let (mut bytes, mut entries) = (Vec::new(), Entries::new());
        let what = ScanOf::ValuesOfKey(&key(n));
        store.scan(lists, what, usize::MAX, &mut bytes)?;
        parse(&bytes, &mut entries);
        Ok(entries.into_iter().map(|(_, value)| value).collect())
    };
    for keeps in [true, false] {
        let store = world.shared(world.store(KeyLayout::Columns));
        store.open(id.version, Some(&id)).unwrap();
        let image = world.runs(&store.lock(), &id)[0];
        store.begin().unwrap();
        let mut session = store.lock();
        session
            .append(lists, &key(2), &[b"third", b"fourth"])
            .unwrap();
        session.put_list(lists, &key(3), &[b"only"]).unwrap();
        assert!(session.remove(lists, &key(4)).unwrap());
        session.append(lists, &key(5_000), &[b"first"]).unwrap();
        let made = session
            .open_family("made", FamilyOptions::default())
            .unwrap();
        session.put(made, b"key", b"value").unwrap();
        world.damage(&image);
        let cold = (6..4_000)
            .find(|n| values(&mut session, *n).is_err())
            .unwrap();
        drop(session);
        assert_eq!(
            store.call(|state| values(state, cold)).unwrap(),
            [value(cold), b"second".to_vec()]
        );
        if !keeps {
            store.lock().abort();
            store.begin().unwrap();
        }
        let mut store = store.lock();
        let third = if keeps {
            &[&b"third"[..], b"fourth"][..]
        } else {
            &[]
        };
        let second = value(2);
        let of_second = [&[second.as_slice(), b"second"], third].concat();
        assert_eq!(values(&mut store, 2).unwrap(), of_second);
        assert_eq!(
            values(&mut store, 3).unwrap().len(),
            if keeps { 1 } else { 2 }
        );
        assert_eq!(
            values(&mut store, 4).unwrap().len(),
            if keeps { 0 } else { 2 }
        );
        assert_eq!(values(&mut store, 5_000).unwrap().len(), usize::from(keeps));
        assert_eq!(store.families().find("made").unwrap().is_some(), keeps);
        let next = world.commit(&mut store);
        let mut other = world.store(KeyLayout::Columns);
        other
            .open(world.storage.as_ref(), next.version, Some(&next))
            .unwrap();
        assert_eq!(values(&mut other, 2).unwrap(), of_second);
        assert_eq!(other.families().keys(), store.families().keys());
        // Twice is as if nothing had been.
        world.damage(&image);
    }
}

#[test]
fn damage_is_an_error_while_a_scan_is_open() {
    let world = world();
    let (id, model) = world.written(0);
    // Nothing comes into memory by itself.
    world.budget.set_target_bytes(Some(1));
    let mut store = world.load(&id);
    world.begin(&mut store);
    assert!(
        !store
            .go_around(world.storage.as_ref(), Some(world.writer()))
            .unwrap(),
        "nothing failed"
    );
    let (mut bytes, what) = (Vec::new(), ScanOf::Keys(KeyRange::All));
    let scan = store
        .scan(FIRST_FAMILY, what, 100, &mut bytes)
        .unwrap()
        .scan
        .unwrap();
    world.damage(&world.runs(&store, &id)[0]);
    let error = (3..KEYS).find_map(|n| store.get(FIRST_FAMILY, &key(n)).err());
    assert_eq!(error.unwrap().kind(), ErrorKind::Corrupt);
    assert!(
        !store
            .go_around(world.storage.as_ref(), Some(world.writer()))
            .unwrap()
    );
    store.close_scan(scan);
    assert!(
        store
            .go_around(world.storage.as_ref(), Some(world.writer()))
            .unwrap()
    );
    assert_eq!(all_of(&mut store), model);
    // Outside a session as well.
    store.abort();
    let mut other = world.load(&id);
    let error = (3..KEYS).find_map(|n| other.get(FIRST_FAMILY, &key(n)).err());
    assert_eq!(error.unwrap().kind(), ErrorKind::Corrupt);
    assert!(
        other
            .go_around(world.storage.as_ref(), Some(world.writer()))
            .unwrap()
    );
    assert_eq!(all_of(&mut other), model);
    other.mend(world.writer()).unwrap();
    other.begin().unwrap();
    // Like the retry of a task.
    store
        .open(world.storage.as_ref(), id.version, Some(&id))
        .unwrap();
    assert_eq!(all_of(&mut store), model);
}

/// Such runs have no table, as the runs of a store without column families.
#[test]
fn a_store_all_of_whose_families_are_gone_has_nothing_to_bring_into_memory() {
    let world = world();
    let mut store = world.store(KeyLayout::Columns);
    store.open(world.storage.as_ref(), 0, None).unwrap();
    world.begin(&mut store);
    let family = store.open_family("gone", FamilyOptions::default()).unwrap();
    store.put(family, &key(1), &value(1)).unwrap();
    world.commit(&mut store);
    world.merge(&mut store, true);
    world.begin(&mut store);
    let id = world.commit(&mut store);
    // The base image is small, and would be loaded whole.
    world.budget.set_load_bytes(0);
    let mut store = world.store(KeyLayout::Columns);
    store
        .open(world.storage.as_ref(), id.version, Some(&id))
        .unwrap();
    world.begin(&mut store);
    assert!(store.is_hydrating());
    assert!(store.remove_family("gone").unwrap());
    world.commit(&mut store);
    world.merge(&mut store, true);
    for _ in 0..2 {
        world.begin(&mut store);
        hydrate(&mut store).unwrap();
        let family = store
            .open_family("again", FamilyOptions::default())
            .unwrap();
        store.put(family, &key(2), &value(2)).unwrap();
        assert_eq!(store.get(family, &key(2)).unwrap(), Some(&value(2)[..]));
        world.commit(&mut store);
    }
}
