//! Merges: the newest segments of a lineage become one run. Maintenance reads changelogs, the delta
//! runs below them that are not much larger, and at times the base image. It merges them into a
//! run, newest change first, without the live table and its writer. Without the base image the
//! result is a *delta run*, with the changes since the runs below it; with it, the next base image.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::families::KeyLayout;
use super::family::Begun;
use crate::error::{Error, ErrorKind, Result};
use crate::format::{NewSegment, SegmentKind, SegmentReader};
use crate::ids::{CheckpointId, FileId, Owner, SegmentRef};
use crate::segment::SegmentWriter;
use crate::state::memory::MemoryBudget;
use crate::state::runs::entries::Change;
use crate::state::runs::entry_stream::EntryStream;
use crate::state::runs::merge::Merge;
use crate::storage::Storage;

pub(crate) const READ_AHEAD_BYTES: u64 = 1 << 20;
/// Bound on the memory of the output, see [`MergeTask::run`].
pub(crate) const OUTPUT_BYTES: u64 = 10 << 20;

/// The newest segments of a durable lineage, to be merged.
#[derive(Clone, Debug)]
pub struct MergeTask {
    pub(crate) owner: Owner,
    pub(crate) layout: KeyLayout,
    /// Runs that remain unchanged, oldest first. None for a base image.
    pub(crate) below: Vec<SegmentRef>,
    /// They are runs of one session, which readers of changes look at.
    pub(crate) is_of_session: bool,
    /// All segments above these, oldest first. Together they make version `created`.
    pub(crate) merged: Vec<SegmentRef>,
    pub(crate) created: CheckpointId,
    pub(crate) budget: Arc<MemoryBudget>,
    /// Ends the merge once it is true.
    pub(crate) is_given_up: Arc<AtomicBool>,
}

/// A run and the segments that it replaces. Commits may refer to it once the caller has made it
/// durable: a merge only syncs a large run, and only if storage can append durably.
#[derive(Clone, Debug)]
pub struct MergedRun {
    pub(crate) reference: SegmentRef,
    pub(crate) created: CheckpointId,
    pub(crate) below: Vec<SegmentRef>,
    pub(crate) replaces: Vec<SegmentRef>,
}

impl MergedRun {
    /// The file of the run.
    pub fn file(&self) -> FileId {
        self.reference.file
    }
}

impl MergeTask {
    /// Bytes that it reads.
    pub fn input_bytes(&self) -> u64 {
        self.merged.iter().map(|segment| segment.len).sum()
    }

    /// Returns whether it makes a base image.
    pub fn makes_base_image(&self) -> bool {
        self.below.is_empty()
    }

    /// Merges the segments, which it reads from `storage` page by page, and appends the result.
    ///
    /// Memory: read-ahead and one page of each input, at most 1 MiB each and never more than the
    /// input has; 10 MiB for the output (4 MiB of frames with room for 2 MiB after them, a 1 MiB
    /// section of groups, 3 MiB to make a filter); the directory; three times the largest entry.
    ///
    /// # Errors
    /// `NotFound` or `Corrupt` for an input; `Storage`; `AttemptEnded` if given up. Leaves nothing.
    pub fn run(self, storage: &dyn Storage, writer: &SegmentWriter) -> Result<MergedRun> {
        let _work = self.budget.begin_work(self.memory_bytes());
        let mut segments = SegmentReader::new(storage);
        let mut inputs = Vec::with_capacity(self.merged.len());
        for reference in &self.merged {
            let stream = segments.stream(reference, &self.owner, READ_AHEAD_BYTES)?;
            inputs.push(EntryStream::new(stream));
        }
        // A base image counts its keys itself.
        let newest = inputs.last().filter(|_| !self.below.is_empty());
        let new = NewSegment {
            lineage: &self.below,
            replaced: self.merged.last().copied(),
            tables: &newest.map_or_else(Vec::new, |newest| newest.head().tables.clone()),
            ..NewSegment::of(&self.owner, self.created, SegmentKind::Run)
        };
        let mut run = writer.begin_run(&new)?;
        run.expect_bytes(self.input_bytes());
        if self.budget.was_short() {
            run.expect_lookups();
        }
        let mut merge = Merge::new(inputs).map_err(|e| e.context(&self.owner))?;
        let mut begun = BegunLists::default();
        while merge.step().map_err(|e| e.context(&self.owner))? {
            if self.is_given_up.load(Ordering::Relaxed) {
                return Err(Error::new(
                    ErrorKind::AttemptEnded,
                    format!(
                        "the merge of {} was given up: its manager has ended",
                        self.owner
                    ),
                ));
            }
            let is_set_again = self.is_of_session && merge.hides_removal();
            let Some((key, change)) = merge.current() else {
                break;
            };
            // Without older segments below, removals are not needed.
            if change.value().is_none() && self.below.is_empty() {
                continue;
            }
            let (table, own) = self.layout.split(key)?;
            if is_set_again {
                begun.note(table, own);
            }
            match begun.mark_of(table, own, change) {
                None => run.push(table, own, change.value())?,
                Some(mark) if begun.is_new(&mark) => run.push(table, &mark, None)?,
                Some(_) => {}
            }
        }
        Ok(MergedRun {
            reference: run.finish()?,
            created: self.created,
            below: self.below,
            replaces: self.merged,
        })
    }

    /// Bound without directories and large entries. A small output takes twice its size.
    fn memory_bytes(&self) -> u64 {
        let inputs = self.merged.iter().map(|segment| segment.len);
        let read = inputs.map(|len| 2 * len.min(READ_AHEAD_BYTES)).sum::<u64>();
        read + OUTPUT_BYTES.min(2 * self.input_bytes())
    }
}

/// The lists that an older run of a session removes and a newer one begins by appending. For a
/// reader of changes the session began them again, see [`Begun`].
#[derive(Debug, Default)]
struct BegunLists {
    /// Prefix of the elements and key.
    anew: HashSet<Vec<u8>>,
    last_mark: Vec<u8>,
}

impl BegunLists {
    fn note(&mut self, table: &[u8], key: &[u8]) {
        if let Some(elements) = elements_of(table) {
            self.anew.insert([&elements, key].concat());
        }
    }

    /// The mark that an entry becomes in the merged run; `None` for any other entry.
    fn mark_of(&self, table: &[u8], key: &[u8], change: Change<'_>) -> Option<Vec<u8>> {
        if self.anew.is_empty() || change != Change::Remove {
            return None;
        }
        let (list, position) = key.split_last_chunk::<8>()?;
        Begun::of_position(u64::from_be_bytes(*position))?;
        let is_anew = self.anew.contains(&[table, list].concat());
        is_anew.then(|| Begun::Anew.mark(list))
    }

    /// Returns whether the mark differs from the last one: runs may have marks of both kinds.
    fn is_new(&mut self, mark: &[u8]) -> bool {
        let is_new = self.last_mark != mark;
        self.last_mark = mark.to_vec();
        is_new
    }
}

fn elements_of(table: &[u8]) -> Option<[u8; 2]> {
    let number = u16::from_be_bytes(table.try_into().ok()?);
    (number > 0 && number % 2 == 0).then(|| (number + 1).to_be_bytes())
}
