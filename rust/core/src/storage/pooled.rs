//! A storage whose readers share the open handles of its objects.

use std::sync::Arc;

use super::handle_pool::HandlePool;
use super::layer::Layer;
use super::local_cache::object_key;
use super::{ReadFile, Storage, check_range};
use crate::error::Result;

/// Storage whose readers hold no handle. Each read takes one from a [`HandlePool`], or opens the
/// object if the pool has none. A reader learns only then that an object was deleted.
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
}

impl Layer for PooledStorage {
    fn below(&self) -> &dyn Storage {
        self.inner.as_ref()
    }

    fn forget_object(&self, name: &str) {
        self.pool.forget(object_key(&self.location(), name));
    }

    fn open(&self, name: &str) -> Result<Box<dyn ReadFile>> {
        let object = object_key(&self.location(), name);
        self.pool.join(object);
        let mut reader = PooledReader {
            storage: Arc::clone(&self.inner),
            pool: Arc::clone(&self.pool),
            name: name.to_owned(),
            object,
            size_bytes: 0,
        };
        reader.size_bytes = if self.pool.has_idle(object) {
            // The object may have grown, or be gone.
            self.inner.len(name)?
        } else {
            let loan = self.pool.make_room(object);
            let handle = self.inner.open(name)?;
            let size_bytes = handle.size_bytes();
            loan.keep(handle);
            size_bytes
        };
        Ok(Box::new(reader))
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

impl ReadFile for PooledReader {
    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn read(&self, offset: u64, len: u64) -> Result<Vec<u8>> {
        let what = format!("reading {}/{}", self.storage.location(), self.name);
        check_range(&what, self.size_bytes, offset, len)?;
        if let Some((loan, handle)) = self.pool.lend(self.object, offset + len)
            && let Ok(bytes) = handle.read(offset, len)
        {
            loan.keep(handle);
            return Ok(bytes);
        }
        // The connection of the handle may be broken.
        let loan = self.pool.make_room(self.object);
        let handle = self.storage.open(&self.name)?;
        let bytes = handle.read(offset, len)?;
        loan.keep(handle);
        Ok(bytes)
    }
}

impl Drop for PooledReader {
    fn drop(&mut self) {
        self.pool.leave(self.object);
    }
}
