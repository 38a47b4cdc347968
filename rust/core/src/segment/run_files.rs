//! Files of large runs. A run that streams would keep others from the file that everything shares, so
//! it goes into one that it has for itself as long as it is written. Afterwards the file waits for the
//! next run: there are as many of these files as runs were written at the same time, not as many as
//! runs.

use std::sync::Arc;

use super::open_file::{Left, LentFile, OpenFile};
use super::stats::add;
use super::writer::SegmentWriter;
use crate::error::{Error, Result};
use crate::format::IndexEntry;
use crate::ids::{FileId, SegmentRef};

/// The files of large runs that are open.
#[derive(Debug, Default)]
pub(super) struct RunFiles {
    /// They wait for a run.
    pub waiting: Vec<Arc<OpenFile>>,
    /// A run is written to each.
    lent: Vec<Arc<OpenFile>>,
}

impl RunFiles {
    /// The runs that are being written are the last ones of their files.
    pub fn close_next(&self) {
        self.lent.iter().for_each(|file| file.close_next());
    }

    /// Forgets a file if it is closed.
    pub fn retire(&mut self, file: &Arc<OpenFile>) {
        self.waiting
            .retain(|other| !Arc::ptr_eq(other, file) || other.is_open());
    }

    fn take_back(&mut self, file: &Arc<OpenFile>) {
        self.lent.retain(|other| !Arc::ptr_eq(other, file));
    }
}

impl SegmentWriter {
    /// Has the bytes of a file survive a machine crash without waiting for a run: a file to which one is
    /// written, and which must be closed for that, is closed after the run.
    ///
    /// # Errors
    /// As [`SegmentWriter::sync_files`].
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

    /// Only large runs are in the file, so that no commit has it made durable.
    pub(crate) fn is_open_file_of_runs(&self, file: FileId) -> bool {
        let files = self.files.lock();
        let mut all = files.runs.waiting.iter().chain(&files.runs.lent);
        all.any(|open| open.id == file)
    }

    /// Runs were written to files of their own that must be closed before anything may refer to
    /// them, and some of these files are open.
    pub fn has_pending_runs(&self) -> bool {
        let files = self.files.lock();
        let mut all = files.runs.waiting.iter().chain(&files.runs.lent);
        all.any(|file| file.is_pending())
    }

    /// Closes the files of large runs that are not durable before. To be called when a pass of
    /// maintenance is over: each call makes the runs after it begin another file. A file to which a run
    /// is written is closed after it.
    ///
    /// # Errors
    /// Those of storage; the files are closed nevertheless.
    pub fn seal_pending_runs(&self) -> Result<()> {
        self.check_process()?;
        let pending: Vec<_> = {
            let files = self.files.lock();
            let lent = files.runs.lent.iter().filter(|file| file.is_pending());
            lent.for_each(|file| file.close_next());
            let waiting = files.runs.waiting.iter().filter(|file| file.is_pending());
            waiting.cloned().collect()
        };
        let mut first = Ok(());
        for file in &pending {
            first = first.and(self.close(file));
        }
        first
    }

    /// A file for one large run: one that waits, unless the run is to be `alone` in it, or a new one.
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
        let file = Arc::new(self.create(id, 0)?);
        let lent = file.lend();
        self.files.lock().runs.lent.push(file);
        lent.ok_or_else(|| Error::invalid_input(format!("{id} was lent before it was there")))
    }

    /// The run whose parts the file has is whole. Where storage cannot append durably, it is durable once
    /// the file is closed, which is now if it is to be so `at_once`.
    ///
    /// # Errors
    /// Those of a sync, and of closing where that is to be at once: nothing may refer to the run.
    pub(super) fn complete(
        &self,
        lent: LentFile,
        entry: &IndexEntry,
        at_once: bool,
    ) -> Result<SegmentRef> {
        let file = Arc::clone(lent.file());
        let (storage, observer) = (self.storage(), self.observer());
        let completed = lent.complete(entry.clone(), storage, observer);
        if storage.capabilities().durable_append {
            add(&self.counters.syncs, 1);
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
        add(&self.counters.segments, 1);
        add(&self.counters.bytes, reference.len);
        let closes = at_once && file.is_pending();
        if self.return_file(&file, !closes) {
            return Ok(reference);
        }
        // Else one that cannot be closed is poisoned, which what refers to the run learns.
        let closed = self.close(&file);
        if at_once {
            closed.map(|()| reference)
        } else {
            Ok(reference)
        }
    }

    /// A run that will never be whole gives its file back: because of an error, or the caller gave up.
    pub(super) fn give_up_run(&self, lent: LentFile, failed: Option<&Error>) {
        let file = Arc::clone(lent.file());
        match lent.cut(failed, self.observer()) {
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

    /// Takes a file back that was lent. It waits for the next run if it may be `lent_again` and is not
    /// full; returns whether it does.
    fn return_file(&self, file: &Arc<OpenFile>, lent_again: bool) -> bool {
        let mut files = self.files.lock();
        files.runs.take_back(file);
        if file.has_segments() && !file.is_settled() {
            files.unsettled.insert(file.id, Arc::clone(file));
        }
        // Under the lock: what closes all files finds it lent or waiting.
        let waits = lent_again && !file.is_full(self.bounds());
        if waits {
            files.runs.waiting.push(Arc::clone(file));
        }
        waits
    }
}
