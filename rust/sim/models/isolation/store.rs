//! The durable state of a partition, and its changes by a task.

use crate::model::{Model, Mutant};

/// The rows of this batch are missing in every partition. Its pass still evicts state.
const BATCH_WITHOUT_ROWS: u8 = 2;

/// The content of a version of a partition's store, by the batches that it came from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Store {
    /// Batches that the content reflects, in the order of their passes.
    pub applied: Vec<u8>,
    /// Batches whose input is stored instead.
    pub pending: Vec<u8>,
}

impl Store {
    /// The same content, and the input of one more batch.
    pub fn park(&self, batch: u8, model: &Model) -> Self {
        let mut parked = self.clone();
        parked.pending.push(batch);
        if model.is(Mutant::InputNamedByPartition) {
            parked.pending.fill(batch);
        }
        parked
    }

    /// A pass for each pending batch, then the pass of this batch, in one commit.
    pub fn replay(&self, batch: u8, model: &Model) -> Self {
        let mut passes = self.pending.clone();
        if model.is(Mutant::PassesReversed) {
            passes.reverse();
        }
        if model.is(Mutant::SkipsBatchWithoutRows) {
            passes.retain(|pending| *pending != BATCH_WITHOUT_ROWS);
        }
        passes.push(batch);
        let mut replayed = self.clone();
        replayed.applied.extend(passes);
        if !model.is(Mutant::InputStaysPending) {
            replayed.pending.clear();
        }
        replayed
    }
}
