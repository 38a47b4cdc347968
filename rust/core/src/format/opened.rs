//! Reads segments one by one from storage where each opening and each read is a round trip.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;

use super::{Segment, SegmentReader};
use crate::error::Result;
use crate::ids::{FileId, Owner, SegmentRef};
use crate::storage::{ReadFile, Storage};

/// Keeps open the files that were read last, each with up to 1 MiB in memory. The segments of a
/// checkpoint are next to each other in few files, so they cost few reads.
#[derive(Debug)]
pub struct OpenedFiles {
    max: usize,
    open: Mutex<VecDeque<(FileId, Arc<dyn ReadFile>)>>,
}

impl OpenedFiles {
    /// Keeps the last `max` files open.
    pub fn new(max: usize) -> Self {
        Self {
            max,
            open: Mutex::default(),
        }
    }

    /// Reads and verifies a segment of the folder `storage`, which must be the same in every call.
    /// Its file has at least `known_bytes`; 0 if nothing is known.
    pub fn read(
        &self,
        storage: &dyn Storage,
        reference: &SegmentRef,
        owner: &Owner,
        known_bytes: u64,
    ) -> Result<Segment> {
        let mut reader = SegmentReader {
            storage,
            open: self.take(reference.file),
            reads_ahead: true,
            known_bytes,
        };
        let found = reader.read(reference, owner);
        self.put(reader.open);
        found
    }

    /// Closes all files.
    pub fn clear(&self) {
        let closed = std::mem::take(&mut *self.open.lock());
        drop(closed);
    }

    /// Takes a file out, if it is there: one thread at a time reads it.
    fn take(&self, file: FileId) -> Option<(FileId, Arc<dyn ReadFile>)> {
        let mut open = self.open.lock();
        let at = open.iter().position(|(found, _)| *found == file)?;
        open.remove(at)
    }

    /// Keeps a file, and closes the file that was read longest ago.
    fn put(&self, read: Option<(FileId, Arc<dyn ReadFile>)>) {
        let Some(read) = read else {
            return;
        };
        let mut open = self.open.lock();
        open.push_back(read);
        let excess = open.len().saturating_sub(self.max);
        let closed: Vec<_> = open.drain(..excess).collect();
        drop(open);
        drop(closed);
    }
}
