//! Work on tables during attempts, one after the other: merges, and hydration. A thread does it,
//! which ends with the last work, or a caller that waits for it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::table::{Merge, Table};
use super::upkeep::Upkeep;
use crate::state::{Hydrated, MergeTask};

/// The wait for a session that hydrates itself.
const PAUSE_MS: u64 = 5;

#[derive(Debug)]
pub(super) struct TableWork {
    upkeep: Arc<Upkeep>,
    queue: Mutex<Queue>,
    /// A thread has ended.
    done: Condvar,
    /// Stops the merge that runs.
    stopped: Arc<AtomicBool>,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<(Arc<Table>, Work)>,
    /// Process of the thread, if there is one: a fork copies this, but not the thread.
    thread_of: Option<u32>,
}

#[derive(Debug)]
enum Work {
    Merge(MergeTask),
    Hydrate,
}

impl TableWork {
    pub fn new(upkeep: Arc<Upkeep>) -> Arc<Self> {
        Arc::new(Self {
            upkeep,
            queue: Mutex::default(),
            done: Condvar::new(),
            stopped: Arc::default(),
        })
    }

    /// Has a table merged during its attempts, unless it is already.
    pub fn add_merge(self: &Arc<Self>, table: &Arc<Table>, task: MergeTask) {
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
        queue
            .waiting
            .push_back((Arc::clone(table), Work::Merge(task)));
        self.hire(&mut queue);
    }

    /// Hydrates a table during its attempts, unless it is already.
    pub fn add_hydration(self: &Arc<Self>, table: &Arc<Table>) {
        if table.hydrates.swap(true, Ordering::Relaxed) {
            return;
        }
        let mut queue = self.queue.lock();
        // Before merges, which take longer.
        queue.waiting.push_front((Arc::clone(table), Work::Hydrate));
        self.hire(&mut queue);
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "the one thread of a manager that works on tables"
    )]
    fn hire(self: &Arc<Self>, queue: &mut Queue) {
        if !self.upkeep.background || queue.thread_of.is_some() {
            return;
        }
        let own = Arc::clone(self);
        let thread = std::thread::Builder::new().name("holdfast-tables".to_owned());
        // If no thread starts, the work stays in the queue, and the next one tries again.
        if thread.spawn(move || own.work()).is_ok() {
            queue.thread_of = Some(std::process::id());
        }
    }

    fn work(&self) {
        // When storage panics, the next work hires another thread.
        let over = Over(self);
        loop {
            let mut queue = self.queue.lock();
            let Some((table, work)) = queue.waiting.pop_front() else {
                // Under this lock, so that the next work finds no thread.
                queue.thread_of = None;
                std::mem::forget(over);
                self.done.notify_all();
                return;
            };
            drop(queue);
            self.run(&table, work);
        }
    }

    fn run(&self, table: &Table, work: Work) {
        match work {
            Work::Merge(task) => self.merge(table, task),
            Work::Hydrate => self.bring_in(table),
        }
    }

    fn bring_in(&self, table: &Table) {
        while !self.stopped.load(Ordering::Relaxed) {
            match table.store.hydrate() {
                Ok(Hydrated::More) => {}
                Ok(Hydrated::Later) => {
                    let pause = Duration::from_millis(PAUSE_MS);
                    self.done.wait_for(&mut self.queue.lock(), pause);
                }
                // A session that reads the keys reports damage.
                Ok(Hydrated::Over) | Err(_) => break,
            }
        }
        table.hydrates.store(false, Ordering::Relaxed);
    }

    fn merge(&self, table: &Table, task: MergeTask) {
        let writer = &self.upkeep.writer;
        let merged = self.upkeep.check_ours().and_then(|()| {
            let run = task.run(self.upkeep.storage.as_ref(), writer)?;
            writer.sync_files(&[run.file()].into())?;
            Ok(run)
        });
        let mut registry = self.upkeep.shared.registry.lock();
        let mut place = table.place.lock();
        // The table may be forgotten. After a failure the next attempt begins another merge:
        // segments may have gone with the attempt that wrote them.
        if let (Merge::Running, Ok(run)) = (std::mem::take(&mut place.merge), merged) {
            registry.ledger.hold(&run.reference);
            place.held.insert(run.reference);
            place.merge = Merge::Done(run);
        }
    }

    /// Does all work of a manager without a thread.
    pub fn finish(&self) {
        if self.upkeep.background {
            return;
        }
        let next = || self.queue.lock().waiting.pop_front();
        while let Some((table, work)) = next() {
            self.run(&table, work);
        }
    }

    /// Drops the work, and waits for the thread.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
        let mut queue = self.queue.lock();
        for (table, _) in queue.waiting.drain(..) {
            table.hydrates.store(false, Ordering::Relaxed);
        }
        while queue.thread_of == Some(std::process::id()) {
            self.done.wait(&mut queue);
        }
        self.stopped.store(false, Ordering::Relaxed);
    }
}

/// Ends the thread at the end of its scope, and wakes those who wait.
struct Over<'a>(&'a TableWork);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.queue.lock().thread_of = None;
        self.0.done.notify_all();
    }
}
