//! Memory for the payloads that all clients of a server hand over at the same time.

use parking_lot::{Condvar, Mutex};

/// Bound on the payloads that are held at once. Each is held as it came and, while it is written, as
/// it is stored: with 1 GiB an executor takes at most 2 GiB for them, whatever its number of workers.
const MAX_BYTES: u64 = 1 << 30;

/// Lets payloads in as long as they fit together. One that is larger than all there is goes alone.
#[derive(Debug, Default)]
pub(super) struct Budget {
    taken: Mutex<u64>,
    given_back: Condvar,
}

/// A share, until dropped.
#[derive(Debug)]
pub(super) struct Share<'a> {
    budget: &'a Budget,
    bytes: u64,
}

impl Budget {
    /// Waits until there is room for a payload of `bytes` bytes.
    pub fn take(&self, bytes: u64) -> Share<'_> {
        let bytes = bytes.min(MAX_BYTES);
        let mut taken = self.taken.lock();
        while *taken + bytes > MAX_BYTES {
            self.given_back.wait(&mut taken);
        }
        *taken += bytes;
        Share {
            budget: self,
            bytes,
        }
    }
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        *self.budget.taken.lock() -= self.bytes;
        self.budget.given_back.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::thread;

    #[test]
    fn what_is_held_at_once_stays_within_the_bound() {
        let budget = Budget::default();
        let (held, most) = (AtomicU64::new(0), AtomicU64::new(0));
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for part in 1..200 {
                        let bytes = MAX_BYTES / part;
                        let share = budget.take(bytes);
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
        assert_eq!(*budget.taken.lock(), 0);
    }

    #[test]
    fn a_payload_larger_than_all_there_is_goes_alone() {
        let budget = Budget::default();
        let large = budget.take(u64::MAX);
        assert_eq!(*budget.taken.lock(), MAX_BYTES);
        // What takes no room does not wait.
        drop(budget.take(0));
        drop(large);
        drop(budget.take(MAX_BYTES));
    }
}
