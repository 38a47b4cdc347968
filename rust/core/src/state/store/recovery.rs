//! Recovery from damage during a session: a store over runs reads keys on demand, so it finds a
//! damaged run late. The session continues if older segments have the same state.

use super::standing::Standing;
use super::state_store::StateStore;
use crate::error::{Error, Result};
use crate::segment::SegmentWriter;
use crate::state::content::families::Families;
use crate::storage::Storage;

impl StateStore {
    /// Returns a result of reading runs. After damage the store has no version until
    /// [`StateStore::go_around`], or until it is opened again, which reads all of its state.
    #[inline]
    pub(crate) fn trust<T>(&mut self, read: Result<T>) -> Result<T> {
        if let Err(e) = &read {
            self.note_damage(e);
        }
        read
    }

    #[cold]
    fn note_damage(&mut self, found: &Error) {
        if found.is_damage() && self.families.runs().is_some() {
            self.standing.lose();
        }
    }

    /// After damage: loads the version again, from the segments that the damaged run replaced. In a
    /// session it writes a base image, as [`StateStore::mend`] does, and repeats the session's
    /// changes. Then the caller may try again. False without damage, in a session without a writer
    /// or that spilled, and while a scan is open, which would lose entries.
    ///
    /// # Errors
    /// Errors of [`StateStore::open`] and [`StateStore::mend`]; a session is lost then: abort it.
    pub fn go_around(
        &mut self,
        storage: &dyn Storage,
        writer: Option<&SegmentWriter>,
    ) -> Result<bool> {
        let is_lost = self.spilled().is_some();
        if is_lost || !self.scans.is_empty() || self.session.is_some() && writer.is_none() {
            return Ok(false);
        }
        let Standing::Lost { was } = &self.standing else {
            return Ok(false);
        };
        let lost = was.id;
        self.stats = self.stats();
        let fresh = Families::new(self.families.layout());
        let changed = std::mem::replace(&mut self.families, fresh);
        self.load(storage, lost)?;
        if let Some(writer) = writer.filter(|_| self.session.is_some()) {
            if self.standing.now().is_some_and(|at| at.rebuilt) {
                self.write_base_image(writer)?;
            }
            self.families.repeat(&changed)?;
            self.count_memory()?;
        }
        Ok(true)
    }
}
