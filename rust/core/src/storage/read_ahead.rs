//! Serves small reads near each other from few large ones.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use super::ReadFile;
use crate::error::Result;

/// Bytes of one read.
const AHEAD_BYTES: u64 = 1 << 20;

/// Greatest distance of reads that are near each other.
const NEAR_BYTES: u64 = 2 * AHEAD_BYTES;

/// A file with read-ahead. A read near the one before brings up to 1 MiB around it into memory,
/// which on remote storage takes hardly longer than a few bytes. The first read of a file that is
/// no larger brings all of it. Reads far from each other, or of more than half of that, take only
/// their bytes.
///
/// Bytes in memory may be stale, because a writer may cut the end of its file and append again. A
/// reader that finds them damaged opens the file again.
#[derive(Debug)]
pub(crate) struct ReadAhead {
    file: Box<dyn ReadFile>,
    seen: Mutex<Seen>,
    held_bytes: AtomicU64,
}

#[derive(Debug, Default)]
struct Seen {
    /// Offset of the last read of the file.
    last: Option<u64>,
    /// Bytes from `start`.
    start: u64,
    bytes: Vec<u8>,
}

impl ReadAhead {
    pub fn new(file: Box<dyn ReadFile>) -> Self {
        Self {
            file,
            seen: Mutex::default(),
            held_bytes: AtomicU64::new(0),
        }
    }

    pub fn held_bytes(&self) -> u64 {
        self.held_bytes.load(Ordering::Relaxed)
    }
}

impl ReadFile for ReadAhead {
    fn size_bytes(&self) -> u64 {
        self.file.size_bytes()
    }

    fn read(&self, offset: u64, len: u64) -> Result<Vec<u8>> {
        let end = offset.saturating_add(len);
        if len == 0 || len > AHEAD_BYTES / 2 || end > self.size_bytes() {
            return self.file.read(offset, len);
        }
        let mut seen = self.seen.lock();
        if let Some(found) = seen.find(offset, len) {
            return Ok(found);
        }
        let last = seen.last.replace(offset);
        let is_near = last.is_some_and(|last| last.abs_diff(offset) <= NEAR_BYTES);
        if !is_near && self.size_bytes() > AHEAD_BYTES {
            return self.file.read(offset, len);
        }
        // It starts at a multiple of the length, for readers that go backwards. It ends a little
        // after the next multiple, for segments across that place.
        let start = offset - offset % AHEAD_BYTES;
        let stop = end.max(start + AHEAD_BYTES + AHEAD_BYTES / 8);
        let stop = stop.min(self.size_bytes());
        seen.bytes = Vec::new();
        seen.bytes = self.file.read(start, stop - start)?;
        seen.start = start;
        self.held_bytes.store(stop - start, Ordering::Relaxed);
        match seen.find(offset, len) {
            Some(found) => Ok(found),
            None => self.file.read(offset, len),
        }
    }
}

impl Seen {
    fn find(&self, offset: u64, len: u64) -> Option<Vec<u8>> {
        let from = usize::try_from(offset.checked_sub(self.start)?).ok()?;
        let to = from.checked_add(usize::try_from(len).ok()?)?;
        self.bytes.get(from..to).map(<[u8]>::to_vec)
    }
}

#[cfg(test)]
#[path = "read_ahead_tests.rs"]
mod tests;
