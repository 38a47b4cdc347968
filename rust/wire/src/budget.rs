//! Memory for the payloads that all clients of a server hand over at the same time.

use parking_lot::{Condvar, Mutex};

/// Bound on the payloads that are held at once. Each is held as it came and, while it is written,
/// as it is stored: with 1 GiB an executor takes at most 2 GiB for them, whatever its number of
/// workers.
const MAX_BYTES: u64 = 1 << 30;

/// Payloads beyond this size wait for each other and for no smaller one: reading one of 12 GiB
/// takes longer than a checkpoint may.
const LARGE_BYTES: u64 = 64 << 20;

/// Part of the bound for payloads that are not large.
const SMALL_BYTES: u64 = 256 << 20;

/// Large and small payloads wait apart. One that is larger than all there is goes alone.
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
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::thread;

    #[test]
    fn what_is_held_at_once_stays_within_the_bound() {
        let room = Room::new(MAX_BYTES);
        let (held, most) = (AtomicU64::new(0), AtomicU64::new(0));
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for part in 1..200 {
                        let bytes = MAX_BYTES / part;
                        let share = room.take(bytes);
                        let now = held.fetch_add(bytes, Ordering::SeqCst) + bytes;
                        most.fetch_max(now, Ordering::SeqCst);
                        thread::yield_now();
                        held.fetch_sub(bytes, Ordering::SeqCst);
                        drop(share);
                    }
                });
            }
        });
        // The first share of every thread is all there is.
        assert_eq!(most.into_inner(), MAX_BYTES);
        assert_eq!(*room.taken.lock(), 0);
    }

    #[test]
    fn a_payload_larger_than_all_there_is_goes_alone() {
        let budget = Budget::default();
        let large = budget.take(u64::MAX);
        assert_eq!(*budget.large.taken.lock(), MAX_BYTES - SMALL_BYTES);
        drop(large);
        drop(budget.take(MAX_BYTES));
    }

    #[test]
    fn small_payloads_do_not_wait_for_a_large_one() {
        let budget = Budget::default();
        let large = budget.take(12 << 30);
        let small: Vec<_> = (0..SMALL_BYTES / LARGE_BYTES)
            .map(|_| budget.take(LARGE_BYTES))
            .collect();
        assert_eq!(*budget.small.taken.lock(), SMALL_BYTES);
        drop((large, small));
        assert_eq!(*budget.small.taken.lock(), 0);
    }
}
