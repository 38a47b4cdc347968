//! What a manager knows about the retained checkpoints, from absolute messages in any order.

use std::collections::{BTreeMap, BTreeSet};

use crate::ids::{CheckpointId, Owner};

/// Owners that fell back in a checkpoint, and the origin of the state it has for them instead.
pub type Fallbacks = BTreeMap<Owner, CheckpointId>;

/// Everything retained at some moment. Every message carries one, so a lost message is repaired by
/// the next one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retained {
    /// The last checkpoint attempt that was decided (completed, partially completed or aborted).
    pub decided: CheckpointId,
    /// Per retained checkpoint the owners that fell back; all others have the checkpoint as origin.
    pub checkpoints: BTreeMap<CheckpointId, Fallbacks>,
}

/// The newest view that was received.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    decided: Option<CheckpointId>,
    retained: BTreeMap<CheckpointId, Fallbacks>,
    common: BTreeSet<CheckpointId>,
    special: BTreeMap<Owner, BTreeSet<CheckpointId>>,
}

impl View {
    /// The last decided checkpoint attempt.
    pub fn decided(&self) -> Option<CheckpointId> {
        self.decided
    }

    /// Retained checkpoints, oldest first.
    pub fn retained(&self) -> impl Iterator<Item = CheckpointId> {
        self.retained.keys().copied()
    }

    /// The attempt was decided, or can never be: a later one was.
    pub fn is_decided(&self, id: CheckpointId) -> bool {
        self.decided.is_some_and(|decided| id <= decided)
    }

    /// Takes in a message. One with an older decision is ignored. Views of the same decision differ
    /// only by checkpoints that stopped being retained meanwhile, so their intersection is newest.
    pub fn merge(&mut self, message: &Retained) {
        if self.decided < Some(message.decided) {
            self.decided = Some(message.decided);
            self.retained.clone_from(&message.checkpoints);
        } else if self.decided == Some(message.decided) {
            self.retained
                .retain(|id, _| message.checkpoints.contains_key(id));
        }
        self.derive();
    }

    /// Takes in a checkpoint that is restored. Restoring is an order, not a message that may be
    /// late: the checkpoint is retained until a message says otherwise.
    pub fn restore(&mut self, id: CheckpointId, fallbacks: Fallbacks) {
        self.decided = self.decided.max(Some(id));
        self.retained.entry(id).or_default().extend(fallbacks);
        self.derive();
    }

    /// Origins of the owner's state over all retained checkpoints.
    pub fn live_set(&self, owner: &Owner) -> &BTreeSet<CheckpointId> {
        self.special.get(owner).unwrap_or(&self.common)
    }

    /// The newest retained checkpoint has an older state for the owner.
    pub fn fell_back(&self, owner: &Owner) -> bool {
        let newest = self.retained.last_key_value();
        newest.is_some_and(|(id, fallbacks)| fallbacks.get(owner).is_some_and(|o| o != id))
    }

    fn derive(&mut self) {
        self.common = self.retained.keys().copied().collect();
        let fallen: BTreeSet<&Owner> = self.retained.values().flat_map(|f| f.keys()).collect();
        self.special = fallen
            .into_iter()
            .map(|owner| {
                let origin = |(id, fallbacks): (&CheckpointId, &Fallbacks)| {
                    fallbacks.get(owner).copied().unwrap_or(*id)
                };
                (owner.clone(), self.retained.iter().map(origin).collect())
            })
            .collect();
    }
}
