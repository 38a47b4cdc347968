//! Files that stay open: those of the runs that a store lies over, and no others. Descriptors are the
//! process's, so this test has one of its own.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

use common::{options, plain};
use holdfast_core::format::Compression;
use holdfast_core::segment::SegmentWriter;
use holdfast_core::state::{CommitId, FIRST_FAMILY, KeyRange, MemoryBudget, ScanOf, StateStore};
use holdfast_core::storage::{LocalStorage, Storage};
use holdfast_core::{FileId, Owner, Term};

/// Files below `folder` that this process has open, each as often as it has.
fn open_below(folder: &Path) -> Vec<String> {
    let descriptors = std::fs::read_dir("/proc/self/fd").unwrap();
    let targets = descriptors.filter_map(|fd| std::fs::read_link(fd.unwrap().path()).ok());
    let names = targets.map(|target| target.to_string_lossy().into_owned());
    names
        .filter(|name| name.starts_with(folder.to_str().unwrap()) && name.contains(".hf"))
        .collect()
}

struct World {
    storage: Arc<dyn Storage>,
    writer: SegmentWriter,
    budget: Arc<MemoryBudget>,
}

impl World {
    fn store(&self) -> StateStore {
        let owner = Owner::new("", "0", "7", "default");
        StateStore::within(owner, plain(), Arc::clone(&self.budget))
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

    /// Makes a run of the newest changelog, or a base image of everything.
    fn merge(&self, store: &mut StateStore, newest: Option<FileId>) {
        let all = self.storage.list().unwrap().into_iter();
        let all = all.filter_map(|object| FileId::parse(&object.name));
        let files: HashSet<_> = all
            .filter(|file| newest.is_none_or(|newest| newest == *file))
            .collect();
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
    let storage: Arc<dyn Storage> = Arc::new(LocalStorage::new(dir.path()));
    let options = options(1, Compression::None);
    let writer = SegmentWriter::open(Arc::clone(&storage), Term(1), options);
    let budget = Arc::new(MemoryBudget::unlimited());
    budget.set_target_bytes(Some(0));
    let world = World {
        storage,
        writer,
        budget,
    };
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
    let mut other = world.store();
    other
        .open(world.storage.as_ref(), id.version, Some(&id))
        .unwrap();
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
