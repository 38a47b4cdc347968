//! Eviction: a store frees memory when it is short, and lies over its newest runs.

use std::sync::Arc;

use super::residency::{RunFacts, Step, next};
use super::state_store::StateStore;
use crate::error::Result;
use crate::segment::{Durability, SegmentWriter};
use crate::state::content::hydration::Progress;
use crate::state::runs::stack::{OpenRun, RunStack};

impl StateStore {
    /// Has the next session move to the newest runs, or loads the store over them now.
    pub(super) fn prepare_runs(&mut self, writer: &SegmentWriter) -> Result<()> {
        self.settle_run(writer);
        let Some(at) = self.standing.now() else {
            return Ok(());
        };
        let newest = at.runs().last().copied();
        let runs = self.families.runs();
        // The store may also lie over runs of large sessions, above the newest delta run.
        let is_below = |run: &Arc<OpenRun>| Some(run.reader.reference) == newest;
        let below = match runs.is_some_and(|runs| runs.runs.iter().any(is_below)) {
            true => newest,
            false => runs.and_then(RunStack::newest),
        };
        let step = next(&RunFacts {
            newest,
            below,
            looked_at: self.residency.looked_at,
            is_short: below.is_none() && self.memory.is_short_for_session(),
        });
        let (Step::Follow(newest) | Step::Leave(newest)) = step else {
            return Ok(());
        };
        if !self.families.can_lie_over_runs() || writer.durability(&newest) != Durability::Durable {
            return Ok(());
        }
        let version = at.newest_run().0;
        // Ignores segments that are no runs or are damaged. The next load reports the damage.
        let opened = self
            .families
            .open_runs(writer.storage(), &self.owner, at.runs());
        if let Step::Follow(_) = step {
            self.residency.next = opened.ok().map(|runs| (runs, version));
        } else if let Ok(runs) = opened {
            self.load_over(writer.storage(), runs)?;
        }
        self.residency.looked_at = Some(newest);
        Ok(())
    }

    /// If memory is short and the store was not used since the last call, evicts the keys that runs
    /// have and the older version. Maintenance calls this, so idle stores leave memory to others.
    ///
    /// # Errors
    /// Errors of loading the store over runs: it has no version then.
    pub fn rest(&mut self, writer: &SegmentWriter) -> Result<()> {
        let was_used = std::mem::take(&mut self.residency.is_used);
        let has_version = self.standing.now().is_some_and(|at| !at.rebuilt);
        let is_busy = was_used || self.session.is_some() || !self.scans.is_empty();
        if is_busy || !has_version || !self.memory.is_short(0) {
            return Ok(());
        }
        self.prepare_runs(writer)?;
        self.make_room(true)
    }

    /// Moves to the next runs. If memory is short, evicts its part of the runs' keys that the last
    /// sessions did not touch, or all of them. The store then cannot go back to an older version.
    pub(crate) fn make_room(&mut self, all: bool) -> Result<()> {
        self.scans.clear();
        self.standing.forget_before();
        self.families.begin();
        self.follow_runs();
        let is_short = self.memory.is_short_for_session();
        if is_short {
            self.residency.hydration = Progress::Over;
            let part = self.memory.excess() as usize;
            let before = self.families.memory_bytes();
            let release = self.memory.budget().release();
            let bytes = if all { usize::MAX } else { part };
            self.families.evict(bytes, release);
            let left = self.families.memory_bytes();
            if left != before {
                // The keys that remain were copied.
                self.memory.budget().count_turnover(left as u64);
            }
        }
        self.count_memory()?;
        if is_short && self.memory.is_short_for_session() {
            // Without its group a key costs two reads, but groups grow with the state.
            if let Some(runs) = self.families.runs() {
                runs.forget_unused_groups();
            }
            self.count_memory()?;
        }
        self.merging.is_starved = self.memory.is_short_for_merge() && self.is_dirty();
        Ok(())
    }

    fn follow_runs(&mut self) {
        let next = self.residency.next.take();
        if matches!(self.residency.hydration, Progress::Whole) && !self.memory.is_short(0) {
            self.residency.hydration = Progress::Over;
            self.families.leave_runs();
        } else if let Some((runs, version)) = next {
            self.families.move_over(runs, version);
            if !matches!(self.residency.hydration, Progress::Over) {
                self.begin_hydration();
            }
        }
    }
}
