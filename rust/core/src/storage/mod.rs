//! Where bytes live. One trait; the conformance suite is run by every backend.

use std::fmt;

use crate::error::Result;

/// What a backend can promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Appended bytes survive the death of the writing process without closing the file.
    /// Decides whether files span checkpoints.
    pub durable_append: bool,
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
    /// Where this is, for messages: for example `/data/ckpt/state/holdfast`.
    fn location(&self) -> String;

    /// What this backend can promise.
    fn capabilities(&self) -> Capabilities;

    /// Creates `name` for appending; makes the root when it is missing.
    ///
    /// # Errors
    /// `AlreadyExists` when the name was ever taken and is still there: nothing is overwritten.
    fn create(&self, name: &str) -> Result<Box<dyn AppendFile>>;

    /// Reads exactly `len` bytes from `offset`.
    ///
    /// # Errors
    /// `NotFound`; `Corrupt` when the object ends earlier (expected and found sizes in the text).
    fn read(&self, name: &str, offset: u64, len: u64) -> Result<Vec<u8>>;

    /// Current size in bytes.
    ///
    /// # Errors
    /// `NotFound`.
    fn len(&self, name: &str) -> Result<u64>;

    /// Makes the bytes present now, and the name, survive a machine crash. May be called by another
    /// process than the writer.
    ///
    /// # Errors
    /// `NotFound`, `Storage`.
    fn sync(&self, name: &str) -> Result<()>;

    /// Removes the object. Removing one that is not there is a success.
    ///
    /// # Errors
    /// `Storage`.
    fn delete(&self, name: &str) -> Result<()>;

    /// All objects, sorted by name. An absent root has no objects.
    ///
    /// # Errors
    /// `Storage`.
    fn list(&self) -> Result<Vec<ObjectMeta>>;
}

/// An object open for appending, by one writer.
pub trait AppendFile: Send + fmt::Debug {
    /// Appends all bytes. On backends with `durable_append` they survive the process once this
    /// returns. After an error the length of the object is unknown.
    ///
    /// # Errors
    /// `Storage`.
    fn append(&mut self, bytes: &[u8]) -> Result<()>;

    /// Makes all appended bytes, and the name, survive a machine crash.
    ///
    /// # Errors
    /// `Storage`; the object must not be appended to afterwards.
    fn sync(&mut self) -> Result<()>;

    /// Syncs and closes. On backends without `durable_append` the object becomes visible here.
    ///
    /// # Errors
    /// `Storage`.
    fn finish(self: Box<Self>) -> Result<()>;
}
