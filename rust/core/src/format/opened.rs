//! Segments of a folder, read one by one where every file that is opened, and every read, is a round trip.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;

use super::{Segment, SegmentReader};
use crate::error::Result;
use crate::ids::{FileId, Owner, SegmentRef};
use crate::storage::{ReadFile, Storage};

/// The files that segments were read from last. They stay open, each with up to 1 MiB of it in memory,
/// so that the segments of a checkpoint, which lie beside each other in few files, cost few reads.
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

    /// Reads a segment of the folder `storage`, which has to be the same one every time, and verifies all
    /// of it. Its file is known to have `known_bytes`, or more; 0 where nothing is known.
    ///
    /// # Errors
    /// As [`read_segment`](super::read_segment).
    pub fn read(
        &self,
        storage: &dyn Storage,
        reference: &SegmentRef,
        owner: &Owner,
        known_bytes: u64,
    ) -> Result<Segment> {
        let open = self.take(reference.file);
        let mut reader = SegmentReader::reading_ahead(storage, open, known_bytes);
        let found = reader.read(reference, owner);
        self.put(reader.into_open());
        found
    }

    /// Closes all.
    pub fn clear(&self) {
        let closed = std::mem::take(&mut *self.open.lock());
        drop(closed);
    }

    /// Takes a file out, if it is there: two threads do not read one at the same time.
    fn take(&self, file: FileId) -> Option<(FileId, Arc<dyn ReadFile>)> {
        let mut open = self.open.lock();
        let at = open.iter().position(|(found, _)| *found == file)?;
        open.remove(at)
    }

    /// Keeps a file, and closes the one that was read longest ago for it.
    fn put(&self, read: Option<(FileId, Arc<dyn ReadFile>)>) {
        let Some(read) = read else {
            return;
        };
        let mut open = self.open.lock();
        open.push_back(read);
        let closed = if open.len() > self.max {
            open.pop_front()
        } else {
            None
        };
        drop(open);
        drop(closed);
    }
}
