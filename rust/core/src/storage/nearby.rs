//! A storage whose small objects, and small parts of large ones, are read by many and cost few requests.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;

use super::read_ahead::ReadAhead;
use super::{AppendFile, Capabilities, ObjectMeta, ReadFile, Storage};
use crate::error::Result;

/// Objects that stay open at most.
const MAX_OPEN: usize = 256;

/// Storage whose objects are whole once they can be seen, and never change: those who read near each other
/// share open objects, and what was read around what they asked for. A restart opens many stores, each of
/// which reads a little of the same few objects.
///
/// Memory: `max_bytes`, and 1 MiB for each thread that reads, until [`NearbyStorage::forget`] is called.
///
/// ```
/// use std::sync::Arc;
/// use holdfast_core::storage::{LocalStorage, NearbyStorage, Storage};
/// # fn main() -> holdfast_core::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// let storage = NearbyStorage::new(Arc::new(LocalStorage::new(dir.path())), 64 << 20);
/// let mut file = storage.create("object")?;
/// file.append(b"bytes")?;
/// file.finish()?;
/// let (one, other) = (storage.open_near("object")?, storage.open_near("object")?);
/// assert_eq!((one.read(0, 2)?, other.read(2, 3)?), (b"by".to_vec(), b"tes".to_vec()));
/// storage.forget();
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct NearbyStorage {
    inner: Arc<dyn Storage>,
    max_bytes: u64,
    /// The one that was opened last is at the end.
    open: Mutex<VecDeque<(String, Arc<ReadAhead>)>>,
}

impl NearbyStorage {
    /// `inner` with up to `max_bytes` of its objects in memory.
    pub fn new(inner: Arc<dyn Storage>, max_bytes: u64) -> Self {
        Self {
            inner,
            max_bytes,
            open: Mutex::default(),
        }
    }

    /// Gives up what is open and in memory, but for those who read.
    pub fn forget(&self) {
        let closed = std::mem::take(&mut *self.open.lock());
        drop(closed);
    }

    fn forget_object(&self, name: &str) {
        self.open.lock().retain(|(open, _)| open != name);
    }

    /// An object that is open already, which counts as the one that was opened last.
    fn find(&self, name: &str) -> Option<Arc<ReadAhead>> {
        let mut open = self.open.lock();
        let at = open.iter().position(|(found, _)| found == name)?;
        let found = open.remove(at)?;
        let file = Arc::clone(&found.1);
        open.push_back(found);
        Some(file)
    }

    /// Keeps an object, and closes those that were opened longest ago for it.
    fn keep(&self, name: &str, file: &Arc<ReadAhead>) {
        let mut closed = Vec::new();
        let mut open = self.open.lock();
        open.push_back((name.to_owned(), Arc::clone(file)));
        let mut bytes: u64 = open.iter().map(|(_, file)| file.held_bytes()).sum();
        while (bytes > self.max_bytes || open.len() > MAX_OPEN)
            && let Some((_, oldest)) = open.pop_front()
        {
            bytes = bytes.saturating_sub(oldest.held_bytes());
            closed.push(oldest);
        }
        drop(open);
        drop(closed);
    }
}

impl Storage for NearbyStorage {
    fn location(&self) -> String {
        self.inner.location()
    }

    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn create(&self, name: &str) -> Result<Box<dyn AppendFile>> {
        self.inner.create(name)
    }

    fn open(&self, name: &str) -> Result<Box<dyn ReadFile>> {
        self.inner.open(name)
    }

    fn open_near(&self, name: &str) -> Result<Arc<dyn ReadFile>> {
        if let Some(file) = self.find(name) {
            return Ok(file);
        }
        let file = Arc::new(ReadAhead::new(self.inner.open(name)?));
        self.keep(name, &file);
        Ok(file)
    }

    fn len(&self, name: &str) -> Result<u64> {
        self.inner.len(name)
    }

    fn sync(&self, name: &str) -> Result<()> {
        self.inner.sync(name)
    }

    fn delete(&self, name: &str) -> Result<()> {
        self.forget_object(name);
        self.inner.delete(name)
    }

    fn delete_all(&self, names: &[String]) -> Vec<Result<()>> {
        for name in names {
            self.forget_object(name);
        }
        self.inner.delete_all(names)
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.forget_object(from);
        self.inner.rename(from, to)
    }

    fn list(&self) -> Result<Vec<ObjectMeta>> {
        self.inner.list()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::*;
    use crate::storage::{FaultyStorage, LocalStorage, Operation};

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
        // What an object has in memory counts when the next one is opened.
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
}
