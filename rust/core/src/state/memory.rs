//! Memory that all stores of a process share: a target that they keep to, and a limit.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::error::{Error, ErrorKind, Result};

/// Bytes that the tables of many stores have taken from the allocator, against a limit.
///
/// Tables grow by pages of up to 1 MiB and are counted when they do, so the limit is exceeded by at
/// most a page and its index entries per store before it is noticed.
#[derive(Debug)]
pub struct MemoryBudget {
    used_bytes: AtomicU64,
    limit_bytes: AtomicU64,
    /// [`UNSET`] for three quarters of the limit.
    target_bytes: AtomicU64,
    was_short: AtomicBool,
    /// Since [`MemoryBudget::take_given_up`] last said that it is much.
    given_up_bytes: AtomicU64,
    load_bytes: AtomicU64,
    /// What the last session of every store took, all together.
    session_bytes: AtomicU64,
}

/// A load of so much takes about 10 ms, and from remote storage one request.
const LOAD_BYTES: u64 = 8 << 20;

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
            limit_bytes: AtomicU64::new(UNSET),
            target_bytes: AtomicU64::new(UNSET),
            was_short: AtomicBool::new(false),
            given_up_bytes: AtomicU64::new(0),
            load_bytes: AtomicU64::new(LOAD_BYTES),
            session_bytes: AtomicU64::new(0),
        }
    }

    /// Bytes taken by all stores.
    pub fn used_bytes(&self) -> u64 {
        self.used_bytes.load(Ordering::Relaxed)
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

    /// Whether stores gave up as much as an eighth of the target since this last said so: the allocator may
    /// keep that, beside what stores take. Never where they were not short of memory.
    pub fn take_given_up(&self) -> bool {
        let due = |bytes: u64| {
            self.target_bytes()
                .is_some_and(|target| bytes >= target / 8)
        };
        if !self.was_short() || !due(self.given_up_bytes.load(Ordering::Relaxed)) {
            return false;
        }
        // Of several threads one is told.
        due(self.given_up_bytes.swap(0, Ordering::Relaxed))
    }

    /// Up to how many bytes in memory the runs of a store are loaded when it is opened. Where there is a
    /// target, larger ones are left where they are, and come into memory beside the work of the store. 8 MiB
    /// unless this says another.
    pub fn set_load_bytes(&self, load_bytes: u64) {
        self.load_bytes.store(load_bytes, Ordering::Relaxed);
    }

    fn target_bytes(&self) -> Option<u64> {
        let set = |bytes: &AtomicU64| Some(bytes.load(Ordering::Relaxed)).filter(|b| *b != UNSET);
        set(&self.target_bytes).or_else(|| set(&self.limit_bytes).map(|limit| limit / 4 * 3))
    }

    /// Below what stores that give something up, or bring something in that no session asked for, leave the
    /// process: an eighth below the target, so that not every session has to give up some, and so far that
    /// the sessions of a batch have the room that those of the last one took, up to half the target.
    fn ease_bytes(&self) -> Option<u64> {
        let target = self.target_bytes()?;
        let sessions = self.session_bytes.load(Ordering::Relaxed);
        Some(target - sessions.clamp(target / 8, target / 2))
    }

    /// Counts what a store takes in the place of what it took; returns what all take.
    fn replace_used(&self, before: u64, now: u64) -> u64 {
        let freed = before.saturating_sub(now);
        self.given_up_bytes.fetch_add(freed, Ordering::Relaxed);
        replace(&self.used_bytes, before, now)
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
    /// By which the last session that ended grew.
    session_bytes: u64,
}

impl MemoryShare {
    pub(super) fn of(budget: Arc<MemoryBudget>) -> Self {
        Self {
            budget,
            bytes: 0,
            begun_bytes: 0,
            session_bytes: 0,
        }
    }

    /// A session begins, after which [`MemoryShare::end_session`] comes.
    pub(super) fn begin_session(&mut self) {
        self.begun_bytes = self.bytes;
    }

    /// A session was committed: the next one is expected to take as much.
    pub(super) fn end_session(&mut self) {
        let grown = self.bytes.saturating_sub(self.begun_bytes);
        replace(&self.budget.session_bytes, self.session_bytes, grown);
        self.session_bytes = grown;
    }

    /// Whether a session like the last one would bring the process beyond its target.
    pub(super) fn is_short_for_session(&self) -> bool {
        self.is_short(self.session_bytes)
    }

    /// Whether the sessions of two batches like the last one would: until then nothing leaves memory that a
    /// run has to have first, because commits build on the run after this batch.
    pub(super) fn is_short_for_merge(&self) -> bool {
        self.is_short(
            self.budget
                .session_bytes
                .load(Ordering::Relaxed)
                .saturating_mul(2),
        )
    }

    /// Whether there is a target at all.
    pub(super) fn has_target(&self) -> bool {
        self.budget.target_bytes().is_some()
    }

    /// Whether `more` bytes would bring the process beyond its target.
    pub(super) fn is_short(&self, more: u64) -> bool {
        let used = self.budget.used_bytes().saturating_add(more);
        let target = self.budget.target_bytes();
        let is_short = target.is_some_and(|target| used > target);
        if is_short {
            self.budget.was_short.store(true, Ordering::Relaxed);
        }
        is_short
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
        let used = self.budget.used_bytes().saturating_add(more);
        self.budget.ease_bytes().is_none_or(|ease| used <= ease)
    }

    /// Whether `more` bytes leave half of the target free.
    pub(super) fn is_half_free(&self, more: u64) -> bool {
        let used = self.budget.used_bytes().saturating_add(more);
        self.budget
            .target_bytes()
            .is_none_or(|target| used <= target / 2)
    }

    /// What the store is to give up where memory is short: its part of what brings the process so far below
    /// the target that not every session has to.
    pub(super) fn excess(&self) -> u64 {
        let used = self.budget.used_bytes().max(1);
        let ease = self.budget.ease_bytes().unwrap_or(used);
        let over = used.saturating_sub(ease);
        (u128::from(self.bytes) * u128::from(over) / u128::from(used)) as u64
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
        self.budget.replace_used(self.bytes, 0);
        replace(&self.budget.session_bytes, self.session_bytes, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn much_given_up_is_told_once_and_only_where_memory_was_short() {
        let budget = Arc::new(MemoryBudget::unlimited());
        let mut share = MemoryShare::of(Arc::clone(&budget));
        let mut give_up = |from: u64, to: u64| {
            share.set(from).and_then(|()| share.set(to)).is_ok() && budget.take_given_up()
        };
        assert!(!give_up(900, 0), "without a target");
        budget.set_target_bytes(Some(800));
        assert!(!give_up(700, 0), "without having been short of memory");
        assert!(MemoryShare::of(Arc::clone(&budget)).is_short(801));
        assert!(give_up(700, 600), "all that went before counts");
        assert!(!give_up(699, 600), "99 bytes since");
        assert!(give_up(601, 600), "an eighth of the target since");
        assert!(!give_up(600, 600), "told already");
    }
}
