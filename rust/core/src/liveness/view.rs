//! A manager's view of the retained checkpoints, from absolute messages in any order.

use std::collections::{BTreeMap, BTreeSet};

use super::facts::Fallbacks;
use super::restored::RestoredCheckpoint;
use super::rule::Evidence;
use crate::error::{Error, Result};
use crate::ids::{CheckpointId, Owner};

/// All retained checkpoints of a moment. So the next message repairs a lost message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retained {
    /// The last checkpoint attempt that was decided (completed, partially completed or aborted).
    pub decided: CheckpointId,
    /// The owners that fell back, by retained checkpoint: the origin of all other owners.
    pub checkpoints: BTreeMap<CheckpointId, Fallbacks>,
}

impl Retained {
    /// Refuses a message that cannot be true at any moment.
    ///
    /// # Errors
    /// `InvalidInput` for a checkpoint newer than the last decision, or an origin that is not older
    /// than its checkpoint or in which the owner itself fell back.
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

/// Refuses an origin in which the owner itself fell back: the origin's snapshot made the state.
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
    /// The view if these are all retained checkpoints.
    pub fn of(checkpoints: &[RestoredCheckpoint]) -> Result<Self> {
        let mut view = Self::default();
        checkpoints.iter().try_for_each(RestoredCheckpoint::check)?;
        view.restore(checkpoints.iter().map(|one| (one.id, one.fallbacks())));
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

    /// Returns whether this attempt or a later one was decided.
    pub fn is_decided(&self, id: CheckpointId) -> bool {
        self.decided.is_some_and(|decided| id <= decided)
    }

    /// Refuses a message that contradicts this view. A checkpoint never changes, so two messages
    /// about it can only differ in owners that they do not mention.
    ///
    /// # Errors
    /// `InvalidInput` for another origin of an owner, or an origin in which the owner fell back.
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

    /// Takes in a message, unless its decision is older. Two messages of the same decision differ
    /// only by checkpoints that are retained no more, so their intersection is newest.
    pub(super) fn merge(&mut self, message: &Retained) -> Change {
        let before = self.decided;
        let now = before.max(Some(message.decided));
        self.change(now, |retained| {
            if before < now {
                retained.retain(|id, known| message.checkpoints.get(id) == Some(known));
                for (id, fallbacks) in &message.checkpoints {
                    // Most are known already.
                    if !retained.contains_key(id) {
                        retained.insert(*id, fallbacks.clone());
                    }
                }
            } else if before == Some(message.decided) {
                retained.retain(|id, _| message.checkpoints.contains_key(id));
            }
        })
    }

    /// Takes in restored checkpoints. Restoring is an order, not a message that may be late: they
    /// are retained until a message says otherwise.
    pub(super) fn restore(
        &mut self,
        checkpoints: impl IntoIterator<Item = (CheckpointId, Fallbacks)>,
    ) -> Change {
        let checkpoints: BTreeMap<_, _> = checkpoints.into_iter().collect();
        let newest = checkpoints.keys().next_back().copied();
        self.change(self.decided.max(newest), |retained| {
            for (id, fallbacks) in checkpoints {
                retained.entry(id).or_default().extend(fallbacks);
            }
        })
    }

    /// Notes that attempts up to this one are decided.
    pub(super) fn note_decided(&mut self, id: Option<CheckpointId>) -> Change {
        self.change(self.decided.max(id), |_| {})
    }

    /// Origins of the owner's state over all retained checkpoints.
    pub fn live_set(&self, owner: &Owner) -> &BTreeSet<CheckpointId> {
        self.special.get(owner).unwrap_or(&self.common)
    }

    /// Returns whether the owner fell back in a retained checkpoint, and has a live set of its own.
    pub(super) fn is_special(&self, owner: &Owner) -> bool {
        self.special.contains_key(owner)
    }

    /// Returns whether the newest retained checkpoint has an older state for the owner.
    pub fn fell_back(&self, owner: &Owner) -> bool {
        let newest = self.retained.last_key_value();
        newest.is_some_and(|(id, fallbacks)| fallbacks.get(owner).is_some_and(|o| o != id))
    }

    fn change(
        &mut self,
        decided: Option<CheckpointId>,
        act: impl FnOnce(&mut BTreeMap<CheckpointId, Fallbacks>),
    ) -> Change {
        let fallen_before = newest_fallen(&self.retained);
        act(&mut self.retained);
        let decided_before = std::mem::replace(&mut self.decided, decided);
        let common = self.retained.keys().copied().collect();
        let ids_before = std::mem::replace(&mut self.common, common);
        let special = std::mem::replace(&mut self.special, special(&self.retained));
        let moved = |(owner, set): &(&Owner, &BTreeSet<CheckpointId>)| {
            self.special.get(*owner) != Some(*set)
        };
        let gone = special.iter().filter(moved).map(|(owner, _)| owner);
        let now_special = self.special.keys();
        let came = now_special.filter(|owner| !special.contains_key(*owner));
        let fallen = newest_fallen(&self.retained);
        let fallen = fallen.symmetric_difference(&fallen_before);
        Change {
            decided_before,
            left: ids_before.difference(&self.common).copied().collect(),
            moved: gone.chain(came).cloned().collect(),
            fallen: fallen.cloned().collect(),
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

#[derive(Debug, Default)]
pub(super) struct Change {
    pub decided_before: Option<CheckpointId>,
    /// Checkpoints that are retained no more.
    pub left: Vec<CheckpointId>,
    /// Owners whose own live set changed, came or went.
    pub moved: Vec<Owner>,
    /// Owners that fell back in the newest checkpoint either now or before, but not both.
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
