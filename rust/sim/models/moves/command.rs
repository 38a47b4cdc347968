//! Commands that publish a batch without input, and the one that deletes old files.

use crate::checkpoint::{
    BATCHES, Checkpoint, Committed, NewState, OldVersion, Planned, Provider, Record, bit,
};
use crate::model::{Model, Mutant, PARTS};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// From the old provider to the new one.
    Adopt,
    /// From the new provider to the old one.
    Leave,
    /// Back to the old provider's files of the time before the adoption.
    Undo,
    /// Deletes these files.
    Purge,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Command {
    pub kind: Kind,
    /// The batch that it publishes.
    batch: usize,
    /// The batch whose state it reads.
    base: usize,
    phase: Phase,
    /// Rows of the source up to the end of that batch.
    rows: u8,
    /// Versions or partitions that it wrote.
    parts: u8,
    content: u8,
    record: Record,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Phase {
    Write,
    Plan,
    LookAgain,
    Commit,
    Purge,
    /// Only in a mutant.
    DeleteCommit,
    DeletePlan,
}

/// The phases of a move, in order. The new provider names nothing twice, so its state comes first and
/// a killed command leaves garbage. The old one names versions by the batch, so a command writes none
/// before the batch is its own.
const fn phases(model: &Model, target: Provider) -> &'static [Phase] {
    match (model.mutant, target) {
        (Some(Mutant::NoPlan), _) => &[Phase::Write, Phase::Commit],
        (Some(Mutant::CommitsFirst), _) => &[Phase::Write, Phase::Commit, Phase::Plan],
        (Some(Mutant::DoesNotLookAgain), _) => &[Phase::Write, Phase::Plan, Phase::Commit],
        (Some(Mutant::WritesBeforePlan), _) | (_, Provider::New) => {
            &[Phase::Write, Phase::Plan, Phase::LookAgain, Phase::Commit]
        }
        (_, Provider::Old) => &[Phase::Plan, Phase::LookAgain, Phase::Write, Phase::Commit],
    }
}

/// The end of a step.
pub enum After {
    GoesOn(Command),
    /// The command says why it does not move the checkpoint.
    Refused,
    /// The command says that it moved the checkpoint with this batch.
    Done(usize),
}

impl Kind {
    fn target(self) -> Provider {
        match self {
            Self::Adopt => Provider::New,
            Self::Leave | Self::Undo | Self::Purge => Provider::Old,
        }
    }
}

impl Command {
    /// Reads the logs. Returns None if the command is refused.
    pub fn start(model: &Model, checkpoint: &Checkpoint, kind: Kind) -> Option<Self> {
        let (planned, plan) = (checkpoint.planned(), checkpoint.newest_plan());
        let committed = checkpoint.committed();
        let is_own = plan.is_move && plan.provider == kind.target();
        let is_pending = planned == committed + 1 && (is_own || model.is(Mutant::TakesPlanned));
        if kind == Kind::Purge {
            return Self::start_purge(model, checkpoint);
        }
        if is_pending && model.is(Mutant::RefusesPending) {
            return None;
        }
        let batch = if is_pending { planned } else { planned + 1 };
        if batch == BATCHES
            || (!is_pending && (committed != planned || plan.provider == kind.target()))
        {
            return None;
        }
        let base = match kind {
            Kind::Undo => Self::base_of_undo(model, checkpoint, batch)?,
            _ => batch - 1,
        };
        let phase = if kind == Kind::Undo && model.is(Mutant::UndoDeletes) {
            Phase::DeleteCommit
        } else {
            *phases(model, kind.target()).first()?
        };
        Some(Self {
            kind,
            batch,
            base,
            phase,
            rows: checkpoint.offsets[batch - 1]?.rows,
            parts: 0,
            content: 0,
            record: checkpoint.record(),
        })
    }

    /// Nothing but the adoption itself may have been published since.
    fn base_of_undo(model: &Model, checkpoint: &Checkpoint, batch: usize) -> Option<usize> {
        let is_adoption = checkpoint.offsets[batch - 1]
            .is_some_and(|plan| plan.is_move && plan.provider == Provider::New);
        let is_first = is_adoption || model.is(Mutant::UndoesRows);
        let base = checkpoint.old.iter().rposition(Option::is_some);
        base.filter(|base| is_first && *base < batch)
    }

    /// A batch after the adoption makes it impossible to undo it.
    fn start_purge(model: &Model, checkpoint: &Checkpoint) -> Option<Self> {
        let plan = checkpoint.newest_plan();
        let is_behind = !plan.is_move || model.is(Mutant::PurgesBeforeRows);
        let state = checkpoint.commits[checkpoint.committed()]?.state?;
        (plan.provider == Provider::New && is_behind).then_some(Self {
            kind: Kind::Purge,
            batch: 0,
            base: 0,
            phase: Phase::Purge,
            rows: 0,
            parts: 0,
            content: 0,
            record: state.record,
        })
    }

    pub fn step(mut self, model: &Model, checkpoint: &mut Checkpoint) -> After {
        match self.phase {
            Phase::Write => {
                if !self.write(checkpoint) {
                    return After::Refused;
                }
                self.parts += 1;
                let is_half = model.is(Mutant::CommitsHalf) && self.kind == Kind::Adopt;
                if self.parts == PARTS || is_half {
                    self.next(model)
                } else {
                    After::GoesOn(self)
                }
            }
            Phase::Plan => {
                if self.plan(model, checkpoint) {
                    self.next(model)
                } else {
                    After::Refused
                }
            }
            Phase::LookAgain if checkpoint.planned() != self.batch => After::Refused,
            Phase::LookAgain => self.next(model),
            Phase::Commit => {
                self.commit(checkpoint);
                self.next(model)
            }
            Phase::Purge => {
                let all = checkpoint.record();
                let purged = if model.is(Mutant::PurgesAll) {
                    all
                } else {
                    self.record
                };
                for batch in (0..BATCHES).filter(|batch| purged.versions & bit(*batch) != 0) {
                    checkpoint.old[batch] = None;
                }
                checkpoint.files &= !purged.files;
                After::Refused
            }
            Phase::DeleteCommit => {
                checkpoint.commits[self.batch - 1] = None;
                self.phase = Phase::DeletePlan;
                After::GoesOn(self)
            }
            Phase::DeletePlan => {
                checkpoint.offsets[self.batch - 1] = None;
                After::Refused
            }
        }
    }

    fn next(mut self, model: &Model) -> After {
        let mut phases = phases(model, self.kind.target()).iter();
        phases.find(|phase| **phase == self.phase);
        match phases.next() {
            Some(phase) => {
                self.phase = *phase;
                After::GoesOn(self)
            }
            None => After::Done(self.batch),
        }
    }

    /// Writes a partition, or a version of the old provider: the one that the batch opens, then the one
    /// that it makes. Returns whether there is something to read.
    fn write(&mut self, checkpoint: &mut Checkpoint) -> bool {
        let from = if self.kind == Kind::Leave {
            Provider::New
        } else {
            Provider::Old
        };
        let Some(content) = checkpoint.load(self.base, from) else {
            return false;
        };
        self.content = content;
        if self.kind.target() == Provider::Old {
            let files = match checkpoint.old_version(self.base) {
                Some(old) if self.kind == Kind::Undo => old.files,
                _ => self.batch,
            };
            checkpoint.files |= bit(files);
            let version = self.batch - 1 + usize::from(self.parts);
            checkpoint.old[version] = Some(OldVersion { content, files });
        }
        true
    }

    /// Returns whether the batch is planned as this command, or the same one elsewhere, plans it.
    fn plan(&self, model: &Model, checkpoint: &mut Checkpoint) -> bool {
        let plan = Planned {
            rows: self.rows + u8::from(model.is(Mutant::PlanTakesRows)),
            provider: self.kind.target(),
            is_move: true,
        };
        if model.is(Mutant::PlanReplaces) {
            checkpoint.offsets[self.batch] = Some(plan);
        }
        checkpoint.plan(self.batch, plan)
            || checkpoint.offsets[self.batch] == Some(plan)
            || model.is(Mutant::TakesPlanned)
    }

    /// Another command may have committed the same batch.
    fn commit(&self, checkpoint: &mut Checkpoint) {
        let state = (self.kind.target() == Provider::New).then_some(NewState {
            content: self.content,
            parts: self.parts,
            record: self.record,
        });
        checkpoint.commit(self.batch, Committed { state });
    }
}
