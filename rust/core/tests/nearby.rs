//! Parts of objects that stores share when they are opened together.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use std::sync::Arc;

use holdfast_core::storage::{LocalStorage, NearbyStorage, Storage};
use holdfast_sim::{FaultyStorage, Operation};
use parking_lot::Mutex;

const KIB: u64 = 1 << 10;

struct World {
    _dir: tempfile::TempDir,
    remote: Arc<FaultyStorage>,
    storage: NearbyStorage,
    before: Mutex<(u64, u64)>,
}

/// Objects of 300 KiB, of which so many may be in memory.
fn world(objects: usize, in_memory: u64) -> World {
    let dir = tempfile::tempdir().unwrap();
    let local = Arc::new(LocalStorage::new(dir.path()));
    let remote = Arc::new(FaultyStorage::new(local));
    let storage = NearbyStorage::new(remote.clone(), in_memory * 300 * KIB);
    for number in 0..objects {
        let mut file = storage.create(&number.to_string()).unwrap();
        file.append(&vec![number as u8; 300 * KIB as usize])
            .unwrap();
        file.finish().unwrap();
    }
    World {
        _dir: dir,
        remote,
        storage,
        before: Mutex::default(),
    }
}

impl World {
    fn read(&self, object: usize, at: u64) {
        let file = self.storage.open_near(&object.to_string()).unwrap();
        assert_eq!(
            file.read(at, KIB).unwrap(),
            vec![object as u8; KIB as usize]
        );
    }

    /// Objects that were opened and ranges that were read since this was last called.
    fn requests(&self) -> (u64, u64) {
        let calls = |what| self.remote.calls(what);
        let now = (calls(Operation::Open), calls(Operation::Read));
        let before = std::mem::replace(&mut *self.before.lock(), now);
        (now.0 - before.0, now.1 - before.1)
    }
}

#[test]
fn many_readers_of_a_few_objects_cost_as_many_requests_as_there_are_objects() {
    let world = world(8, 100);
    for reader in 0..200 {
        (0..8).for_each(|object| world.read(object, reader * KIB));
    }
    assert_eq!(world.requests(), (8, 8));
    world.storage.forget();
    world.read(0, 0);
    assert_eq!(world.requests(), (1, 1));
}

#[test]
fn what_was_opened_longest_ago_makes_room() {
    let world = world(4, 2);
    // The memory of an object counts when the next one is opened.
    (0..4).for_each(|object| world.read(object, 0));
    world.read(3, KIB);
    world.read(2, KIB);
    assert_eq!(world.requests(), (4, 4));
    world.read(0, KIB);
    assert_eq!(world.requests(), (1, 1));
    world.read(2, 2 * KIB);
    assert_eq!(world.requests(), (0, 0));
}

#[test]
fn an_object_that_was_deleted_is_not_found() {
    let world = world(2, 100);
    (0..2).for_each(|object| world.read(object, 0));
    world.storage.delete("0").unwrap();
    assert!(world.storage.open_near("0").is_err());
    world.storage.delete_all(&["1".to_owned()]);
    assert!(world.storage.open_near("1").is_err());
}
