//! Reports of the segment writer to its manager. A file's lock is held: never call the writer back.

use std::fmt;

use crate::format::IndexEntry;
use crate::ids::FileId;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileChange {
    pub file: FileId,
    /// It takes appends, or its writer is still closing it.
    pub open: bool,
    pub physical_bytes: u64,
    pub durable_bytes: u64,
}

pub(crate) trait Observer: Send + Sync + fmt::Debug {
    /// A file was created in `lane` and is open.
    fn created(&self, file: FileId, lane: u64, physical_bytes: u64);
    /// A file that was just created could not be used and is gone again.
    fn deleted(&self, file: FileId);
    /// A segment was appended; the file now has `physical_bytes`.
    fn appended(&self, entry: &IndexEntry, physical_bytes: u64);
    /// Durability or openness of a file changed.
    fn changed(&self, change: &FileChange);
}

#[derive(Debug)]
pub(super) struct Unobserved;

impl Observer for Unobserved {
    fn created(&self, _: FileId, _: u64, _: u64) {}
    fn deleted(&self, _: FileId) {}
    fn appended(&self, _: &IndexEntry, _: u64) {}
    fn changed(&self, _: &FileChange) {}
}
