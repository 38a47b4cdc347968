//! Messages about checkpoints. They only decide; the upkeep does the work on files. A view that
//! cannot be true at that moment is `InvalidInput`, and changes nothing.

use super::snapshot_manager::SnapshotManager;
use crate::error::{Error, ErrorKind, Result};
use crate::ids::CheckpointId;
use crate::liveness::{Fallbacks, Occasion, Retained};

impl SnapshotManager {
    /// The attempt started: tries failed deletes again. A manager learns of attempts from `append`.
    pub fn started(&self, _id: CheckpointId) {
        self.upkeep.settle(Occasion::Message);
    }

    /// The checkpoint completed with every owner's state of `id`.
    pub fn completed(&self, id: CheckpointId, retained: &Retained) -> Result<()> {
        self.partially_completed(id, &Fallbacks::new(), retained)
    }

    /// The checkpoint completed, with the state of an older origin for the owners in `fallbacks`.
    /// Segments that these owners wrote for `id` are dead at once.
    pub fn partially_completed(
        &self,
        id: CheckpointId,
        fallbacks: &Fallbacks,
        retained: &Retained,
    ) -> Result<()> {
        match retained.checkpoints.get(&id) {
            Some(seen) if seen != fallbacks => Err(Error::invalid_input(format!(
                "checkpoint {id} completed with {} fallbacks, but its view has {}",
                fallbacks.len(),
                seen.len()
            ))),
            // It was retained at the moment of this message, even if later decisions dropped it.
            None => Err(Error::invalid_input(format!(
                "checkpoint {id} completed, but its view does not retain it"
            ))),
            Some(_) => self.message(id, retained),
        }
    }

    /// The attempt ended without a checkpoint.
    pub fn aborted(&self, id: CheckpointId, retained: &Retained) -> Result<()> {
        self.without(id, "was aborted", retained)
    }

    /// The checkpoint is not retained any more.
    pub fn subsumed(&self, id: CheckpointId, retained: &Retained) -> Result<()> {
        self.without(id, "was subsumed", retained)
    }

    fn without(&self, id: CheckpointId, what: &str, retained: &Retained) -> Result<()> {
        if retained.checkpoints.contains_key(&id) {
            return Err(Error::invalid_input(format!(
                "checkpoint {id} {what}, but its view retains it"
            )));
        }
        self.message(id, retained)
    }

    fn message(&self, id: CheckpointId, retained: &Retained) -> Result<()> {
        self.upkeep.check_ours()?;
        // Regions read their states at the beginning of an attempt.
        if let Some(opened) = &self.opened {
            opened.clear();
        }
        let about = |e: Error| e.context(format!("message about checkpoint {id}"));
        if id > retained.decided {
            return Err(about(Error::invalid_input(format!(
                "the last decision in its view is {}",
                retained.decided
            ))));
        }
        retained.check().map_err(about)?;
        match self.learn() {
            // The message is lost: the next one repeats it.
            Err(e) if e.kind() == ErrorKind::Storage => return Ok(()),
            learned => learned.map_err(about)?,
        }
        {
            let mut registry = self.shared.registry.lock();
            registry.ledger.merge(retained).map_err(about)?;
            self.tables.prune(retained.decided, &mut registry.ledger);
        }
        self.upkeep.settle(Occasion::Message);
        Ok(())
    }
}
