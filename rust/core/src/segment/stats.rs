//! Counts of a segment writer.

use std::sync::atomic::{AtomicU64, Ordering};

/// What a writer did so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriterStats {
    /// Files created.
    pub files_created: u64,
    /// Files closed with a durable footer.
    pub files_sealed: u64,
    /// Segments appended.
    pub segments: u64,
    /// Bytes of these segments as stored.
    pub bytes: u64,
    /// Syncs asked of storage, those of sealing included.
    pub syncs: u64,
    /// Appends that returned an error of storage.
    pub appends_failed: u64,
    /// What these left in files that were closed since, in bytes: where it cannot be cut off it is
    /// part of the file's size, and goes when the file goes.
    pub garbage_bytes: u64,
}

#[derive(Debug, Default)]
pub(super) struct Counters {
    pub files_created: AtomicU64,
    pub files_sealed: AtomicU64,
    pub segments: AtomicU64,
    pub bytes: AtomicU64,
    pub syncs: AtomicU64,
    pub appends_failed: AtomicU64,
    pub garbage_bytes: AtomicU64,
}

impl Counters {
    pub fn read(&self) -> WriterStats {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        WriterStats {
            files_created: get(&self.files_created),
            files_sealed: get(&self.files_sealed),
            segments: get(&self.segments),
            bytes: get(&self.bytes),
            syncs: get(&self.syncs),
            appends_failed: get(&self.appends_failed),
            garbage_bytes: get(&self.garbage_bytes),
        }
    }
}

pub(super) fn add(counter: &AtomicU64, value: u64) {
    counter.fetch_add(value, Ordering::Relaxed);
}
