//! A storage whose readers share requests for small objects and small parts of large ones.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;

use super::layer::Layer;
use super::read_ahead::ReadAhead;
use super::{ReadFile, Storage};
use crate::error::Result;

/// Bound on the objects that stay open.
const MAX_OPEN: usize = 256;

/// Storage whose objects are whole once visible, and never change. Readers of nearby bytes share
/// open objects and read-ahead: after a restart many stores each read a little of the same objects.
///
/// Memory: `max_bytes`, and 1 MiB for each thread that reads, until [`NearbyStorage::forget`].
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
    /// The last one was opened last.
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

    /// Closes all objects and frees their memory, as soon as no reader has them.
    pub fn forget(&self) {
        let closed = std::mem::take(&mut *self.open.lock());
        drop(closed);
    }

    /// An open object, which now counts as opened last.
    fn find(&self, name: &str) -> Option<Arc<ReadAhead>> {
        let mut open = self.open.lock();
        let at = open.iter().position(|(found, _)| found == name)?;
        let found = open.remove(at)?;
        let file = Arc::clone(&found.1);
        open.push_back(found);
        Some(file)
    }

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

impl Layer for NearbyStorage {
    fn below(&self) -> &dyn Storage {
        self.inner.as_ref()
    }

    fn forget_object(&self, name: &str) {
        self.open.lock().retain(|(open, _)| open != name);
    }

    fn open_near(&self, name: &str) -> Result<Arc<dyn ReadFile>> {
        if let Some(file) = self.find(name) {
            return Ok(file);
        }
        let file = Arc::new(ReadAhead::new(self.inner.open(name)?));
        self.keep(name, &file);
        Ok(file)
    }
}
