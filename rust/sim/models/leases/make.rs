//! Commands that make a lease: a tag, or a branch.

use holdfast_core::leases::{Facts, Record as Known, Step, next_step};

use crate::checkpoint::{BRANCH, Checkpoint, IDS, Lease, OF_BRANCH, PARENT, Record, TAG, bit};
use crate::command::Plan;
use crate::model::{Checkpoints, Model, Mutant};

/// A command that has begun. It knows the batch and its ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Make {
    /// The checkpoint that has the lease, and the name of the lease.
    at: usize,
    name: usize,
    batch: u8,
    /// The tag that a branch begins with; `None` for an entry of the log.
    tag: Option<u8>,
    /// The lease for which it has copied and looked; 0 without one.
    id: u8,
    copied: bool,
    retained: Option<bool>,
    next: Next,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Next {
    /// Make the record of the parent.
    Parent,
    /// Read the facts.
    Read,
    /// Take the step for these facts, which may be old by then.
    Take(Facts),
    /// Write the rest of the record with this id.
    Finish(u8),
}

impl Make {
    /// Reads the entry, or the tag that must be held. Returns `None` if there is none.
    pub fn start(plan: Plan, model: &Model, checkpoints: &Checkpoints) -> Option<Self> {
        let (at, name, batch, tag) = match plan {
            Plan::Tag { at, batch } => (at, TAG, batch, None),
            Plan::Branch { batch } => (PARENT, OF_BRANCH, batch, None),
            Plan::BranchOfTag => {
                let tag = checkpoints.both[PARENT].leases[TAG].held(model)?;
                (PARENT, OF_BRANCH, tag.batch, Some(tag.id))
            }
            Plan::Untag { .. } | Plan::Detach => return None,
        };
        let new = Self {
            at,
            name,
            batch,
            tag,
            id: 0,
            copied: false,
            retained: model.is(Mutant::LooksFirst).then_some(true),
            next: if name == OF_BRANCH {
                Next::Parent
            } else {
                Next::Read
            },
        };
        (tag.is_some() || checkpoints.both[at].has_entry(batch)).then_some(new)
    }

    /// Returns whether an entry may appear in the log of the branch, however old it is.
    pub fn is_about_to_publish(&self) -> bool {
        matches!(self.next, Next::Take(facts) if next_step(&facts) == Step::Publish)
    }

    /// Returns `None` at its end.
    pub fn step(mut self, model: &Model, checkpoints: &mut Checkpoints) -> Option<Self> {
        match self.next {
            Next::Parent => self.make_parent(model, checkpoints)?,
            Next::Read => return self.read(model, checkpoints),
            Next::Take(facts) => {
                let step = next_step(&facts);
                self.next = Next::Read;
                self.take(step, model, checkpoints)?;
            }
            Next::Finish(id) => {
                let record = self.lease(checkpoints).record.as_mut();
                if let Some(record) = record.filter(|record| record.id == id) {
                    record.is_whole = true;
                }
                self.next = Next::Read;
            }
        }
        Some(self)
    }

    fn lease<'a>(&self, checkpoints: &'a mut Checkpoints) -> &'a mut Lease {
        &mut checkpoints.both[self.at].leases[self.name]
    }

    /// Creates the record of the parent. One that is there has to do.
    fn make_parent(&mut self, model: &Model, checkpoints: &mut Checkpoints) -> Option<()> {
        let [parent, branch] = &mut checkpoints.both;
        let newest = parent.terms[usize::from(parent.newest)];
        let until = *branch.until.get_or_insert(newest);
        self.next = Next::Read;
        let is_enough = until >= parent.newest_term(self.batch);
        (is_enough || model.is(Mutant::TakesAnyParent)).then_some(())
    }

    /// Reads the facts, and takes steps that only read.
    fn read(mut self, model: &Model, checkpoints: &mut Checkpoints) -> Option<Self> {
        let is_published = checkpoints.both[BRANCH].newest > 0;
        let lease = self.lease(checkpoints);
        let id = lease.record.map_or(0, |record| record.id);
        if id != self.id {
            self.id = id;
            self.copied = false;
            if !model.is(Mutant::LooksFirst) {
                self.retained = None;
            }
        }
        let mut facts = Facts {
            record: match lease.record {
                None => Known::Absent,
                Some(record) if record.is_whole && record.batch == self.batch => Known::Same,
                Some(record) if !record.is_whole && model.is(Mutant::ReplacesCut) => Known::Absent,
                Some(_) => Known::Other,
            },
            held: lease.held(model).is_some(),
            copied: self.copied,
            retained: self.retained,
            published: self.name == TAG || is_published,
        };
        if model.is(Mutant::HoldsWithoutLook) {
            facts.retained = facts.retained.or(Some(true));
        }
        let is_early = match model.mutant {
            Some(Mutant::PublishesBeforeLook) => facts.copied,
            Some(Mutant::PublishesBeforeHold) => facts.retained == Some(true),
            _ => false,
        };
        if is_early && !facts.published {
            facts.held = true;
        }
        match next_step(&facts) {
            Step::Look => self.retained = Some(self.look(model, checkpoints)),
            Step::Refuse => return None,
            Step::Done => {
                self.lease(checkpoints).said = Some(self.id);
                return None;
            }
            Step::GiveUp if !model.is(Mutant::GivesUpByName) => return None,
            _ => self.next = Next::Take(facts),
        }
        Some(self)
    }

    /// Returns whether the batch, or the same tag, is still there.
    fn look(&self, model: &Model, checkpoints: &Checkpoints) -> bool {
        let parent = &checkpoints.both[PARENT];
        match self.tag {
            _ if model.is(Mutant::BranchOfTagLooksNot) => true,
            Some(id) => parent.leases[TAG].record.is_some_and(|tag| tag.id == id),
            None => checkpoints.both[self.at].has_entry(self.batch),
        }
    }

    fn take(&mut self, step: Step, model: &Model, checkpoints: &mut Checkpoints) -> Option<()> {
        match step {
            Step::Record => {
                let replaces = model.is(Mutant::ReplacesCut) && self.id != 0;
                if replaces || self.lease(checkpoints).record.is_none() {
                    let id = checkpoints.new_id(model);
                    self.lease(checkpoints).record = Some(Record {
                        id,
                        batch: self.batch,
                        is_whole: false,
                    });
                    self.next = Next::Finish(id);
                }
            }
            Step::Copy => {
                self.copied = true;
                if self.has_small_files(model, checkpoints) {
                    self.copy(model, checkpoints);
                } else if !model.is(Mutant::MissingCopyIsNoEnd) {
                    self.retained = Some(false);
                }
            }
            Step::Hold => self.lease(checkpoints).marks |= bit(model.mark(self.id)),
            Step::Publish => {
                let [parent, branch] = &mut checkpoints.both;
                if branch.newest == 0 {
                    publish(self.batch, model, parent, branch);
                } else if !branch.has_entry(self.batch) {
                    // The log went on, and Spark deleted the entry.
                    branch.oldest = self.batch;
                }
            }
            Step::GiveUp => {
                self.lease(checkpoints).record = None;
                return None;
            }
            Step::Look | Step::Done | Step::Refuse => {}
        }
        Some(())
    }

    fn has_small_files(&self, model: &Model, checkpoints: &Checkpoints) -> bool {
        let source = &checkpoints.both[self.at];
        match self.tag {
            Some(id) => source.leases[TAG].copies[usize::from(model.copies(id))] == self.batch,
            None => source.oldest_small <= self.batch,
        }
    }

    fn copy(&self, model: &Model, checkpoints: &mut Checkpoints) {
        if self.name == OF_BRANCH {
            checkpoints.both[BRANCH].copied |= bit(self.batch);
        } else {
            let id = usize::from(model.copies(self.id)) % IDS;
            self.lease(checkpoints).copies[id] = self.batch;
        }
    }
}

/// The entry makes the branch a checkpoint. Its drivers give terms that are newer than the parent's.
fn publish(batch: u8, model: &Model, parent: &Checkpoint, branch: &mut Checkpoint) {
    branch.base = batch;
    branch.newest = batch;
    branch.oldest = batch;
    branch.oldest_small = batch;
    for (version, term) in parent.terms.iter().enumerate().take(usize::from(batch) + 1) {
        branch.terms[version] = *term;
    }
    branch.term = match model.is(Mutant::BranchTermsAreOld) {
        true => 1,
        false => branch.until.unwrap_or(0) + 1,
    };
}
