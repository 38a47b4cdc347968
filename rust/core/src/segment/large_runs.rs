//! Files of large runs. A run that streams would keep others from the shared file, so it has a file
//! for itself while it is written. Then the file waits for the next run: there are as many such
//! files as runs were written at the same time.

use std::sync::Arc;

use super::open_file::{Left, LentFile, OpenFile};
use super::writer::{SegmentWriter, first_error};
use crate::error::{Error, Result};
use crate::format::IndexEntry;
use crate::ids::{FileId, SegmentRef};

impl SegmentWriter {
    /// Makes the bytes of a file survive a machine crash, but does not wait for a run: a file that
    /// must be closed for that is closed after the run that is being written.
    pub fn sync_soon(&self, file: FileId) -> Result<()> {
        {
            let files = self.files.lock();
            let mut lent = files.runs.lent.iter();
            if let Some(lent) = lent.find(|lent| lent.id == file && lent.is_pending()) {
                lent.close_next();
                return Ok(());
            }
        }
        self.sync_files(&[file].into())
    }

    /// Returns whether this is an open file of large runs, which no commit makes durable.
    pub(crate) fn is_open_file_of_runs(&self, file: FileId) -> bool {
        self.files.lock().runs.all().any(|open| open.id == file)
    }

    /// Returns whether a file of large runs must be closed before anything may refer to its runs.
    pub fn has_pending_runs(&self) -> bool {
        self.files.lock().runs.all().any(|file| file.is_pending())
    }

    /// Closes the files of large runs that are durable only once closed. Call it at the end of
    /// maintenance: later runs begin another file. A file that takes a run is closed after it.
    ///
    /// # Errors
    /// Errors of storage; the files are closed nevertheless.
    pub fn seal_pending_runs(&self) -> Result<()> {
        self.check_process()?;
        let pending: Vec<_> = {
            let files = self.files.lock();
            let lent = files.runs.lent.iter().filter(|file| file.is_pending());
            lent.for_each(|file| file.close_next());
            let waiting = files.runs.waiting.iter().filter(|file| file.is_pending());
            waiting.cloned().collect()
        };
        first_error(pending.iter().map(|file| self.close(file)))
    }

    /// A file for one large run: a waiting one, or a new one for a run that is to be `alone` in it.
    pub(super) fn lend_file(&self, alone: bool) -> Result<LentFile> {
        let mut files = self.files.lock();
        while !alone && let Some(file) = files.runs.waiting.pop() {
            if let Some(lent) = file.lend() {
                files.runs.lent.push(file);
                return Ok(lent);
            }
        }
        let id = self.new_name(&mut files)?;
        drop(files);
        let file = Arc::new(self.create(id, self.lane, false)?);
        let lent = file.lend();
        self.files.lock().runs.lent.push(file);
        lent.ok_or_else(|| Error::invalid_input(format!("{id} was lent before it was there")))
    }

    /// Ends a run whose parts are all in the file. Where storage cannot append durably, the run is
    /// durable once the file is closed: now, if it is to be durable `at_once`.
    pub(super) fn complete(
        &self,
        lent: LentFile,
        entry: &IndexEntry,
        at_once: bool,
    ) -> Result<SegmentRef> {
        let file = Arc::clone(&lent.file);
        let (storage, observer) = (self.storage(), self.observer.as_ref());
        let completed = lent.complete(entry.clone(), storage, observer);
        if storage.capabilities().durable_append {
            self.stats.lock().syncs += 1;
        }
        let reference = match completed {
            Ok(reference) => reference,
            Err(e) => {
                self.return_file(&file, false);
                self.retire(&file);
                if !file.has_segments() {
                    self.delete_unused(file.id, file.physical_bytes());
                }
                return Err(self.failed(entry, e));
            }
        };
        self.count_segments(1, reference.len);
        let closes = at_once && file.is_pending();
        if self.return_file(&file, !closes) {
            return Ok(reference);
        }
        // Otherwise a failure poisons the file, and the commit that refers to the run reports it.
        let closed = self.close(&file);
        if at_once {
            closed.map(|()| reference)
        } else {
            Ok(reference)
        }
    }

    /// Takes back the file of a run that failed or that the caller dropped.
    pub(super) fn give_up_run(&self, lent: LentFile, failed: Option<&Error>) {
        let file = Arc::clone(&lent.file);
        match lent.cut(failed, self.observer.as_ref()) {
            Left::Nothing if self.return_file(&file, true) => {}
            Left::Nothing | Left::Garbage => {
                self.return_file(&file, false);
                let _ = self.close(&file);
            }
            Left::Unused => {
                self.return_file(&file, false);
                self.delete_unused(file.id, file.physical_bytes());
            }
        }
    }

    /// Takes a lent file back. It waits for the next run if it may be `lent_again` and is not full;
    /// returns whether it waits.
    fn return_file(&self, file: &Arc<OpenFile>, lent_again: bool) -> bool {
        let mut files = self.files.lock();
        files.runs.lent.retain(|other| !Arc::ptr_eq(other, file));
        if file.has_segments() && !file.is_settled() {
            files.unsettled.insert(file.id, Arc::clone(file));
        }
        // Under the lock, so that a call that closes all files finds this one lent or waiting.
        let waits = lent_again && !file.is_full(self.options.max_file_bytes);
        if waits {
            files.runs.waiting.push(Arc::clone(file));
        }
        waits
    }
}
