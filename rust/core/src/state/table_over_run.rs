//! A table over a run: what has no slot is in the run, and is read when it is asked for.
//!
//! A key gets a slot before it is changed, so that the undo log holds what was before and the number of
//! keys stays right. A slot is *clean* while the run has the same value; only such a one may be given up.

use std::collections::{BTreeMap, HashSet};

use super::Table;
use crate::error::{Error, Result};
use crate::segment::RunWriter;
use crate::state::arena::{RecordAt, Release};
use crate::state::below::Below;
use crate::state::eviction::Eviction;
use crate::state::order::{KeyRange, Order, sort_by_key};
use crate::state::run_cursor::StackCursor;
use crate::state::slot::{Slot, Stamp, find_in, hash_of};

/// What a key takes in memory beside its record, at least: 16 in its slot, 4 in the index.
const SLOT_BYTES: usize = 20;

impl Table {
    /// Puts an empty table over what a run has of it.
    pub(in crate::state) fn open_over(&mut self, below: Option<Below>) {
        self.below = below;
        self.keep_removed();
    }

    /// Whether some of its keys may be in a run only.
    pub(in crate::state) fn is_over_run(&self) -> bool {
        self.below.is_some()
    }

    /// Whether no key is in a run only.
    #[inline]
    pub(in crate::state) fn is_in_memory(&self) -> bool {
        self.runs_to_read().is_none()
    }

    /// Gives a key a slot that it has in the run alone.
    ///
    /// # Errors
    /// As [`Below::find`]; nothing has changed then.
    #[inline]
    pub(in crate::state) fn fault_in(&mut self, key: &[u8]) -> Result<()> {
        if self.is_in_memory() {
            return Ok(());
        }
        self.read_run(key)
    }

    #[inline(never)]
    fn read_run(&mut self, key: &[u8]) -> Result<()> {
        let Some(below) = self.runs_to_read() else {
            return Ok(());
        };
        let hash = hash_of(key);
        if find_in(&self.index, &self.slots, &self.arena, hash, key).is_some() {
            return Ok(());
        }
        if let Some(value) = below.find(key)? {
            let record = self.push_record(key, &value)?;
            // Not of this session: there is nothing to undo.
            let stamp = Stamp::clean(self.session.wrapping_sub(1));
            self.link(hash, record, stamp);
            self.count_linked();
        }
        Ok(())
    }

    /// Gives a key of the run a slot with the value that it has there, unless it has one. It is the first to
    /// leave memory again.
    ///
    /// # Errors
    /// As [`Table::put`].
    pub(in crate::state) fn hydrate(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let hash = hash_of(key);
        if self.below.is_none() || self.find(hash, key).is_some() {
            return Ok(());
        }
        let record = self.push_record(key, value)?;
        // Of no session that there was, and nothing to undo.
        self.link(hash, record, Stamp::clean(0));
        self.count_linked();
        Ok(())
    }

    /// Once all that the runs have was gone through: looks at them no more if all keys are in memory. Whether
    /// they are.
    pub(in crate::state) fn end_hydration(&mut self) -> bool {
        let Some(below) = &mut self.below else {
            return true;
        };
        below.is_in_memory = below.unlinked == 0;
        below.is_in_memory
    }

    /// What the runs have, where some of its keys may not be in memory.
    fn runs_to_read(&self) -> Option<&Below> {
        self.below.as_ref().filter(|below| !below.is_in_memory)
    }

    /// Stands on its own from now on, between two sessions: all keys are in memory.
    pub(in crate::state) fn leave_runs(&mut self) {
        self.rest_on(None, self.session);
        self.keeps_removed = false;
    }

    /// Changes that are loaded are looked for in no run from now on: [`Table::count_unlinked`] comes.
    pub(in crate::state) fn stop_counting(&mut self) {
        if let Some(below) = &mut self.below {
            below.is_uncounted = true;
        }
    }

    /// Takes over that the table has so many keys.
    ///
    /// # Errors
    /// `Corrupt` where it has more in memory, or fewer with all those of the run.
    pub(in crate::state) fn count_unlinked(&mut self, keys: u64) -> Result<()> {
        let Some(below) = &mut self.below else {
            return Ok(());
        };
        let (least, most) = (self.len as u64, self.len as u64 + below.unlinked);
        if !(least..=most).contains(&keys) {
            return Err(Error::corrupt(format!(
                "keys of a version: expected {least} to {most}, found {keys}"
            )));
        }
        below.unlinked = keys - least;
        below.is_uncounted = false;
        Ok(())
    }

    /// Counts a key that gets a slot without its value in the run; whether the run may have it.
    pub(super) fn leave_run(&mut self, key: &[u8]) -> Result<bool> {
        let found = match &self.below {
            Some(below) if below.is_uncounted => return Ok(true),
            Some(below) => below.find(key)?.is_some(),
            None => false,
        };
        if found {
            self.count_linked();
        }
        Ok(found)
    }

    /// Removes `key` outside any session: there is nothing to go back to.
    ///
    /// # Errors
    /// As [`Below::find`].
    pub(in crate::state) fn load_removal(&mut self, key: &[u8]) -> Result<()> {
        if self.below.is_none() || self.slot(key).is_some() {
            self.remove(key);
            return Ok(());
        }
        let record = self.push_record(key, &[])?;
        if self.leave_run(key)? {
            self.link(hash_of(key), record, Stamp::dead(self.session));
        }
        Ok(())
    }

    /// Puts the table over what a run has of it, between two sessions: what was not touched after
    /// `session`, from which the run has its content, is clean.
    pub(in crate::state) fn rest_on(&mut self, below: Option<Below>, session: u32) {
        let keys = self.len();
        for number in 0..self.slots.len() as u32 {
            let Some(slot) = self.slots.get_mut(number as usize) else {
                continue;
            };
            if slot.record.is_none() {
                continue;
            }
            // What is clean was so in that content, too.
            let is_in_run = slot.stamp.session() <= session;
            if slot.is_dead() && is_in_run {
                self.unlink(number);
            } else if is_in_run && below.is_some() {
                slot.stamp = Stamp::clean(slot.stamp.session());
            } else if slot.stamp.is_clean() && below.is_none() {
                slot.stamp = Stamp::live(slot.stamp.session());
            }
        }
        self.below = below;
        if let Some(below) = &mut self.below {
            below.unlinked = (keys - self.len) as u64;
        }
    }

    /// Adds to `ages` what each session could give up that touched it last, in bytes: what is clean and
    /// was not touched in the last session.
    pub(in crate::state) fn add_ages(&self, ages: &mut BTreeMap<u32, usize>) {
        if self.below.is_none() {
            return;
        }
        let last = self.last_session();
        for slot in self.slots.iter().filter(|slot| may_go(slot, last)) {
            *ages.entry(slot.stamp.session()).or_default() += self.memory_of(slot.record);
        }
    }

    fn memory_of(&self, record: RecordAt) -> usize {
        self.stored_bytes(record) + SLOT_BYTES
    }

    /// The last session that was: what it touched stays.
    fn last_session(&self) -> u32 {
        self.session.saturating_sub(2)
    }

    /// Bytes of records that no slot leads to any more.
    pub(in crate::state) fn garbage_bytes(&self) -> usize {
        self.arena.used_bytes().saturating_sub(self.live_bytes)
    }

    /// Gives up what [`Table::add_ages`] counts, as `eviction` says, and garbage, between two sessions.
    /// `release` is called with memory that records had, before it is freed.
    pub(in crate::state) fn evict(&mut self, eviction: &mut Eviction, release: Release) {
        if self.below.is_none() {
            return;
        }
        let last = self.last_session();
        let reached = |slot: &Slot| may_go(slot, last) && eviction.reaches(slot.stamp.session());
        if !self.slots.iter().any(reached) {
            if self.garbage_bytes() > 0 {
                self.compact(release);
                self.live_bytes = self.arena.used_bytes();
            }
            return;
        }
        // Numbers of slots change: what goes by them is made anew, and takes no memory meanwhile.
        self.index = hashbrown::HashTable::new();
        let is_ordered = self.order.take().is_some();
        self.free = Vec::new();
        let mut slots = std::mem::take(&mut self.slots);
        let mut gone = 0;
        slots.retain(|slot| {
            let goes = may_go(slot, last)
                && eviction.takes(slot.stamp.session(), self.memory_of(slot.record));
            gone += usize::from(goes);
            !slot.record.is_none() && !goes
        });
        slots.shrink_to_fit();
        self.slots = slots;
        if let Some(below) = &mut self.below {
            below.unlinked += gone as u64;
            below.is_in_memory = false;
        }
        self.len = self.slots.iter().filter(|slot| !slot.is_dead()).count();
        self.compact(release);
        self.live_bytes = self.arena.used_bytes();
        if is_ordered {
            let sorted = self.sorted_slots(|_| true);
            self.order = Some(Order::of_sorted(sorted.into_iter(), |n| self.key_of(n)));
        }
        self.index_slots();
    }

    /// Bytes of what is in memory and that no run has with that value.
    pub(in crate::state) fn dirty_bytes(&self) -> usize {
        let linked = self.slots.iter().filter(|slot| !slot.record.is_none());
        let dirty = linked.filter(|slot| !slot.stamp.is_clean());
        dirty.map(|slot| self.memory_of(slot.record)).sum()
    }

    /// The keys in `range`, in their order where the table keeps it; `None` where all of them are in
    /// memory.
    ///
    /// # Errors
    /// As [`Below::find`], and as [`Table::select`].
    pub(in crate::state) fn pass(&mut self, range: KeyRange<'_>) -> Result<Option<Pass>> {
        let Some(below) = self.runs_to_read() else {
            return Ok(None);
        };
        let cursor = below.cursor(range)?;
        let mut hot = self.select(range)?;
        // What is clean comes from the run.
        let table = &*self;
        hot.retain(|at| table.is_dirty_record(*at));
        Ok(Some(Pass {
            in_order: self.order.is_some(),
            hot,
            next: 0,
            cursor,
            seen_undo: self.undo.len(),
            cleaned: HashSet::new(),
        }))
    }

    /// The keys in `range` that are in the run, in their order; those with a slot, too.
    ///
    /// # Errors
    /// As [`Table::pass`].
    pub(in crate::state) fn cold_keys(&mut self, range: KeyRange<'_>) -> Result<Vec<Vec<u8>>> {
        let mut keys = Vec::new();
        if let Some(below) = self.runs_to_read() {
            let mut cursor = below.cursor(range)?;
            while let Some((key, _)) = cursor.entry() {
                keys.push(key.to_vec());
                cursor.advance()?;
            }
        }
        Ok(keys)
    }

    /// Writes the whole content of a table over a run to `out`, sorted by key, behind `prefix`.
    pub(super) fn snapshot_over_run(
        &self,
        below: &Below,
        prefix: &[u8],
        out: &mut RunWriter<'_>,
    ) -> Result<()> {
        let dirty = |slot: &Slot| !slot.is_dead() && !slot.stamp.is_clean();
        let hot = self.sorted_slots(dirty);
        let records = hot.into_iter().filter_map(|n| self.slots.get(n as usize));
        let mut pass = Pass {
            in_order: true,
            hot: records.map(|slot| slot.record).collect(),
            next: 0,
            cursor: below.cursor(KeyRange::All)?,
            seen_undo: self.undo.len(),
            cleaned: HashSet::new(),
        };
        while let Some((key, value)) = pass.peek(self)? {
            out.push(prefix, key, Some(value))?;
            pass.advance(self)?;
        }
        Ok(())
    }

    /// Numbers of slots, by key.
    pub(super) fn sorted_slots(&self, wanted: impl Fn(&Slot) -> bool) -> Vec<u32> {
        let linked = self.slots.iter().zip(0u32..);
        let wanted = linked.filter(|(slot, _)| !slot.record.is_none() && wanted(slot));
        let mut numbers: Vec<(u64, u32)> = wanted.map(|(_, number)| (0, number)).collect();
        sort_by_key(&mut numbers, 0, &|number| self.key_of(number));
        numbers.into_iter().map(|(_, number)| number).collect()
    }

    fn is_dirty_record(&self, at: RecordAt) -> bool {
        let key = self.record(at).map(|record| record.key);
        let slot = key.and_then(|key| self.slot(key));
        slot.is_some_and(|(_, slot)| !slot.stamp.is_clean())
    }

    fn slot(&self, key: &[u8]) -> Option<(u32, &Slot)> {
        let number = self.find(hash_of(key), key)?;
        Some((number, self.slots.get(number as usize)?))
    }

    fn count_linked(&mut self) {
        if let Some(below) = &mut self.below {
            below.unlinked = below.unlinked.saturating_sub(1);
        }
    }
}

/// A slot that may be given up: what is clean and was not touched from session `last` on.
fn may_go(slot: &Slot, last: u32) -> bool {
    !slot.record.is_none() && slot.stamp.is_clean() && slot.stamp.session() < last
}

/// A pass over the keys of a table over a run, as they were when it began.
#[derive(Debug)]
pub(in crate::state) struct Pass {
    in_order: bool,
    /// What was there and not in the run, or not with that value.
    hot: Vec<RecordAt>,
    next: usize,
    cursor: StackCursor,
    /// So much of the undo log was looked at.
    seen_undo: usize,
    /// Slots that were clean, or for clean keys were not there, when the pass began, and are not any
    /// more: the value in the run is the one they had.
    cleaned: HashSet<u32>,
}

impl Pass {
    /// Key and value of the next entry; `None` at the end.
    ///
    /// # Errors
    /// As [`Below::find`].
    pub fn peek<'a>(&'a mut self, table: &'a Table) -> Result<Option<(&'a [u8], &'a [u8])>> {
        self.look_at_changes(table);
        while let Some((key, _)) = self.cursor.entry()
            && self.is_shadowed(table, key)
        {
            self.cursor.advance()?;
        }
        Ok(if self.is_hot_next(table) {
            let record = self.hot.get(self.next).and_then(|at| table.record(*at));
            record.map(|record| (record.key, record.value))
        } else {
            self.cursor.entry()
        })
    }

    /// Moves behind the entry that [`Pass::peek`] has just returned.
    ///
    /// # Errors
    /// As [`Below::find`].
    pub fn advance(&mut self, table: &Table) -> Result<()> {
        if self.is_hot_next(table) {
            self.next += 1;
            return Ok(());
        }
        self.cursor.advance()
    }

    fn is_hot_next(&self, table: &Table) -> bool {
        let hot = self.hot.get(self.next).and_then(|at| table.record(*at));
        let Some(hot) = hot else {
            return false;
        };
        let cold = self.cursor.entry();
        !self.in_order || cold.is_none_or(|(key, _)| hot.key < key)
    }

    /// The table had another value, or none, when the pass began.
    fn is_shadowed(&self, table: &Table, key: &[u8]) -> bool {
        table
            .slot(key)
            .is_some_and(|(number, slot)| !slot.stamp.is_clean() && !self.cleaned.contains(&number))
    }

    fn look_at_changes(&mut self, table: &Table) {
        let new = table.undo.get(self.seen_undo..).unwrap_or_default();
        let were_clean = new.iter().filter(|undo| undo.stamp.is_clean());
        self.cleaned.extend(were_clean.map(|undo| undo.slot));
        self.seen_undo = table.undo.len();
    }
}
