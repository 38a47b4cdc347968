//! Packs segments of many owners into a few append-only files.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::Mutex;
use prost::bytes::BytesMut;

use super::observer::{FileChange, Observer, Unobserved};
use super::open_file::{Appended, Durability, OpenFile};
use crate::error::{Error, ErrorKind, Result};
use crate::format::{
    Compression, EncodedSegment, FileIndex, IndexEntry, JournalPart, NewSegment,
    encode_file_header, encode_segment, encode_with_journal,
};
use crate::ids::{FileId, SegmentRef, Term};
use crate::storage::Storage;

/// Default of [`WriterOptions::max_file_bytes`]: 32 MiB.
pub const DEFAULT_MAX_FILE_BYTES: u64 = 32 << 20;

/// Bound on the finished files that nobody has asked for. The driver reads the index of any other.
const MAX_FINISHED: usize = 1024;

/// Bound on the warnings that wait: 64 lines of about 300 bytes.
const MAX_WARNINGS: usize = 64;

/// Options of a writer.
#[derive(Clone, Debug)]
pub struct WriterOptions {
    /// A file of this size takes no further segment. The segment that crosses it stays whole.
    pub max_file_bytes: u64,
    /// Compression of payloads.
    pub compression: Compression,
    /// Where files are not there until they are finished, [`SegmentWriter::take_uncopied`] returns what
    /// is appended to them.
    pub copies: bool,
    /// [`SegmentWriter::take_finished`] returns the index of each finished file.
    pub tells: bool,
}

impl Default for WriterOptions {
    fn default() -> Self {
        Self {
            max_file_bytes: DEFAULT_MAX_FILE_BYTES,
            compression: Compression::Lz4,
            copies: false,
            tells: false,
        }
    }
}

/// Counts of a writer so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriterStats {
    /// Files created.
    pub files_created: u64,
    /// Files closed with a durable footer.
    pub files_sealed: u64,
    /// Segments appended.
    pub segments: u64,
    /// Bytes of these segments as stored.
    pub bytes: u64,
    /// Syncs of storage, including syncs of sealing.
    pub syncs: u64,
    /// Appends that returned an error of storage.
    pub appends_failed: u64,
    /// Bytes of failed appends in closed files: garbage remains as long as the file.
    pub garbage_bytes: u64,
}

#[derive(Debug, Default)]
pub(super) struct Files {
    /// The file of each lane that takes appends.
    current: BTreeMap<u64, Arc<OpenFile>>,
    pub runs: RunFiles,
    /// Every file with bytes that are not durable yet, or never will be.
    pub unsettled: BTreeMap<FileId, Arc<OpenFile>>,
    last_seq: u32,
}

/// The open files of large runs.
#[derive(Debug, Default)]
pub(super) struct RunFiles {
    /// Files that wait for a run.
    pub waiting: Vec<Arc<OpenFile>>,
    /// Files to which a run is written.
    pub lent: Vec<Arc<OpenFile>>,
}

impl RunFiles {
    pub fn all(&self) -> impl Iterator<Item = &Arc<OpenFile>> {
        self.waiting.iter().chain(&self.lent)
    }
}

impl Files {
    fn taking_appends(&self) -> Vec<Arc<OpenFile>> {
        let current = self.current.values();
        current.chain(&self.runs.waiting).cloned().collect()
    }
}

/// Appends segments to the files of one term. Many threads append at once: they encode in parallel.
/// Each file gets one write per segment, one after the other, so segments never interleave.
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
/// let new = NewSegment::of(&owner, CheckpointId(1), SegmentKind::Snapshot);
/// let reference = writer.append(&new, b"state")?;
/// writer.seal()?;
/// assert_eq!(read_segment(storage.as_ref(), &reference, &owner)?.payload, b"state");
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct SegmentWriter {
    storage: Arc<dyn Storage>,
    term: Term,
    pub(super) options: WriterOptions,
    pub(super) observer: Arc<dyn Observer>,
    pub(super) files: Mutex<Files>,
    warnings: Mutex<Vec<String>>,
    finished: Mutex<Vec<FileIndex>>,
    pub(super) stats: Mutex<WriterStats>,
    /// The lane of segments that come without one.
    pub(super) lane: u64,
    /// The process that opened it: a child would write into the files of its parent.
    process: u32,
}

impl SegmentWriter {
    /// A writer of the files of `term`. Nothing is created before the first append.
    pub fn open(storage: Arc<dyn Storage>, term: Term, options: WriterOptions) -> Self {
        Self::observed(storage, term, options, Arc::new(Unobserved), 0)
    }

    pub(crate) fn observed(
        storage: Arc<dyn Storage>,
        term: Term,
        options: WriterOptions,
        observer: Arc<dyn Observer>,
        lane: u64,
    ) -> Self {
        Self {
            storage,
            term,
            options,
            observer,
            files: Mutex::default(),
            warnings: Mutex::default(),
            finished: Mutex::default(),
            stats: Mutex::default(),
            lane,
            process: std::process::id(),
        }
    }

    /// Refuses work in a child of the process that opened the writer.
    pub(crate) fn check_process(&self) -> Result<()> {
        let found = std::process::id();
        if found == self.process {
            return Ok(());
        }
        Err(Error::invalid_input(format!(
            "process {} opened the files of term {} in {}, and process {found} is its child: open \
             them anew in the process that writes",
            self.process,
            self.term,
            self.storage.location()
        )))
    }

    /// Appends one segment. With durable appends it then survives the death of this process.
    ///
    /// # Errors
    /// `InvalidInput` for names or a lineage out of bounds, and in a child of the process that
    /// opened the writer; `AlreadyExists` when another incarnation uses this term; errors of
    /// storage. After an error nothing is appended. A retry goes to a new file, unless the disk was
    /// full and the file could be cut back.
    pub fn append(&self, new: &NewSegment<'_>, payload: &[u8]) -> Result<SegmentRef> {
        Ok(self.append_in(self.lane, new, payload)?.0)
    }

    /// Appends a changelog, and directly before it its journal: both or neither.
    pub fn append_with_journal(
        &self,
        new: &NewSegment<'_>,
        payload: &[u8],
        journal: &JournalPart<'_>,
    ) -> Result<SegmentRef> {
        self.check_process()?;
        let (journal, changelog) =
            encode_with_journal(new, payload, journal, self.options.compression)?;
        let [before, entry] = [&journal, &changelog].map(|encoded| self.encoded(new, encoded));
        let bytes = [journal.bytes, changelog.bytes].concat();
        self.append_encoded(self.lane, &[before], &entry, &bytes)
    }

    /// Makes everything appended so far survive a machine crash.
    ///
    /// A file whose sync failed takes no more appends. Each call that waited for it reports the
    /// loss, or else the next call; then this forgets it. Several committers of a writer should
    /// call [`SegmentWriter::sync_files`] with their own files instead, which never forgets.
    ///
    /// # Errors
    /// Errors of storage; `Poisoned` for bytes lost by an earlier failure.
    pub fn sync(&self) -> Result<()> {
        self.check_process()?;
        let mut files: Vec<_> = self.files.lock().unsettled.values().cloned().collect();
        files.retain(|file| !file.loss_was_reported());
        first_error(files.iter().map(|file| {
            self.sync_file(file)
                .inspect_err(|_| file.mark_loss_reported())
        }))
    }

    /// Makes everything in these files survive a machine crash. Ignores files of other writers.
    ///
    /// # Errors
    /// Errors of storage; `Poisoned`, every time, for bytes lost by an earlier failure.
    pub fn sync_files(&self, files: &BTreeSet<FileId>) -> Result<()> {
        self.check_process()?;
        let files = self.unsettled(files);
        first_error(files.iter().map(|file| self.sync_file(file)))
    }

    /// Returns bytes of unfinished files, up to `max` of each file; nothing once all are taken. The
    /// bytes of a file follow those of the calls before. Files of large runs are not among them: no
    /// commit refers to a run of an unfinished file.
    pub fn take_uncopied(&self, max: usize) -> Vec<(FileId, BytesMut)> {
        let files: Vec<_> = self.files.lock().unsettled.values().cloned().collect();
        let taken = files.iter().map(|file| (file.id, file.take_uncopied(max)));
        taken.filter(|(_, bytes)| !bytes.is_empty()).collect()
    }

    /// The index of each file that was finished since the last call. Returns each once.
    pub fn take_finished(&self) -> Vec<FileIndex> {
        std::mem::take(&mut self.finished.lock())
    }

    /// Writes the footers, makes everything durable and closes the open files. A file to which a
    /// large run is written is closed after the run. The next append begins a new file.
    ///
    /// # Errors
    /// Errors of storage; the files are closed nevertheless.
    pub fn seal(&self) -> Result<()> {
        self.check_process()?;
        let files = {
            let files = self.files.lock();
            files.runs.lent.iter().for_each(|file| file.close_next());
            files.taking_appends()
        };
        first_error(files.iter().map(|file| self.close(file)))
    }

    /// Like [`SegmentWriter::seal`], for these files only. Checks the closed ones for durability.
    ///
    /// # Errors
    /// Errors of storage; `Poisoned` for bytes lost by an earlier failure.
    pub fn seal_files(&self, files: &BTreeSet<FileId>) -> Result<()> {
        self.check_process()?;
        first_error(self.unsettled(files).iter().map(|file| self.close(file)))
    }

    /// Closes open files that another process deleted: appends to a deleted file are lost. Call it
    /// when a checkpoint may have been deleted and begun again. Ignores files invisible while open.
    pub fn leave_deleted(&self) -> Result<()> {
        if !self.storage.capabilities().durable_append {
            return Ok(());
        }
        let files = self.files.lock().taking_appends();
        for file in files {
            match self.storage.len(&file.id.file_name()) {
                Ok(_) => {}
                Err(e) if e.kind() == ErrorKind::NotFound => {
                    file.give_up(self.observer.as_ref());
                    self.retire(&file);
                }
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// Files that could not be made durable, by name; each call returns all. The driver must learn
    /// of them before it decides that a checkpoint is complete. A later sync by another process
    /// proves nothing: the system reports a failed write-back once and may have dropped the bytes.
    pub fn lost_files(&self) -> Vec<FileId> {
        let files: Vec<_> = self.files.lock().unsettled.values().cloned().collect();
        let lost = files.iter().filter(|file| file.is_lost());
        lost.map(|file| file.id).collect()
    }

    /// Warnings about files left without a footer, which failed no call. Returns each once.
    pub fn take_warnings(&self) -> Vec<String> {
        std::mem::take(&mut self.warnings.lock())
    }

    /// Returns whether a segment survives a machine crash. Segments of other writers do: this one
    /// knows only segments of completed checkpoints.
    pub fn durability(&self, segment: &SegmentRef) -> Durability {
        let file = self.files.lock().unsettled.get(&segment.file).cloned();
        file.map_or(Durability::Durable, |file| file.durability(segment.end()))
    }

    /// Counts so far.
    pub fn stats(&self) -> WriterStats {
        *self.stats.lock()
    }

    /// Appends to the open file of `lane`: lanes share no files. Also returns the stored bytes.
    pub(crate) fn append_in(
        &self,
        lane: u64,
        new: &NewSegment<'_>,
        payload: &[u8],
    ) -> Result<(SegmentRef, Vec<u8>)> {
        self.check_process()?;
        // Outside every lock: this is where the time goes.
        let encoded = encode_segment(new, payload, self.options.compression)?;
        let entry = self.encoded(new, &encoded);
        let reference = self.append_encoded(lane, &[], &entry, &encoded.bytes)?;
        Ok((reference, encoded.bytes))
    }

    fn encoded(&self, new: &NewSegment<'_>, encoded: &EncodedSegment) -> IndexEntry {
        self.unplaced(new, encoded.bytes.len() as u64, encoded.digest)
    }

    /// The index entry of a segment that has no place yet.
    pub(super) fn unplaced(&self, new: &NewSegment<'_>, len: u64, digest: u128) -> IndexEntry {
        IndexEntry {
            reference: SegmentRef {
                file: FileId {
                    term: self.term,
                    seq: 0,
                },
                offset: 0,
                len,
                digest,
            },
            owner: new.owner.clone(),
            created: new.created,
            kind: new.kind,
        }
    }

    /// Appends the frames of a whole segment, after the segments of `before`.
    pub(super) fn append_encoded(
        &self,
        lane: u64,
        before: &[IndexEntry],
        entry: &IndexEntry,
        bytes: &[u8],
    ) -> Result<SegmentRef> {
        let max_file_bytes = self.options.max_file_bytes;
        // A segment that fills a file gets its own: others would wait at the lock of a shared file.
        let is_large = bytes.len() as u64 >= max_file_bytes;
        loop {
            let file = if is_large {
                self.new_file(&mut self.files.lock(), lane)?
            } else {
                self.current_file(lane)?
            };
            match file.append(
                bytes,
                before,
                entry.clone(),
                max_file_bytes,
                self.observer.as_ref(),
            ) {
                Appended::Written { reference, full } => {
                    self.count_segments(1 + before.len() as u64, bytes.len() as u64);
                    if full {
                        // The append itself succeeded. A seal that fails poisons the file, which
                        // the sync or seal before an acknowledgement reports.
                        let _ = self.close(&file);
                    }
                    return Ok(reference);
                }
                Appended::Refused => self.retire(&file),
                Appended::TooMany => {
                    let _ = self.close(&file);
                }
                Appended::NoSpace(error) if !is_large => return Err(self.failed(entry, error)),
                Appended::NoSpace(error) | Appended::Cut(error) => {
                    let _ = self.close(&file);
                    return Err(self.failed(entry, error));
                }
            }
        }
    }

    pub(crate) fn storage(&self) -> &dyn Storage {
        self.storage.as_ref()
    }

    pub(super) fn count_segments(&self, segments: u64, bytes: u64) {
        let mut stats = self.stats.lock();
        stats.segments += segments;
        stats.bytes += bytes;
    }

    pub(super) fn failed(&self, entry: &IndexEntry, error: Error) -> Error {
        self.stats.lock().appends_failed += 1;
        error.context(format!(
            "segment of {} for checkpoint {}",
            entry.owner, entry.created
        ))
    }

    /// Closes a file without a footer unless `wanted` finds a segment worth keeping in it.
    pub(crate) fn abandon(&self, file: FileId, wanted: impl FnOnce() -> bool) {
        let found = self.files.lock().unsettled.get(&file).cloned();
        if let Some(file) = found
            && file.abandon(wanted, self.observer.as_ref())
        {
            self.retire(&file);
        }
    }

    /// A missing file of this writer counts as lost. Invisible ones were checked when finished.
    pub(crate) fn check_present(&self, files: &BTreeSet<FileId>) -> Result<()> {
        if !self.storage.capabilities().durable_append {
            return Ok(());
        }
        first_error(files.iter().filter(|id| id.term == self.term).map(|id| {
            let Err(e) = self.storage.len(&id.file_name()) else {
                return Ok(());
            };
            let known = self.files.lock().unsettled.get(id).cloned();
            if let (ErrorKind::NotFound, Some(file)) = (e.kind(), known) {
                file.lose(self.observer.as_ref());
                self.retire(&file);
            }
            Err(e.context("its segments must be written again"))
        }))
    }

    pub(crate) fn forget(&self, file: FileId) {
        self.files.lock().unsettled.remove(&file);
    }

    fn unsettled(&self, files: &BTreeSet<FileId>) -> Vec<Arc<OpenFile>> {
        let all = self.files.lock();
        let found = files.iter().filter_map(|id| all.unsettled.get(id));
        found.cloned().collect()
    }

    fn current_file(&self, lane: u64) -> Result<Arc<OpenFile>> {
        let mut files = self.files.lock();
        if let Some(file) = files.current.get(&lane) {
            return Ok(file.clone());
        }
        let file = self.new_file(&mut files, lane)?;
        files.current.insert(lane, file.clone());
        Ok(file)
    }

    fn new_file(&self, files: &mut Files, lane: u64) -> Result<Arc<OpenFile>> {
        let id = self.new_name(files)?;
        let file = Arc::new(self.create(id, lane, self.options.copies)?);
        files.unsettled.insert(id, file.clone());
        Ok(file)
    }

    pub(super) fn new_name(&self, files: &mut Files) -> Result<FileId> {
        let seq = files.last_seq.checked_add(1).ok_or_else(|| {
            Error::invalid_input(format!("term {} has no file names left", self.term))
        })?;
        // An attempt to create a name uses it up: after a failure it may exist or not.
        files.last_seq = seq;
        Ok(FileId {
            term: self.term,
            seq,
        })
    }

    pub(super) fn create(&self, id: FileId, lane: u64, copied: bool) -> Result<OpenFile> {
        let location = self.storage.location();
        let mut handle = self
            .storage
            .create(&id.file_name())
            .map_err(|e| match e.kind() {
                ErrorKind::AlreadyExists => Error::new(
                    ErrorKind::AlreadyExists,
                    format!(
                        "{location}/{id} exists: another incarnation is using term {}: {e}",
                        self.term
                    ),
                ),
                _ => e.context(format!("new physical file {location}/{id}")),
            })?;
        self.stats.lock().files_created += 1;
        let header = encode_file_header(id)?;
        let written = handle.append(&header);
        self.observer.created(id, lane, header.len() as u64);
        if let Err(e) = written {
            drop(handle);
            self.delete_unused(id, header.len() as u64);
            return Err(e.context(format!("header of {location}/{id}")));
        }
        let copied = copied && !self.storage.capabilities().durable_append;
        Ok(OpenFile::new(id, lane, handle, header, copied))
    }

    /// Deletes a closed file without a segment, or leaves it to reclaim.
    pub(super) fn delete_unused(&self, id: FileId, physical_bytes: u64) {
        if self.storage.delete(&id.file_name()).is_ok() {
            self.observer.deleted(id);
        } else {
            self.observer.changed(&FileChange {
                file: id,
                open: false,
                physical_bytes,
                durable_bytes: 0,
            });
        }
    }

    fn sync_file(&self, file: &Arc<OpenFile>) -> Result<()> {
        let was_sealed = file.is_sealed();
        let synced = file.make_durable(self.storage.as_ref(), self.observer.as_ref());
        self.warn_without_footer(file);
        self.note_finished(file);
        self.count_sync(
            !was_sealed && file.is_sealed(),
            !matches!(synced, Ok(false)),
        );
        if synced.is_err() || !file.is_open() {
            self.retire(file);
        }
        synced.map(drop)
    }

    pub(super) fn close(&self, file: &Arc<OpenFile>) -> Result<()> {
        // First out of the map, so that appends continue in a new file.
        self.retire(file);
        let was_sealed = file.is_sealed();
        let closed = file.close(self.storage.as_ref(), self.observer.as_ref());
        self.warn_without_footer(file);
        self.note_finished(file);
        let (garbage_bytes, sealed) = (file.take_garbage(), !was_sealed && file.is_sealed());
        self.stats.lock().garbage_bytes += garbage_bytes;
        self.count_sync(sealed, sealed);
        self.retire(file);
        closed
    }

    fn count_sync(&self, sealed: bool, synced: bool) {
        let mut stats = self.stats.lock();
        stats.files_sealed += u64::from(sealed);
        stats.syncs += u64::from(synced);
    }

    fn note_finished(&self, file: &OpenFile) {
        if let Some(index) = file.take_index() {
            let mut finished = self.finished.lock();
            if self.options.tells && finished.len() < MAX_FINISHED {
                finished.push(index);
            }
        }
    }

    fn warn_without_footer(&self, file: &OpenFile) {
        let Some(cause) = file.take_footer_failure() else {
            return;
        };
        let mut warnings = self.warnings.lock();
        if warnings.len() < MAX_WARNINGS {
            warnings.push(format!(
                "{}/{} was closed without its footer ({cause}). Its segments are durable and stay \
                 readable, but listing them takes reading the whole file, and it is not \
                 deleted before its writer ends",
                self.storage.location(),
                file.id
            ));
        }
    }

    /// Forgets what it can about a file that takes no appends.
    pub(super) fn retire(&self, file: &Arc<OpenFile>) {
        let mut files = self.files.lock();
        let current = files.current.get(&file.lane);
        if current.is_some_and(|current| Arc::ptr_eq(current, file)) {
            files.current.remove(&file.lane);
        }
        let waiting = &mut files.runs.waiting;
        waiting.retain(|other| !Arc::ptr_eq(other, file) || other.is_open());
        if file.is_settled() {
            files.unsettled.remove(&file.id);
        }
    }
}

/// Runs all, even after a failure: one bad file must not keep the others from being durable.
pub(super) fn first_error(results: impl Iterator<Item = Result<()>>) -> Result<()> {
    results.fold(Ok(()), Result::and)
}
