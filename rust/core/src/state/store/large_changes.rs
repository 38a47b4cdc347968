//! Large changes of a session become a run, so that a later load lies over them. The run takes the
//! place of a changelog, above the delta runs, and an empty changelog names it. A merge during a
//! session may still go below it, which delta runs do not allow.

use super::position::Position;
use super::state_store::StateStore;
use crate::error::Result;
use crate::format::TableKeys;
use crate::ids::CheckpointId;
use crate::segment::SegmentWriter;
use crate::state::runs::entries::ChangeReader;

#[derive(Clone, Copy, Debug)]
pub(crate) struct LargeChanges {
    /// Their least bytes before compression.
    pub bytes: u64,
    /// Merges the changelogs below that a load applies, if smaller. No merge in progress has them.
    pub merges: bool,
}

impl StateStore {
    pub(super) fn write_large(
        &self,
        writer: &SegmentWriter,
        at: &Position,
        changes: &[u8],
        tables: &[TableKeys],
        large: LargeChanges,
    ) -> Result<Option<Position>> {
        let is_large = changes.len() as u64 >= large.bytes;
        if !is_large || !self.memory.has_target() || !self.families.can_lie_over_runs() {
            return Ok(None);
        }
        let mut at = at.clone();
        let unready = at.unready();
        if !unready.is_empty() {
            let bytes = unready.iter().map(|one| one.len).sum::<u64>();
            let kept = at.lineage.len() - unready.len();
            let task = self.merge_above(kept, &at.lineage, at.id.version);
            let Some(task) = task.filter(|_| large.merges && bytes < large.bytes) else {
                return Ok(None);
            };
            let run = task.run(writer.storage(), writer)?;
            match kept {
                0 => at.install(&run),
                _ => at.put_ready(kept, run.reference, run.created),
            }
        }
        let mut run = self.begin_run_above(writer, &at, tables)?;
        run.expect_bytes(changes.len() as u64);
        let mut changes = ChangeReader::new(changes);
        while let Some((key, change)) = changes.next()? {
            let (table, own) = self.layout().split(key)?;
            run.push(table, own, change.value())?;
        }
        let run = run.finish()?;
        if at.lineage.is_empty() {
            return at.with_spilled(run).map(Some);
        }
        let created = CheckpointId(at.id.version + 1);
        at.put_ready(at.lineage.len(), run, created);
        Ok(Some(at))
    }
}
