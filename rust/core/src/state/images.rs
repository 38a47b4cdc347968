//! Runs of a store: when a merge is due, and when commits build on what it made.

use std::collections::HashSet;
use std::sync::Arc;

use super::hydration::Progress;
use super::merge_task::{MergeTask, MergedRun, keep_below};
use super::position::Position;
use super::store::StateStore;
use crate::error::Result;
use crate::format::{NewSegment, SegmentKind};
use crate::ids::{CheckpointId, FileId, SegmentRef};
use crate::segment::{Durability, SegmentWriter};

/// Changelogs are merged at the latest when this many times the least number have gathered. Below 5,
/// where Spark's coordinator begins to call a store lagging.
const MAX_WAIT: usize = 4;

/// Bound on the segments a version is made of: 256 references of 44 bytes are 11 KiB in the head of
/// every segment. Stores ask for a merge at a quarter of it, where maintenance comes too seldom.
const MAX_LINEAGE_SEGMENTS: usize = 256;

/// A store of which less is in no run is not worth a run of its own for memory.
const STARVED_BYTES: usize = 64 << 10;

impl StateStore {
    /// Writes a new base image if the opened version was rebuilt around a damaged one, so that what
    /// follows depends on sound segments only, or if it is made of too many segments. To be called
    /// before [`StateStore::begin`].
    ///
    /// # Errors
    /// Those of storage: nothing must be committed then.
    pub fn mend(&mut self, writer: &SegmentWriter) -> Result<()> {
        let Some(at) = &self.at else {
            return Ok(());
        };
        if at.rebuilt {
            return self.write_base_image(writer);
        }
        if is_long(at) {
            // Where every batch runs in a process of its own, no commit builds on the images that
            // commits and maintenance write. When this fails, the next session tries again.
            let _ = self.write_base_image(writer);
        }
        if self.memory.is_near_limit() && self.is_dirty() {
            // When this fails, there is still room for some, or the session says that there is none.
            let _ = self.merge_at_once(writer);
        }
        self.prepare_runs(writer)
    }

    /// What a merge beside sessions would let leave memory leaves it now: a session that does not wait for
    /// that would fail. So a version whose changelogs took much memory elsewhere can go on here.
    fn merge_at_once(&mut self, writer: &SegmentWriter) -> Result<()> {
        self.is_starved = true;
        if let Some(task) = self.merge_task(writer, 1, &HashSet::new()) {
            let run = task.run(writer.storage(), writer)?;
            self.accept(run);
        }
        if let Some(run) = &self.pending_run {
            writer.sync_soon(run.reference.file)?;
        }
        Ok(())
    }

    /// A store that lies over runs has the next session move to those that are new in the lineage: the
    /// older ones go with the batches that need them. Where memory is short, one that lies over none is
    /// loaded anew over those of its lineage, so that what they have needs no memory.
    fn prepare_runs(&mut self, writer: &SegmentWriter) -> Result<()> {
        self.settle_run(writer);
        let Some(at) = &self.at else {
            return Ok(());
        };
        let newest = at.runs().last().copied();
        let is_known = newest.is_none() || newest == self.families.newest_run_below();
        let lies_over_run = self.families.newest_run_below().is_some();
        let wanted = !is_known
            && newest != self.looked_at
            && (lies_over_run || self.memory.is_short_for_session())
            && self.families.can_rest_on_run()
            && newest.is_some_and(|run| writer.durability(&run) == Durability::Durable);
        if !wanted {
            return Ok(());
        }
        let version = at.newest_run().0;
        // What is no run, or is damaged, stays what it is: loads find damage.
        let opened = self
            .families
            .open_runs(writer.storage(), &self.owner, at.runs());
        if lies_over_run {
            self.next_runs = opened.ok().map(|runs| (runs, version));
        } else if let Ok(runs) = opened {
            self.load_over(writer.storage(), runs)?;
        }
        self.looked_at = newest;
        Ok(())
    }

    /// Where memory is short: a store that was not used since this was last called gives up what its runs
    /// have, and the next to last version. To be called by maintenance, so that the memory of stores
    /// that rest goes to those that work.
    ///
    /// # Errors
    /// Those of loading it over runs: the store has no version then.
    pub fn rest(&mut self, writer: &SegmentWriter) -> Result<()> {
        let was_used = std::mem::take(&mut self.is_used);
        let has_version = self.at.as_ref().is_some_and(|at| !at.rebuilt);
        let is_busy = was_used || self.in_session || !self.scans.is_empty();
        if is_busy || !has_version || !self.memory.is_short(0) {
            return Ok(());
        }
        self.prepare_runs(writer)?;
        self.make_room(true)
    }

    /// Moves to the runs that come next, and gives up what they have and the last sessions did not
    /// touch, if memory is short: its part of that, or everything. There is no way back to an older
    /// version then.
    ///
    /// # Errors
    /// `LimitExceeded`.
    pub(super) fn make_room(&mut self, all: bool) -> Result<()> {
        self.scans.clear();
        self.before = None;
        self.families.begin();
        self.follow_runs();
        let is_short = self.memory.is_short_for_session();
        if is_short {
            self.hydration = Progress::Over;
            let part = self.memory.excess() as usize;
            let before = self.families.memory_bytes();
            let release = self.memory.budget().release();
            let bytes = if all { usize::MAX } else { part };
            self.families.evict(bytes, release);
            let left = self.families.memory_bytes();
            if left != before {
                // What stays was copied.
                self.memory.note_copied(left as u64);
            }
        }
        self.count_memory()?;
        if is_short && self.memory.is_short_for_session() {
            // Without them a key costs two reads; but they grow with the state.
            self.families.forget_unused_groups();
            self.count_memory()?;
        }
        self.is_starved = self.memory.is_short_for_merge() && self.is_dirty();
        Ok(())
    }

    /// So much of what the store has in memory is in no run that another run helps, which lets it leave.
    fn is_dirty(&self) -> bool {
        let (bytes, dirty) = (self.families.memory_bytes(), self.families.dirty_bytes());
        dirty >= STARVED_BYTES.max(bytes / 4)
    }

    /// Whether the next merge is not to wait until maintenance comes, because memory is short or because the
    /// bound on what is not merged comes near. It is known when a session has begun.
    pub fn wants_merge(&self) -> bool {
        self.pending_run.is_none() && (self.is_starved || self.is_behind())
    }

    fn is_behind(&self) -> bool {
        self.unmerged() >= MAX_LINEAGE_SEGMENTS / 4
    }

    /// Lets go of the runs if all keys are in memory and may stay there, else moves to those that come next.
    fn follow_runs(&mut self) {
        let next = self.next_runs.take();
        if matches!(self.hydration, Progress::Whole) && !self.memory.is_short(0) {
            self.hydration = Progress::Over;
            self.families.leave_runs();
        } else if let Some((runs, version)) = next {
            self.families.rest_on(runs, version);
            if !matches!(self.hydration, Progress::Over) {
                self.begin_hydration();
            }
        }
    }

    /// The merge that is due: at least `min_changelogs` durable ones lie above the runs, and either
    /// what lies above the base image is half its size, see `keep_below`, or there are `MAX_WAIT`
    /// times as many. One changelog is enough where memory is short and what takes it is in no run,
    /// because only what a run has can leave memory, and where the bound on what is not merged is near.
    /// Also as soon as any segment lies in one of the `wasteful` files, which go once no version needs
    /// a segment in them. `None` while an earlier run waits for its file to become durable.
    pub fn merge_task(
        &mut self,
        writer: &SegmentWriter,
        min_changelogs: usize,
        wasteful: &HashSet<FileId>,
    ) -> Option<MergeTask> {
        self.settle_run(writer);
        if self.pending_run.is_some() {
            return None;
        }
        let from = self.durable_position(writer)?;
        let least = min_changelogs.max(1);
        let lengths = |segments: &[SegmentRef]| segments.iter().map(|s| s.len).collect::<Vec<_>>();
        let changelogs = lengths(from.changelogs());
        let runs = lengths(from.runs());
        // What never replaced anything is no base image, but the first changelog.
        let has_base = from.replaced.is_some();
        let above = changelogs.iter().chain(runs.iter().skip(1)).sum::<u64>();
        let has_some = !has_base || !changelogs.is_empty();
        let due = changelogs.len() >= least
            && (above >= runs.first()? / 2 || changelogs.len() >= least.saturating_mul(MAX_WAIT))
            || has_some && (self.is_starved || self.is_behind());
        let pinned = from.lineage.iter().position(|s| wasteful.contains(&s.file));
        if !due && pinned.is_none() {
            return None;
        }
        let kept = if has_base {
            keep_below(&runs, changelogs.iter().sum())
        } else {
            0
        };
        let (below, merged) = from
            .lineage
            .split_at_checked(kept.min(pinned.unwrap_or(kept)))?;
        Some(MergeTask {
            owner: self.owner.clone(),
            layout: self.layout(),
            below: below.to_vec(),
            merged: merged.to_vec(),
            // Not when it last changed, but how far it is known not to have: what is older is not
            // needed any more once commits build on the run.
            created: CheckpointId(from.id.version),
            budget: Arc::clone(self.memory.budget()),
        })
    }

    /// Takes a run over. Commits build on it once it is durable; it is dropped when it is lost, or when
    /// the store has moved to another lineage.
    pub fn accept(&mut self, run: MergedRun) {
        self.pending_run = Some(run);
        self.run_waits = false;
    }

    /// The file of a run that waits for maintenance to make it durable. Commits make durable what they
    /// refer to. None refers to a file of large runs, nor, where all stores rest, to the file that all
    /// share: that one is named where the run was pending when this was called before, too.
    pub fn overdue_run(&mut self, writer: &SegmentWriter) -> Option<FileId> {
        self.settle_run(writer);
        let run = self.pending_run.as_ref()?;
        let file = run.reference.file;
        let waited = std::mem::replace(&mut self.run_waits, true);
        (waited || writer.is_open_file_of_runs(file)).then_some(file)
    }

    /// Gives back a run that no commit builds on yet, for another store of the same owner that is
    /// opened next.
    pub fn take_pending_run(&mut self) -> Option<MergedRun> {
        self.pending_run.take()
    }

    /// The newest version that is as good as a snapshot: the durable one, as long as fewer than
    /// `min_changelogs` lie above its runs, else that of the newest run. So it rises for a store that
    /// rests, too, which needs no new run.
    pub fn snapshot_version(
        &self,
        writer: &SegmentWriter,
        min_changelogs: usize,
    ) -> Option<CheckpointId> {
        let position = self.durable_position(writer)?;
        let near = position.changelogs().len() < min_changelogs.max(1);
        Some(if near {
            CheckpointId(position.id.version)
        } else {
            position.newest_run()
        })
    }

    /// Number of changelogs that the version needs and that are in no run.
    pub fn unmerged(&self) -> usize {
        self.at.as_ref().map_or(0, |at| match at.replaced {
            Some(_) => at.changelogs().len(),
            // The first changelog is there in the place of a base image.
            None => at.lineage.len(),
        })
    }

    /// Number of runs that make up the version, a base image and the delta runs above it.
    pub fn merged_runs(&self) -> usize {
        let lineage = self.at.as_ref().map_or(0, |at| at.lineage.len());
        lineage.saturating_sub(self.unmerged())
    }

    /// Writes the content as a base image from memory, for later commits to build on.
    pub(super) fn write_base_image(&mut self, writer: &SegmentWriter) -> Result<()> {
        let Some(at) = self.at.as_mut() else {
            return Ok(());
        };
        let new = NewSegment {
            owner: &self.owner,
            created: CheckpointId(at.id.version),
            kind: SegmentKind::Run,
            lineage: &[],
            replaced: at.replaced_by_image(),
            entries: 0,
            tables: &[],
            runs: 0,
        };
        let mut run = writer.begin_run(&new)?;
        if self.memory.budget().was_short() {
            run.expect_lookups();
        }
        self.families.snapshot(&mut run)?;
        at.rest_on(run.finish_durable()?);
        Ok(())
    }

    pub(super) fn settle_run(&mut self, writer: &SegmentWriter) {
        let Some(at) = self.at.as_mut() else {
            // The version that is opened next may be one that the run belongs to.
            return;
        };
        let durability = self
            .pending_run
            .as_ref()
            .map(|run| writer.durability(&run.reference));
        match durability {
            None | Some(Durability::Pending) => {}
            Some(Durability::Lost) => self.pending_run = None,
            Some(Durability::Durable) => {
                if let Some(run) = self.pending_run.take() {
                    at.install(&run);
                }
            }
        }
    }

    /// The newest version that is durable and builds on no damaged run. What is not durable may
    /// not even be readable yet, and its checkpoint may never complete.
    fn durable_position(&self, writer: &SegmentWriter) -> Option<&Position> {
        let durable = |position: &&Position| {
            let lost = |segment| writer.durability(segment) != Durability::Durable;
            !position.rebuilt && !position.lineage.last().is_some_and(lost)
        };
        [&self.at, &self.before].into_iter().flatten().find(durable)
    }
}

/// The version is made of more segments than one head may name.
pub(super) fn is_long(position: &Position) -> bool {
    position.lineage.len() > MAX_LINEAGE_SEGMENTS
}
