//! Commands, and those that delete leases.

use crate::checkpoint::{BRANCH, Checkpoint, IDS, Lease, OF_BRANCH, PARENT, TAG, bit, floor};
use crate::cleanup::Evidence;
use crate::make::Make;
use crate::model::{Checkpoints, Model, Mutant};

/// A command as it is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Plan {
    Tag { at: usize, batch: u8 },
    Untag { at: usize },
    Branch { batch: u8 },
    BranchOfTag,
    Detach,
}

/// How far a command is. One that is killed stays where it is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Command {
    Waits,
    Makes(Make),
    Deletes(Delete),
    Detaches(Detach),
    Ended,
}

impl Command {
    /// Returns `None` if it cannot begin now.
    pub fn step(self, plan: Plan, model: &Model, checkpoints: &mut Checkpoints) -> Option<Self> {
        match self {
            Self::Waits => Self::start(plan, model, checkpoints),
            Self::Makes(make) => Some(
                make.step(model, checkpoints)
                    .map_or(Self::Ended, Self::Makes),
            ),
            Self::Deletes(delete) => {
                let next = delete.step(model, checkpoints);
                Some(next.map_or(Self::Ended, Self::Deletes))
            }
            Self::Detaches(detach) => {
                let next = detach.step(model, checkpoints);
                Some(next.map_or(Self::Ended, Self::Detaches))
            }
            Self::Ended => None,
        }
    }

    fn start(plan: Plan, model: &Model, checkpoints: &Checkpoints) -> Option<Self> {
        Some(match plan {
            Plan::Untag { at } => Self::Deletes(Delete::new(at, TAG)),
            Plan::Detach => Self::Detaches(Detach::start(model, checkpoints)?),
            _ => Self::Makes(Make::start(plan, model, checkpoints)?),
        })
    }
}

/// Deletes a lease: the record first, and then only marks and copies that were there before.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Delete {
    at: usize,
    name: usize,
    /// Marks and copies, as bits by id.
    listed: Option<(u8, u8)>,
    is_record_gone: bool,
}

impl Delete {
    pub fn new(at: usize, name: usize) -> Self {
        Self {
            at,
            name,
            listed: None,
            is_record_gone: false,
        }
    }

    pub fn step(mut self, model: &Model, checkpoints: &mut Checkpoints) -> Option<Self> {
        let lease = &mut checkpoints.both[self.at].leases[self.name];
        let lists_late = model.is(Mutant::UntagListsLate) && !self.is_record_gone;
        match self.listed {
            None if !lists_late => self.listed = Some(listed(lease, model)),
            _ if !self.is_record_gone => {
                lease.record = None;
                lease.said = None;
                self.is_record_gone = true;
            }
            listed => {
                let (marks, copies) = listed?;
                lease.marks &= !marks;
                for id in (0..IDS).filter(|id| copies & 1 << id != 0) {
                    lease.copies[id] = 0;
                }
                return None;
            }
        }
        Some(self)
    }
}

fn listed(lease: &Lease, model: &Model) -> (u8, u8) {
    let copies = (0..IDS).filter(|id| lease.copies[*id] != 0);
    let all = match model.is(Mutant::UntagKeepsOthers) {
        true => lease.record.map_or(0, |record| bit(record.id)),
        false => u8::MAX,
    };
    (
        lease.marks & all,
        copies.map(|id| 1 << id).sum::<u8>() & all,
    )
}

/// Makes a branch independent of its parent.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Detach {
    Looks(Evidence),
    /// Copies these versions, one in each step.
    Copies(u8),
    Parent,
    Lease(Delete),
}

impl Detach {
    fn start(model: &Model, checkpoints: &Checkpoints) -> Option<Self> {
        let branch = &checkpoints.both[BRANCH];
        let delete = Delete::new(PARENT, OF_BRANCH);
        match branch.until {
            Some(0) => Some(Self::Lease(delete)),
            Some(_) if branch.newest > 0 => Some(Self::Looks(Evidence::begin(model, branch))),
            _ => None,
        }
    }

    fn step(self, model: &Model, checkpoints: &mut Checkpoints) -> Option<Self> {
        let is_lease_first = model.is(Mutant::DetachDropsLeaseBeforeParent);
        let delete = || Self::Lease(Delete::new(PARENT, OF_BRANCH));
        let [parent, branch] = &mut checkpoints.both;
        match self {
            Self::Looks(evidence) if evidence.is_complete() => {
                let all = evidence.needed_until(branch.base, model, branch);
                if model.is(Mutant::DetachDropsLeaseBeforeCopies) {
                    parent.leases[OF_BRANCH].record = None;
                }
                Some(Self::Copies(match model.is(Mutant::DetachIgnoresLeases) {
                    true => all & !(bit(floor(branch.oldest)) - 1),
                    false => all,
                }))
            }
            Self::Looks(mut evidence) => {
                let goes_on = evidence.step(model, branch);
                goes_on.then_some(Self::Looks(evidence))
            }
            Self::Copies(0) if is_lease_first => Some(delete()),
            Self::Copies(0) => Self::Parent.step(model, checkpoints),
            Self::Copies(versions) => {
                let version = versions & versions.wrapping_neg();
                branch.files |= parent.files & version;
                let is_there = branch.files & version != 0;
                is_there.then_some(Self::Copies(versions & !version))
            }
            Self::Parent => {
                let deletes = model.is(Mutant::DetachDeletesParent);
                branch.until = (!deletes).then_some(0);
                (!is_lease_first).then(delete)
            }
            Self::Lease(delete) => match delete.step(model, checkpoints) {
                Some(delete) => Some(Self::Lease(delete)),
                None => is_lease_first.then_some(Self::Parent),
            },
        }
    }
}

/// Deletes the folder of a branch that was never published.
pub fn forget(branch: &mut Checkpoint) {
    *branch = Checkpoint::empty();
}
