//! A hash index over records, with an undo log and, if scans need it, the order of the keys.
//!
//! A session changes slots in place. The undo log has the previous record of every key that the
//! session touched. So an abort costs as much as the changes, and a commit serializes only these
//! keys. The log remains until the next session begins: a retry of the commit rewinds, not loads.
//!
//! Records never change while a scan may read them, and go only when a session begins. So a scan is
//! a list of records, and sees the table as it was, whatever the session does.

use hashbrown::HashTable;

use super::arena::{Arena, Record, RecordAt};
use super::order::{Order, sort_by_key};
use super::slot::{SESSIONS, Slot, Stamp, find_in, hash_of, key_in, spread, spread_of};
use crate::error::{Error, Result};
use crate::segment::RunWriter;
use crate::state::memory::{self, Release};
use crate::state::runs::entries::Change;
use crate::state::runs::key_range::KeyRange;

/// Least garbage that is worth a compaction.
const COMPACT_MIN_BYTES: usize = 64 << 10;
/// Least number of slots by which a table over runs grows.
const MIN_GROWTH: usize = 64;

#[derive(Clone, Copy, Debug)]
struct Undo {
    slot: u32,
    /// [`RecordAt::NONE`] for a key that had no slot.
    before: RecordAt,
    stamp: Stamp,
}

impl Undo {
    fn was_absent(&self) -> bool {
        self.before.is_none() || self.stamp.is_dead()
    }
}

#[derive(Debug, Default)]
pub(crate) struct Table {
    index: HashTable<u32>,
    slots: Vec<Slot>,
    free: Vec<u32>,
    arena: Arena,
    undo: Vec<Undo>,
    session: u32,
    len: usize,
    live_bytes: usize,
    order: Option<Order>,
    /// A scan of this session may read the records that existed when it was made.
    pinned: bool,
    below: Option<Below>,
    /// The store lies over runs: a removed key keeps a dead slot while a run below may have it.
    keeps_removed: bool,
}

impl Table {
    /// Counts its sessions from `session` on, like the other tables of its store.
    pub(crate) fn from_session(session: u32) -> Self {
        Self {
            session,
            ..Self::default()
        }
    }

    pub(crate) fn keep_removed(&mut self) {
        self.keeps_removed = true;
    }

    pub(crate) fn session(&self) -> u32 {
        self.session
    }

    pub(crate) fn keep_order(&mut self) {
        if self.order.is_none() {
            self.make_order();
        }
    }

    fn make_order(&mut self) {
        let sorted = self.sorted_slots(|_| true);
        self.order = Some(Order::of_sorted(sorted.into_iter(), |n| self.key_of(n)));
    }

    pub(crate) fn len(&self) -> usize {
        let below = self.below.as_ref();
        self.len + below.map_or(0, |below| below.unlinked as usize)
    }

    pub(crate) fn is_fresh(&self) -> bool {
        self.slots.is_empty() && self.below.is_none()
    }

    /// Memory of the pages with records: most of the memory, and known at once.
    pub(crate) fn page_bytes(&self) -> usize {
        self.arena.capacity_bytes()
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.arena.capacity_bytes()
            + self.slots.capacity() * size_of::<Slot>()
            + self.index.allocation_size()
            + self.undo.capacity() * size_of::<Undo>()
            + self.free.capacity() * size_of::<u32>()
            + self.order.as_ref().map_or(0, Order::memory_bytes)
    }

    pub(crate) fn get(&self, key: &[u8]) -> Option<&[u8]> {
        let record = self.record(self.find_record(key)?)?;
        Some(record.value)
    }

    pub(crate) fn find_record(&self, key: &[u8]) -> Option<RecordAt> {
        let number = self.find(hash_of(key), key)?;
        let slot = self.slots.get(number as usize)?;
        (!slot.is_dead()).then_some(slot.record)
    }

    /// A record that was found or selected since the session began.
    pub(crate) fn record(&self, at: RecordAt) -> Option<Record<'_>> {
        self.arena.get(at)
    }

    pub(crate) fn records(&self) -> impl Iterator<Item = Record<'_>> {
        let live = self.slots.iter().filter(|slot| !slot.is_dead());
        live.filter_map(|slot| self.arena.get(slot.record))
    }

    /// In order if the table keeps one. The records remain unchanged until the next session begins.
    pub(crate) fn select(&mut self, range: KeyRange<'_>) -> Result<Vec<RecordAt>> {
        self.pinned = true;
        let live = |slot: &&Slot| !slot.is_dead();
        match (&self.order, range) {
            (Some(order), range) => {
                let numbers = order.slots(range, |number| self.key_of(number));
                let slots = numbers.iter().filter_map(|n| self.slots.get(*n as usize));
                Ok(slots.filter(live).map(|slot| slot.record).collect())
            }
            (None, KeyRange::All) => {
                let slots = self.slots.iter().filter(live);
                Ok(slots.map(|slot| slot.record).collect())
            }
            (None, _) => Err(Error::invalid_input(
                "this table keeps no order of its keys, so it has no ranges to scan",
            )),
        }
    }

    /// Records that were found one by one also remain unchanged until the next session begins.
    pub(crate) fn pin(&mut self) {
        self.pinned = true;
    }

    /// Drops the undo log of the last commit: [`Table::abort`] now goes back to this point.
    pub(crate) fn begin(&mut self) {
        for undo in std::mem::take(&mut self.undo) {
            let slot = self.slots.get(undo.slot as usize);
            if !self.keeps_removed && slot.is_some_and(Slot::is_dead) {
                self.unlink(undo.slot);
            }
        }
        self.pinned = false;
        self.next_session();
        let garbage = self.arena.used_bytes().saturating_sub(self.live_bytes);
        if garbage > self.live_bytes + COMPACT_MIN_BYTES {
            self.compact(memory::keep);
        }
    }

    pub(crate) fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let hash = hash_of(key);
        let Some(number) = self.find(hash, key) else {
            let record = self.push_record(key, value)?;
            let stamp = Stamp::live(self.session);
            let number = self.link(hash, record, stamp);
            self.undo.push(Undo {
                slot: number,
                before: RecordAt::NONE,
                stamp,
            });
            return Ok(());
        };
        let Some(slot) = self.slots.get(number as usize).copied() else {
            return Ok(());
        };
        let touched = slot.stamp.session() == self.session;
        // Only a record of this session may be overwritten: the undo log has the older ones.
        let in_place = touched && !self.pinned;
        let record = if in_place && self.arena.overwrite(slot.record, value) {
            slot.record
        } else {
            self.push_record(key, value)?
        };
        if !touched {
            self.undo.push(Undo {
                slot: number,
                before: slot.record,
                stamp: slot.stamp,
            });
        }
        if slot.is_dead() {
            self.len += 1;
        }
        self.live_bytes -= self.stored_bytes(slot.record);
        self.live_bytes += self.stored_bytes(record);
        if let Some(slot) = self.slots.get_mut(number as usize) {
            *slot = Slot {
                record,
                stamp: Stamp::live(self.session),
                ..*slot
            };
        }
        Ok(())
    }

    pub(crate) fn remove(&mut self, key: &[u8]) -> bool {
        let Some(number) = self.find(hash_of(key), key) else {
            return false;
        };
        let slot = self.slots.get_mut(number as usize);
        let Some(slot) = slot.filter(|slot| !slot.is_dead()) else {
            return false;
        };
        let before = *slot;
        self.len -= 1;
        slot.stamp = Stamp::dead(self.session);
        if before.stamp.session() == self.session {
            return true;
        }
        self.undo.push(Undo {
            slot: number,
            before: before.record,
            stamp: before.stamp,
        });
        // Has only the key. A touched slot's record is of this session, so a put may overwrite it.
        if let Some(tombstone) = self.arena.push(key, &[]) {
            slot.record = tombstone;
            self.live_bytes -= self.stored_bytes(before.record);
            self.live_bytes += Record { key, value: &[] }.stored_bytes();
        }
        true
    }

    /// Existing keys that this session touched, and whether they existed before.
    pub(crate) fn touched(&self) -> impl Iterator<Item = (&[u8], bool)> {
        let live = self.undo_log().filter(|(_, slot, _)| !slot.is_dead());
        live.map(|(undo, _, now)| (now.key, !undo.was_absent()))
    }

    fn undo_log(&self) -> impl Iterator<Item = (&Undo, &Slot, Record<'_>)> {
        self.undo.iter().filter_map(|undo| {
            let slot = self.slots.get(undo.slot as usize)?;
            Some((undo, slot, self.arena.get(slot.record)?))
        })
    }

    pub(crate) fn repeat(&mut self, other: &Self) -> Result<()> {
        for (_, slot, now) in other.undo_log() {
            if slot.is_dead() {
                self.remove(now.key);
            } else {
                self.put(now.key, now.value)?;
            }
        }
        Ok(())
    }

    /// Calls `act` by key. `repeats` includes keys that were set to the value that they had.
    /// `marks` are keys outside the table, whose removal is added.
    pub(crate) fn each_change(
        &self,
        repeats: bool,
        marks: &[Vec<u8>],
        mut act: impl FnMut(&[u8], Change<'_>) -> Result<()>,
    ) -> Result<()> {
        let mut marks: Vec<&[u8]> = marks.iter().map(Vec::as_slice).collect();
        marks.sort_unstable();
        let mut marks = marks.into_iter().peekable();
        for (_, number) in self.changed_slots(repeats) {
            let slot = self.slots.get(number as usize);
            let record = slot.and_then(|slot| Some((slot, self.record(slot.record)?)));
            let Some((slot, now)) = record else {
                continue;
            };
            while let Some(mark) = marks.next_if(|mark| *mark < now.key) {
                act(mark, Change::Remove)?;
            }
            let put = (!slot.is_dead()).then_some(now.value);
            act(now.key, put.map_or(Change::Remove, Change::Put))?;
        }
        marks.try_for_each(|mark| act(mark, Change::Remove))
    }

    /// The slots that this session changed, by key: 16 bytes for each.
    fn changed_slots(&self, repeats: bool) -> Vec<(u64, u32)> {
        let is_change = |(undo, slot, now): &(&Undo, &Slot, Record<'_>)| {
            let before = self.arena.get(undo.before).filter(|_| !undo.was_absent());
            match (slot.is_dead(), before) {
                (true, before) => before.is_some(),
                (false, Some(before)) => before.value != now.value || repeats,
                (false, None) => true,
            }
        };
        let changes = self.undo_log().filter(is_change);
        let mut changed = Vec::with_capacity(self.undo.len());
        changed.extend(changes.map(|(undo, ..)| (0, undo.slot)));
        sort_by_key(&mut changed, 0, &|number| self.key_of(number));
        changed
    }

    pub(crate) fn snapshot(&self, prefix: &[u8], out: &mut RunWriter<'_>) -> Result<()> {
        if let Some(below) = &self.below {
            return self.snapshot_over_run(below, prefix, out);
        }
        let numbers = match &self.order {
            Some(order) => order.slots(KeyRange::All, |number| self.key_of(number)),
            None => self.sorted_slots(|slot| !slot.is_dead()),
        };
        let slots = numbers.iter().filter_map(|n| self.slots.get(*n as usize));
        let live = slots.filter(|slot| !slot.is_dead());
        for record in live.filter_map(|slot| self.arena.get(slot.record)) {
            out.push(prefix, record.key, Some(record.value))?;
        }
        Ok(())
    }

    pub(crate) fn commit(&mut self) {
        self.next_session();
    }

    /// Takes back the open session, or else the last commit.
    pub(crate) fn abort(&mut self) {
        for undo in std::mem::take(&mut self.undo) {
            let Some(slot) = self.slots.get(undo.slot as usize).copied() else {
                continue;
            };
            if !slot.is_dead() {
                self.len -= 1;
            }
            if undo.before.is_none() {
                self.unlink(undo.slot);
                continue;
            }
            if !undo.stamp.is_dead() {
                self.len += 1;
            }
            self.live_bytes -= self.stored_bytes(slot.record);
            self.live_bytes += self.stored_bytes(undo.before);
            if let Some(place) = self.slots.get_mut(undo.slot as usize) {
                place.record = undo.before;
                place.stamp = undo.stamp.in_session(slot.stamp.session());
            }
        }
        self.next_session();
    }

    fn find(&self, hash: u32, key: &[u8]) -> Option<u32> {
        find_in(&self.index, &self.slots, &self.arena, hash, key)
    }

    fn key_of(&self, number: u32) -> &[u8] {
        key_in(&self.slots, &self.arena, number)
    }

    fn push_record(&mut self, key: &[u8], value: &[u8]) -> Result<RecordAt> {
        self.arena.push(key, value).ok_or_else(|| {
            Error::invalid_input(format!(
                "a state entry may have at most 4 GiB, this one has a key of {} bytes and a \
                 value of {} bytes",
                key.len(),
                value.len()
            ))
        })
    }

    fn link(&mut self, hash: u32, record: RecordAt, stamp: Stamp) -> u32 {
        let slot = Slot {
            record,
            hash,
            stamp,
        };
        let number = match self.free.pop() {
            Some(number) => {
                if let Some(place) = self.slots.get_mut(number as usize) {
                    *place = slot;
                }
                number
            }
            None => {
                let len = self.slots.len();
                if self.below.is_some() && len == self.slots.capacity() {
                    // Doubling would take the memory that evictions freed.
                    self.slots.reserve_exact((len / 8).max(MIN_GROWTH));
                }
                self.slots.push(slot);
                len as u32
            }
        };
        let slots = &self.slots;
        self.index
            .insert_unique(spread(hash), number, |number| spread_of(slots, *number));
        if let Some(order) = &mut self.order {
            let key = key_in(slots, &self.arena, number);
            order.insert(number, key, |n| key_in(slots, &self.arena, n));
        }
        if !stamp.is_dead() {
            self.len += 1;
        }
        self.live_bytes += self.stored_bytes(record);
        number
    }

    fn stored_bytes(&self, record: RecordAt) -> usize {
        let record = self.arena.get(record);
        record.map_or(0, |record| record.stored_bytes())
    }

    /// Drops a slot. The caller has counted off a live one.
    fn unlink(&mut self, number: u32) {
        let record = self.slots.get(number as usize).map(|slot| slot.record);
        self.live_bytes -= record.map_or(0, |record| self.stored_bytes(record));
        if let Some(order) = &mut self.order {
            let key_of = |n| key_in(&self.slots, &self.arena, n);
            order.remove(number, key_of(number), key_of);
        }
        let Some(slot) = self.slots.get_mut(number as usize) else {
            return;
        };
        let hash = spread(slot.hash);
        slot.stamp = Stamp::dead(slot.stamp.session());
        slot.record = RecordAt::NONE;
        if let Ok(entry) = self
            .index
            .find_entry(hash, |candidate| *candidate == number)
        {
            entry.remove();
        }
        self.free.push(number);
    }

    fn next_session(&mut self) {
        self.session += 1;
        if self.session < SESSIONS {
            return;
        }
        // Numbers start again, and no slot may look touched by the new session.
        self.session = 1;
        for slot in &mut self.slots {
            slot.stamp = slot.stamp.in_session(0);
        }
    }

    /// Copies records into a new arena. Frees each page before it copies the next one, so it needs
    /// no second copy of the table. The undo log must be empty.
    fn compact(&mut self, release: Release) {
        let numbers = self.slots_by_page();
        let mut old = std::mem::take(&mut self.arena);
        for number in numbers {
            let Some(slot) = self.slots.get_mut(number as usize) else {
                continue;
            };
            old.forget_before(slot.record, release);
            let record = old.get(slot.record);
            if let Some(moved) = record.and_then(|r| self.arena.push(r.key, r.value)) {
                slot.record = moved;
            }
        }
        old.forget_all(release);
    }

    /// Numbers of slots, by the pages of their records; 4 bytes for each.
    fn slots_by_page(&self) -> Vec<u32> {
        let linked = self.slots.iter().zip(0u32..);
        let linked = linked.filter(|(slot, _)| !slot.record.is_none());
        let mut places = vec![0usize; self.arena.pages() + 1];
        for (slot, _) in linked.clone() {
            if let Some(count) = places.get_mut(slot.record.page() + 1) {
                *count += 1;
            }
        }
        let mut before = 0;
        for place in &mut places {
            before += *place;
            *place = before;
        }
        let mut numbers = vec![0; before];
        for (slot, number) in linked {
            if let Some(place) = places.get_mut(slot.record.page()) {
                if let Some(to) = numbers.get_mut(*place) {
                    *to = number;
                }
                *place += 1;
            }
        }
        numbers
    }
}

mod load;
mod over_runs;

pub(crate) use over_runs::{Below, Pass};

#[cfg(test)]
mod table_tests;
