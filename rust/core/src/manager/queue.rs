//! Work on files that decisions left.

use std::collections::BTreeSet;

use crate::ids::FileId;
use crate::liveness::Actions;

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
