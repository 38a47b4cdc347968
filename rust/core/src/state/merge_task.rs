//! Merges: the newest segments of a lineage become one run.
//!
//! Maintenance reads changelogs, the delta runs below them that are not much larger, and at times the
//! base image, and merges them into a run, newest change first. The live table and its writer are not
//! involved. What is merged without the base image becomes a *delta run*, which says what changed since
//! the runs below it; with the base image it becomes the next base image.

use std::sync::Arc;

use super::content::Layout;
use super::delta_runs::MAX_DELTA_RUNS;
use super::entry_stream::EntryStream;
use super::memory::MemoryBudget;
use super::merge::Merge;
use crate::error::Result;
use crate::format::{NewSegment, SegmentKind, SegmentReader, TableKeys};
use crate::ids::{CheckpointId, Owner, SegmentRef};
use crate::segment::SegmentWriter;
use crate::storage::Storage;

/// What is read of an input at once. An input that is smaller is read with one read.
const READ_AHEAD_BYTES: u64 = 1 << 20;

/// What the output takes at most, see [`MergeTask::run`].
const OUTPUT_BYTES: u64 = 10 << 20;

/// What to merge: the newest segments of a durable lineage as it stood when the task was made.
#[derive(Clone, Debug)]
pub struct MergeTask {
    pub(super) owner: Owner,
    pub(super) layout: Layout,
    /// Runs that stay as they are, oldest first. None for a base image.
    pub(super) below: Vec<SegmentRef>,
    /// All segments above these, oldest first.
    pub(super) merged: Vec<SegmentRef>,
    /// Version whose content all of them are.
    pub(super) created: CheckpointId,
    /// The memory that it takes counts as work there.
    pub(super) budget: Arc<MemoryBudget>,
}

/// A run and the segments it stands for. It may be cited once it is durable. The caller sees to that:
/// the merge syncs nothing but a large run, and that only where storage can append durably.
#[derive(Clone, Debug)]
pub struct MergedRun {
    pub(super) reference: SegmentRef,
    pub(super) created: CheckpointId,
    /// Runs that it builds on, oldest first.
    pub(super) below: Vec<SegmentRef>,
    pub(super) replaces: Vec<SegmentRef>,
}

impl MergeTask {
    /// Whether what it makes is a base image.
    pub fn makes_base_image(&self) -> bool {
        self.below.is_empty()
    }

    /// Merges the segments, which are read from `storage` page by page, and appends the result.
    ///
    /// Memory: for each input what is read ahead and one page, at most 1 MiB each and never more than
    /// the input has. For the output 10 MiB: 4 MiB of frames with room for 2 MiB behind them, one section
    /// of groups (1 MiB), and what the filter of a group takes while it is made (3 MiB). Beside that the
    /// directory, and three times the largest entry.
    ///
    /// # Errors
    /// `NotFound` or `Corrupt` when a segment is gone or damaged; `Storage`. Nothing is left of the
    /// result then.
    pub fn run(self, storage: &dyn Storage, writer: &SegmentWriter) -> Result<MergedRun> {
        let _work = self.budget.begin_work(self.memory_bytes());
        let mut segments = SegmentReader::new(storage);
        let mut inputs = Vec::with_capacity(self.merged.len());
        for reference in &self.merged {
            let stream = segments.stream(reference, &self.owner, READ_AHEAD_BYTES)?;
            inputs.push(EntryStream::new(stream));
        }
        let new = NewSegment {
            owner: &self.owner,
            created: self.created,
            kind: SegmentKind::Run,
            lineage: &self.below,
            replaced: self.merged.last().copied(),
            entries: 0,
            tables: &self.tables(&inputs),
            runs: 0,
        };
        let mut run = writer.begin_run(&new)?;
        run.expect_bytes(self.merged.iter().map(|segment| segment.len).sum());
        if self.budget.was_short() {
            run.expect_lookups();
        }
        let mut merge = Merge::new(inputs).map_err(|e| e.context(&self.owner))?;
        while let Some((key, change)) = merge.next().map_err(|e| e.context(&self.owner))? {
            // Where nothing older lies below, what is gone needs no mention.
            if change.value().is_some() || !self.below.is_empty() {
                let (table, key) = self.layout.split(key)?;
                run.push(table, key, change.value())?;
            }
        }
        Ok(MergedRun {
            reference: run.finish()?,
            created: self.created,
            below: self.below,
            replaces: self.merged,
        })
    }

    /// What it takes at most, beside directories and large entries. A small output takes no more than what it
    /// has, and as much again while it is made.
    fn memory_bytes(&self) -> u64 {
        let inputs = || self.merged.iter().map(|segment| segment.len);
        let read = inputs()
            .map(|len| 2 * len.min(READ_AHEAD_BYTES))
            .sum::<u64>();
        read + OUTPUT_BYTES.min(2 * inputs().sum::<u64>())
    }

    /// How many keys the tables have in the end. A base image counts them itself.
    fn tables(&self, inputs: &[EntryStream]) -> Vec<TableKeys> {
        let newest = inputs.last().filter(|_| !self.below.is_empty());
        newest.map_or_else(Vec::new, |newest| newest.head().tables.clone())
    }
}

/// Number of segments at the beginning of a lineage that a merge leaves as they are. `runs` are the
/// lengths of its runs, oldest first, and `changelogs` that of what lies above them.
///
/// All is merged once what lies above the base image has half its size: then a load reads at most half
/// as much again, and base images cost at most three times what commits write. Else a merge takes in
/// each delta run that is not larger than all that it merges already. So the runs of a lineage double in
/// size from the newest to the oldest, and a change is written again as often as its run can double.
pub(super) fn keep_below(runs: &[u64], changelogs: u64) -> usize {
    let Some((base, deltas)) = runs.split_first() else {
        return 0;
    };
    let above = deltas.iter().sum::<u64>().saturating_add(changelogs);
    if above >= base / 2 {
        return 0;
    }
    let mut merged = changelogs;
    let mut kept = deltas.len();
    while let Some(delta) = kept.checked_sub(1).and_then(|newest| deltas.get(newest))
        && (*delta <= merged || kept >= MAX_DELTA_RUNS)
    {
        merged += delta;
        kept -= 1;
    }
    1 + kept
}

#[cfg(test)]
mod tests {
    #![allow(clippy::indexing_slicing)]
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_merged_is_not_much_smaller_than_what_it_is_merged_with() {
        assert_eq!(keep_below(&[], 10), 0);
        assert_eq!(keep_below(&[100], 49), 1);
        assert_eq!(keep_below(&[100], 50), 0, "half the base image");
        assert_eq!(keep_below(&[100, 20, 10], 9), 3);
        assert_eq!(
            keep_below(&[100, 20, 10], 10),
            1,
            "10 and 10, then 20 and 20"
        );
        assert_eq!(keep_below(&[100, 21, 10], 10), 2);
        assert_eq!(keep_below(&[100, 30, 10], 10), 0, "half together");
    }

    proptest! {
        #[test]
        fn runs_stay_few_and_double(changes in prop::collection::vec(1u64..1000, 1..400)) {
            let (mut runs, mut written) = (vec![100_000], 0);
            for changed in &changes {
                let below = keep_below(&runs, *changed);
                let merged = runs.drain(below..).sum::<u64>() + changed;
                runs.push(merged);
                written += merged;
                prop_assert!(runs.len() <= 1 + MAX_DELTA_RUNS);
                let above: u64 = runs.iter().skip(1).sum();
                prop_assert!(runs.len() == 1 || above < runs[0] / 2);
                let deltas = runs.get(1..).unwrap_or_default();
                prop_assert!(deltas.windows(2).all(|pair| pair[0] > pair[1]));
            }
            // Each change as often as runs double, and three times for base images.
            let changed: u64 = changes.iter().sum();
            prop_assert!(written <= changed * 14, "{written} for {changed}");
        }
    }
}
