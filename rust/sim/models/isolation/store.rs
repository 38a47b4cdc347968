//! The durable state of a partition, and its changes by a task.

use crate::model::{KEYS, Model, Mutant};
use crate::tasks::{Keys, has_key, is_part};

/// The rows of this batch are missing in every partition. Its pass still evicts state.
const BATCH_WITHOUT_ROWS: u8 = 2;

/// The content of a version of a partition's store.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Store {
    pub keys: [Key; KEYS],
}

/// The state of a key, by the batches that it came from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Key {
    /// Batches that the content reflects, in the order of their passes.
    pub applied: Vec<u8>,
    /// Batches whose input is stored instead.
    pub pending: Vec<u8>,
}

impl Store {
    pub fn is_parked(&self) -> bool {
        self.pending().next().is_some()
    }

    /// Batches whose input is pending, for some key each.
    pub fn pending(&self) -> impl Iterator<Item = u8> {
        self.keys.iter().flat_map(|key| key.pending.iter().copied())
    }

    /// Keys with pending input.
    pub fn waiting(&self) -> Keys {
        let keys = self.keys.iter().enumerate();
        let waiting = keys.filter(|(_, key)| !key.pending.is_empty());
        waiting.map(|(k, _)| 1 << k).sum()
    }

    /// The next version. The input of keys that wait is stored. All others have a pass for each pending
    /// batch, then the pass of this batch, in one commit.
    pub fn next(&self, batch: u8, waits: Keys, model: &Model) -> Self {
        let mut next = self.clone();
        for (k, key) in next.keys.iter_mut().enumerate() {
            if !has_key(waits, k) {
                key.replay(batch, waits, model);
            } else if is_part(waits) && model.is(Mutant::NewRowsOvertake) {
                key.applied.push(batch);
            } else {
                key.park(batch, waits, model);
            }
        }
        next
    }
}

impl Key {
    fn park(&mut self, batch: u8, waits: Keys, model: &Model) {
        if is_part(waits) && model.is(Mutant::PartIsNotKept) {
            self.pending.clear();
        }
        self.pending.push(batch);
        if model.is(Mutant::InputNamedByPartition) {
            self.pending.fill(batch);
        }
    }

    fn replay(&mut self, batch: u8, waits: Keys, model: &Model) {
        let mut passes = self.pending.clone();
        if model.is(Mutant::PassesReversed) {
            passes.reverse();
        }
        if model.is(Mutant::SkipsBatchWithoutRows) {
            passes.retain(|pending| *pending != BATCH_WITHOUT_ROWS);
        }
        passes.push(batch);
        self.applied.extend(passes);
        let keeps_all = is_part(waits) && model.is(Mutant::PartKeepsAll);
        if !model.is(Mutant::InputStaysPending) && !keeps_all {
            self.pending.clear();
        }
    }
}
