//! Merges of tables beside attempts, one after the other. A thread does them, which lives while there
//! are some, or a caller that waits for it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Condvar, Mutex};

use super::tables::Table;
use super::upkeep::Upkeep;
use crate::state::{MergeTask, MergedRun};

/// The merge of a table beside its attempts.
#[derive(Debug, Default)]
pub(super) enum Merge {
    /// There is none.
    #[default]
    None,
    /// It waits or goes on.
    Running,
    /// Its run is durable and held. The next commit with changes builds on it.
    Done(MergedRun),
}

/// The merges of a manager.
#[derive(Debug)]
pub(super) struct Merges {
    upkeep: Arc<Upkeep>,
    queue: Mutex<Queue>,
    /// A thread has ended.
    done: Condvar,
    /// The merge that goes on is to be given up.
    stopped: Arc<AtomicBool>,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<(Arc<Table>, MergeTask)>,
    /// Process of the thread, if there is one: a fork copies this, but not the thread.
    thread_of: Option<u32>,
}

impl Merges {
    pub fn new(upkeep: Arc<Upkeep>) -> Arc<Self> {
        Arc::new(Self {
            upkeep,
            queue: Mutex::default(),
            done: Condvar::new(),
            stopped: Arc::default(),
        })
    }

    /// Has a table merged beside its attempts, unless it is already.
    pub fn add(self: &Arc<Self>, table: &Arc<Table>, task: MergeTask) {
        let merge = &mut table.place.lock().merge;
        if !matches!(merge, Merge::None) {
            return;
        }
        *merge = Merge::Running;
        let task = MergeTask {
            is_given_up: Arc::clone(&self.stopped),
            ..task
        };
        let mut queue = self.queue.lock();
        queue.waiting.push_back((Arc::clone(table), task));
        if self.upkeep.background && queue.thread_of.is_none() {
            self.hire(&mut queue);
        }
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "the one thread of a manager that merges"
    )]
    fn hire(self: &Arc<Self>, queue: &mut Queue) {
        let merges = Arc::clone(self);
        let thread = std::thread::Builder::new().name("holdfast-merges".to_owned());
        // If no thread starts, the merge stays in the queue, and the next one tries again.
        if thread.spawn(move || merges.work()).is_ok() {
            queue.thread_of = Some(std::process::id());
        }
    }

    fn work(&self) {
        // When storage panics, the next merge hires another thread.
        let over = Over(self);
        loop {
            let mut queue = self.queue.lock();
            let Some((table, task)) = queue.waiting.pop_front() else {
                // Under this lock, so that the next merge finds no thread.
                queue.thread_of = None;
                std::mem::forget(over);
                self.done.notify_all();
                return;
            };
            drop(queue);
            self.run(&table, task);
        }
    }

    fn run(&self, table: &Table, task: MergeTask) {
        let writer = &self.upkeep.writer;
        let merged = self.upkeep.check_ours().and_then(|()| {
            let run = task.run(self.upkeep.storage.as_ref(), writer)?;
            writer.sync_files(&[run.file()].into())?;
            Ok(run)
        });
        let mut registry = self.upkeep.shared.registry.lock();
        let mut place = table.place.lock();
        // The table may have been forgotten. After a failure the next attempt begins another merge:
        // segments may have gone with the attempt that wrote them.
        if let (Merge::Running, Ok(run)) = (std::mem::take(&mut place.merge), merged) {
            registry.ledger.hold(&run.reference);
            place.held.insert(run.reference);
            place.merge = Merge::Done(run);
        }
    }

    /// Does all merges of a manager without a thread.
    pub fn finish(&self) {
        if self.upkeep.background {
            return;
        }
        let next = || self.queue.lock().waiting.pop_front();
        while let Some((table, task)) = next() {
            self.run(&table, task);
        }
    }

    /// Gives up the merges, and waits for the thread.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
        let mut queue = self.queue.lock();
        queue.waiting.clear();
        while queue.thread_of == Some(std::process::id()) {
            self.done.wait(&mut queue);
        }
        self.stopped.store(false, Ordering::Relaxed);
    }
}

/// Ends the thread at the end of its scope, and wakes those who wait.
struct Over<'a>(&'a Merges);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.queue.lock().thread_of = None;
        self.0.done.notify_all();
    }
}
