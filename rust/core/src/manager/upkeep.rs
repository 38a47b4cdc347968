//! Deletes, seals and closes files after decisions, outside every lock. A thread does it, which
//! ends with the last job, or a caller that waits for it.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::claim::Claim;
use super::registry::{Job, Queue, Registry, SharedRegistry};
use crate::error::Result;
use crate::ids::FileId;
use crate::liveness::{FileFacts, Occasion};
use crate::segment::SegmentWriter;
use crate::storage::Storage;

/// Deletes of one request of S3A.
const DELETES_AT_ONCE: usize = 250;

impl Registry {
    /// The next job, with at most so many deletes. It counts as running until it is done.
    fn begin_next(&mut self, deletes: usize) -> Option<Job> {
        loop {
            let mut job = self.queue.next(deletes)?;
            if let Job::Delete(files) = &mut job {
                // A restore may need one by now.
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
            return Some(job);
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

#[derive(Debug)]
pub(super) struct Upkeep {
    pub storage: Arc<dyn Storage>,
    pub writer: Arc<SegmentWriter>,
    pub shared: Arc<SharedRegistry>,
    /// Absent if a driver gives the terms: the driver also stops older applications.
    pub claim: Option<Claim>,
    pub max_space_amplification: f64,
    /// A thread does the work; otherwise it waits for [`Upkeep::finish`].
    pub background: bool,
}

impl Upkeep {
    /// Refuses a change by a manager that lost the folder, or in a child of its process.
    pub fn check_ours(&self) -> Result<()> {
        self.writer.check_process()?;
        self.claim.as_ref().map_or(Ok(()), Claim::check)
    }

    pub fn settle(self: &Arc<Self>, occasion: Occasion) {
        let mut registry = self.shared.registry.lock();
        registry.settle(occasion, self.max_space_amplification);
        self.hire(&mut registry);
    }

    /// Does the work that is due, and waits for the thread. A failed delete waits for a message.
    pub fn finish(&self) {
        while self.is_busy() && self.check_ours().is_ok() {
            let mut registry = self.shared.registry.lock();
            if let Some(job) = registry.begin_next(self.deletes_at_once()) {
                drop(registry);
                self.run(job);
            } else if registry.queue.running > 0 && !registry.queue.is_of_parent() {
                self.shared.done.wait(&mut registry);
            } else {
                return;
            }
        }
    }

    /// Object stores delete many files with one request. Elsewhere a manager checks before each
    /// delete that it still has the folder.
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

    /// Ends the thread after its current job. The next sweep does the rest.
    pub fn stop(&self) {
        let mut registry = self.shared.registry.lock();
        registry.queue.stopped = true;
        while registry.queue.thread_of.is_some() && !registry.queue.is_of_parent() {
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
        if !wanted || (queue.thread_of.is_some() && !queue.is_of_parent()) {
            return;
        }
        let upkeep = Arc::clone(self);
        let thread = std::thread::Builder::new().name("holdfast-upkeep".to_owned());
        // If no thread starts, the work stays in the queue, and the next message tries again.
        if thread.spawn(move || upkeep.work()).is_ok() {
            queue.thread_of = Some(std::process::id());
        }
    }

    fn work(&self) {
        // When storage panics, the next message hires another thread.
        let over = Over(self, |queue| queue.thread_of = None);
        let deletes = self.deletes_at_once();
        loop {
            // A manager that took the folder over also has the files.
            let ours = self.check_ours().is_ok();
            let mut registry = self.shared.registry.lock();
            let goes_on = ours && !registry.queue.stopped;
            let Some(job) = goes_on.then(|| registry.begin_next(deletes)).flatten() else {
                // Under this lock, so that the caller that queues the next job finds no thread.
                registry.queue.thread_of = None;
                std::mem::forget(over);
                self.shared.done.notify_all();
                return;
            };
            drop(registry);
            self.run(job);
        }
    }

    fn run(&self, job: Job) {
        let _over = Over(self, |queue| {
            queue.running = queue.running.saturating_sub(1)
        });
        match job {
            Job::Abandon(file) => {
                let needed = || self.shared.registry.lock().is_needed(file);
                self.writer.abandon(file, needed);
            }
            Job::Seal(file) => {
                // A failure leaves a closed file; `persist` fails for owners that need it durable.
                let _ = self.writer.seal_files(&BTreeSet::from([file]));
            }
            Job::Delete(files) => {
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
        // A closed file may be due for deletion.
        let mut registry = self.shared.registry.lock();
        registry.settle(Occasion::Between, self.max_space_amplification);
    }
}

/// Changes the queue at the end of its scope, and wakes those who wait.
struct Over<'a>(&'a Upkeep, fn(&mut Queue));

impl Drop for Over<'_> {
    fn drop(&mut self) {
        (self.1)(&mut self.0.shared.registry.lock().queue);
        self.0.shared.done.notify_all();
    }
}
