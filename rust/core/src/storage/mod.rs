//! Storage of objects: one trait. The conformance suite of `rust/sim` tests every backend.

mod cached;
mod handle_pool;
mod layer;
mod local;
mod local_cache;
mod nearby;
mod pooled;
mod read_ahead;

use std::fmt;
use std::sync::Arc;

use crate::error::{Error, ErrorKind, Result};

pub use cached::CachedStorage;
pub use handle_pool::HandlePool;
pub use local::{LocalStorage, set_local_umask};
pub use local_cache::LocalCache;
pub use nearby::NearbyStorage;
pub use pooled::PooledStorage;
pub(crate) use read_ahead::ReadAhead;

/// Promises of a backend. One that learns them from its first object promises nothing before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// Appended bytes survive the death of the writing process without closing the file, and are
    /// visible at once, so that files may span checkpoints. Without it an object becomes visible,
    /// whole, when it is finished; else it is gone.
    pub durable_append: bool,
    /// [`Storage::sync`] works on an unfinished object. Otherwise only its writer can sync it.
    pub sync_by_name: bool,
}

/// An object seen by [`Storage::list`].
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ObjectMeta {
    /// Name below the storage root.
    pub name: String,
    /// Size in bytes at the time of listing.
    pub len: u64,
}

/// A flat folder of append-only objects. Names contain no separators.
pub trait Storage: Send + Sync + fmt::Debug {
    /// The place for messages, for example `/data/ckpt/state/holdfast`.
    fn location(&self) -> String;

    /// The promises of this backend.
    fn capabilities(&self) -> Capabilities;

    /// Creates `name` for appending, and the root if it is missing.
    ///
    /// # Errors
    /// `AlreadyExists` when there is such an object: nothing is overwritten. A backend without
    /// durable appends may say so only when the file is finished.
    fn create(&self, name: &str) -> Result<Box<dyn AppendFile>>;

    /// Opens `name` for several reads: on remote storage every opening is a round trip.
    ///
    /// # Errors
    /// `NotFound`.
    fn open(&self, name: &str) -> Result<Box<dyn ReadFile>>;

    /// Opens `name`, which has at least `len` bytes, to read these. A storage that needs a round
    /// trip for a length does not ask: the first read reports an object that is missing or shorter.
    ///
    /// # Errors
    /// `NotFound`, unless the first read says so.
    fn open_known(&self, name: &str, len: u64) -> Result<Box<dyn ReadFile>> {
        let _ = len;
        self.open(name)
    }

    /// Opens `name` to read a little of it, while many others do the same. Readers of remote
    /// storage may share what it reads.
    fn open_near(&self, name: &str) -> Result<Arc<dyn ReadFile>> {
        self.open(name).map(Arc::from)
    }

    /// One read of an object, as [`ReadFile::read`].
    ///
    /// # Errors
    /// `NotFound`; errors of [`ReadFile::read`].
    fn read(&self, name: &str, offset: u64, len: u64) -> Result<Vec<u8>> {
        self.open(name)?.read(offset, len)
    }

    /// Current size in bytes.
    ///
    /// # Errors
    /// `NotFound`.
    fn len(&self, name: &str) -> Result<u64>;

    /// Makes the bytes present now, and the name, survive a machine crash. Another process than the
    /// writer may call it; with `sync_by_name` even while the writer appends.
    ///
    /// # Errors
    /// `NotFound`, `Storage`.
    fn sync(&self, name: &str) -> Result<()>;

    /// Removes the object. Removing one that is not there is a success.
    ///
    /// # Errors
    /// `Storage`.
    fn delete(&self, name: &str) -> Result<()>;

    /// [`Storage::delete`] of several objects, in as few requests as the backend allows. Returns
    /// the outcome of each, in order. A failure does not keep other objects from being deleted.
    fn delete_all(&self, names: &[String]) -> Vec<Result<()>> {
        names.iter().map(|name| self.delete(name)).collect()
    }

    /// Gives a finished object another name in one step: it always has a name, and is always whole.
    /// On return the new name survives a machine crash. A crash may leave both names; after an
    /// error no reader sees the new one.
    ///
    /// # Errors
    /// `NotFound`; `AlreadyExists` when the new name is taken: nothing is overwritten; `Storage`;
    /// `Unsupported` if the backend has no such operation.
    fn rename(&self, from: &str, to: &str) -> Result<()> {
        Err(Error::new(
            ErrorKind::Unsupported,
            format!("{}: renaming {from} to {to} in one step", self.location()),
        ))
    }

    /// All objects, sorted by name. An absent root has no objects. The length of an unfinished
    /// object may be older than the result of [`Storage::len`].
    ///
    /// # Errors
    /// `Storage`.
    fn list(&self) -> Result<Vec<ObjectMeta>>;
}

/// An object open for reading, whether or not a writer still appends to it.
pub trait ReadFile: Send + Sync + fmt::Debug {
    /// Size in bytes when it was opened.
    fn size_bytes(&self) -> u64;

    /// Reads exactly `len` bytes from `offset`. Checks the range before it takes memory, so that a
    /// wrong `len` costs nothing.
    ///
    /// # Errors
    /// `Corrupt` when they are not inside the size (expected and found sizes in the text).
    fn read(&self, offset: u64, len: u64) -> Result<Vec<u8>>;
}

/// An object open for appending, by one writer.
pub trait AppendFile: Send + fmt::Debug {
    /// Appends all bytes. On backends with `durable_append` they survive the process once this
    /// returns. After an error the length of the object is unknown. Dropping a file without
    /// [`AppendFile::finish`] has the same effect as a crash of the process.
    ///
    /// # Errors
    /// `Storage`.
    fn append(&mut self, bytes: &[u8]) -> Result<()>;

    /// Cuts off the garbage of a failed append after `len` bytes. The next append continues there.
    ///
    /// # Errors
    /// `Storage`; `Unsupported` if the backend cannot do that. The object's length is unknown then.
    fn cut(&mut self, len: u64) -> Result<()> {
        Err(Error::new(
            ErrorKind::Unsupported,
            format!("an object cannot be cut to {len} bytes here"),
        ))
    }

    /// Makes all appended bytes, and the name, survive a machine crash.
    ///
    /// # Errors
    /// `Storage`; the object must not be appended to afterwards.
    fn sync(&mut self) -> Result<()>;

    /// A handle that syncs the object while this one appends; `None` if only the writer can sync.
    /// It keeps open what a sync needs, so that no sync fails because no descriptor is left.
    fn syncer(&self) -> Option<Arc<dyn SyncFile>> {
        None
    }

    /// Syncs and closes. Without `durable_append` the object becomes visible here.
    ///
    /// # Errors
    /// `Storage`.
    fn finish(self: Box<Self>) -> Result<()>;
}

/// Syncs an object that a writer appends to.
pub trait SyncFile: Send + Sync + fmt::Debug {
    /// Makes the bytes appended before the call, and the name, survive a machine crash.
    fn sync(&self) -> Result<()>;
}

/// Refuses names that could leave the folder.
///
/// # Errors
/// `InvalidInput` for an empty name, `.`, `..`, or a name with a separator.
pub fn check_name(name: &str) -> Result<()> {
    let bad = name.is_empty() || name == "." || name == ".." || name.contains(['/', '\\', '\0']);
    if bad {
        return Err(Error::invalid_input(format!(
            "{name:?} is not the name of an object"
        )));
    }
    Ok(())
}

/// Checks that `[offset, offset + len)` is inside an object of `size` bytes.
///
/// # Errors
/// `Corrupt` with the expected and the found size.
pub fn check_range(what: &str, size: u64, offset: u64, len: u64) -> Result<()> {
    match offset.checked_add(len) {
        Some(end) if end <= size => Ok(()),
        Some(end) => Err(Error::corrupt(format!(
            "{what}: expected at least {end} bytes (reading {len} at offset {offset}), found {size}"
        ))),
        None => Err(Error::corrupt(format!(
            "{what}: {len} bytes at offset {offset} is past every possible end, found {size} bytes"
        ))),
    }
}
