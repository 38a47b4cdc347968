//! The memory of a manager: bookkeeping. `liveness` decides, `upkeep` uses the storage.

use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};

use crate::error::{Error, ErrorKind, Result};
use crate::format::{IndexEntry, SegmentKind};
use crate::ids::{CheckpointId, FileId, Owner, SegmentRef, Term};
use crate::liveness::{Actions, FileFacts, Ledger, Occasion, PostponedCheckpoints, SegmentFacts};
use crate::segment::{FileChange, Observer};

/// Managers that wrote to the folder before this one, as the driver knows them. Between attempts
/// the driver deletes files of ended managers by what checkpoints name. So an attempt may refer to
/// a segment there if the checkpoint that it begins with names it.
#[derive(Clone, Debug, Default)]
pub struct EarlierManagers {
    /// Older terms whose managers may still be at work, and may delete their files.
    pub live: BTreeSet<Term>,
    /// Files of ended managers that waste too much: segments that are needed are written again.
    pub wasteful: BTreeSet<FileId>,
}

#[derive(Debug, Default)]
pub(super) struct Registry {
    /// Its term, and earlier managers. Without them `restore` says which segments are needed.
    pub earlier: Option<(Term, EarlierManagers)>,
    pub ledger: Ledger,
    pub queue: Queue,
    /// `restore` was called: unknown segments are not needed.
    pub restored: bool,
    /// Checkpoints whose segments the ledger does not know yet.
    pub postponed: Option<Arc<PostponedCheckpoints>>,
    pub deletes: u64,
    pub delete_failures: u64,
}

impl Registry {
    /// Refuses work for an attempt that was decided.
    pub fn check_open(&self, what: &str, owner: &Owner, id: CheckpointId) -> Result<()> {
        let view = self.ledger.view();
        if !view.is_decided(id) {
            return Ok(());
        }
        let decided = view.decided().unwrap_or(id);
        Err(Error::new(
            ErrorKind::AttemptEnded,
            format!(
                "{what} of {owner} for checkpoint {id}: checkpoint {decided} was decided already"
            ),
        ))
    }

    /// The facts of exactly this segment, of exactly this owner.
    pub fn find(&self, reference: &SegmentRef, owner: &Owner) -> Option<&SegmentFacts> {
        let segment = self.ledger.segment(reference);
        segment.filter(|segment| *segment.owner == *owner)
    }

    /// Returns whether all of the file is needed: its segments are not known yet.
    fn is_postponed(&self, file: FileId) -> bool {
        self.ledger.postponed().contains_key(&file)
    }

    /// Returns whether the manager of the file has ended, and the driver decides about the file.
    fn is_ended(&self, file: FileId) -> bool {
        let earlier = self.earlier.as_ref();
        earlier.is_some_and(|(own, others)| file.term < *own && !others.live.contains(&file.term))
    }

    /// Returns whether an attempt that wrote the segment or leased it still has it.
    pub fn has(&self, reference: &SegmentRef, owner: &Owner) -> bool {
        let file = reference.file;
        self.is_ended(file) || self.is_postponed(file) || self.find(reference, owner).is_some()
    }

    /// Takes a lease if the segment may be reused. Segments of ended managers are needed by the
    /// checkpoint that the attempt begins with, which is retained until the attempt is decided.
    pub fn lease(&mut self, owner: &Owner, id: CheckpointId, reference: &SegmentRef) -> bool {
        if self.is_ended(reference.file) {
            let others = self.earlier.as_ref();
            return others.is_none_or(|(_, others)| !others.wasteful.contains(&reference.file));
        }
        let known = self.has(reference, owner);
        if !known || self.ledger.is_wasteful(reference.file) || self.is_lost(reference) {
            return false;
        }
        self.ledger.lease(reference, id);
        true
    }

    /// Leases a segment that the attempt wrote or leased before, even if its file is too wasteful
    /// by now. False for a segment that was lost.
    pub fn lease_again(&mut self, owner: &Owner, id: CheckpointId, reference: &SegmentRef) -> bool {
        let is_there = self.has(reference, owner) && !self.is_lost(reference);
        if is_there {
            self.ledger.lease(reference, id);
        }
        is_there
    }

    /// Forgets a segment of a refused acknowledgement that an open attempt wrote and no other
    /// attempt leased. The acknowledgement may also cite reused segments.
    pub fn release(&mut self, owner: &Owner, reference: &SegmentRef) {
        let unneeded = self.find(reference, owner).is_some_and(|segment| {
            let mut leases = segment.leases.iter();
            let elsewhere = leases.any(|attempt| *attempt != segment.created);
            !self.ledger.view().is_decided(segment.created) && !elsewhere
        });
        if unneeded {
            self.ledger.release(reference);
        }
    }

    /// Decides, and queues the work on files. A message also tries failed deletes again.
    pub fn settle(&mut self, occasion: Occasion, max_space_amplification: f64) {
        let actions = self.ledger.settle(occasion, max_space_amplification);
        self.queue.add(actions);
        if occasion == Occasion::Message {
            self.queue.retry();
        }
    }

    pub fn is_needed(&self, file: FileId) -> bool {
        let facts = self.ledger.files().get(&file);
        facts.is_some_and(|facts| !facts.segments().is_empty())
    }

    /// Returns whether the segment is known to survive a machine crash.
    pub fn is_durable(&self, reference: &SegmentRef) -> bool {
        let file = self.ledger.files().get(&reference.file);
        let postponed = self.ledger.postponed().get(&reference.file);
        let durable = file.map(|file| file.durable_bytes).or(postponed.copied());
        self.is_ended(reference.file) || durable.is_some_and(|bytes| reference.end() <= bytes)
    }

    /// Returns whether its file takes no more appends and will never become durable.
    fn is_lost(&self, reference: &SegmentRef) -> bool {
        let file = self.ledger.files().get(&reference.file);
        file.is_some_and(|file| !file.open) && !self.is_durable(reference)
    }

    fn appended(&mut self, entry: &IndexEntry, physical_bytes: u64) {
        let decided = self.ledger.view().decided();
        let created = match (entry.kind, decided) {
            // It has the content of a checkpoint, for the attempt that is open.
            (SegmentKind::Run, Some(decided)) => entry.created.max(CheckpointId(decided.0 + 1)),
            _ => entry.created,
        };
        // Bytes of an attempt that has ended are garbage.
        let late = self.ledger.view().is_decided(created);
        let change = |file: &mut FileFacts| {
            file.used = true;
            file.physical_bytes = physical_bytes;
        };
        self.ledger.change_file(entry.reference.file, change);
        if !late {
            self.ledger.append(&entry.owner, &entry.reference, created);
        }
    }
}

/// The jobs of the upkeep, and the state of its thread.
#[derive(Debug, Default)]
pub(super) struct Queue {
    abandon: BTreeSet<FileId>,
    seal: BTreeSet<FileId>,
    delete: BTreeSet<FileId>,
    /// Failed deletes, which the next message tries again.
    pub failed: BTreeSet<FileId>,
    pub running: usize,
    /// Process of the thread, if there is one: a fork copies this, but not the thread.
    pub thread_of: Option<u32>,
    /// The manager is gone: the next sweep does the rest.
    pub stopped: bool,
}

#[derive(Debug)]
pub(super) enum Job {
    Abandon(FileId),
    Seal(FileId),
    Delete(BTreeSet<FileId>),
}

impl Queue {
    pub fn add(&mut self, actions: Actions) {
        self.abandon.extend(actions.abandon);
        self.seal.extend(actions.seal);
        let fresh = actions.delete.into_iter();
        self.delete
            .extend(fresh.filter(|file| !self.failed.contains(file)));
    }

    pub fn retry(&mut self) {
        self.delete.append(&mut self.failed);
    }

    pub fn is_empty(&self) -> bool {
        self.abandon.is_empty() && self.seal.is_empty() && self.delete.is_empty()
    }

    pub fn next(&mut self, deletes: usize) -> Option<Job> {
        let abandon = self.abandon.pop_first().map(Job::Abandon);
        abandon
            .or_else(|| self.seal.pop_first().map(Job::Seal))
            .or_else(|| {
                let due = std::iter::from_fn(|| self.delete.pop_first());
                let files: BTreeSet<_> = due.take(deletes).collect();
                (!files.is_empty()).then_some(Job::Delete(files))
            })
    }

    /// Returns whether its thread runs in the parent of this process.
    pub fn is_of_parent(&self) -> bool {
        self.thread_of
            .is_some_and(|process| process != std::process::id())
    }
}

#[derive(Debug, Default)]
pub(super) struct SharedRegistry {
    pub registry: Mutex<Registry>,
    /// A job of the queue is done.
    pub done: Condvar,
}

/// The lane of files that span checkpoints. Other lanes have the number of a checkpoint.
pub(super) const ACROSS_CHECKPOINTS: u64 = u64::MAX;

impl Observer for SharedRegistry {
    fn created(&self, file: FileId, lane: u64, physical_bytes: u64) {
        let only_for = (lane != ACROSS_CHECKPOINTS).then_some(CheckpointId(lane));
        let facts = FileFacts::created(only_for, physical_bytes);
        self.registry.lock().ledger.add_file(file, facts);
    }

    fn deleted(&self, file: FileId) {
        self.registry.lock().ledger.forget_file(file);
    }

    fn appended(&self, entry: &IndexEntry, physical_bytes: u64) {
        self.registry.lock().appended(entry, physical_bytes);
    }

    fn changed(&self, change: &FileChange) {
        let ledger = &mut self.registry.lock().ledger;
        ledger.change_file(change.file, |file| {
            file.open = change.open;
            file.physical_bytes = change.physical_bytes;
            file.durable_bytes = change.durable_bytes;
        });
    }
}
