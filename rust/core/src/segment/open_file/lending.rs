//! A file is lent to one large run at a time. Its writer takes no lock, so that no sync, close or
//! reader of earlier runs waits for a part.

use std::sync::Arc;

use parking_lot::MutexGuard;

use super::{OpenFile, Status};
use crate::error::{Error, ErrorKind, Result};
use crate::format::IndexEntry;
use crate::ids::SegmentRef;
use crate::segment::observer::Observer;
use crate::storage::{AppendFile, Storage};

/// The handle of a file, for one run that is written in parts. The file stays in the lists of the
/// segment writer, which gets it back by [`LentFile::complete`] or [`LentFile::cut`].
#[derive(Debug)]
pub(in crate::segment) struct LentFile {
    pub file: Arc<OpenFile>,
    handle: Box<dyn AppendFile>,
    run_bytes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::segment) enum Left {
    /// Nothing: the file can be lent again.
    Nothing,
    /// Some of its bytes: nothing may follow but a footer.
    Garbage,
    Unused,
}

impl OpenFile {
    /// Lends the file; `None` if it takes no appends.
    pub fn lend(self: &Arc<Self>) -> Option<LentFile> {
        let mut inner = self.inner.lock();
        if inner.status != Status::Open {
            return None;
        }
        let handle = inner.handle.take()?;
        inner.status = Status::Lent;
        Some(LentFile {
            file: Arc::clone(self),
            handle,
            run_bytes: 0,
        })
    }

    pub fn close_next(&self) {
        self.inner.lock().closes_next = true;
    }

    /// It is to be closed and not to be lent again.
    pub fn is_full(&self, max_file_bytes: u64) -> bool {
        let inner = self.inner.lock();
        inner.closes_next || inner.is_full(max_file_bytes)
    }

    /// It has segments that become durable when it is synced or closed.
    pub fn is_pending(&self) -> bool {
        let inner = self.inner.lock();
        !inner.is_over() && !inner.entries.is_empty() && !inner.is_durable()
    }

    /// Waits until it is not lent, and holds off others that sync or close it. `None` if it is lent
    /// and all its segments are durable: the borrower will close it.
    pub(super) fn wait_until_returned(&self) -> Option<MutexGuard<'_, ()>> {
        loop {
            let durability = self.durability.lock();
            let mut inner = self.inner.lock();
            if inner.status != Status::Lent {
                return Some(durability);
            }
            inner.closes_next = true;
            if inner.is_durable() {
                return None;
            }
            drop(durability);
            self.returned.wait(&mut inner);
        }
    }
}

impl LentFile {
    pub fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.handle.append(bytes)?;
        self.run_bytes += bytes.len() as u64;
        Ok(())
    }

    /// If storage can append durably, this syncs the run before any reader learns of it. So a
    /// commit that needs another run of the file never waits for these bytes. After an error the
    /// file is closed, without this segment.
    pub fn complete(
        mut self,
        mut entry: IndexEntry,
        storage: &dyn Storage,
        observer: &dyn Observer,
    ) -> Result<SegmentRef> {
        let durable = storage.capabilities().durable_append;
        let synced = if durable { self.sync(storage) } else { Ok(()) };
        let mut inner = self.file.inner.lock();
        self.file.returned.notify_all();
        let lost = inner.status != Status::Lent;
        if lost || synced.is_err() {
            inner.end();
            self.file.tell(&inner, observer);
            synced?;
            return Err(Error::new(ErrorKind::Poisoned, "it was closed"));
        }
        entry.reference.file = self.file.id;
        entry.reference.offset = inner.good_bytes;
        inner.good_bytes += self.run_bytes;
        inner.physical_bytes = inner.good_bytes;
        observer.appended(&entry, inner.physical_bytes);
        let reference = entry.reference;
        inner.entries.push(entry);
        if durable {
            inner.durable_bytes = inner.good_bytes;
            self.file.tell(&inner, observer);
        }
        inner.handle = Some(self.handle);
        inner.status = Status::Open;
        Ok(reference)
    }

    /// Returns the file without the run. After a failed append it is lent again if the disk was full.
    pub fn cut(mut self, failed: Option<&Error>, observer: &dyn Observer) -> Left {
        let mut inner = self.file.inner.lock();
        self.file.returned.notify_all();
        if inner.status != Status::Lent {
            return Left::Garbage;
        }
        if inner.entries.is_empty() {
            // Before the observer learns that the file is deleted or closed.
            inner.physical_bytes += self.run_bytes;
            inner.end();
            return Left::Unused;
        }
        let is_cut = self.handle.cut(inner.good_bytes).is_ok();
        inner.handle = Some(self.handle);
        if is_cut && failed.is_none_or(Error::is_out_of_space) {
            inner.status = Status::Open;
            return Left::Nothing;
        }
        inner.status = Status::Closing;
        if !is_cut {
            inner.physical_bytes += self.run_bytes;
        }
        self.file.tell(&inner, observer);
        Left::Garbage
    }

    fn sync(&mut self, storage: &dyn Storage) -> Result<()> {
        self.handle.sync()?;
        // A look is cheap for storage with a syncer, see `make_durable`.
        if self.handle.syncer().is_some() {
            let written = self.file.inner.lock().good_bytes + self.run_bytes;
            self.file.find(storage, written)?;
        }
        Ok(())
    }
}
