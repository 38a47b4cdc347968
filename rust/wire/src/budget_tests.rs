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
