//! Appends a run entry by entry, with bounded memory.

use super::open_file::LentFile;
use super::writer::SegmentWriter;
use crate::error::Result;
use crate::format::{IndexEntry, NewSegment, RunEncoder, SegmentKind};
use crate::ids::SegmentRef;

/// A run of at most so many stored bytes, or an eighth of a file, is gathered in memory and
/// appended like every other segment. A larger one takes a file of large runs, see `large_runs`.
const GATHERED_BYTES: u64 = 4 << 20;

/// Bound on one write to a file of large runs.
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
/// let new = NewSegment::of(&owner, CheckpointId(1), SegmentKind::Run);
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
    /// Its entry in the index, without a place yet.
    entry: IndexEntry,
    /// Its file, once it is too large to be gathered.
    file: Option<LentFile>,
    fills_file: bool,
}

impl SegmentWriter {
    /// Begins a run.
    ///
    /// # Errors
    /// `InvalidInput` for names or a lineage out of bounds, for another kind of segment, and in a
    /// child of the process that opened the writer.
    pub fn begin_run(&self, new: &NewSegment<'_>) -> Result<RunWriter<'_>> {
        self.check_process()?;
        let new = NewSegment {
            kind: SegmentKind::Run,
            entries: 0,
            ..*new
        };
        Ok(RunWriter {
            writer: self,
            encoder: RunEncoder::new(&new, self.options.compression)?,
            entry: self.unplaced(&new, 0, 0),
            file: None,
            fills_file: false,
        })
    }
}

impl RunWriter<'_> {
    /// Announces about so many stored bytes. A run that fills a file shares it with no other run,
    /// which would keep all these bytes from being deleted.
    pub fn expect_bytes(&mut self, bytes: u64) {
        self.fills_file = bytes >= self.writer.options.max_file_bytes;
        self.encoder
            .expect(bytes as usize, self.gathered_bytes() as usize);
    }

    /// Announces lookups of single keys in the file, so that even a small run gets a filter.
    pub fn expect_lookups(&mut self) {
        self.encoder.filter_always();
    }

    fn gathered_bytes(&self) -> u64 {
        GATHERED_BYTES.min(self.writer.options.max_file_bytes / 8)
    }

    /// Adds an entry whose key is `prefix` and then `key`; `None` removes the key. Keys come in
    /// ascending order. The run counts the keys of each prefix that is not empty: so readers find
    /// the tables of a store with column families.
    ///
    /// # Errors
    /// `InvalidInput` for a key that is not greater than the one before; errors of storage.
    pub fn push(&mut self, prefix: &[u8], key: &[u8], value: Option<&[u8]>) -> Result<()> {
        self.encoder.push(prefix, key, value)?;
        let gathered = self.gathered_bytes();
        let due = match &self.file {
            None => gathered,
            Some(_) => PART_BYTES.min(gathered),
        };
        if (self.encoder.frames().len() as u64) < due {
            return Ok(());
        }
        let file = match self.file.take() {
            Some(file) => file,
            None => self.writer.lend_file(self.fills_file)?,
        };
        self.file = Some(self.write_part(file)?);
        Ok(())
    }

    /// Bytes of the entries so far, before compression.
    pub fn entry_bytes(&self) -> u64 {
        self.encoder.entry_bytes()
    }

    /// Ends the run, which is then as durable as a segment of [`SegmentWriter::append`].
    ///
    /// # Errors
    /// Errors of [`SegmentWriter::append`]; of a large run also errors of a sync.
    pub fn finish(self) -> Result<SegmentRef> {
        self.end(false)
    }

    /// Like [`RunWriter::finish`]; the run survives a machine crash once this returns.
    ///
    /// # Errors
    /// Errors of [`SegmentWriter::append`] and [`SegmentWriter::sync_files`].
    pub fn finish_durable(self) -> Result<SegmentRef> {
        self.end(true)
    }

    fn end(mut self, durable: bool) -> Result<SegmentRef> {
        self.entry.reference.digest = self.encoder.finish()?;
        self.entry.reference.len = self.encoder.stored_bytes();
        if let Some(file) = self.file.take() {
            let file = self.write_part(file)?;
            return self.writer.complete(file, &self.entry, durable);
        }
        let frames = self.encoder.frames();
        let reference = self
            .writer
            .append_encoded(self.writer.lane, &[], &self.entry, frames)?;
        if durable {
            self.writer.sync_files(&[reference.file].into())?;
        }
        Ok(reference)
    }

    /// Writes the gathered frames to `file`, and drops it if that fails.
    fn write_part(&mut self, mut file: LentFile) -> Result<LentFile> {
        let written = file.append(self.encoder.frames());
        self.encoder.forget_frames();
        match written {
            Ok(()) => Ok(file),
            Err(e) => {
                self.writer.give_up_run(file, Some(&e));
                Err(self.writer.failed(&self.entry, e))
            }
        }
    }
}

impl Drop for RunWriter<'_> {
    fn drop(&mut self) {
        if let Some(file) = self.file.take() {
            self.writer.give_up_run(file, None);
        }
    }
}
