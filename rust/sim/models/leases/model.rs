//! The bounds of a model, its state and its invariants.

use std::cell::RefCell;
use std::collections::HashMap;

use stateright::Property;

use crate::checkpoint::{BRANCH, Checkpoint, IDS, OF_BRANCH, PARENT, TAG, bit, is_readable};
use crate::cleanup::{Pass, needed_by_log};
use crate::command::{Command, Delete, Plan, forget};

/// A change of the protocol that breaks it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// A clean-up reads the leases, and then the oldest entry.
    ReadsOldestLast,
    IgnoresLeases,
    /// A clean-up ignores leases that are not held yet.
    IgnoresUnheld,
    /// A clean-up reads each lease once. Another may come while it reads, and one may go.
    ReadsLeasesOnce,
    /// A lease keeps the newest segment, and no older ones that the version needs.
    LeaseHasNoFloor,
    /// A command looks at the log before it makes the record.
    LooksFirst,
    HoldsWithoutLook,
    MarkHasNoId,
    /// A record that was deleted comes back with the same id.
    SameId,
    CopiesHaveNoId,
    /// A command whose copy finds that a file is gone looks at the log.
    MissingCopyIsNoEnd,
    /// A command that gives up deletes the lease of this name.
    GivesUpByName,
    /// A command replaces a record that is cut.
    ReplacesCut,
    /// The marks and copies are listed after the record was deleted.
    UntagListsLate,
    /// Only the mark and the copies with the id in the record are deleted.
    UntagKeepsOthers,
    PublishesBeforeLook,
    PublishesBeforeHold,
    BranchOfTagLooksNot,
    /// The first term of a branch is above those in its own folder only.
    BranchTermsAreOld,
    /// A command takes the record of the parent that is there.
    TakesAnyParent,
    DetachDropsLeaseBeforeCopies,
    DetachDropsLeaseBeforeParent,
    /// The record of the parent is deleted, so that another command may make it again.
    DetachDeletesParent,
    /// Only files that the log of the branch needs are copied.
    DetachIgnoresLeases,
}

/// The protocol or a mutant of it, and the bounds of its histories.
#[derive(Clone, Debug)]
pub struct Model {
    /// Commands that ended before a history begins.
    pub before: &'static [Plan],
    /// Commands, each of which may begin once, and may be killed.
    pub commands: &'static [Plan],
    /// The checkpoints of clean-ups, each of which may begin once. Its driver may crash, or go on after
    /// another one took over.
    pub passes: &'static [usize],
    /// The last batch of each checkpoint.
    pub batches: [u8; 2],
    /// Drivers of the parent that take over.
    pub drivers: u8,
    /// A command may stand still before it publishes, until Spark has deleted the entry that it makes.
    pub stands_still: bool,
    pub mutant: Option<Mutant>,
}

impl Model {
    pub fn is(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Checkpoints {
    pub both: [Checkpoint; 2],
    /// Ids that leases got.
    ids: u8,
}

impl Checkpoints {
    pub fn new() -> Self {
        Self {
            both: [Checkpoint::parent(), Checkpoint::empty()],
            ids: 0,
        }
    }

    pub fn new_id(&mut self, model: &Model) -> u8 {
        if !model.is(Mutant::SameId) || self.ids == 0 {
            self.ids += 1;
        }
        self.ids
    }

    /// Returns whether another lease can be made.
    pub fn has_ids(&self) -> bool {
        usize::from(self.ids) + 1 < IDS
    }

    /// A branch that its parent keeps files for.
    fn is_attached(&self) -> bool {
        let branch = &self.both[BRANCH];
        branch.newest > 0 && branch.until.is_some_and(|until| until > 0)
    }

    /// Returns whether the files of each entry can be read.
    fn is_readable(&self) -> bool {
        (0..2).all(|at| {
            let one = &self.both[at];
            one.newest == 0 || is_readable(&self.both, at, one.oldest..=one.newest)
        })
    }

    /// Returns whether tags that are held have all their files.
    fn has_tags(&self, model: &Model) -> bool {
        (0..2).all(|at| {
            let lease = &self.both[at].leases[TAG];
            lease.held(model).is_none_or(|tag| {
                let copies = lease.copies[usize::from(model.copies(tag.id))];
                copies == tag.batch && is_readable(&self.both, at, tag.batch..=tag.batch)
            })
        })
    }

    fn keeps_promises(&self, model: &Model) -> bool {
        let mut leases = self.both.iter().flat_map(|one| &one.leases);
        leases.all(|lease| {
            let held = lease.held(model).map(|record| record.id);
            lease.said.is_none() || lease.said == held
        })
    }

    fn is_branch_held(&self, model: &Model) -> bool {
        let [parent, branch] = &self.both;
        let held = parent.leases[OF_BRANCH].held(model);
        let is_held = held.is_some_and(|lease| lease.batch == branch.base);
        !self.is_attached() || (is_held && branch.copied & bit(branch.base) != 0)
    }

    /// If all else ends here, tags can be made and deleted again, and then nothing more than the log
    /// needs is there.
    fn ends_empty(mut self, model: &Model) -> bool {
        if self.both[BRANCH].newest > 0 {
            self.run(Plan::Detach, model);
        } else {
            forget(&mut self.both[BRANCH]);
        }
        self.delete(PARENT, OF_BRANCH, model);
        (0..2).all(|at| self.both[at].newest == 0 || self.cleans_up(at, model))
    }

    fn cleans_up(&mut self, at: usize, model: &Model) -> bool {
        self.delete(at, TAG, model);
        let batch = self.both[at].newest;
        if self.has_ids() {
            self.run(Plan::Tag { at, batch }, model);
            if self.both[at].leases[TAG].held(model).is_none() {
                return false;
            }
            self.delete(at, TAG, model);
        }
        let checkpoint = &mut self.both[at];
        checkpoint.oldest = batch;
        let mut pass = Some(Pass::Waits);
        while let Some(running) = pass {
            pass = running.step(model, checkpoint);
        }
        let is_empty = checkpoint.leases.iter().all(|lease| lease.is_gone());
        is_empty && checkpoint.files == needed_by_log(checkpoint)
    }

    pub fn run(&mut self, plan: Plan, model: &Model) {
        let mut command = Some(Command::Waits);
        while let Some(running) = command {
            command = running.step(plan, model, self);
        }
    }

    fn delete(&mut self, at: usize, name: usize, model: &Model) {
        let mut delete = Some(Delete::new(at, name));
        while let Some(running) = delete {
            delete = running.step(model, self);
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    pub checkpoints: Checkpoints,
    pub commands: Vec<Command>,
    pub passes: Vec<Pass>,
    pub drivers: u8,
    /// About the checkpoints.
    pub verdict: Verdict,
}

pub const READABLE: &str = "each entry of a log has all files that it needs";
pub const TAGS_WHOLE: &str = "a tag that is held has its files and its copies";
pub const SAYS_TRUTH: &str = "a lease is held until somebody deletes it, once a command said so";
pub const BRANCH_HELD: &str = "a branch has a lease that is held until it is detached";
pub const NOTHING_STAYS: &str = "nothing is kept for ever";

/// A claim about every state, or about some state.
type Claim = Property<Model>;

/// The answers to the invariants, in order.
pub type Verdict = [bool; 5];

thread_local! {
    /// Many states have the same files. A thread of the checker belongs to one model.
    static VERDICTS: RefCell<HashMap<Checkpoints, Verdict>> = RefCell::default();
}

pub fn judge(model: &Model, checkpoints: &Checkpoints) -> Verdict {
    VERDICTS.with_borrow_mut(|known| {
        let found = known.entry(checkpoints.clone());
        *found.or_insert_with(|| {
            [
                checkpoints.is_readable(),
                checkpoints.has_tags(model),
                checkpoints.keeps_promises(model),
                checkpoints.is_branch_held(model),
                checkpoints.clone().ends_empty(model),
            ]
        })
    })
}

pub fn invariants() -> Vec<Claim> {
    vec![
        Claim::always(READABLE, |_, state| state.verdict[0]),
        Claim::always(TAGS_WHOLE, |_, state| state.verdict[1]),
        Claim::always(SAYS_TRUTH, |_, state| state.verdict[2]),
        Claim::always(BRANCH_HELD, |_, state| state.verdict[3]),
        Claim::always(NOTHING_STAYS, |_, state| state.verdict[4]),
    ]
}

/// Events that must happen in some history, or the histories are too tame.
pub fn reached(model: &Model) -> Vec<Claim> {
    let mut plans = model.before.iter().chain(model.commands);
    let makes_branch = plans.any(|plan| matches!(plan, Plan::Branch { .. } | Plan::BranchOfTag));
    let mut reached = vec![Claim::sometimes(
        "a lease keeps files that the log does not need",
        |model, state| {
            let parent = &state.checkpoints.both[PARENT];
            let leases = parent.leases.iter().filter_map(|lease| lease.held(model));
            let has_passed = state.passes.iter().all(|pass| *pass == Pass::Ended);
            has_passed && leases.clone().any(|held| held.batch < parent.oldest)
        },
    )];
    if model.before.is_empty() || model.commands.contains(&Plan::Detach) {
        reached.push(Claim::sometimes("a file is reclaimed", |_, state| {
            state.checkpoints.both[PARENT].files & bit(2) == 0
        }));
    }
    if makes_branch {
        reached.push(Claim::sometimes(
            "a branch has a batch that the log of its parent has not",
            |_, state| {
                let [parent, branch] = &state.checkpoints.both;
                branch.base > 0 && parent.oldest > branch.base
            },
        ));
    }
    if model.commands.contains(&Plan::Detach) {
        reached.push(Claim::sometimes(
            "the parent reclaims files of a branch that was detached",
            |_, state| {
                let [parent, branch] = &state.checkpoints.both;
                branch.until == Some(0) && branch.files & !parent.files & bit(2) != 0
            },
        ));
    }
    reached
}
