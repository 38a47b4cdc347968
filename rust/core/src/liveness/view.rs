//! What a manager knows about the retained checkpoints, from absolute messages in any order.

use std::collections::{BTreeMap, BTreeSet};

use super::restored::RestoredCheckpoint;
use super::rule::Evidence;
use crate::error::{Error, Result};
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

impl Retained {
    /// Refuses what cannot be the truth of any moment.
    ///
    /// # Errors
    /// `InvalidInput` for a checkpoint newer than the last decision; for an origin that is not older
    /// than the checkpoint it is named in; for an origin in which the owner itself fell back.
    pub fn check(&self) -> Result<()> {
        if let Some(newest) = self.checkpoints.keys().next_back()
            && *newest > self.decided
        {
            return Err(Error::invalid_input(format!(
                "a view knows checkpoint {newest}, but its last decision is {}",
                self.decided
            )));
        }
        for (id, owner, origin) in self.fallbacks() {
            if origin >= id {
                return Err(Error::invalid_input(format!(
                    "checkpoint {id} names {origin} as the origin of {owner}: the origin of an owner \
                     that fell back is older than the checkpoint"
                )));
            }
            check_origin(&self.checkpoints, id, owner, origin)?;
        }
        Ok(())
    }

    fn fallbacks(&self) -> impl Iterator<Item = (CheckpointId, &Owner, CheckpointId)> {
        self.checkpoints.iter().flat_map(|(id, fallbacks)| {
            let entries = fallbacks.iter();
            entries.map(|(owner, origin)| (*id, owner, *origin))
        })
    }
}

/// An origin is the checkpoint whose snapshot made the state, so the owner did not fall back in it.
fn check_origin(
    known: &BTreeMap<CheckpointId, Fallbacks>,
    id: CheckpointId,
    owner: &Owner,
    origin: CheckpointId,
) -> Result<()> {
    match known.get(&origin).and_then(|other| other.get(owner)) {
        None => Ok(()),
        Some(first) => Err(Error::invalid_input(format!(
            "checkpoint {id} names {origin} as the origin of {owner}, but in checkpoint {origin} it \
             fell back to {first}: name the checkpoint whose snapshot made the state"
        ))),
    }
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
    /// What these checkpoints tell, if they are all that are retained.
    ///
    /// # Errors
    /// As [`RestoredCheckpoint::check`].
    pub fn of(checkpoints: &[RestoredCheckpoint]) -> Result<Self> {
        let mut view = Self::default();
        for checkpoint in checkpoints {
            checkpoint.check()?;
            view.restore(checkpoint.id, checkpoint.fallbacks());
        }
        Ok(view)
    }

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

    /// Refuses a message that contradicts what is known. A checkpoint never changes, so two messages
    /// about it can only differ in what they do not mention.
    ///
    /// # Errors
    /// `InvalidInput` when it names another origin of an owner in some checkpoint, or an origin in
    /// which the owner is known to have fallen back.
    pub fn check(&self, message: &Retained) -> Result<()> {
        if self.decided > Some(message.decided) {
            // Too late to have any effect.
            return Ok(());
        }
        for (id, owner, origin) in message.fallbacks() {
            let known = self.retained.get(&id).and_then(|known| known.get(owner));
            if let Some(known) = known.filter(|known| **known != origin) {
                return Err(Error::invalid_input(format!(
                    "checkpoint {id} names {origin} as the origin of {owner}, an earlier message \
                     about it named {known}"
                )));
            }
            check_origin(&self.retained, id, owner, origin)?;
        }
        Ok(())
    }

    /// Takes in a message. One with an older decision is ignored. Views of the same decision differ
    /// only by checkpoints that stopped being retained meanwhile, so their intersection is newest.
    pub(super) fn merge(&mut self, message: &Retained) -> Change {
        let mut retained = std::mem::take(&mut self.retained);
        let before = retained.keys().copied().collect();
        let newest = newest_fallen(&retained);
        if self.decided < Some(message.decided) {
            retained.retain(|id, known| message.checkpoints.get(id) == Some(known));
            for (id, fallbacks) in &message.checkpoints {
                // Most are known already.
                if !retained.contains_key(id) {
                    retained.insert(*id, fallbacks.clone());
                }
            }
        } else if self.decided == Some(message.decided) {
            retained.retain(|id, _| message.checkpoints.contains_key(id));
        }
        self.become_view(
            self.decided.max(Some(message.decided)),
            retained,
            &before,
            &newest,
        )
    }

    /// Takes in a checkpoint that is restored. Restoring is an order, not a message that may be
    /// late: the checkpoint is retained until a message says otherwise.
    pub(super) fn restore(&mut self, id: CheckpointId, fallbacks: Fallbacks) -> Change {
        let mut retained = std::mem::take(&mut self.retained);
        let before = retained.keys().copied().collect();
        let newest = newest_fallen(&retained);
        retained.entry(id).or_default().extend(fallbacks);
        self.become_view(self.decided.max(Some(id)), retained, &before, &newest)
    }

    /// Origins of the owner's state over all retained checkpoints.
    pub fn live_set(&self, owner: &Owner) -> &BTreeSet<CheckpointId> {
        self.special.get(owner).unwrap_or(&self.common)
    }

    /// The owner fell back in some retained checkpoint, so its live set is its own.
    pub(super) fn is_special(&self, owner: &Owner) -> bool {
        self.special.contains_key(owner)
    }

    /// The newest retained checkpoint has an older state for the owner.
    pub fn fell_back(&self, owner: &Owner) -> bool {
        let newest = self.retained.last_key_value();
        newest.is_some_and(|(id, fallbacks)| fallbacks.get(owner).is_some_and(|o| o != id))
    }

    fn become_view(
        &mut self,
        decided: Option<CheckpointId>,
        retained: BTreeMap<CheckpointId, Fallbacks>,
        ids_before: &BTreeSet<CheckpointId>,
        fallen_before: &BTreeSet<Owner>,
    ) -> Change {
        let decided_before = std::mem::replace(&mut self.decided, decided);
        self.retained = retained;
        self.common = self.retained.keys().copied().collect();
        let special = std::mem::replace(&mut self.special, special(&self.retained));
        let fallen = newest_fallen(&self.retained);
        let moved = |(owner, set): &(&Owner, &BTreeSet<CheckpointId>)| {
            self.special.get(*owner) != Some(*set)
        };
        let gone = special.iter().filter(moved).map(|(owner, _)| owner);
        let came = self
            .special
            .keys()
            .filter(|owner| !special.contains_key(*owner));
        Change {
            decided_before,
            left: ids_before.difference(&self.common).copied().collect(),
            moved: gone.chain(came).cloned().collect(),
            fallen: fallen
                .symmetric_difference(fallen_before)
                .cloned()
                .collect(),
        }
    }
}

impl Evidence for View {
    fn is_open(&self, attempt: CheckpointId) -> bool {
        !self.is_decided(attempt)
    }

    fn is_needed(&self, owner: &Owner, first: CheckpointId, last: CheckpointId) -> bool {
        self.live_set(owner).range(first..=last).next().is_some()
    }
}

/// What a message changed: whose segments may be judged differently than before.
#[derive(Debug, Default)]
pub(super) struct Change {
    /// The last decision before.
    pub decided_before: Option<CheckpointId>,
    /// Checkpoints that are retained no more.
    pub left: Vec<CheckpointId>,
    /// Owners whose live set is not the common one, or was not, and is another than before.
    pub moved: Vec<Owner>,
    /// Owners that fell back in the newest checkpoint now and not before, or before and not now.
    pub fallen: Vec<Owner>,
}

/// Live sets of the owners that fell back in some retained checkpoint.
fn special(
    retained: &BTreeMap<CheckpointId, Fallbacks>,
) -> BTreeMap<Owner, BTreeSet<CheckpointId>> {
    let fallen: BTreeSet<&Owner> = retained.values().flat_map(|f| f.keys()).collect();
    let live_set = |owner: &Owner| {
        let origin = |(id, fallbacks): (&CheckpointId, &Fallbacks)| {
            fallbacks.get(owner).copied().unwrap_or(*id)
        };
        retained.iter().map(origin).collect()
    };
    let owners = fallen.into_iter();
    owners
        .map(|owner| (owner.clone(), live_set(owner)))
        .collect()
}

/// Owners that fell back in the newest retained checkpoint.
fn newest_fallen(retained: &BTreeMap<CheckpointId, Fallbacks>) -> BTreeSet<Owner> {
    let newest = retained.last_key_value().into_iter();
    newest
        .flat_map(|(id, fallbacks)| fallbacks.iter().filter(move |(_, origin)| *origin != id))
        .map(|(owner, _)| owner.clone())
        .collect()
}
