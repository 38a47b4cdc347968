//! Hydration: what a store left in runs when it was opened comes into memory beside its work.
//!
//! A store with large runs is opened over them, so that its first row does not wait for all others.
//! What the delta runs have comes first, because it was changed last; then, if it fits, everything. The
//! caller reads outside the store, which then takes over what has no slot yet. So a task does not wait for
//! reads that it did not ask for, and nothing that a session changed meanwhile is lost.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::family::Family;
use super::run_cursor::StackCursor;
use super::run_stack::RunStack;
use super::store::StateStore;
use crate::error::Result;
use crate::format::SegmentHead;

/// What a key takes in memory beside itself and its value: slot, index, order.
const SLOT_BYTES: u64 = 48;

/// What a segment takes in memory once it is loaded, about: what it says of itself may be forged.
pub(super) fn loaded_bytes(head: &SegmentHead) -> u64 {
    let slots = head.entries.saturating_mul(SLOT_BYTES);
    head.payload_bytes.saturating_add(slots)
}

/// Entries that are handed over together: a task that uses the store waits for less than a millisecond.
pub const HYDRATION_BYTES: usize = 128 << 10;

/// What is still to be read for one store.
#[derive(Debug)]
pub struct Hydration {
    runs: Arc<RunStack>,
    /// Tables by their prefix, with the number of runs, the oldest ones, that are left out: the next one
    /// is the last.
    passes: Vec<(Vec<u8>, usize)>,
    /// No run is left out in the end.
    everything: bool,
    cursor: Option<StackCursor>,
}

/// Keys and values of one table, as the runs below it have them.
#[derive(Debug, Default)]
pub struct HydratedEntries {
    prefix: Vec<u8>,
    bytes: Vec<u8>,
    /// Lengths of key and value.
    lens: Vec<(usize, usize)>,
}

/// What a caller who hydrates a store does next.
#[derive(Debug)]
pub enum NextHydration {
    /// Read more, and bring it back.
    Read(Hydration),
    /// Come again a little later: a session reads along, which is quicker than turns with it.
    Later,
    /// Nothing.
    Over,
}

/// How far a store is.
#[derive(Debug, Default)]
pub(super) enum Progress {
    /// All that is to come into memory by itself is there, or nothing is.
    #[default]
    Over,
    /// The next entries may be read.
    Waits(Hydration),
    /// A caller reads the next entries.
    Taken,
    /// No run has a key that is not in memory.
    Whole,
}

impl Hydration {
    /// Of a store over `runs`: of everything in the tables with these prefixes, or else of what delta runs
    /// have of them.
    pub(super) fn of(runs: &Arc<RunStack>, tables: &BTreeSet<&[u8]>, everything: bool) -> Self {
        let pass = |left_out| tables.iter().rev().map(move |p| (p.to_vec(), left_out));
        let mut passes = Vec::new();
        if everything {
            passes.extend(pass(0));
        }
        if runs.runs().len() > 1 {
            passes.extend(pass(1));
        }
        Self {
            runs: Arc::clone(runs),
            passes,
            everything,
            cursor: None,
        }
    }

    /// Whether these are the runs that are read.
    pub(super) fn is_of(&self, runs: Option<&Arc<RunStack>>) -> bool {
        runs.is_some_and(|runs| Arc::ptr_eq(&self.runs, runs))
    }

    fn is_over(&self) -> bool {
        self.passes.is_empty()
    }

    /// Reads the next entries, `max_bytes` of them and up to one more. To be called outside the store, to
    /// which they go next, see [`StateStore::hydrate`].
    ///
    /// # Errors
    /// `Corrupt`, with file, offset and owner, where a run is damaged; those of storage.
    pub fn read(&mut self, max_bytes: usize) -> Result<HydratedEntries> {
        let mut batch = HydratedEntries::default();
        let Some((prefix, left_out)) = self.passes.last() else {
            return Ok(batch);
        };
        batch.prefix.clone_from(prefix);
        let cursor = match &mut self.cursor {
            Some(cursor) => cursor,
            None => {
                let cursor = StackCursor::of_all(&self.runs, prefix, *left_out)?;
                self.cursor.insert(cursor)
            }
        };
        while let Some((key, value)) = cursor.entry() {
            batch.push(key, value);
            cursor.advance()?;
            if batch.bytes.len() >= max_bytes {
                return Ok(batch);
            }
        }
        self.cursor = None;
        self.passes.pop();
        Ok(batch)
    }
}

impl HydratedEntries {
    fn push(&mut self, key: &[u8], value: &[u8]) {
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value);
        self.lens.push((key.len(), value.len()));
    }

    /// Prefix of their table.
    pub(super) fn prefix(&self) -> &[u8] {
        &self.prefix
    }

    /// Keys and values.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let mut rest = self.bytes.as_slice();
        self.lens.iter().map_while(move |(key_len, value_len)| {
            let (key, behind) = rest.split_at_checked(*key_len)?;
            let (value, behind) = behind.split_at_checked(*value_len)?;
            rest = behind;
            Some((key, value))
        })
    }

    /// What they take in memory, about.
    fn memory_bytes(&self) -> u64 {
        self.bytes.len() as u64 + self.lens.len() as u64 * SLOT_BYTES
    }
}

impl StateStore {
    /// What is still to be read of the runs that the store was opened over, for a caller who reads it
    /// beside the work of the store, and brings it back with [`StateStore::hydrate`]. `Over` where
    /// nothing is, where another caller reads it, and where memory is short; in the first session of a store
    /// where half of the target is taken, until the next one begins.
    pub fn next_hydration(&mut self) -> NextHydration {
        if std::mem::take(&mut self.session_reads) && self.is_hydrating() {
            return NextHydration::Later;
        }
        match self.take_hydration() {
            Some(hydration) => NextHydration::Read(hydration),
            None => NextHydration::Over,
        }
    }

    /// As [`StateStore::next_hydration`], whether a session reads along or not.
    ///
    /// ```
    /// # use holdfast_core::state::{HYDRATION_BYTES, StateStore};
    /// # use parking_lot::Mutex;
    /// fn hydrate(store: &Mutex<StateStore>) -> holdfast_core::Result<()> {
    ///     while let Some(mut hydration) = { store.lock().take_hydration() } {
    ///         let entries = hydration.read(HYDRATION_BYTES);
    ///         store.lock().hydrate(hydration, entries)?;
    ///     }
    ///     Ok(())
    /// }
    /// ```
    pub fn take_hydration(&mut self) -> Option<Hydration> {
        match std::mem::take(&mut self.hydration) {
            Progress::Waits(hydration) if self.is_held_back(&hydration) => {
                self.hydration = Progress::Waits(hydration);
                None
            }
            Progress::Waits(hydration) if self.has_room_for(&hydration, 0) => {
                self.hydration = Progress::Taken;
                Some(hydration)
            }
            Progress::Waits(_) => None,
            other => {
                self.hydration = other;
                None
            }
        }
    }

    /// Whether [`StateStore::take_hydration`] has something, now or when the next session begins.
    pub fn is_hydrating(&self) -> bool {
        matches!(self.hydration, Progress::Waits(_))
    }

    /// Takes over what was read, but for what the store has in memory already. Nothing happens where it lies
    /// over other runs by now.
    ///
    /// # Errors
    /// That of reading. The store is as it was then, and its keys are read when they are asked for.
    pub fn hydrate(&mut self, hydration: Hydration, read: Result<HydratedEntries>) -> Result<()> {
        if !matches!(self.hydration, Progress::Taken) || !self.families.lies_over(&hydration) {
            return Ok(());
        }
        self.hydration = Progress::Over;
        let entries = read?;
        if !self.has_room_for(&hydration, entries.memory_bytes()) {
            return Ok(());
        }
        let before = self.families.memory_bytes();
        self.families.hydrate(&entries)?;
        let grown = self.families.memory_bytes().saturating_sub(before);
        self.memory.note_hydrated(grown as u64);
        self.hydration = if !hydration.is_over() {
            Progress::Waits(hydration)
        } else if hydration.everything && self.families.end_hydration() {
            Progress::Whole
        } else {
            Progress::Over
        };
        // The budget refuses nothing that there was room for.
        let _ = self.count_memory();
        Ok(())
    }

    /// Whether `more` bytes may come into memory by themselves. What was changed last is a guess at what is
    /// needed: it leaves half of the target to what proves to be.
    fn has_room_for(&self, hydration: &Hydration, more: u64) -> bool {
        self.memory.has_room(more) && (hydration.everything || self.memory.is_half_free(more))
    }

    /// Whether everything is to come into memory, but not yet: the first stores that are opened would take
    /// what those after them need for their first batch. It goes on when the next session begins.
    fn is_held_back(&self, hydration: &Hydration) -> bool {
        hydration.everything && self.memory.is_first_session() && !self.memory.is_half_free(0)
    }

    /// Hydrates all that there is to, before a scan that wants it all anyway.
    pub(super) fn hydrate_at_once(&mut self) {
        while self.hydrate_some() {}
    }

    /// Reads the next entries and takes them over; false where there are none, or another caller has them.
    fn hydrate_some(&mut self) -> bool {
        let Some(mut hydration) = self.take_hydration() else {
            return false;
        };
        let read = hydration.read(HYDRATION_BYTES);
        // A run that is damaged is found out when one of its keys is asked for.
        let _ = self.hydrate(hydration, read);
        true
    }

    /// Begins with what is to come into memory by itself, after the store was opened over runs or moved to
    /// others.
    pub(super) fn begin_hydration(&mut self) {
        let everything = self.memory.has_room(self.families.unread_bytes());
        let hydration = self.families.hydration(everything);
        let hydration = hydration.filter(|hydration| !hydration.is_over());
        self.hydration = hydration.map_or(Progress::Over, Progress::Waits);
    }

    /// Looks for keys of a family, or changes them: some may be in runs only. A session that had to read a
    /// block for one hydrates as well, and other callers leave that to it. So one that wants all keys of a
    /// store reads few blocks for one key each.
    ///
    /// # Errors
    /// `InvalidInput` without such a family; those of `act`, see [`StateStore::trust`].
    #[inline]
    pub(super) fn reach<R>(
        &mut self,
        family: u32,
        act: impl FnOnce(&mut Family) -> Result<R>,
    ) -> Result<R> {
        let content = self.families.family_mut(family)?;
        if content.is_in_memory() {
            let acted = act(content);
            return self.trust(acted);
        }
        self.reach_runs(family, act)
    }

    /// As [`StateStore::reach`], for a family that is not wholly in memory.
    #[inline(never)]
    pub(super) fn reach_runs<R>(
        &mut self,
        family: u32,
        act: impl FnOnce(&mut Family) -> Result<R>,
    ) -> Result<R> {
        let reads = self.families.cold_reads();
        let acted = act(self.families.family_mut(family)?);
        let acted = self.trust(acted)?;
        let hydrates = matches!(self.hydration, Progress::Waits(_) | Progress::Taken);
        if hydrates && self.families.cold_reads() != reads {
            self.session_reads = true;
            self.hydrate_some();
        }
        Ok(acted)
    }
}
