//! Memory that all stores of a process share: a target that they keep to, and a limit.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use crate::error::{Error, ErrorKind, Result};
use crate::format::SegmentHead;

/// Called with memory before it goes back to the allocator. It may overwrite the memory.
pub type Release = fn(&mut [u8]);

/// Called when a store has freed much memory, which the allocator may keep.
pub type GiveBack = fn(&MemoryBudget);

/// Memory of the tables of many stores, against a limit. Tables count pages of up to 1 MiB as they
/// grow. So a store exceeds the limit by at most a page and its index entries before it fails.
#[derive(Debug)]
pub struct MemoryBudget {
    used_bytes: AtomicU64,
    /// Memory of other work, for which stores make room.
    work_bytes: AtomicU64,
    limit_bytes: AtomicU64,
    /// [`UNSET`] means three quarters of the limit.
    target_bytes: AtomicU64,
    was_short: AtomicBool,
    /// Bytes that stores took, freed and copied since `take_turnover` was last true.
    turnover_bytes: AtomicU64,
    load_bytes: AtomicU64,
    /// Sum of the expected next session of each store, over stores that had a session.
    session_bytes: AtomicU64,
    stores_with_session: AtomicU64,
    stores: AtomicU64,
    release: OnceLock<Release>,
    give_back: OnceLock<GiveBack>,
}

/// A load of so many bytes takes about 10 ms, and one request of remote storage.
const LOAD_BYTES: u64 = 8 << 20;
/// A batch that took less memory is not worth a run.
const LEAST_SPILL_BYTES: u64 = 1 << 20;
/// The allocator keeps little of a smaller turnover, compared with the process.
const LEAST_TURNOVER_BYTES: u64 = 2 << 20;
const UNSET: u64 = u64::MAX;

/// Memory of a key in addition to key and value: slot, index, order.
pub(crate) const SLOT_BYTES: u64 = 48;

/// Memory of a loaded segment, about. It saturates, because the head may be forged.
pub(crate) fn loaded_bytes(head: &SegmentHead) -> u64 {
    let slots = head.entries.saturating_mul(SLOT_BYTES);
    head.payload_bytes.saturating_add(slots)
}

pub(crate) fn keep(_: &mut [u8]) {}

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
            give_back: OnceLock::new(),
        }
    }

    /// Bytes taken by all stores.
    pub fn used_bytes(&self) -> u64 {
        self.used_bytes.load(Ordering::Relaxed)
    }

    fn occupied_bytes(&self, more: u64) -> u64 {
        let work = self.work_bytes.load(Ordering::Relaxed);
        self.used_bytes().saturating_add(work).saturating_add(more)
    }

    /// Counts work until the result is dropped. The target includes work, the limit does not.
    pub(crate) fn begin_work(self: &Arc<Self>, bytes: u64) -> Work {
        self.work_bytes.fetch_add(bytes, Ordering::Relaxed);
        Work {
            budget: Arc::clone(self),
            bytes,
        }
    }

    /// Sets limit and target. Leaves a sixteenth of the target for memory that stores do not count:
    /// the allocator's, and copies during evictions. Measured on queries with ten times the state.
    pub fn limit(&self, limit_bytes: Option<u64>, target_bytes: Option<u64>) {
        self.set_limit_bytes(limit_bytes.unwrap_or(UNSET));
        self.set_target_bytes(target_bytes.map(|bytes| bytes - bytes / 16));
    }

    /// Stores above the limit fail when they grow again.
    pub fn set_limit_bytes(&self, limit_bytes: u64) {
        self.limit_bytes.store(limit_bytes, Ordering::Relaxed);
    }

    /// Changes the target: stores above it keep only the keys that they use in memory. The default
    /// is three quarters of the limit; without a limit all state remains in memory.
    pub fn set_target_bytes(&self, target_bytes: Option<u64>) {
        self.target_bytes
            .store(target_bytes.unwrap_or(UNSET), Ordering::Relaxed);
    }

    pub(crate) fn is_short(&self, more: u64) -> bool {
        let occupied = self.occupied_bytes(more);
        let is_short = self.target_bytes().is_some_and(|target| occupied > target);
        if is_short {
            self.was_short.store(true, Ordering::Relaxed);
        }
        is_short
    }

    /// Returns whether stores ever needed more than the target: some state may be in runs only.
    pub fn was_short(&self) -> bool {
        self.was_short.load(Ordering::Relaxed)
    }

    /// Stores are near the target, or were above it: memory kept by the allocator is then too much.
    pub fn is_tight(&self) -> bool {
        let is_near = |target| self.occupied_bytes(0) > target / 4 * 3;
        self.was_short() || self.target_bytes().is_some_and(is_near)
    }

    /// Returns whether stores took, freed and copied a sixteenth of the target, and at least 2 MiB,
    /// since this was last true: the allocator may keep a part. Never true if there is room.
    pub fn take_turnover(&self) -> bool {
        let due = |bytes: u64| {
            self.target_bytes()
                .is_some_and(|target| bytes >= LEAST_TURNOVER_BYTES.max(target / 16))
        };
        if !self.is_tight() || !due(self.turnover_bytes.load(Ordering::Relaxed)) {
            return false;
        }
        // True for one of several threads.
        due(self.turnover_bytes.swap(0, Ordering::Relaxed))
    }

    /// Sets the bound on the memory that a store loads when it is opened, 8 MiB by default. With a
    /// target, larger runs come into memory while the store works.
    pub fn set_load_bytes(&self, load_bytes: u64) {
        self.load_bytes.store(load_bytes, Ordering::Relaxed);
    }

    /// Sets the function that returns evicted pages to the kernel. Only the first call counts.
    pub fn release_by(&self, release: Release) {
        let _ = self.release.set(release);
    }

    /// Sets the function for a store that has left memory amid a batch. Only the first call counts.
    pub fn give_back_by(&self, give_back: GiveBack) {
        let _ = self.give_back.set(give_back);
    }

    pub(crate) fn give_back(&self) {
        if let Some(give_back) = self.give_back.get() {
            give_back(self);
        }
    }

    pub(crate) fn release(&self) -> Release {
        self.release.get().copied().unwrap_or(keep)
    }

    fn target_bytes(&self) -> Option<u64> {
        let set = |bytes: &AtomicU64| Some(bytes.load(Ordering::Relaxed)).filter(|b| *b != UNSET);
        set(&self.target_bytes).or_else(|| set(&self.limit_bytes).map(|limit| limit / 4 * 3))
    }

    /// The bytes to which stores evict and hydrate. An eighth of the target remains free, so that
    /// not every session evicts, and up to five eighths if the last two batches took more. Without
    /// that bound, keys that nearly every batch needs would leave before each batch.
    fn ease_bytes(&self) -> Option<u64> {
        let target = self.target_bytes()?;
        Some(target - self.batch_bytes().clamp(target / 8, target / 8 * 5))
    }

    /// Expected bytes of a batch's sessions. Stores without a session count as the average.
    fn batch_bytes(&self) -> u64 {
        let stores = self.stores.load(Ordering::Relaxed);
        self.mean_session_bytes().saturating_mul(stores)
    }

    fn mean_session_bytes(&self) -> u64 {
        let known = self.stores_with_session.load(Ordering::Relaxed);
        let bytes = self.session_bytes.load(Ordering::Relaxed);
        bytes.checked_div(known).unwrap_or(0)
    }

    fn replace_used(&self, before: u64, now: u64) -> u64 {
        self.count_turnover(now.abs_diff(before));
        replace(&self.used_bytes, before, now)
    }

    pub(crate) fn count_turnover(&self, bytes: u64) {
        self.turnover_bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}

#[derive(Debug)]
pub(crate) struct Work {
    budget: Arc<MemoryBudget>,
    bytes: u64,
}

impl Drop for Work {
    fn drop(&mut self) {
        let work = &self.budget.work_bytes;
        work.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// The part of `over` bytes for a store with `own` of the `used` bytes, at most all of its own.
fn share(own: u64, used: u64, over: u64) -> u64 {
    let part = u128::from(own) * u128::from(over) / u128::from(used.max(1));
    part.min(u128::from(own)) as u64
}

fn replace(sum: &AtomicU64, before: u64, now: u64) -> u64 {
    if now >= before {
        let grown = now - before;
        sum.fetch_add(grown, Ordering::Relaxed) + grown
    } else {
        let freed = before - now;
        sum.fetch_sub(freed, Ordering::Relaxed) - freed
    }
}

#[derive(Debug)]
pub(crate) struct MemoryShare {
    budget: Arc<MemoryBudget>,
    bytes: u64,
    begun_bytes: u64,
    /// Memory after the last session, load or spill: a batch took all since, some perhaps by reads.
    settled_bytes: u64,
    last_bytes: u64,
    /// Bytes that the next session should take; `None` until a session has ended.
    session_bytes: Option<u64>,
    is_first_session: bool,
}

impl MemoryShare {
    pub(crate) fn of(budget: Arc<MemoryBudget>) -> Self {
        budget.stores.fetch_add(1, Ordering::Relaxed);
        Self {
            budget,
            bytes: 0,
            begun_bytes: 0,
            settled_bytes: 0,
            last_bytes: 0,
            session_bytes: None,
            is_first_session: true,
        }
    }

    pub(crate) fn begin_session(&mut self) {
        self.begun_bytes = self.bytes;
        self.settled_bytes = self.settled_bytes.min(self.bytes);
        self.is_first_session = self.session_bytes.is_none();
    }

    pub(crate) fn settle(&mut self) {
        self.begun_bytes = self.bytes;
        self.settled_bytes = self.bytes;
    }

    pub(crate) fn taken_by_batch(&self) -> u64 {
        self.bytes.saturating_sub(self.settled_bytes)
    }

    /// The process is above its target, by an eighth or with a sixteenth of it taken by this batch.
    pub(crate) fn must_spill(&self) -> bool {
        let taken = self.taken_by_batch();
        let target = self.budget.target_bytes().unwrap_or(UNSET);
        if taken < LEAST_SPILL_BYTES || !self.is_short(0) {
            return false;
        }
        taken >= target / 16 || self.budget.occupied_bytes(0) >= target / 8 * 9
    }

    pub(crate) fn note_hydrated(&mut self, bytes: u64) {
        self.begun_bytes += bytes;
        self.settled_bytes += bytes;
    }

    /// In the first session, the needs of a batch and the number of stores are not known.
    pub(crate) fn is_first_session(&self) -> bool {
        self.is_first_session
    }

    /// The next session should take an eighth more than the larger of the last two: tables do not
    /// always grow. An older one of over twice the last may have filled the store: ignored.
    pub(crate) fn end_session(&mut self) {
        let grown = self.bytes.saturating_sub(self.begun_bytes);
        self.settled_bytes = self.bytes;
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

    pub(crate) fn is_short_for_session(&self) -> bool {
        let bytes = self.session_bytes;
        self.is_short(bytes.unwrap_or_else(|| self.budget.mean_session_bytes()))
    }

    /// Two batches like the last would exceed the target: a merge takes effect only after this one.
    pub(crate) fn is_short_for_merge(&self) -> bool {
        self.is_short(self.budget.batch_bytes().saturating_mul(2))
    }

    pub(crate) fn has_target(&self) -> bool {
        self.budget.target_bytes().is_some()
    }

    pub(crate) fn is_short(&self, more: u64) -> bool {
        self.budget.is_short(more)
    }

    pub(crate) fn budget(&self) -> &Arc<MemoryBudget> {
        &self.budget
    }

    pub(crate) fn is_near_limit(&self) -> bool {
        let limit = self.budget.limit_bytes.load(Ordering::Relaxed);
        limit != UNSET && self.budget.used_bytes() >= limit - limit / 8
    }

    pub(crate) fn is_slow_to_load(&self, bytes: u64) -> bool {
        bytes > self.budget.load_bytes.load(Ordering::Relaxed)
    }

    /// Returns whether stores evict nothing after `more` bytes.
    pub(crate) fn has_room(&self, more: u64) -> bool {
        let occupied = self.budget.occupied_bytes(more);
        self.budget.ease_bytes().is_none_or(|ease| occupied <= ease)
    }

    pub(crate) fn is_half_free(&self, more: u64) -> bool {
        let occupied = self.budget.occupied_bytes(more);
        let target = self.budget.target_bytes();
        target.is_none_or(|target| occupied <= target / 2)
    }

    /// Bytes to evict when memory is short: enough that later sessions need not evict at once.
    pub(crate) fn excess(&self) -> u64 {
        let (used, occupied) = (self.budget.used_bytes(), self.budget.occupied_bytes(0));
        let ease = self.budget.ease_bytes().unwrap_or(occupied);
        share(self.bytes, used, occupied.saturating_sub(ease))
    }

    /// Counts the bytes of the store, even if they exceed the limit.
    pub(crate) fn set(&mut self, bytes: u64) -> Result<()> {
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
#[path = "memory_tests.rs"]
mod tests;
