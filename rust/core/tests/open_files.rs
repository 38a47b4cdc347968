//! Files that stay open: only the files of the runs of a store. Stores that share handles have no more
//! than allowed. Descriptors are counted by folder.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::Path;
use std::sync::Arc;

use crate::common::open_files::open_below;
use crate::common::{options, plain};
use holdfast_core::format::{Compression, read_head};
use holdfast_core::segment::SegmentWriter;
use holdfast_core::state::{
    CommitId, FIRST_FAMILY, KeyRange, MemoryBudget, ScanOf, SharedStore, StateStore, StoreFolder,
};
use holdfast_core::storage::{HandlePool, LocalStorage, PooledStorage, Storage};
use holdfast_core::{ErrorKind, FileId, Owner, Term};

struct World {
    storage: Arc<dyn Storage>,
    writer: SegmentWriter,
    budget: Arc<MemoryBudget>,
}

/// Nothing stays in memory that a run has.
fn world(storage: Arc<dyn Storage>, max_file_bytes: u64) -> World {
    let options = options(max_file_bytes, Compression::None);
    let writer = SegmentWriter::open(Arc::clone(&storage), Term(1), options);
    let budget = Arc::new(MemoryBudget::unlimited());
    budget.set_target_bytes(Some(0));
    World {
        storage,
        writer,
        budget,
    }
}

fn pooled(folder: &Path, max_handles: usize) -> Arc<PooledStorage> {
    let pool = Arc::new(HandlePool::new(max_handles));
    Arc::new(PooledStorage::new(
        Arc::new(LocalStorage::new(folder)),
        pool,
    ))
}

impl World {
    fn store(&self) -> StateStore {
        self.store_of(7)
    }

    fn store_of(&self, partition: usize) -> StateStore {
        let owner = Owner::new("", "0", &partition.to_string(), "default");
        StateStore::within(owner, plain(), Arc::clone(&self.budget))
    }

    fn load(&self, id: &CommitId) -> StateStore {
        let mut store = self.store();
        let opened = store.open(self.storage.as_ref(), id.version, Some(id));
        opened.unwrap();
        store
    }

    /// Files of what a version is made of.
    fn files_of(&self, store: &StateStore, id: &CommitId) -> BTreeSet<FileId> {
        let newest = id.segment.unwrap();
        let head = read_head(self.storage.as_ref(), &newest, store.owner()).unwrap();
        let lineage = head.lineage.iter().map(|segment| segment.file);
        lineage.chain([newest.file]).collect()
    }

    fn commit(&self, store: &mut StateStore, keys: std::ops::Range<u32>) -> CommitId {
        let value = keys.end.to_be_bytes().repeat(12);
        store.mend(&self.writer).unwrap();
        store.begin().unwrap();
        for key in keys {
            store.put(FIRST_FAMILY, &key.to_be_bytes(), &value).unwrap();
        }
        let id = store.commit(&self.writer).unwrap();
        self.writer.seal().unwrap();
        id
    }

    /// Those that are there, or one of them.
    fn all_files(&self, only: Option<FileId>) -> HashSet<FileId> {
        let all = self.storage.list().unwrap().into_iter();
        let all = all.filter_map(|object| FileId::parse(&object.name));
        all.filter(|file| only.is_none_or(|only| only == *file))
            .collect()
    }

    /// Makes a run of the newest changelog, or a base image of everything.
    fn merge(&self, store: &mut StateStore, newest: Option<FileId>) {
        let files = self.all_files(newest);
        let task = store.merge_task(&self.writer, 1, &files).unwrap();
        store.accept(task.run(self.storage.as_ref(), &self.writer).unwrap());
        self.writer.seal().unwrap();
    }
}

fn read_all(store: &mut StateStore) {
    let all = ScanOf::Keys(KeyRange::All);
    let batch = store.scan(FIRST_FAMILY, all, 100, &mut Vec::new()).unwrap();
    assert!(batch.scan.is_some(), "it is left open");
    assert!(
        store
            .get(FIRST_FAMILY, &1u32.to_be_bytes())
            .unwrap()
            .is_some()
    );
}

#[test]
fn a_store_has_the_files_of_its_runs_open_and_none_when_it_is_closed() {
    let dir = tempfile::tempdir().unwrap();
    let world = world(Arc::new(LocalStorage::new(dir.path())), 1);
    let mut store = world.store();
    store.open(world.storage.as_ref(), 0, None).unwrap();
    world.commit(&mut store, 0..2_000);
    world.merge(&mut store, None);
    let mut last = None;
    for (batch, deltas) in (1..).zip([0usize, 1, 2, 3]) {
        let id = world.commit(&mut store, 0..400 >> (2 * batch));
        assert_eq!(id.deltas.len(), deltas);
        read_all(&mut store);
        let open = open_below(dir.path());
        assert_eq!(open.len(), 1 + deltas, "{open:?}");
        let newest = id.segment.unwrap().file;
        world.merge(&mut store, Some(newest));
        last = Some(id);
    }
    // Another one that reads, as a task that is tried again in another thread.
    let id = last.unwrap();
    let mut other = world.load(&id);
    read_all(&mut other);
    assert!(open_below(dir.path()).len() > 5);
    drop(other);
    assert_eq!(open_below(dir.path()).len(), 4);
    // All of it becomes one run: none of those before stays open.
    world.commit(&mut store, 0..1);
    world.merge(&mut store, None);
    world.commit(&mut store, 0..2);
    read_all(&mut store);
    assert_eq!(open_below(dir.path()).len(), 1);
    drop(store);
    assert_eq!(open_below(dir.path()), Vec::<String>::new());
}

#[test]
fn stores_with_runs_in_one_file_have_it_open_once() {
    let dir = tempfile::tempdir().unwrap();
    let world = world(pooled(dir.path(), 128), u64::MAX);
    let mut stores: Vec<_> = (0..40).map(|n| world.store_of(n)).collect();
    for store in &mut stores {
        store.open(world.storage.as_ref(), 0, None).unwrap();
    }
    // Base images are in one file, delta runs in another.
    for (keys, newest_only) in [(0..400u32, false), (0..40, true), (0..1, false)] {
        for store in &mut stores {
            store.begin().unwrap();
            for key in keys.clone() {
                let value = keys.end.to_be_bytes().repeat(12);
                store
                    .put(FIRST_FAMILY, &u32::to_be_bytes(key), &value)
                    .unwrap();
            }
            store.commit(&world.writer).unwrap();
        }
        world.writer.seal().unwrap();
        if keys.end == 1 {
            break;
        }
        let newest = world.storage.list().unwrap().pop().unwrap();
        let newest = FileId::parse(&newest.name).filter(|_| newest_only);
        let files = world.all_files(newest);
        for store in &mut stores {
            let task = store.merge_task(&world.writer, 1, &files).unwrap();
            store.accept(task.run(world.storage.as_ref(), &world.writer).unwrap());
        }
        world.writer.seal().unwrap();
    }
    for store in &mut stores {
        store.mend(&world.writer).unwrap();
        store.begin().unwrap();
        read_all(store);
    }
    assert_eq!(open_below(dir.path()).len(), 2);
    drop(stores);
    assert_eq!(open_below(dir.path()), Vec::<String>::new());
}

#[test]
fn stores_over_more_files_than_may_be_open_read_all_of_them() {
    const STORES: usize = 40;
    let dir = tempfile::tempdir().unwrap();
    let world = world(pooled(dir.path(), 8), 1);
    let mut stores: Vec<_> = (0..STORES).map(|n| world.store_of(n)).collect();
    let mut ids = Vec::new();
    for store in &mut stores {
        store.open(world.storage.as_ref(), 0, None).unwrap();
        world.commit(store, 0..2_000);
        world.merge(store, None);
        let id = world.commit(store, 0..100);
        world.merge(store, Some(id.segment.unwrap().file));
        ids.push(world.commit(store, 0..1));
        assert!(open_below(dir.path()).len() <= 8);
    }
    let runs: BTreeSet<_> = (stores.iter().zip(&ids))
        .flat_map(|(store, id)| world.files_of(store, id))
        .collect();
    assert!(runs.len() >= 2 * STORES);
    for key in (0..2_000u32).step_by(250) {
        for store in &mut stores {
            let found = store.get(FIRST_FAMILY, &key.to_be_bytes()).unwrap();
            let wrote: u32 = if key == 0 { 1 } else { 2_000 };
            assert_eq!(found, Some(wrote.to_be_bytes().repeat(12).as_slice()));
            assert!(open_below(dir.path()).len() <= 8);
        }
    }
    assert!(stores.iter().all(|store| store.stats().cold_reads > 0));
    drop(stores);
    assert_eq!(open_below(dir.path()), Vec::<String>::new());
}

#[test]
fn a_store_that_follows_its_runs_reads_no_file_that_its_version_does_not_need() {
    let dir = tempfile::tempdir().unwrap();
    // No handle outlasts a read: what was deleted cannot be read.
    let world = world(pooled(dir.path(), 0), 1);
    let mut store = world.store();
    store.open(world.storage.as_ref(), 0, None).unwrap();
    world.commit(&mut store, 0..2_000);
    let mut model: BTreeMap<u32, u32> = (0..2_000).map(|key| (key, 2_000)).collect();
    world.merge(&mut store, None);
    let mut known = BTreeSet::new();
    let (mut deleted, mut reads) = (0, 0);
    for batch in 1..40u32 {
        let few = batch * 37 % 300;
        let keys = few..few + 1 + 160 / (1 + batch % 8);
        model.extend(keys.clone().map(|key| (key, keys.end)));
        let id = world.commit(&mut store, keys);
        // Retains only the newest version.
        let needed = world.files_of(&store, &id);
        known.extend(needed.iter().copied());
        for file in known.extract_if(.., |file| !needed.contains(file)) {
            std::fs::remove_file(dir.path().join(file.file_name())).unwrap();
            deleted += 1;
        }
        store.mend(&world.writer).unwrap();
        store.begin().unwrap();
        for key in (batch..2_000).step_by(170) {
            let found = store.get(FIRST_FAMILY, &key.to_be_bytes()).unwrap();
            assert_eq!(found, Some(model[&key].to_be_bytes().repeat(12).as_slice()));
        }
        reads += store.stats().cold_reads;
        store.abort();
        match batch % 10 {
            0 => world.merge(&mut store, None),
            3 | 6 => world.merge(&mut store, Some(id.segment.unwrap().file)),
            _ => {}
        }
    }
    assert!(
        deleted > 20 && reads > 100,
        "{deleted} files, {reads} reads"
    );
    assert_eq!(store.stats().rebuilds, 0);
}

#[test]
fn a_store_goes_around_a_file_that_was_deleted_and_closed() {
    let dir = tempfile::tempdir().unwrap();
    let world = world(pooled(dir.path(), 1), 1);
    let mut store = world.store();
    store.open(world.storage.as_ref(), 0, None).unwrap();
    world.commit(&mut store, 0..2_000);
    world.merge(&mut store, None);
    let id = world.commit(&mut store, 0..1);
    let value = |wrote: u32| wrote.to_be_bytes().repeat(12);
    let key = |key: u32| key.to_be_bytes();
    drop(store);
    // Without a writer, as readers.
    let folder = StoreFolder::new(Arc::clone(&world.storage), None);
    let load = || SharedStore::new(Arc::clone(&folder), world.load(&id));
    let (first, second) = (load(), load());
    let files = world.files_of(&first.lock(), &id);
    let image = files.first().unwrap().file_name();
    let changelog = files.last().unwrap().file_name();
    std::fs::remove_file(dir.path().join(&image)).unwrap();
    // The only handle there may be is the handle of another file.
    let other = world.storage.open(&changelog).unwrap();
    other.read(0, 1).unwrap();
    // The segments of the image are still there.
    let gone = first.lock().get(FIRST_FAMILY, &key(1_000)).unwrap_err();
    assert_eq!(gone.kind(), ErrorKind::NotFound);
    assert!(gone.to_string().contains(&image), "{gone}");
    let read = |state: &mut StateStore| state.get(FIRST_FAMILY, &key(1_000)).map(|_| ());
    first.call(read).unwrap();
    let mut first = first.lock();
    assert!(first.take_warning().unwrap().contains(&image));
    for (n, wrote) in [(0, 1), (1_000, 2_000), (1_999, 2_000)] {
        let found = first.get(FIRST_FAMILY, &key(n)).unwrap();
        assert_eq!(found, Some(value(wrote).as_slice()));
    }
    world.commit(&mut first, 0..2);
    let newer = world.commit(&mut first, 0..3);
    // Without any file, the request fails, and newer versions can be opened.
    let newest = world.files_of(&first, &newer);
    for file in world.all_files(None) {
        if !newest.contains(&file) {
            std::fs::remove_file(dir.path().join(file.file_name())).unwrap();
        }
    }
    let gone = second.lock().get(FIRST_FAMILY, &key(1_000)).unwrap_err();
    assert_eq!(gone.kind(), ErrorKind::NotFound);
    let lost = second.call(read).unwrap_err();
    assert_eq!(lost.kind(), ErrorKind::NotFound);
    let mut second = second.lock();
    let opened = second.open(world.storage.as_ref(), newer.version, Some(&newer));
    opened.unwrap();
    for (n, wrote) in [(0, 3), (1_000, 2_000)] {
        let found = second.get(FIRST_FAMILY, &key(n)).unwrap();
        assert_eq!(found, Some(value(wrote).as_slice()));
    }
}
