//! Spark's driver. It takes the provider from the newest entry of `offsets`.

use crate::checkpoint::{Checkpoint, Committed, NewState, Planned, Provider, ROWS, Record, rows};
use crate::model::{Model, Mutant, PARTS};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Driver {
    batch: usize,
    provider: Provider,
    phase: Phase,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Phase {
    Idle,
    Planned,
    /// With the content of the state that the batch left.
    Ran(u8),
}

impl Driver {
    /// Returns None if the query does not start.
    pub fn start(model: &Model, checkpoint: &Checkpoint) -> Option<Self> {
        let (batch, plan) = (checkpoint.planned(), checkpoint.newest_plan());
        let committed = checkpoint.committed();
        let is_planned = batch == committed + 1;
        if !is_planned && batch != committed {
            return None;
        }
        let has_state = checkpoint.commits[committed]?.state.is_some();
        let is_pending = is_planned && plan.is_move && plan.provider == Provider::New && !has_state;
        if is_pending && !model.is(Mutant::DriverTakesPending) {
            return None;
        }
        Some(Self {
            batch,
            provider: plan.provider,
            phase: if is_planned {
                Phase::Planned
            } else {
                Phase::Idle
            },
        })
    }

    pub fn has_work(&self, checkpoint: &Checkpoint) -> bool {
        self.phase != Phase::Idle || checkpoint.newest_plan().rows < ROWS
    }

    /// Takes the next step. Returns None if the query fails.
    pub fn step(mut self, model: &Model, checkpoint: &mut Checkpoint) -> Option<Self> {
        match self.phase {
            Phase::Idle => {
                let rows = checkpoint.offsets[self.batch]?.rows + 1;
                self.batch += 1;
                let plan = Planned {
                    rows,
                    provider: self.provider,
                    is_move: false,
                };
                self.phase = Phase::Planned;
                checkpoint.plan(self.batch, plan).then_some(self)
            }
            Phase::Planned => {
                let before = checkpoint.load(self.batch - 1, self.provider);
                let empty = model.is(Mutant::DriverTakesPending).then_some(0);
                let from = checkpoint.offsets[self.batch - 1]?.rows;
                let to = checkpoint.offsets[self.batch]?.rows;
                let content = before.or(empty)? | (rows(to) & !rows(from));
                if self.provider == Provider::Old {
                    let mut version = checkpoint.old_version(self.batch - 1)?;
                    version.content = content;
                    checkpoint.old[self.batch] = Some(version);
                }
                checkpoint.write_sink(self.batch, from, to);
                self.phase = Phase::Ran(content);
                Some(self)
            }
            Phase::Ran(content) => {
                let state = (self.provider == Provider::New).then_some(NewState {
                    content,
                    parts: PARTS,
                    record: self.record(checkpoint),
                });
                if !checkpoint.commit(self.batch, Committed { state }) {
                    return None;
                }
                checkpoint.forget(self.batch, self.provider);
                self.phase = Phase::Idle;
                Some(self)
            }
        }
    }

    /// The record of an adoption stays with the state.
    fn record(&self, checkpoint: &Checkpoint) -> Record {
        let before = checkpoint.commits[self.batch - 1];
        let state = before.and_then(|entry| entry.state);
        state.map(|state| state.record).unwrap_or_default()
    }
}
