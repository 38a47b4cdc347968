//! A storage whose readers share the open handles of its objects.

use std::sync::Arc;

use super::handle_pool::HandlePool;
use super::local_cache::object_key;
use super::{AppendFile, Capabilities, ObjectMeta, ReadFile, Storage, check_range};
use crate::error::Result;

/// Storage whose readers hold no handle: each read takes one of a [`HandlePool`], or opens the object where
/// that has none. An object that was deleted meanwhile is not found then, at the latest.
///
/// Names are never used again for other content.
///
/// ```
/// use std::sync::Arc;
/// use holdfast_core::storage::{HandlePool, LocalStorage, PooledStorage, Storage};
/// # fn main() -> holdfast_core::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// let files = Arc::new(LocalStorage::new(dir.path()));
/// let storage = PooledStorage::new(files, Arc::new(HandlePool::new(128)));
/// let mut file = storage.create("object")?;
/// file.append(b"bytes")?;
/// file.finish()?;
/// let (one, other) = (storage.open("object")?, storage.open("object")?);
/// assert_eq!((one.read(0, 2)?, other.read(2, 3)?), (b"by".to_vec(), b"tes".to_vec()));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct PooledStorage {
    inner: Arc<dyn Storage>,
    pool: Arc<HandlePool>,
}

impl PooledStorage {
    /// `inner` with handles of `pool`, which other storages may share.
    pub fn new(inner: Arc<dyn Storage>, pool: Arc<HandlePool>) -> Self {
        Self { inner, pool }
    }

    fn forget(&self, name: &str) {
        self.pool.forget(object_key(&self.inner.location(), name));
    }
}

impl Storage for PooledStorage {
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
        let mut reader = PooledReader::new(self, name);
        reader.size_bytes = if self.pool.has_idle(reader.object) {
            // It may have grown, and it may be gone.
            self.inner.len(name)?
        } else {
            let place = self.pool.place(reader.object);
            let handle = self.inner.open(name)?;
            let size_bytes = handle.size_bytes();
            place.keep(handle);
            size_bytes
        };
        Ok(Box::new(reader))
    }

    fn len(&self, name: &str) -> Result<u64> {
        self.inner.len(name)
    }

    fn sync(&self, name: &str) -> Result<()> {
        self.inner.sync(name)
    }

    fn delete(&self, name: &str) -> Result<()> {
        let deleted = self.inner.delete(name);
        self.forget(name);
        deleted
    }

    fn delete_all(&self, names: &[String]) -> Vec<Result<()>> {
        let deleted = self.inner.delete_all(names);
        for name in names {
            self.forget(name);
        }
        deleted
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        let renamed = self.inner.rename(from, to);
        self.forget(from);
        renamed
    }

    fn list(&self) -> Result<Vec<ObjectMeta>> {
        self.inner.list()
    }
}

#[derive(Debug)]
struct PooledReader {
    storage: Arc<dyn Storage>,
    pool: Arc<HandlePool>,
    name: String,
    object: u128,
    size_bytes: u64,
}

impl PooledReader {
    fn new(storage: &PooledStorage, name: &str) -> Self {
        let object = object_key(&storage.inner.location(), name);
        storage.pool.join(object);
        Self {
            storage: Arc::clone(&storage.inner),
            pool: Arc::clone(&storage.pool),
            name: name.to_owned(),
            object,
            size_bytes: 0,
        }
    }
}

impl ReadFile for PooledReader {
    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn read(&self, offset: u64, len: u64) -> Result<Vec<u8>> {
        let what = format!("reading {}/{}", self.storage.location(), self.name);
        check_range(&what, self.size_bytes, offset, len)?;
        if let Some((place, handle)) = self.pool.lend(self.object, offset + len)
            && let Ok(bytes) = handle.read(offset, len)
        {
            place.keep(handle);
            return Ok(bytes);
        }
        // What the handle was opened with may be gone since, such as a connection.
        let place = self.pool.place(self.object);
        let handle = self.storage.open(&self.name)?;
        let bytes = handle.read(offset, len)?;
        place.keep(handle);
        Ok(bytes)
    }
}

impl Drop for PooledReader {
    fn drop(&mut self) {
        self.pool.leave(self.object);
    }
}
