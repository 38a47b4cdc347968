//! What decisions leave to do on files: deleting, sealing, closing. It is done outside every lock, by
//! a thread that lives while there is something to do, or by a caller that waits for it. A message
//! only decides.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::claim::Claim;
use super::registry::{Registry, SharedRegistry};
use crate::error::Result;
use crate::ids::FileId;
use crate::liveness::{Actions, FileFacts, Occasion};
use crate::segment::SegmentWriter;
use crate::storage::Storage;

/// As many as S3A has in one request.
const DELETES_AT_ONCE: usize = 250;

/// What there is to do, and the thread that does it.
#[derive(Debug, Default)]
pub(super) struct Queue {
    abandon: BTreeSet<FileId>,
    seal: BTreeSet<FileId>,
    delete: BTreeSet<FileId>,
    /// Deletes that failed, to be tried again at the next message.
    failed: BTreeSet<FileId>,
    /// Pieces of work that are being done now.
    running: usize,
    /// Process of the thread, if there is one: a fork has a copy of this, but not of the thread.
    thread_of: Option<u32>,
    /// The manager is gone: what is left is the next sweep's.
    stopped: bool,
}

#[derive(Debug)]
enum Piece {
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

    fn is_empty(&self) -> bool {
        self.abandon.is_empty() && self.seal.is_empty() && self.delete.is_empty()
    }

    fn next(&mut self, deletes: usize) -> Option<Piece> {
        let abandon = self.abandon.pop_first().map(Piece::Abandon);
        abandon
            .or_else(|| self.seal.pop_first().map(Piece::Seal))
            .or_else(|| {
                let due = std::iter::from_fn(|| self.delete.pop_first());
                let files: BTreeSet<_> = due.take(deletes).collect();
                (!files.is_empty()).then_some(Piece::Delete(files))
            })
    }
}

impl Registry {
    /// The next piece of work, of at most so many deletes; it counts as running until it is over.
    fn begin_next(&mut self, deletes: usize) -> Option<Piece> {
        loop {
            let mut piece = self.queue.next(deletes)?;
            if let Piece::Delete(files) = &mut piece {
                // A restore may have found use for one since.
                let unneeded = |f: &FileFacts| !f.open && !f.deleting && f.segments().is_empty();
                files.retain(|file| self.ledger.files().get(file).is_some_and(unneeded));
                if files.is_empty() {
                    continue;
                }
                for file in files.iter() {
                    self.ledger
                        .change_file(*file, |facts| facts.deleting = true);
                }
            }
            self.queue.running += 1;
            return Some(piece);
        }
    }

    fn deleted(&mut self, file: FileId, deleted: bool) {
        if deleted {
            self.deletes += 1;
            self.ledger.forget_file(file);
        } else {
            self.delete_failures += 1;
            self.queue.failed.insert(file);
            self.ledger
                .change_file(file, |facts| facts.deleting = false);
        }
    }
}

/// Everything the upkeep of files needs.
#[derive(Debug)]
pub(super) struct Upkeep {
    pub storage: Arc<dyn Storage>,
    pub writer: SegmentWriter,
    pub shared: Arc<SharedRegistry>,
    /// Absent where a driver gives the terms: it also sees to it that an older application stops.
    pub claim: Option<Claim>,
    pub max_space_amplification: f64,
    /// A thread does the work; otherwise it waits for [`Upkeep::finish`].
    pub background: bool,
}

impl Upkeep {
    /// Refuses a change by a manager that is not the folder's any more, or by a child of its process.
    pub fn check_ours(&self) -> Result<()> {
        self.writer.check_process()?;
        self.claim.as_ref().map_or(Ok(()), Claim::check)
    }

    /// Decides, and sees to it that what follows is done.
    pub fn settle(self: &Arc<Self>, occasion: Occasion) {
        let mut registry = self.shared.registry.lock();
        registry.settle(occasion, self.max_space_amplification);
        self.hire(&mut registry);
    }

    /// Does what is due, and waits for what the thread is doing. A failed delete is not due before
    /// the next message; of a manager that is not the folder's any more, nothing is.
    pub fn finish(&self) {
        while self.is_busy() && self.check_ours().is_ok() {
            let mut registry = self.shared.registry.lock();
            if let Some(piece) = registry.begin_next(self.deletes_at_once()) {
                drop(registry);
                self.run(piece);
            } else if registry.queue.running > 0 && !is_fork(&registry.queue) {
                self.shared.done.wait(&mut registry);
            } else {
                return;
            }
        }
    }

    /// Object stores delete many with one request. Elsewhere each is one, and a manager looks before each
    /// whether the folder is still its own.
    fn deletes_at_once(&self) -> usize {
        if self.storage.capabilities().durable_append {
            1
        } else {
            DELETES_AT_ONCE
        }
    }

    fn is_busy(&self) -> bool {
        let queue = &self.shared.registry.lock().queue;
        queue.running > 0 || !queue.is_empty()
    }

    /// Ends the thread after what it is doing now. What is left is the next sweep's.
    pub fn stop(&self) {
        let mut registry = self.shared.registry.lock();
        registry.queue.stopped = true;
        while registry.queue.thread_of.is_some() && !is_fork(&registry.queue) {
            self.shared.done.wait(&mut registry);
        }
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "the one thread of a manager, which deletes files"
    )]
    fn hire(self: &Arc<Self>, registry: &mut Registry) {
        let queue = &mut registry.queue;
        let wanted = self.background && !queue.stopped && !queue.is_empty();
        if !wanted || (queue.thread_of.is_some() && !is_fork(queue)) {
            return;
        }
        let upkeep = Arc::clone(self);
        let thread = std::thread::Builder::new().name("holdfast-upkeep".to_owned());
        // Without a thread the work stays in the queue; the next message tries again.
        if thread.spawn(move || upkeep.work()).is_ok() {
            queue.thread_of = Some(std::process::id());
        }
    }

    fn work(&self) {
        // When storage panics, the next message hires another thread.
        let over = Over(self, |queue| queue.thread_of = None);
        let deletes = self.deletes_at_once();
        loop {
            // If another manager took the folder over, the files are that one's.
            let ours = self.check_ours().is_ok();
            let mut registry = self.shared.registry.lock();
            let goes_on = ours && !registry.queue.stopped;
            let Some(piece) = goes_on.then(|| registry.begin_next(deletes)).flatten() else {
                // Under this lock: the caller that queues the next piece finds that no thread is there.
                registry.queue.thread_of = None;
                std::mem::forget(over);
                self.shared.done.notify_all();
                return;
            };
            drop(registry);
            self.run(piece);
        }
    }

    fn run(&self, piece: Piece) {
        let _over = Over(self, |queue| {
            queue.running = queue.running.saturating_sub(1)
        });
        match piece {
            Piece::Abandon(file) => {
                let needed = || self.shared.registry.lock().is_needed(file);
                self.writer.abandon(file, needed);
            }
            Piece::Seal(file) => {
                // One that fails leaves a closed file; `persist` fails for owners that need it durable.
                let _ = self.writer.seal_files(&BTreeSet::from([file]));
            }
            Piece::Delete(files) => {
                let names: Vec<_> = files.iter().map(FileId::file_name).collect();
                let deleted = self.storage.delete_all(&names);
                for (file, deleted) in files.into_iter().zip(deleted) {
                    self.shared.registry.lock().deleted(file, deleted.is_ok());
                    if deleted.is_ok() {
                        self.writer.forget(file);
                    }
                }
            }
        }
        // A file that was closed may be one to delete.
        let mut registry = self.shared.registry.lock();
        registry.settle(Occasion::Between, self.max_space_amplification);
    }
}

/// Says that something is over, at the end of its scope.
struct Over<'a>(&'a Upkeep, fn(&mut Queue));

impl Drop for Over<'_> {
    fn drop(&mut self) {
        (self.1)(&mut self.0.shared.registry.lock().queue);
        self.0.shared.done.notify_all();
    }
}

/// The thread of this queue runs in the process that this one is a fork of.
fn is_fork(queue: &Queue) -> bool {
    queue
        .thread_of
        .is_some_and(|process| process != std::process::id())
}
