//! Appending a run entry by entry. Memory does not follow its size: what is small goes into the file
//! that others share, what is large streams into a file of its own.

use super::open_file::OpenFile;
use super::writer::SegmentWriter;
use crate::error::Result;
use crate::format::{IndexEntry, NewSegment, RunEncoder, SegmentKind};
use crate::ids::SegmentRef;

/// A run of at most so many stored bytes is gathered in memory and appended to the open file, as every
/// segment is: a writer that streams into that file would keep all others from it. So runs add at most
/// one file for each 4 MiB to what a pass over many stores writes.
const GATHERED_BYTES: u64 = 4 << 20;

/// What is written to a file of its own at once.
const PART_BYTES: u64 = 1 << 20;

/// A run that is being written. Dropped without [`RunWriter::finish`] it leaves nothing behind.
///
/// ```
/// use std::sync::Arc;
/// use holdfast_core::format::{NewSegment, SegmentKind, read_segment};
/// use holdfast_core::segment::{SegmentWriter, WriterOptions};
/// use holdfast_core::storage::LocalStorage;
/// use holdfast_core::{CheckpointId, Owner, Term};
/// # fn main() -> holdfast_core::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// let storage = Arc::new(LocalStorage::new(dir.path()));
/// let writer = SegmentWriter::open(storage.clone(), Term(1), WriterOptions::default());
/// let owner = Owner::new("", "0", "7", "default");
/// let new = NewSegment {
///     owner: &owner,
///     created: CheckpointId(1),
///     kind: SegmentKind::Run,
///     lineage: &[],
///     replaced: None,
///     entries: 0,
///     tables: &[],
///     runs: 0,
/// };
/// let mut run = writer.begin_run(&new)?;
/// run.push(b"", b"key", Some(b"value"))?;
/// let reference = run.finish()?;
/// assert_eq!(read_segment(storage.as_ref(), &reference, &owner)?.head.entries, 1);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct RunWriter<'w> {
    writer: &'w SegmentWriter,
    encoder: RunEncoder,
    /// Where it lies is not known yet.
    entry: IndexEntry,
    /// Once it is too large to be gathered.
    file: Option<OpenFile>,
}

impl SegmentWriter {
    /// Begins a run. Its entries are counted as they come.
    ///
    /// # Errors
    /// `InvalidInput` for names or a lineage out of bounds, for another kind of segment, and in a child
    /// of the process that opened the writer.
    pub fn begin_run(&self, new: &NewSegment<'_>) -> Result<RunWriter<'_>> {
        self.check_process()?;
        let new = NewSegment {
            kind: SegmentKind::Run,
            ..*new
        };
        Ok(RunWriter {
            writer: self,
            encoder: RunEncoder::new(&new, self.compression())?,
            entry: self.unplaced(&new, 0, 0),
            file: None,
        })
    }
}

impl RunWriter<'_> {
    /// Adds an entry whose key is `prefix` and then `key`; `None` removes the key. Keys come in
    /// ascending order. The run knows of each prefix that is not empty how many keys it has: that is
    /// how readers find the tables of a store with column families.
    ///
    /// # Errors
    /// `InvalidInput` for a key that is not greater than the one before; those of storage.
    pub fn push(&mut self, prefix: &[u8], key: &[u8], value: Option<&[u8]>) -> Result<()> {
        self.encoder.push(prefix, key, value)?;
        let due = match &self.file {
            None => GATHERED_BYTES.min(self.writer.max_file_bytes()),
            Some(_) => PART_BYTES,
        };
        if (self.encoder.frames().len() as u64) < due {
            return Ok(());
        }
        let file = match self.file.take() {
            Some(file) => file,
            None => self.writer.new_own_file()?,
        };
        self.file = Some(self.write_part(file)?);
        Ok(())
    }

    /// Ends the run and appends it, or what of it was not written yet. What
    /// [`SegmentWriter::append`] says of segments holds of it from here on.
    ///
    /// # Errors
    /// As [`SegmentWriter::append`].
    pub fn finish(mut self) -> Result<SegmentRef> {
        self.entry.reference.digest = self.encoder.finish()?;
        self.entry.reference.len = self.encoder.stored_bytes();
        match self.file.take() {
            None => {
                let frames = self.encoder.frames();
                self.writer.append_encoded(0, &[], &self.entry, frames)
            }
            Some(file) => {
                let file = self.write_part(file)?;
                self.writer.complete(file, &self.entry)
            }
        }
    }

    /// Writes what the encoder has to `file`, which is discarded where that fails.
    fn write_part(&mut self, file: OpenFile) -> Result<OpenFile> {
        let written = file.append_part(self.encoder.frames());
        self.encoder.forget_frames();
        if let Err(e) = written {
            self.writer.discard(file);
            return Err(self.writer.failed(&self.entry, e));
        }
        Ok(file)
    }
}

impl Drop for RunWriter<'_> {
    fn drop(&mut self) {
        if let Some(file) = self.file.take() {
            self.writer.discard(file);
        }
    }
}
