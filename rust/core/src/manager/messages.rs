//! Messages about checkpoints, and the execution of what follows from them.

use std::collections::BTreeSet;

use super::snapshot_manager::SnapshotManager;
use crate::error::{Error, Result};
use crate::ids::CheckpointId;
use crate::liveness::{Actions, Fallbacks, Retained};

impl SnapshotManager {
    /// The attempt started. Tells nothing that `append` would not; failed deletes are tried again.
    pub fn started(&self, _id: CheckpointId) {
        self.settle();
    }

    /// The checkpoint completed with every owner's state of `id`.
    ///
    /// # Errors
    /// `InvalidInput` when the view cannot be one of that moment; nothing is changed then.
    pub fn completed(&self, id: CheckpointId, retained: &Retained) -> Result<()> {
        self.partially_completed(id, &Fallbacks::new(), retained)
    }

    /// The checkpoint completed, with the state of an older origin for the owners in `fallbacks`:
    /// what these owners wrote for `id` is dead at once.
    ///
    /// # Errors
    /// `InvalidInput` when the view cannot be one of that moment; nothing is changed then.
    pub fn partially_completed(
        &self,
        id: CheckpointId,
        fallbacks: &Fallbacks,
        retained: &Retained,
    ) -> Result<()> {
        match retained.checkpoints.get(&id) {
            Some(told) if told != fallbacks => Err(Error::invalid_input(format!(
                "checkpoint {id} completed with {} fallbacks, but its view has {}",
                fallbacks.len(),
                told.len()
            ))),
            // Whatever was decided since: it was retained at the moment of this message.
            None => Err(Error::invalid_input(format!(
                "checkpoint {id} completed, but its view does not retain it"
            ))),
            Some(_) => self.message(id, retained),
        }
    }

    /// The attempt ended without a checkpoint.
    ///
    /// # Errors
    /// `InvalidInput` when the view cannot be one of that moment; nothing is changed then.
    pub fn aborted(&self, id: CheckpointId, retained: &Retained) -> Result<()> {
        self.without(id, "was aborted", retained)
    }

    /// The checkpoint is not retained any more.
    ///
    /// # Errors
    /// `InvalidInput` when the view cannot be one of that moment; nothing is changed then.
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
        let about = |e: Error| e.context(format!("message about checkpoint {id}"));
        if id > retained.decided {
            return Err(about(Error::invalid_input(format!(
                "the last decision in its view is {}",
                retained.decided
            ))));
        }
        retained.check().map_err(about)?;
        {
            let view = &mut self.shared.registry.lock().view;
            view.check(retained).map_err(about)?;
            view.merge(retained);
        }
        self.settle();
        Ok(())
    }

    /// Decides until nothing is left to do, and does it. Every file is tried once per call, so a
    /// storage that refuses a delete cannot hold the caller.
    pub(super) fn settle(&self) {
        let mut tried = BTreeSet::new();
        loop {
            let actions = {
                let mut registry = self.shared.registry.lock();
                let mut actions = registry.settle(self.max_space_amplification);
                let lists = [&mut actions.abandon, &mut actions.seal, &mut actions.delete];
                for (what, list) in lists.into_iter().enumerate() {
                    list.retain(|file| tried.insert((what, *file)));
                }
                for file in &actions.delete {
                    if let Some(facts) = registry.files.get_mut(file) {
                        facts.deleting = true;
                    }
                }
                actions
            };
            if actions.abandon.is_empty() && actions.seal.is_empty() && actions.delete.is_empty() {
                return;
            }
            self.execute(&actions);
        }
    }

    /// Outside every lock of ours.
    fn execute(&self, actions: &Actions) {
        for file in &actions.abandon {
            self.writer
                .abandon(*file, || self.shared.registry.lock().is_needed(*file));
        }
        // A seal that fails leaves a closed file; whoever needed its durability was told by persist.
        let _ = self
            .writer
            .seal_files(&actions.seal.iter().copied().collect());
        for file in &actions.delete {
            let deleted = self.storage.delete(&file.file_name());
            let mut registry = self.shared.registry.lock();
            if deleted.is_ok() {
                registry.deletes += 1;
                registry.files.remove(file);
                drop(registry);
                self.writer.forget(*file);
            } else {
                registry.delete_failures += 1;
                if let Some(facts) = registry.files.get_mut(file) {
                    facts.deleting = false;
                }
            }
        }
    }
}
