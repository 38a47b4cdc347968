//! Maintenance keeps a version's segments few: merges during sessions, and base images from memory.

use std::collections::HashSet;
use std::sync::Arc;

use super::merging::{MergeFacts, PendingRun, due};
use super::position::{MAX_LINEAGE_SEGMENTS, Position};
use super::state_store::StateStore;
use crate::error::Result;
use crate::format::{NewSegment, SegmentKind};
use crate::ids::{CheckpointId, FileId, SegmentRef};
use crate::segment::{Durability, SegmentWriter};
use crate::state::content::merge_task::{MergeTask, MergedRun};

/// Least bytes outside runs that are worth a merge for memory.
const STARVED_BYTES: usize = 64 << 10;

impl StateStore {
    /// Prepares for [`StateStore::begin`]. Writes a new base image if the opened version has too
    /// many segments or was rebuilt around damage, so that later versions need no damaged segment.
    ///
    /// # Errors
    /// Errors of storage: nothing must be committed then.
    pub fn mend(&mut self, writer: &SegmentWriter) -> Result<()> {
        let Some(at) = self.standing.now() else {
            return Ok(());
        };
        if at.rebuilt {
            return self.write_base_image(writer);
        }
        if at.is_long() {
            // If every batch runs in its own process, no commit builds on the images of commits and
            // maintenance. If this fails, the next session tries again.
            let _ = self.write_base_image(writer);
        }
        if self.memory.is_near_limit() && self.is_dirty() {
            // If this fails, the session may still have room, or reports that there is none.
            let _ = self.merge_at_once(writer);
        }
        self.prepare_runs(writer)
    }

    /// Merges in the foreground: memory is so short that the session would fail before another
    /// merge frees any. So a version whose changelogs took much memory elsewhere can continue here.
    fn merge_at_once(&mut self, writer: &SegmentWriter) -> Result<()> {
        self.merging.is_starved = true;
        if let Some(task) = self.merge_task(writer, 1, &HashSet::new()) {
            let run = task.run(writer.storage(), writer)?;
            self.accept(run);
        }
        if let Some(pending) = &self.merging.pending {
            writer.sync_soon(pending.run.reference.file)?;
        }
        Ok(())
    }

    /// A quarter of the memory is in no run, so that a merge lets it leave.
    pub(super) fn is_dirty(&self) -> bool {
        let (bytes, dirty) = (self.families.memory_bytes(), self.families.dirty_bytes());
        dirty >= STARVED_BYTES.max(bytes / 4)
    }

    /// Returns whether a merge should not wait for maintenance, because memory is short or the
    /// bound on unmerged segments is near. Known once a session has begun.
    pub fn wants_merge(&self) -> bool {
        self.merging.pending.is_none() && (self.merging.is_starved || self.is_behind())
    }

    fn is_behind(&self) -> bool {
        self.unmerged() >= MAX_LINEAGE_SEGMENTS / 4
    }

    /// The merge that is due. A merge is due if at least `min_changelogs` durable ones lie above
    /// the runs, and either the segments above the base image have half its size, see `keep_below`,
    /// or there are `MAX_WAIT` times as many. One changelog is enough if the bound on unmerged
    /// segments is near, or if memory is short and most of it is in no run: only keys of runs can
    /// leave memory. A merge is also due if a segment is in a `wasteful` file, which goes once no
    /// version needs it. `None` while an earlier run waits to become durable.
    pub fn merge_task(
        &mut self,
        writer: &SegmentWriter,
        min_changelogs: usize,
        wasteful: &HashSet<FileId>,
    ) -> Option<MergeTask> {
        self.settle_run(writer);
        if self.merging.pending.is_some() {
            return None;
        }
        let from = self.durable_position(writer)?;
        let lengths = |segments: &[SegmentRef]| segments.iter().map(|s| s.len).collect::<Vec<_>>();
        let kept = due(&MergeFacts {
            runs: &lengths(from.runs()),
            changelogs: &lengths(from.changelogs()),
            // A base that replaced nothing is the first changelog.
            has_base_image: from.replaced.is_some(),
            is_urgent: self.merging.is_starved || self.is_behind(),
            least: min_changelogs.max(1),
            wasteful: from.lineage.iter().position(|s| wasteful.contains(&s.file)),
        })?;
        // The version, even if it changed nothing: commits on the run then need no older segment.
        self.merge_above(kept, &from.lineage, from.id.version)
    }

    pub(super) fn merge_above(
        &self,
        kept: usize,
        lineage: &[SegmentRef],
        version: u64,
    ) -> Option<MergeTask> {
        let (below, merged) = lineage.split_at_checked(kept)?;
        (!merged.is_empty()).then(|| MergeTask {
            owner: self.owner.clone(),
            layout: self.layout(),
            below: below.to_vec(),
            is_of_session: false,
            merged: merged.to_vec(),
            created: CheckpointId(version),
            budget: Arc::clone(self.memory.budget()),
            is_given_up: Arc::default(),
        })
    }

    /// Takes a run over for commits, once durable. Drops one that is lost or of another lineage.
    pub fn accept(&mut self, run: MergedRun) {
        self.merging.pending = Some(PendingRun {
            run,
            has_waited: false,
        });
    }

    /// The file of a run that maintenance must make durable. Commits make the files durable that
    /// they refer to. No commit refers to a file of large runs, nor, if all stores are idle, to the
    /// shared file: this returns the shared file if the run was pending at the last call, too.
    pub fn overdue_run(&mut self, writer: &SegmentWriter) -> Option<FileId> {
        self.settle_run(writer);
        let pending = self.merging.pending.as_mut()?;
        let file = pending.run.reference.file;
        let has_waited = std::mem::replace(&mut pending.has_waited, true);
        (has_waited || writer.is_open_file_of_runs(file)).then_some(file)
    }

    /// Gives back a run that no commit builds on yet, for the next store of the same owner.
    pub fn take_pending_run(&mut self) -> Option<MergedRun> {
        self.merging.pending.take().map(|pending| pending.run)
    }

    /// The newest version as good as a snapshot: the durable one while fewer than `min_changelogs`
    /// lie above its runs, else the newest run's. So it also rises for an idle store.
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

    /// The segments that the version is made of, oldest first. A commit builds on them.
    pub fn segments(&self) -> &[SegmentRef] {
        let now = self.standing.now();
        now.map_or(&[], |at| at.lineage.as_slice())
    }

    /// The segments of the version and of the one that undoing the last commit leads to.
    pub fn held_segments(&self) -> impl Iterator<Item = SegmentRef> {
        let versions = self.standing.versions();
        versions.flat_map(|at| at.lineage.iter().copied())
    }

    pub(crate) fn is_starved(&self) -> bool {
        self.merging.is_starved
    }

    pub(crate) fn unready_bytes(&self) -> u64 {
        let now = self.standing.now();
        now.map_or(0, |at| at.unready().iter().map(|one| one.len).sum())
    }

    /// Number of changelogs of the version that are in no run.
    pub fn unmerged(&self) -> usize {
        self.standing.now().map_or(0, |at| match at.replaced {
            Some(_) => at.changelogs().len(),
            // The first changelog serves as base image.
            None => at.lineage.len(),
        })
    }

    /// Number of runs of the version: a base image and the delta runs above it.
    pub fn merged_runs(&self) -> usize {
        self.segments().len().saturating_sub(self.unmerged())
    }

    /// Bytes in files of the segments that the version is made of.
    pub fn stored_bytes(&self) -> u64 {
        self.segments().iter().map(|one| one.len).sum()
    }

    pub(crate) fn write_base_image(&mut self, writer: &SegmentWriter) -> Result<()> {
        let Some(at) = self.standing.now_mut() else {
            return Ok(());
        };
        let created = CheckpointId(at.id.version);
        let new = NewSegment {
            replaced: at.replaced_by_image(),
            ..NewSegment::of(&self.owner, created, SegmentKind::Run)
        };
        let mut run = writer.begin_run(&new)?;
        if self.memory.budget().was_short() {
            run.expect_lookups();
        }
        self.families.snapshot(&mut run)?;
        at.build_on(run.finish_durable()?);
        Ok(())
    }

    pub(crate) fn settle_run(&mut self, writer: &SegmentWriter) {
        if self.spilled().is_some() {
            // The runs of the session name the runs below them.
            return;
        }
        let Some(at) = self.standing.now_mut() else {
            // The run may belong to the next version that is opened.
            return;
        };
        let is_over = |pending: &mut PendingRun| {
            writer.durability(&pending.run.reference) != Durability::Pending
        };
        if let Some(PendingRun { run, .. }) = self.merging.pending.take_if(is_over)
            && writer.durability(&run.reference) == Durability::Durable
        {
            at.install(&run);
        }
    }

    /// The newest durable version on no damaged run. Others may be unreadable, or never complete.
    fn durable_position(&self, writer: &SegmentWriter) -> Option<&Position> {
        let durable = |position: &&Position| {
            let lost = |segment| writer.durability(segment) != Durability::Durable;
            !position.rebuilt && !position.lineage.last().is_some_and(lost)
        };
        self.standing.versions().find(durable)
    }
}
