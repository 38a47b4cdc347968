//! Spilling: a session whose changes outgrow memory writes them as runs and continues. After the
//! first spill all of the opened version is in runs. The tables are empty and lie over these runs
//! and the session's runs. Only the session's commit names its runs: after an abort or a crash they
//! are garbage.

use std::collections::BTreeSet;

use super::merging::{MergeFacts, before_spill, merged_of_session};
use super::position::Position;
use super::residency::Residency;
use super::session::Spilled;
use super::state_store::StateStore;
use crate::error::Result;
use crate::format::{NewSegment, SegmentKind, TableKeys};
use crate::ids::{CheckpointId, FileId, SegmentRef};
use crate::segment::{RunWriter, SegmentWriter};
use crate::state::content::families::Families;
use crate::state::content::merge_task::{MergeTask, OUTPUT_BYTES};
use crate::state::delta_runs::MAX_DELTA_RUNS;

impl StateStore {
    pub(super) fn spilled(&self) -> Option<&Spilled> {
        self.session.as_ref()?.spilled.as_ref()
    }

    /// A batch that outgrew memory spills; reads before a session drop the keys that they read.
    pub(crate) fn leave_memory(&mut self, writer: Option<&SegmentWriter>) -> Result<()> {
        if !self.memory.must_spill() || !self.families.can_lie_over_runs() {
            return Ok(());
        }
        match writer {
            Some(writer) if self.session.is_some() => self.spill(writer)?,
            None | Some(_) if self.session.is_none() && self.scans.is_empty() => {
                // Keys that were touched last remain for a session more.
                self.families.begin();
                self.make_room(true)?;
                self.memory.settle();
                self.memory.budget().give_back();
            }
            None | Some(_) => {}
        }
        Ok(())
    }

    /// Writes the changes so far as a run, and leaves memory. Open scans keep their content.
    ///
    /// # Errors
    /// `InvalidInput` outside a session, and for a store whose keys cannot remain in runs; errors
    /// of storage. The session is then unchanged.
    pub fn spill(&mut self, writer: &SegmentWriter) -> Result<()> {
        if self.session.is_none() || !self.families.can_lie_over_runs() {
            return Err(self.refused("no session is open that can spill"));
        }
        self.begin_spilling(writer)?;
        self.write_run(writer)?;
        self.memory.budget().give_back();
        self.make_place(writer)
    }

    fn write_run(&mut self, writer: &SegmentWriter) -> Result<()> {
        let _work = self.memory.budget().begin_work(OUTPUT_BYTES);
        let Some(mut next) = self.spilled().cloned() else {
            return Ok(());
        };
        // There is place unless the last spill failed after its run.
        next.runs = self.with_place(writer, &next)?;
        self.leave_journal(writer)?;
        let tables = self.families.table_keys();
        if let Some((run, bytes)) = self.write_changes(writer, &next, &tables)? {
            next.runs.push(run);
            next.bytes += bytes;
        }
        self.lie_over(writer, next, &tables)
    }

    /// Makes place for the next run of the session, while its tables take no memory.
    fn make_place(&mut self, writer: &SegmentWriter) -> Result<()> {
        let Some(spilled) = self.spilled().cloned() else {
            return Ok(());
        };
        let runs = self.with_place(writer, &spilled)?;
        if runs == spilled.runs {
            return Ok(());
        }
        let tables = self.families.table_keys();
        self.lie_over(writer, Spilled { runs, ..spilled }, &tables)
    }

    fn leave_journal(&mut self, writer: &SegmentWriter) -> Result<()> {
        let Some(at) = self.standing.now() else {
            return Ok(());
        };
        let created = CheckpointId(at.id.version + 1);
        let session = self.session.as_mut();
        let Some(journal) = session.and_then(|session| session.journal.as_mut()) else {
            return Ok(());
        };
        let part = journal.last_part();
        if part.operations > 0 {
            let new = NewSegment {
                entries: part.operations,
                ..NewSegment::of(&self.owner, created, SegmentKind::Changelog)
            };
            let part = writer.append(&new, part.payload)?;
            journal.leave(part);
        }
        Ok(())
    }

    fn begin_spilling(&mut self, writer: &SegmentWriter) -> Result<()> {
        if self.spilled().is_some() {
            return Ok(());
        }
        // A pending merge was made of segments that this one takes.
        self.merging.pending = None;
        self.residency = Residency {
            is_used: true,
            ..Residency::default()
        };
        let Some(at) = self.standing.now() else {
            return Ok(());
        };
        let lengths = |segments: &[SegmentRef]| segments.iter().map(|s| s.len).collect::<Vec<_>>();
        let kept = before_spill(&MergeFacts {
            runs: &lengths(at.runs()),
            changelogs: &lengths(at.changelogs()),
            has_base_image: at.replaced.is_some(),
            is_urgent: true,
            least: 1,
            wasteful: None,
        });
        let mut version = at.clone();
        if let Some(task) = self.merge_above(kept, &at.lineage, at.id.version) {
            writer.sync_files(&files(&at.lineage))?;
            let run = task.run(writer.storage(), writer)?;
            writer.sync_files(&files(&[run.reference]))?;
            version.install(&run);
            if let Some(at) = self.standing.now_mut() {
                at.clone_from(&version);
            }
        }
        if let Some(session) = &mut self.session {
            session.spilled = Some(Spilled {
                version,
                runs: Vec::new(),
                bytes: 0,
            });
        }
        Ok(())
    }

    /// Merges some runs if there is no place for another.
    fn with_place(&self, writer: &SegmentWriter, spilled: &Spilled) -> Result<Vec<SegmentRef>> {
        let at = spilled.position()?;
        if at.deltas.len() < MAX_DELTA_RUNS {
            return Ok(spilled.runs.clone());
        }
        let lengths: Vec<_> = spilled.runs.iter().map(|run| run.len).collect();
        let merged = merged_of_session(&lengths);
        let kept = at.lineage.len() - merged;
        let Some(task) = self.merge_above(kept, &at.lineage, at.id.version + 1) else {
            return Ok(spilled.runs.clone());
        };
        let task = MergeTask {
            is_of_session: true,
            ..task
        };
        let run = task.run(writer.storage(), writer)?.reference;
        make_readable(writer, &run)?;
        let own = spilled.runs.len() - merged;
        Ok([spilled.runs.get(..own).unwrap_or_default(), &[run]].concat())
    }

    /// Returns the run, if something changed, and the bytes of its entries before compression.
    fn write_changes(
        &self,
        writer: &SegmentWriter,
        spilled: &Spilled,
        tables: &[TableKeys],
    ) -> Result<Option<(SegmentRef, u64)>> {
        let at = spilled.position()?;
        let mut run = self.begin_run_above(writer, &at, tables)?;
        run.expect_bytes(self.memory.taken_by_batch());
        let is_first = at.lineage.is_empty();
        if self.families.write_changes(is_first, &mut run)? == 0 {
            return Ok(None);
        }
        let bytes = run.entry_bytes();
        let run = run.finish()?;
        make_readable(writer, &run)?;
        Ok(Some((run, bytes)))
    }

    pub(super) fn begin_run_above<'a>(
        &self,
        writer: &'a SegmentWriter,
        at: &Position,
        tables: &[TableKeys],
    ) -> Result<RunWriter<'a>> {
        let is_first = at.lineage.is_empty();
        let created = CheckpointId(at.id.version + 1);
        let mut run = writer.begin_run(&NewSegment {
            lineage: &at.lineage,
            tables: if is_first { &[] } else { tables },
            ..NewSegment::of(&self.owner, created, SegmentKind::Run)
        })?;
        run.expect_lookups();
        Ok(run)
    }

    fn lie_over(
        &mut self,
        writer: &SegmentWriter,
        spilled: Spilled,
        tables: &[TableKeys],
    ) -> Result<()> {
        let lineage = spilled.position()?.lineage;
        if !lineage.is_empty() {
            let storage = writer.storage();
            let runs = self.families.open_runs(storage, &self.owner, &lineage)?;
            let mut content = Families::new(self.families.layout());
            content
                .open_over(runs)
                .and_then(|()| content.count_unlinked(tables))
                .map_err(|e| e.context(&self.owner))?;
            self.stats = self.stats();
            let left = std::mem::replace(&mut self.families, content);
            if !self.scans.is_empty() {
                self.scans.stay_with(left);
            }
        }
        if let Some(session) = &mut self.session {
            session.spilled = Some(spilled);
        }
        self.count_memory()?;
        self.memory.settle();
        Ok(())
    }
}

/// Makes a run readable on storage that hides files while they are open.
fn make_readable(writer: &SegmentWriter, run: &SegmentRef) -> Result<()> {
    if writer.storage().capabilities().durable_append {
        return Ok(());
    }
    writer.sync_files(&files(&[*run]))
}

fn files(segments: &[SegmentRef]) -> BTreeSet<FileId> {
    segments.iter().map(|segment| segment.file).collect()
}
