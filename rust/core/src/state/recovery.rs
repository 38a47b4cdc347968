//! Damage that a session comes upon: a store over runs reads them when their keys are asked for, so it
//! learns late that one cannot be read. The session goes on where older segments have the same state.

use super::content::Families;
use super::store::StateStore;
use crate::error::{Error, Result};
use crate::segment::SegmentWriter;
use crate::storage::Storage;

impl StateStore {
    /// What was read of a run. Where it is damaged, the store has no version until
    /// [`StateStore::go_around`], or until it is opened again, which reads all of its state.
    #[inline]
    pub(super) fn trust<T>(&mut self, read: Result<T>) -> Result<T> {
        if let Err(e) = &read {
            self.note_damage(e);
        }
        read
    }

    #[cold]
    fn note_damage(&mut self, found: &Error) {
        if found.is_damage() && self.families.newest_run_below().is_some() {
            self.distrusts_runs = true;
            self.lost = self.at.take().or(self.lost.take());
            self.before = None;
        }
    }

    /// After a call failed with damage: loads the version anew, from the segments that the damaged run stands
    /// for. In a session it writes a base image that what follows builds on, as [`StateStore::mend`] does
    /// before one, and repeats what the session changed. Then the call may be made again. False where there
    /// is no damage to go around, in a session without a writer, and while a scan is open, whose entries would
    /// not be there any more.
    ///
    /// # Errors
    /// As [`StateStore::open`] and [`StateStore::mend`]; a session is lost then: abort it.
    pub fn go_around(
        &mut self,
        storage: &dyn Storage,
        writer: Option<&SegmentWriter>,
    ) -> Result<bool> {
        if !self.scans.is_empty() || self.in_session && writer.is_none() {
            return Ok(false);
        }
        let Some(lost) = self.lost.take() else {
            return Ok(false);
        };
        self.stats = self.stats();
        let fresh = Families::new(self.families.layout());
        let changed = std::mem::replace(&mut self.families, fresh);
        self.load(storage, lost.id)?;
        if let Some(writer) = writer.filter(|_| self.in_session) {
            if self.at.as_ref().is_some_and(|at| at.rebuilt) {
                self.write_base_image(writer)?;
            }
            self.families.repeat(&changed)?;
            self.count_memory()?;
        }
        Ok(true)
    }
}
