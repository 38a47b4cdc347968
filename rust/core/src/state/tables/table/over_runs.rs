//! A table over runs: keys without a slot are read from the runs on demand. A key gets a slot
//! before it changes, so that the undo log has its old value and the number of keys remains right.
//! A slot is *clean* while the runs have the same value. Only clean slots may be evicted.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use super::Table;
use crate::error::{Error, Result};
use crate::segment::RunWriter;
use crate::state::memory::Release;
use crate::state::runs::cursor::StackCursor;
use crate::state::runs::key_range::KeyRange;
use crate::state::runs::stack::RunStack;
use crate::state::tables::arena::RecordAt;
use crate::state::tables::eviction::Eviction;
use crate::state::tables::order::sort_by_key;
use crate::state::tables::slot::{Slot, Stamp, find_in, hash_of};

/// Least memory of a key without its record: 16 in its slot, 4 in the index.
const SLOT_BYTES: usize = 20;

impl Table {
    pub(crate) fn open_over(&mut self, below: Option<Below>) {
        self.below = below;
        self.keep_removed();
    }

    pub(crate) fn is_over_run(&self) -> bool {
        self.below.is_some()
    }

    #[inline]
    pub(crate) fn is_in_memory(&self) -> bool {
        self.runs_to_read().is_none()
    }

    #[inline]
    pub(crate) fn fault_in(&mut self, key: &[u8]) -> Result<()> {
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
            // A stamp of an older session, because there is nothing to undo.
            let stamp = Stamp::clean(self.session.wrapping_sub(1));
            self.link(hash, record, stamp);
            self.count_linked();
        }
        Ok(())
    }

    /// The value of a key, in memory or in the runs.
    pub(crate) fn look_up(&self, key: &[u8]) -> Result<Option<Cow<'_, [u8]>>> {
        match (self.slot(key), self.runs_to_read()) {
            (None, Some(below)) => Ok(below.find(key)?.map(Cow::Owned)),
            _ => Ok(self.get(key).map(Cow::Borrowed)),
        }
    }

    /// Gives a key of the runs a slot, unless it has one. It is the first to be evicted again.
    pub(crate) fn hydrate(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let hash = hash_of(key);
        if self.below.is_none() || self.find(hash, key).is_some() {
            return Ok(());
        }
        let record = self.push_record(key, value)?;
        // The stamp of no session: there is nothing to undo.
        self.link(hash, record, Stamp::clean(0));
        self.count_linked();
        Ok(())
    }

    pub(crate) fn end_hydration(&mut self) -> bool {
        let Some(below) = &mut self.below else {
            return true;
        };
        below.is_in_memory = below.unlinked == 0;
        below.is_in_memory
    }

    fn runs_to_read(&self) -> Option<&Below> {
        self.below.as_ref().filter(|below| !below.is_in_memory)
    }

    /// Leaves the runs between two sessions, when all keys are in memory.
    pub(crate) fn leave_runs(&mut self) {
        self.move_over(None, self.session);
        self.keeps_removed = false;
    }

    pub(crate) fn stop_counting(&mut self) {
        if let Some(below) = &mut self.below {
            below.is_uncounted = true;
        }
    }

    pub(crate) fn count_unlinked(&mut self, keys: u64) -> Result<()> {
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

    /// Counts a key that gets a slot without its old value; returns whether the runs may have it.
    pub(crate) fn leave_run(&mut self, key: &[u8]) -> Result<bool> {
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

    pub(crate) fn load_removal(&mut self, key: &[u8]) -> Result<()> {
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

    /// Between sessions: moves over runs as of `session`. Slots not touched since are clean.
    pub(crate) fn move_over(&mut self, below: Option<Below>, session: u32) {
        let keys = self.len();
        for number in 0..self.slots.len() as u32 {
            let Some(slot) = self.slots.get_mut(number as usize) else {
                continue;
            };
            if slot.record.is_none() {
                continue;
            }
            // A clean slot also had this value in that content.
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

    pub(crate) fn add_ages(&self, ages: &mut BTreeMap<u32, usize>) {
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

    fn last_session(&self) -> u32 {
        self.session.saturating_sub(2)
    }

    pub(crate) fn garbage_bytes(&self) -> usize {
        self.arena.used_bytes().saturating_sub(self.live_bytes)
    }

    /// Between sessions: evicts garbage, and slots of [`Table::add_ages`] by `eviction`.
    pub(crate) fn evict(&mut self, eviction: &mut Eviction, release: Release) {
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
        // Index, order and free list are rebuilt with new numbers, and take no memory until then.
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
            self.make_order();
        }
        self.index_slots();
    }

    pub(crate) fn dirty_bytes(&self) -> usize {
        let linked = self.slots.iter().filter(|slot| !slot.record.is_none());
        let dirty = linked.filter(|slot| !slot.stamp.is_clean());
        dirty.map(|slot| self.memory_of(slot.record)).sum()
    }

    /// A pass over `range`, in order if the table keeps one; `None` if all keys are in memory.
    pub(crate) fn pass(&mut self, range: KeyRange<'_>) -> Result<Option<Pass>> {
        let Some(below) = self.runs_to_read() else {
            return Ok(None);
        };
        let cursor = below.cursor(range)?;
        let mut hot = self.select(range)?;
        // Clean entries come from the runs.
        let table = &*self;
        hot.retain(|at| table.is_dirty_record(*at));
        Ok(Some(Pass::new(self, self.order.is_some(), hot, cursor)))
    }

    pub(crate) fn cold_keys(&mut self, range: KeyRange<'_>) -> Result<Vec<Vec<u8>>> {
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

    pub(crate) fn snapshot_over_run(
        &self,
        below: &Below,
        prefix: &[u8],
        out: &mut RunWriter<'_>,
    ) -> Result<()> {
        let dirty = |slot: &Slot| !slot.is_dead() && !slot.stamp.is_clean();
        let hot = self.sorted_slots(dirty);
        let records = hot.into_iter().filter_map(|n| self.slots.get(n as usize));
        let hot = records.map(|slot| slot.record).collect();
        let mut pass = Pass::new(self, true, hot, below.cursor(KeyRange::All)?);
        while let Some((key, value)) = pass.peek(self)? {
            out.push(prefix, key, Some(value))?;
            pass.advance(self)?;
        }
        Ok(())
    }

    pub(crate) fn sorted_slots(&self, wanted: impl Fn(&Slot) -> bool) -> Vec<u32> {
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

/// Returns whether a slot may be evicted: it is clean, and no session from `last` on touched it.
fn may_go(slot: &Slot, last: u32) -> bool {
    !slot.record.is_none() && slot.stamp.is_clean() && slot.stamp.session() < last
}

/// The keys of a table over runs, as they were when the scan began.
#[derive(Debug)]
pub(crate) struct Pass {
    in_order: bool,
    /// Records that were not in the runs, or not with that value.
    hot: Vec<RecordAt>,
    next: usize,
    cursor: StackCursor,
    seen_undo: usize,
    /// Slots of keys that the session changed since, and whose old value is in the runs.
    cleaned: HashSet<u32>,
}

impl Pass {
    fn new(table: &Table, in_order: bool, hot: Vec<RecordAt>, cursor: StackCursor) -> Self {
        Self {
            in_order,
            hot,
            next: 0,
            cursor,
            seen_undo: table.undo.len(),
            cleaned: HashSet::new(),
        }
    }

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

    /// Returns whether the table had another value, or none, when the scan began.
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

#[derive(Debug)]
pub(crate) struct Below {
    runs: Arc<RunStack>,
    prefix: Vec<u8>,
    /// Number of the table's keys that are in runs and have no slot.
    pub unlinked: u64,
    /// `unlinked` is wrong until [`Table::count_unlinked`], so loads look for no key.
    pub is_uncounted: bool,
    /// Hydration has read all runs, and every key has a slot: the runs are read no more.
    pub is_in_memory: bool,
}

impl Below {
    /// `None` if no key has `prefix`. Over several runs the number of keys is not known yet.
    pub fn of(runs: &Arc<RunStack>, prefix: &[u8]) -> Option<Self> {
        let unlinked = runs.at_most_behind(prefix);
        (unlinked > 0).then(|| Self {
            runs: Arc::clone(runs),
            prefix: prefix.to_vec(),
            unlinked,
            is_uncounted: false,
            is_in_memory: false,
        })
    }

    pub fn find(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        if self.prefix.is_empty() {
            return self.runs.find(key);
        }
        self.runs.find(&[&self.prefix, key].concat())
    }

    pub fn cursor(&self, range: KeyRange<'_>) -> Result<StackCursor> {
        StackCursor::new(&self.runs, &self.prefix, range)
    }
}
