//! Memory that all stores of a process share: a target that they keep to, and a limit.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use crate::error::{Error, ErrorKind, Result};
use crate::state::arena::{self, Release};

/// Bytes that the tables of many stores have taken from the allocator, against a limit.
///
/// Tables grow by pages of up to 1 MiB and are counted when they do, so the limit is exceeded by at
/// most a page and its index entries per store before it is noticed.
#[derive(Debug)]
pub struct MemoryBudget {
    used_bytes: AtomicU64,
    /// What work beside the stores takes, which is no state: stores give way to it.
    work_bytes: AtomicU64,
    limit_bytes: AtomicU64,
    /// [`UNSET`] for three quarters of the limit.
    target_bytes: AtomicU64,
    was_short: AtomicBool,
    /// Taken, given up and copied since [`MemoryBudget::take_turnover`] last said that it is much.
    turnover_bytes: AtomicU64,
    load_bytes: AtomicU64,
    /// What the next session of every store is expected to take, all together, of stores that had one.
    session_bytes: AtomicU64,
    stores_with_session: AtomicU64,
    stores: AtomicU64,
    release: OnceLock<Release>,
}

/// A load of so much takes about 10 ms, and from remote storage one request.
const LOAD_BYTES: u64 = 8 << 20;

/// What the allocator keeps of less is little beside a process.
const LEAST_TURNOVER_BYTES: u64 = 2 << 20;

const UNSET: u64 = u64::MAX;

impl Default for MemoryBudget {
    fn default() -> Self {
        Self::unlimited()
    }
}

impl MemoryBudget {
    /// A budget that only counts.
    pub const fn unlimited() -> Self {
        Self {
            used_bytes: AtomicU64::new(0),
            work_bytes: AtomicU64::new(0),
            limit_bytes: AtomicU64::new(UNSET),
            target_bytes: AtomicU64::new(UNSET),
            was_short: AtomicBool::new(false),
            turnover_bytes: AtomicU64::new(0),
            load_bytes: AtomicU64::new(LOAD_BYTES),
            session_bytes: AtomicU64::new(0),
            stores_with_session: AtomicU64::new(0),
            stores: AtomicU64::new(0),
            release: OnceLock::new(),
        }
    }

    /// Bytes taken by all stores.
    pub fn used_bytes(&self) -> u64 {
        self.used_bytes.load(Ordering::Relaxed)
    }

    /// Bytes taken by all stores and by work beside them.
    fn occupied_bytes(&self) -> u64 {
        let work = self.work_bytes.load(Ordering::Relaxed);
        self.used_bytes().saturating_add(work)
    }

    /// Counts what work beside the stores takes, until what this returns is dropped. The target holds for
    /// both together; the limit is for state alone.
    pub(super) fn begin_work(self: &Arc<Self>, bytes: u64) -> Work {
        self.work_bytes.fetch_add(bytes, Ordering::Relaxed);
        Work {
            budget: Arc::clone(self),
            bytes,
        }
    }

    /// Changes the limit; stores that are above it already fail when they grow again.
    pub fn set_limit_bytes(&self, limit_bytes: u64) {
        self.limit_bytes.store(limit_bytes, Ordering::Relaxed);
    }

    /// From how many bytes on stores keep in memory what they use, and leave the rest where it is
    /// durable. Without a target of its own three quarters of the limit; without a limit either, all
    /// state stays in memory.
    pub fn set_target_bytes(&self, target_bytes: Option<u64>) {
        self.target_bytes
            .store(target_bytes.unwrap_or(UNSET), Ordering::Relaxed);
    }

    /// Whether stores ever took, or had to take, more than the target: some of their state may be read
    /// from base images since.
    pub fn was_short(&self) -> bool {
        self.was_short.load(Ordering::Relaxed)
    }

    /// Whether stores come close to the target, or were beyond it before: what the allocator keeps for
    /// itself, beside what they take, is too much then.
    pub fn is_tight(&self) -> bool {
        let occupied = self.occupied_bytes();
        self.was_short()
            || self
                .target_bytes()
                .is_some_and(|target| occupied > target / 4 * 3)
    }

    /// Whether what stores took, gave up and copied since this last said so comes to a sixteenth of the target,
    /// and to 2 MiB: the allocator may keep a part of it. Never where there is room.
    pub fn take_turnover(&self) -> bool {
        let due = |bytes: u64| {
            self.target_bytes()
                .is_some_and(|target| bytes >= LEAST_TURNOVER_BYTES.max(target / 16))
        };
        if !self.is_tight() || !due(self.turnover_bytes.load(Ordering::Relaxed)) {
            return false;
        }
        // Of several threads one is told.
        due(self.turnover_bytes.swap(0, Ordering::Relaxed))
    }

    /// Up to how many bytes in memory the runs of a store are loaded when it is opened. Where there is a
    /// target, larger ones are left where they are, and come into memory beside the work of the store. 8 MiB
    /// unless this says another.
    pub fn set_load_bytes(&self, load_bytes: u64) {
        self.load_bytes.store(load_bytes, Ordering::Relaxed);
    }

    /// What is to be done with memory of records that leave, before the allocator gets it: it may keep what it
    /// gets, and where state leaves memory that would be as much again as stores copy meanwhile. The first
    /// call counts.
    pub fn release_by(&self, release: Release) {
        let _ = self.release.set(release);
    }

    pub(super) fn release(&self) -> Release {
        self.release.get().copied().unwrap_or(arena::keep)
    }

    fn target_bytes(&self) -> Option<u64> {
        let set = |bytes: &AtomicU64| Some(bytes.load(Ordering::Relaxed)).filter(|b| *b != UNSET);
        set(&self.target_bytes).or_else(|| set(&self.limit_bytes).map(|limit| limit / 4 * 3))
    }

    /// Below what stores that give something up, or bring something in that no session asked for, leave the
    /// process: an eighth below the target, so that not every session has to give up some, and so far that
    /// the sessions of a batch have the room that those of the last two took, up to five eighths of the
    /// target: with no bound, keys of which each batch needs nearly all would leave before each batch.
    fn ease_bytes(&self) -> Option<u64> {
        let target = self.target_bytes()?;
        Some(target - self.batch_bytes().clamp(target / 8, target / 8 * 5))
    }

    /// What the sessions of a batch are expected to take; of a store that had none yet as much as the others
    /// on average.
    fn batch_bytes(&self) -> u64 {
        let stores = self.stores.load(Ordering::Relaxed);
        self.mean_session_bytes().saturating_mul(stores)
    }

    fn mean_session_bytes(&self) -> u64 {
        let known = self.stores_with_session.load(Ordering::Relaxed);
        let bytes = self.session_bytes.load(Ordering::Relaxed);
        bytes.checked_div(known).unwrap_or(0)
    }

    /// Counts what a store takes in the place of what it took; returns what all take.
    fn replace_used(&self, before: u64, now: u64) -> u64 {
        self.turnover_bytes
            .fetch_add(now.abs_diff(before), Ordering::Relaxed);
        replace(&self.used_bytes, before, now)
    }
}

/// Work beside the stores, counted until it is dropped.
#[derive(Debug)]
pub(super) struct Work {
    budget: Arc<MemoryBudget>,
    bytes: u64,
}

impl Drop for Work {
    fn drop(&mut self) {
        let work = &self.budget.work_bytes;
        work.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Counts `now` in the place of `before`; returns the sum.
fn replace(sum: &AtomicU64, before: u64, now: u64) -> u64 {
    if now >= before {
        let grown = now - before;
        sum.fetch_add(grown, Ordering::Relaxed) + grown
    } else {
        let freed = before - now;
        sum.fetch_sub(freed, Ordering::Relaxed) - freed
    }
}

/// What one store takes of a budget; given back when dropped.
#[derive(Debug)]
pub(super) struct MemoryShare {
    budget: Arc<MemoryBudget>,
    bytes: u64,
    /// When the last session began.
    begun_bytes: u64,
    /// What the last session took.
    last_bytes: u64,
    /// What the next session is expected to take; unknown before one has ended.
    session_bytes: Option<u64>,
    /// No session has begun since one ended.
    is_first_session: bool,
}

impl MemoryShare {
    pub(super) fn of(budget: Arc<MemoryBudget>) -> Self {
        budget.stores.fetch_add(1, Ordering::Relaxed);
        Self {
            budget,
            bytes: 0,
            begun_bytes: 0,
            last_bytes: 0,
            session_bytes: None,
            is_first_session: true,
        }
    }

    /// A session begins, after which [`MemoryShare::end_session`] comes.
    pub(super) fn begin_session(&mut self) {
        self.begun_bytes = self.bytes;
        self.is_first_session = self.session_bytes.is_none();
    }

    /// So much came into memory by itself: it is no part of what the session takes.
    pub(super) fn note_hydrated(&mut self, bytes: u64) {
        self.begun_bytes += bytes;
    }

    /// Whether the store has had no session before the one that is open or was the last: what a batch takes,
    /// and how many stores there are to be, is not known then.
    pub(super) fn is_first_session(&self) -> bool {
        self.is_first_session
    }

    /// A session was committed: the next one is expected to take as much as the larger of this and the one
    /// before, and an eighth more, because tables do not grow in every session. One that took more than
    /// twice as much as this does not count: it may have filled the store.
    pub(super) fn end_session(&mut self) {
        let grown = self.bytes.saturating_sub(self.begun_bytes);
        let last = std::mem::replace(&mut self.last_bytes, grown);
        let larger = if last / 2 > grown {
            grown
        } else {
            grown.max(last)
        };
        let expected = larger + larger / 8;
        let budget = &self.budget;
        let before = self.session_bytes.replace(expected).unwrap_or_else(|| {
            budget.stores_with_session.fetch_add(1, Ordering::Relaxed);
            0
        });
        replace(&budget.session_bytes, before, expected);
    }

    /// Whether a session like the last one would bring the process beyond its target.
    pub(super) fn is_short_for_session(&self) -> bool {
        let bytes = self.session_bytes;
        self.is_short(bytes.unwrap_or_else(|| self.budget.mean_session_bytes()))
    }

    /// Whether the sessions of two batches like the last one would: until then nothing leaves memory that a
    /// run has to have first, because commits build on the run after this batch.
    pub(super) fn is_short_for_merge(&self) -> bool {
        self.is_short(self.budget.batch_bytes().saturating_mul(2))
    }

    /// Whether there is a target at all.
    pub(super) fn has_target(&self) -> bool {
        self.budget.target_bytes().is_some()
    }

    /// Whether `more` bytes would bring the process beyond its target.
    pub(super) fn is_short(&self, more: u64) -> bool {
        let occupied = self.budget.occupied_bytes().saturating_add(more);
        let target = self.budget.target_bytes();
        let is_short = target.is_some_and(|target| occupied > target);
        if is_short {
            self.budget.was_short.store(true, Ordering::Relaxed);
        }
        is_short
    }

    pub(super) fn budget(&self) -> &Arc<MemoryBudget> {
        &self.budget
    }

    /// The store has copied so much into memory of its own: what it had before went to the allocator, too.
    pub(super) fn note_copied(&self, bytes: u64) {
        self.budget
            .turnover_bytes
            .fetch_add(bytes, Ordering::Relaxed);
    }

    /// Whether there is a limit, and only an eighth of it left, or less.
    pub(super) fn is_near_limit(&self) -> bool {
        let limit = self.budget.limit_bytes.load(Ordering::Relaxed);
        limit != UNSET && self.budget.used_bytes() >= limit - limit / 8
    }

    /// Whether `bytes` are too much to wait for when a store is opened.
    pub(super) fn is_slow_to_load(&self, bytes: u64) -> bool {
        bytes > self.budget.load_bytes.load(Ordering::Relaxed)
    }

    /// Whether `more` bytes leave the process where stores give up nothing.
    pub(super) fn has_room(&self, more: u64) -> bool {
        let occupied = self.budget.occupied_bytes().saturating_add(more);
        self.budget.ease_bytes().is_none_or(|ease| occupied <= ease)
    }

    /// Whether `more` bytes leave half of the target free.
    pub(super) fn is_half_free(&self, more: u64) -> bool {
        let occupied = self.budget.occupied_bytes().saturating_add(more);
        self.budget
            .target_bytes()
            .is_none_or(|target| occupied <= target / 2)
    }

    /// What the store is to give up where memory is short: its part of what brings the process so far below
    /// the target that not every session has to.
    pub(super) fn excess(&self) -> u64 {
        let (used, occupied) = (self.budget.used_bytes(), self.budget.occupied_bytes());
        let ease = self.budget.ease_bytes().unwrap_or(occupied);
        let over = occupied.saturating_sub(ease);
        let part = u128::from(self.bytes) * u128::from(over) / u128::from(used.max(1));
        part.min(u128::from(self.bytes)) as u64
    }

    /// Counts what the store takes now. Growth above the limit is counted and reported.
    ///
    /// # Errors
    /// `LimitExceeded`.
    pub(super) fn set(&mut self, bytes: u64) -> Result<()> {
        let grew = bytes > self.bytes;
        let used = self.budget.replace_used(self.bytes, bytes);
        self.bytes = bytes;
        let limit = self.budget.limit_bytes.load(Ordering::Relaxed);
        if grew && used > limit {
            return Err(Error::new(
                ErrorKind::LimitExceeded,
                format!(
                    "state of this process needs {used} bytes of native memory, the limit is {limit} \
                     ({bytes} of them for this store). Raise the limit, give state to more \
                     executors, or let a watermark remove state earlier"
                ),
            ));
        }
        Ok(())
    }
}

impl Drop for MemoryShare {
    fn drop(&mut self) {
        let budget = &self.budget;
        budget.replace_used(self.bytes, 0);
        budget.stores.fetch_sub(1, Ordering::Relaxed);
        if let Some(bytes) = self.session_bytes {
            budget.stores_with_session.fetch_sub(1, Ordering::Relaxed);
            replace(&budget.session_bytes, bytes, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn stores_without_a_session_yet_are_expected_to_take_as_much_as_the_others() {
        let budget = Arc::new(MemoryBudget::unlimited());
        budget.set_target_bytes(Some(1600));
        let mut shares: Vec<_> = (0..4)
            .map(|_| MemoryShare::of(Arc::clone(&budget)))
            .collect();
        let mut session = |number: usize, bytes: u64| {
            let share: &mut MemoryShare = shares.get_mut(number).unwrap();
            share.begin_session();
            share.set(share.bytes + bytes).unwrap();
            share.end_session();
        };
        assert_eq!(budget.ease_bytes(), Some(1400), "nothing is known");
        session(0, 80);
        assert_eq!(budget.ease_bytes(), Some(1600 - 4 * 90));
        session(1, 160);
        assert_eq!(budget.ease_bytes(), Some(1600 - 4 * (90 + 180) / 2));
        session(0, 96);
        assert_eq!(budget.ease_bytes(), Some(1600 - 4 * (108 + 180) / 2));
        shares.truncate(1);
        assert_eq!(budget.ease_bytes(), Some(1400), "the others are closed");
        let new = MemoryShare::of(Arc::clone(&budget));
        assert!(!new.is_short_for_session());
        let mut first = shares.pop().unwrap();
        first.set(1500).unwrap();
        assert!(new.is_short_for_session(), "108 bytes more");
    }

    #[test]
    fn stores_give_way_to_work_beside_them_as_long_as_it_goes_on() {
        let budget = Arc::new(MemoryBudget::unlimited());
        budget.set_target_bytes(Some(1600));
        budget.set_limit_bytes(1600);
        let [mut one, mut other] = [(); 2].map(|()| MemoryShare::of(Arc::clone(&budget)));
        one.set(300).unwrap();
        other.set(900).unwrap();
        assert_eq!((one.is_short(400), one.excess()), (false, 0));
        let work = budget.begin_work(500);
        assert!(one.is_short(0) && !one.has_room(0));
        // 300 bytes more than seven eighths of the target, of which the store has a quarter of the state.
        assert_eq!((one.excess(), other.excess()), (75, 225));
        assert_eq!(budget.used_bytes(), 1200, "it is no state");
        one.set(700).unwrap();
        let more = budget.begin_work(10_000);
        assert_eq!(one.excess(), 700, "no more than all");
        drop((work, more));
        assert_eq!((one.is_short(0), one.excess()), (false, 87));
    }

    #[test]
    fn sessions_are_expected_to_take_as_much_as_the_larger_of_the_last_two() {
        let budget = Arc::new(MemoryBudget::unlimited());
        budget.set_target_bytes(Some(1600));
        let mut share = MemoryShare::of(Arc::clone(&budget));
        let mut ease_after = |bytes: u64| {
            share.begin_session();
            share.set(share.bytes + bytes).unwrap();
            share.end_session();
            budget.ease_bytes().unwrap()
        };
        assert_eq!(ease_after(480), 1600 - 540);
        assert_eq!(ease_after(320), 1600 - 540);
        assert_eq!(ease_after(400), 1600 - 450);
        assert_eq!(ease_after(1200), 600, "three eighths of the target stay");
        assert_eq!(ease_after(599), 1600 - 673, "not half as much");
        assert_eq!(ease_after(0), 1400);
    }

    #[test]
    fn a_large_turnover_is_told_once_and_only_close_to_the_target() {
        let budget = Arc::new(MemoryBudget::unlimited());
        let mut share = MemoryShare::of(Arc::clone(&budget));
        let mib = |mib: u64| mib << 20;
        let mut change = |from: u64, to: u64| {
            let changed = share.set(mib(from)).and_then(|()| share.set(mib(to)));
            changed.is_ok() && budget.take_turnover()
        };
        assert!(!change(900, 0), "without a target");
        budget.set_target_bytes(Some(mib(800)));
        assert!(!change(600, 500), "three quarters of the target, and less");
        assert!(change(500, 601), "all that went before counts");
        assert!(!change(601, 650), "49 MiB since");
        assert!(change(650, 651), "a sixteenth of the target since");
        assert!(!change(651, 651), "told already");
        assert!(!change(651, 300), "far below the target again");
        assert!(MemoryShare::of(Arc::clone(&budget)).is_short(mib(801)));
        assert!(change(300, 300), "but it was short of memory");
        budget.set_target_bytes(Some(mib(16)));
        assert!(!change(300, 301), "more than a sixteenth, but little");
    }
}
