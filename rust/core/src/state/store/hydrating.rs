//! Hydration: a store brings its keys into memory by itself.

use super::state_store::StateStore;
use crate::error::Result;
use crate::state::content::family::Family;
use crate::state::content::hydration::{
    ALONG_ENTRIES, HYDRATION_BYTES, HydratedEntries, Hydration, MORE_ENTRIES, Progress,
};

impl StateStore {
    pub(super) fn session_hydrates(&mut self) -> bool {
        std::mem::take(&mut self.residency.session_reads) && self.is_hydrating()
    }

    /// Hands out the rest of the runs. The caller reads it while the store works, and brings it
    /// back with [`StateStore::hydrate`]. `None` if nothing is left, another caller has it, or
    /// memory is short; in a store's first session also while half of the target is taken.
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
        let hydration = match std::mem::take(&mut self.residency.hydration) {
            Progress::Waits(hydration) if !self.is_held_back(&hydration) => hydration,
            other => {
                self.residency.hydration = other;
                return None;
            }
        };
        if !self.has_room_for(&hydration, 0) {
            return None;
        }
        self.residency.hydration = Progress::Taken;
        Some(hydration)
    }

    /// Returns whether `take_hydration` has something, now or when the next session begins.
    pub fn is_hydrating(&self) -> bool {
        matches!(self.residency.hydration, Progress::Waits(_))
    }

    /// Takes over entries, except keys in memory. Does nothing if the store moved to other runs.
    ///
    /// # Errors
    /// The error of reading. The store is then unchanged, and its keys are read on demand.
    pub fn hydrate(&mut self, hydration: Hydration, read: Result<HydratedEntries>) -> Result<()> {
        if !matches!(self.residency.hydration, Progress::Taken)
            || !self.families.lies_over(&hydration)
        {
            return Ok(());
        }
        self.residency.hydration = Progress::Over;
        let entries = read?;
        if !self.has_room_for(&hydration, entries.memory_bytes()) {
            return Ok(());
        }
        let before = self.families.memory_bytes();
        self.families.hydrate(&entries)?;
        let grown = self.families.memory_bytes().saturating_sub(before);
        self.memory.note_hydrated(grown as u64);
        self.residency.hydration = if !hydration.is_over() {
            Progress::Waits(hydration)
        } else if hydration.everything && self.families.end_hydration() {
            Progress::Whole
        } else {
            Progress::Over
        };
        // There was room.
        let _ = self.count_memory();
        Ok(())
    }

    /// The keys of delta runs, a guess at the keys that are needed, leave half of the target free.
    fn has_room_for(&self, hydration: &Hydration, more: u64) -> bool {
        self.memory.has_room(more) && (hydration.everything || self.memory.is_half_free(more))
    }

    /// Hydrating everything waits for the next session: others need memory for their first batch.
    fn is_held_back(&self, hydration: &Hydration) -> bool {
        hydration.everything && self.memory.is_first_session() && !self.memory.is_half_free(0)
    }

    pub(super) fn hydrate_some(&mut self, max_entries: usize) -> bool {
        let Some(mut hydration) = self.take_hydration() else {
            return false;
        };
        let read = hydration.read_some(HYDRATION_BYTES, max_entries);
        // A later read of a key reports a damaged run.
        let _ = self.hydrate(hydration, read);
        true
    }

    pub(crate) fn begin_hydration(&mut self) {
        let everything = self.memory.has_room(self.families.unread_bytes());
        let hydration = self.families.hydration(everything);
        let hydration = hydration.filter(|hydration| !hydration.is_over());
        self.residency.hydration = hydration.map_or(Progress::Over, Progress::Waits);
    }

    /// A session that had to read a block for a key also hydrates, and other callers leave that to
    /// it. So a session that wants all keys reads few blocks for one key each.
    #[inline]
    pub(crate) fn reach<R>(
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

    #[inline(never)]
    pub(crate) fn reach_runs<R>(
        &mut self,
        family: u32,
        act: impl FnOnce(&mut Family) -> Result<R>,
    ) -> Result<R> {
        let reads = self.families.cold_reads();
        let acted = act(self.families.family_mut(family)?);
        let acted = self.trust(acted)?;
        let hydration = &self.residency.hydration;
        let hydrates = matches!(hydration, Progress::Waits(_) | Progress::Taken);
        let reads_now = self.families.cold_reads();
        if hydrates && reads_now != reads {
            self.residency.session_reads = true;
            let before = self.session.as_ref().map_or(0, |begun| begun.reads_before);
            let reads = reads_now.saturating_sub(before);
            let entries = ALONG_ENTRIES.saturating_add(MORE_ENTRIES.saturating_mul(reads));
            self.hydrate_some(usize::try_from(entries).unwrap_or(usize::MAX));
        }
        Ok(acted)
    }
}
