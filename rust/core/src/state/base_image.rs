//! Base images: the full content of a store at a version, merged from files.
//!
//! Maintenance reads the previous base image and the changelogs after it and merges them into a
//! run, newest change first. The live table and its writer are not involved.

use super::content::Layout;
use super::entry_stream::EntryStream;
use super::merge::Merge;
use crate::error::Result;
use crate::format::{NewSegment, SegmentKind, SegmentReader};
use crate::ids::{CheckpointId, Owner, SegmentRef};
use crate::segment::SegmentWriter;
use crate::storage::Storage;

/// What is read of an input at once. An input that is smaller is read with one read.
const READ_AHEAD_BYTES: u64 = 1 << 20;

/// What to merge: a durable lineage as it stood when the task was made.
#[derive(Clone, Debug)]
pub struct BaseImageTask {
    pub(super) owner: Owner,
    pub(super) layout: Layout,
    /// Oldest first: an optional base image, then changelogs.
    pub(super) lineage: Vec<SegmentRef>,
    /// Version whose content the lineage is.
    pub(super) created: CheckpointId,
}

/// A base image and the segments it stands for. It may be cited once its file is durable. The
/// caller sees to that: the merge syncs nothing but a file that the image fills alone.
#[derive(Clone, Debug)]
pub struct BaseImage {
    pub(super) reference: SegmentRef,
    pub(super) created: CheckpointId,
    pub(super) replaces: Vec<SegmentRef>,
}

impl BaseImageTask {
    /// Merges the lineage, which is read from `storage` page by page, and appends the result.
    ///
    /// Memory: for each input what is read ahead and one page, at most 1 MiB each and never more than
    /// the input has. For the output 15 MiB: 4 MiB of frames, three times that while their buffer
    /// grows, one section of groups (1 MiB), and what the filter of a group takes while it is made
    /// (3 MiB, when no buffer grows). Beside that the directory, and three times the largest entry.
    ///
    /// # Errors
    /// `NotFound` or `Corrupt` when a segment of the lineage is gone or damaged; `Storage`. Nothing is
    /// left of the result then.
    pub fn run(self, storage: &dyn Storage, writer: &SegmentWriter) -> Result<BaseImage> {
        let mut segments = SegmentReader::new(storage);
        let mut inputs = Vec::with_capacity(self.lineage.len());
        for reference in &self.lineage {
            let stream = segments.stream(reference, &self.owner, READ_AHEAD_BYTES)?;
            inputs.push(EntryStream::new(stream));
        }
        let new = NewSegment {
            owner: &self.owner,
            created: self.created,
            kind: SegmentKind::Run,
            lineage: &[],
            replaced: self.lineage.last().copied(),
            entries: 0,
            tables: &[],
        };
        let mut run = writer.begin_run(&new)?;
        let mut merge = Merge::new(inputs).map_err(|e| e.context(&self.owner))?;
        while let Some((key, change)) = merge.next().map_err(|e| e.context(&self.owner))? {
            // Nothing older lies below: what is gone needs no mention.
            if let Some(value) = change.value() {
                let (table, key) = self.layout.split(key)?;
                run.push(table, key, Some(value))?;
            }
        }
        Ok(BaseImage {
            reference: run.finish()?,
            created: self.created,
            replaces: self.lineage,
        })
    }
}
