//! Memory for the payloads that all clients of a server hand over at the same time.

use parking_lot::{Condvar, Mutex};

/// Bound on the payloads that are held at once. Each is held as it arrived and, while it is
/// written, as it is stored: an executor takes at most 2 GiB for them, however many workers it has.
const MAX_BYTES: u64 = 1 << 30;

/// Larger payloads wait only for each other: reading 12 GiB takes longer than a checkpoint may.
const LARGE_BYTES: u64 = 64 << 20;

/// Part of the bound for payloads that are not large.
const SMALL_BYTES: u64 = 256 << 20;

/// Large and small payloads wait apart. A payload larger than the bound is held with no other.
#[derive(Debug)]
pub(super) struct Budget {
    small: Room,
    large: Room,
}

#[derive(Debug)]
struct Room {
    max_bytes: u64,
    taken: Mutex<u64>,
    given_back: Condvar,
}

#[derive(Debug)]
pub(super) struct Share<'a> {
    room: &'a Room,
    bytes: u64,
}

impl Default for Budget {
    fn default() -> Self {
        Self {
            small: Room::new(SMALL_BYTES),
            large: Room::new(MAX_BYTES - SMALL_BYTES),
        }
    }
}

impl Budget {
    /// Waits until there is room for a payload of `bytes` bytes.
    pub fn take(&self, bytes: u64) -> Share<'_> {
        if bytes > LARGE_BYTES {
            self.large.take(bytes)
        } else {
            self.small.take(bytes)
        }
    }
}

impl Room {
    fn new(max_bytes: u64) -> Self {
        Self {
            max_bytes,
            taken: Mutex::default(),
            given_back: Condvar::new(),
        }
    }

    fn take(&self, bytes: u64) -> Share<'_> {
        let bytes = bytes.min(self.max_bytes);
        let mut taken = self.taken.lock();
        while *taken + bytes > self.max_bytes {
            self.given_back.wait(&mut taken);
        }
        *taken += bytes;
        Share { room: self, bytes }
    }
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        *self.room.taken.lock() -= self.bytes;
        self.room.given_back.notify_all();
    }
}

#[cfg(test)]
#[path = "budget_tests.rs"]
mod tests;
