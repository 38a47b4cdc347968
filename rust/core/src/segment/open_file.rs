//! One physical file of this incarnation: `Open -> Closing -> Sealed | Closed`, never
//! back. A file of large runs is lent to one run after the other in between.
//!
//! Two locks, always taken in this order. `durability` serialises sync and close, so that a call
//! which waits for a sync often finds its bytes covered by it. `inner` protects the bytes and is
//! held for one write, never for a sync.

mod lending;

use std::sync::Arc;

use parking_lot::{Condvar, Mutex};
use prost::bytes::BytesMut;

use super::observer::{FileChange, Observer};
use crate::error::{Error, ErrorKind, Result};
use crate::format::{FileIndex, IndexEntry, MAX_SEGMENTS_PER_FILE, encode_footer};
use crate::ids::{FileId, SegmentRef};
use crate::storage::{AppendFile, Storage, SyncFile};

pub(super) use lending::{Left, LentFile};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Status {
    Open,
    /// The writer of a run has its handle.
    Lent,
    Closing,
    Sealed,
    /// Takes no appends and has no durable footer: a scan finds its segments.
    Closed,
}

#[derive(Debug)]
struct Inner {
    handle: Option<Box<dyn AppendFile>>,
    /// Syncs the file without this lock, if storage can. It is there as long as the handle.
    syncer: Option<Arc<dyn SyncFile>>,
    status: Status,
    /// End of the last whole segment.
    good_bytes: u64,
    /// Bytes known to survive a machine crash.
    durable_bytes: u64,
    /// Known size of the file, with footer and garbage of a cut append.
    physical_bytes: u64,
    /// Bytes of failed appends, known once it is closed.
    garbage_bytes: u64,
    entries: Vec<IndexEntry>,
    /// Bytes that no copy has, if the file is to be copied until it is finished.
    uncopied: Option<BytesMut>,
    /// It is to be closed after the run that is written to it.
    closes_next: bool,
    /// A caller of `sync` has learned that bytes of this file were lost.
    loss_reported: bool,
    /// The reason why a durable file has no footer.
    footer_failure: Option<Error>,
    /// Once it is sealed.
    index: Option<FileIndex>,
}

impl Inner {
    fn end(&mut self) {
        self.uncopied = None;
        self.handle = None;
        self.syncer = None;
        self.status = Status::Closed;
    }

    fn is_over(&self) -> bool {
        matches!(self.status, Status::Sealed | Status::Closed)
    }

    fn is_durable(&self) -> bool {
        self.durable_bytes >= self.good_bytes
    }

    fn is_full(&self, max_file_bytes: u64) -> bool {
        self.good_bytes >= max_file_bytes || self.entries.len() >= MAX_SEGMENTS_PER_FILE
    }
}

pub(super) enum Appended {
    /// The segment is in the file. A `full` file should be sealed now.
    Written { reference: SegmentRef, full: bool },
    /// The file takes no appends any more: use another one.
    Refused,
    /// It has no room for so many segments: close it and use another one.
    TooMany,
    /// The disk is full, and nothing of the segment is left: the file takes segments that fit.
    NoSpace(Error),
    /// The write failed. The file takes no appends any more and must be closed.
    Cut(Error),
}

#[derive(Debug)]
pub(super) struct OpenFile {
    pub id: FileId,
    pub lane: u64,
    inner: Mutex<Inner>,
    durability: Mutex<()>,
    /// Wakes those who wait until it is not lent.
    returned: Condvar,
}

impl OpenFile {
    /// `header` was appended. With `copied`, [`OpenFile::take_uncopied`] returns all appended bytes.
    pub fn new(
        id: FileId,
        lane: u64,
        handle: Box<dyn AppendFile>,
        header: Vec<u8>,
        copied: bool,
    ) -> Self {
        let header_bytes = header.len() as u64;
        let inner = Inner {
            syncer: handle.syncer(),
            handle: Some(handle),
            status: Status::Open,
            good_bytes: header_bytes,
            durable_bytes: 0,
            physical_bytes: header_bytes,
            garbage_bytes: 0,
            entries: Vec::new(),
            uncopied: copied.then(|| header.as_slice().into()),
            closes_next: false,
            loss_reported: false,
            footer_failure: None,
            index: None,
        };
        Self {
            id,
            lane,
            inner: Mutex::new(inner),
            durability: Mutex::new(()),
            returned: Condvar::new(),
        }
    }

    /// Appends a segment, after the segments of `before`. Sets the place of each entry.
    pub fn append(
        &self,
        bytes: &[u8],
        before: &[IndexEntry],
        mut entry: IndexEntry,
        max_file_bytes: u64,
        observer: &dyn Observer,
    ) -> Appended {
        let mut inner = self.inner.lock();
        let inner = &mut *inner;
        let (Status::Open, Some(handle)) = (inner.status, inner.handle.as_mut()) else {
            return Appended::Refused;
        };
        if inner.entries.len() + before.len() >= MAX_SEGMENTS_PER_FILE {
            return Appended::TooMany;
        }
        if let Err(e) = handle.append(bytes) {
            // The length of the rest is unknown. It takes space as long as a neighbour is needed.
            let is_cut = handle.cut(inner.good_bytes).is_ok();
            if is_cut && e.is_out_of_space() {
                // A footer and another file would find no room either.
                return Appended::NoSpace(e);
            }
            // Only a footer may follow.
            inner.status = Status::Closing;
            return Appended::Cut(e);
        }
        let mut offset = inner.good_bytes;
        inner.good_bytes += bytes.len() as u64;
        inner.physical_bytes = inner.good_bytes;
        if let Some(uncopied) = &mut inner.uncopied {
            uncopied.extend_from_slice(bytes);
        }
        let mut place = |entry: &mut IndexEntry| {
            entry.reference.file = self.id;
            entry.reference.offset = offset;
            offset += entry.reference.len;
            // Under the lock, so that an observer knows all segments before it learns of the end.
            observer.appended(entry, inner.physical_bytes);
        };
        let mut before = before.to_vec();
        before.iter_mut().for_each(&mut place);
        place(&mut entry);
        let reference = entry.reference;
        inner.entries.append(&mut before);
        inner.entries.push(entry);
        let full = inner.is_full(max_file_bytes);
        Appended::Written { reference, full }
    }

    /// Returns up to `max` bytes that follow those of the last call; none of a durable or lost file.
    pub fn take_uncopied(&self, max: usize) -> BytesMut {
        let mut inner = self.inner.lock();
        let uncopied = inner.uncopied.as_mut();
        uncopied.map_or_else(BytesMut::new, |bytes| bytes.split_to(max.min(bytes.len())))
    }

    pub fn physical_bytes(&self) -> u64 {
        self.inner.lock().physical_bytes
    }

    /// It has a whole segment and no footer.
    pub fn has_segments(&self) -> bool {
        !self.inner.lock().entries.is_empty()
    }

    /// Syncs all appended bytes; false if that was not needed. A failure poisons the file.
    pub fn make_durable(&self, storage: &dyn Storage, observer: &dyn Observer) -> Result<bool> {
        if self.inner.lock().is_durable() {
            // Does not wait for a thread that closes it.
            return Ok(false);
        }
        let durability = self.durability.lock();
        let (wanted, syncer) = {
            let inner = self.inner.lock();
            if inner.is_durable() {
                return Ok(false);
            }
            match inner.status {
                Status::Open | Status::Lent | Status::Closing => {
                    (inner.good_bytes, inner.syncer.clone())
                }
                Status::Sealed | Status::Closed => return Err(self.lost(&inner, storage)),
            }
        };
        if !storage.capabilities().durable_append {
            drop(durability);
            return self.close(storage, observer).map(|()| true);
        }
        // Without our lock, if storage can, so that others can append.
        let synced = match syncer {
            // A sync of a deleted file succeeds, too. A look at the file is cheap here; storage
            // that only the writer can sync would need a request for it.
            Some(syncer) => match syncer.sync() {
                Ok(()) => match self.find(storage, wanted) {
                    Err(e) if !e.is_damage() => return Err(e),
                    found => found.map(drop),
                },
                failed => failed,
            },
            None => match self.inner.lock().handle.as_mut() {
                Some(handle) => handle.sync(),
                None => Err(Error::new(ErrorKind::Poisoned, "it was closed")),
            },
        };
        let mut inner = self.inner.lock();
        match synced {
            Ok(()) => {
                inner.durable_bytes = inner.durable_bytes.max(wanted);
                self.tell(&inner, observer);
                Ok(true)
            }
            Err(e) => {
                // After a failed sync the system may have dropped the bytes, and a second sync may
                // still report success. So nothing in this file can be trusted to become durable.
                inner.end();
                self.tell(&inner, observer);
                Err(e.context(self.lost_what(&inner, storage)))
            }
        }
    }

    /// Writes the footer, makes the file durable and closes it. For a closed file it only reports
    /// whether all segments are durable. The borrower of a lent file closes it; this waits for that
    /// unless all segments are durable. A missing footer is no error, see
    /// [`OpenFile::take_footer_failure`].
    pub fn close(&self, storage: &dyn Storage, observer: &dyn Observer) -> Result<()> {
        let Some(_durability) = self.wait_until_returned() else {
            return Ok(());
        };
        let (mut handle, entries, good_bytes, is_clean) = {
            let mut inner = self.inner.lock();
            let Some(handle) = inner.handle.take() else {
                return if inner.is_durable() {
                    Ok(())
                } else {
                    Err(self.lost(&inner, storage))
                };
            };
            inner.syncer = None;
            let before = std::mem::replace(&mut inner.status, Status::Closing);
            let entries = std::mem::take(&mut inner.entries);
            (handle, entries, inner.good_bytes, before == Status::Open)
        };
        let footer = encode_footer(self.id, good_bytes, &entries).and_then(|footer| {
            let written = handle.append(&footer);
            if written.is_err() {
                // Best effort: garbage that is left is counted below.
                let _ = handle.cut(good_bytes);
            }
            written.map(|()| footer.len() as u64)
        });
        // Without a footer the file is still worth syncing: a scan finds its segments.
        let finished = handle.finish();
        let found = match &footer {
            // The object is whole, or finishing it would have failed.
            Ok(footer)
                if is_clean && finished.is_ok() && !storage.capabilities().durable_append =>
            {
                Ok(good_bytes + footer)
            }
            // Garbage of a cut append is part of the size, and only storage knows how much it is.
            _ => self.find(storage, good_bytes),
        };
        let physical_bytes = found.as_ref().ok().copied();
        let gone = found.err().filter(Error::is_damage);
        let mut inner = self.inner.lock();
        let finished = match gone {
            Some(gone) => {
                inner.durable_bytes = 0;
                finished.and(Err(gone))
            }
            None => finished,
        };
        if finished.is_ok() {
            inner.durable_bytes = good_bytes;
        }
        inner.status = match (&footer, &finished) {
            (Ok(_), Ok(())) => Status::Sealed,
            _ => Status::Closed,
        };
        inner.physical_bytes =
            physical_bytes.unwrap_or(good_bytes + *footer.as_ref().unwrap_or(&0));
        inner.garbage_bytes =
            (inner.physical_bytes - good_bytes).saturating_sub(*footer.as_ref().unwrap_or(&0));
        inner.uncopied = None;
        if inner.status == Status::Sealed && inner.garbage_bytes == 0 {
            inner.index = Some(FileIndex {
                file: self.id,
                sealed: true,
                file_bytes: inner.physical_bytes,
                segments: entries,
                torn_bytes: 0,
                damaged_bytes: 0,
            });
        }
        self.tell(&inner, observer);
        inner.footer_failure = footer.err().filter(|_| finished.is_ok());
        finished.map_err(|e| e.context(self.lost_what(&inner, storage)))
    }

    /// The index of the file that `close` sealed; returned once.
    pub fn take_index(&self) -> Option<FileIndex> {
        self.inner.lock().index.take()
    }

    /// The reason why `close` left the durable file without a footer; returned once.
    pub fn take_footer_failure(&self) -> Option<Error> {
        self.inner.lock().footer_failure.take()
    }

    /// Closes the file without a footer, unless `wanted` says that it has a segment worth keeping.
    pub fn abandon(&self, wanted: impl FnOnce() -> bool, observer: &dyn Observer) -> bool {
        let _durability = self.durability.lock();
        let mut inner = self.inner.lock();
        if inner.handle.is_none() || wanted() {
            return false;
        }
        inner.end();
        inner.entries = Vec::new();
        // Nothing in it is worth a sync, so no caller may wait for one.
        inner.durable_bytes = inner.good_bytes;
        self.tell(&inner, observer);
        true
    }

    /// Closes a file that is gone, without a footer.
    pub fn give_up(&self, observer: &dyn Observer) {
        let _durability = self.durability.lock();
        let mut inner = self.inner.lock();
        // Another thread may have closed it, with a footer.
        if inner.handle.is_some() {
            inner.end();
            self.tell(&inner, observer);
        }
    }

    /// Closes a file that is gone, and counts all its bytes as lost.
    pub fn lose(&self, observer: &dyn Observer) {
        let _durability = self.durability.lock();
        let mut inner = self.inner.lock();
        inner.end();
        inner.durable_bytes = 0;
        self.tell(&inner, observer);
    }

    /// All its segments are durable and it takes no more: the writer can forget it.
    pub fn is_settled(&self) -> bool {
        let inner = self.inner.lock();
        inner.is_over() && inner.is_durable()
    }

    /// It takes no appends, and some of its segments will never be durable.
    pub fn is_lost(&self) -> bool {
        let inner = self.inner.lock();
        inner.status == Status::Closed && !inner.is_durable()
    }

    /// Returns whether the bytes before `end` survive a machine crash.
    pub fn durability(&self, end: u64) -> Durability {
        let inner = self.inner.lock();
        match inner.status {
            _ if inner.durable_bytes >= end => Durability::Durable,
            Status::Open | Status::Lent | Status::Closing => Durability::Pending,
            Status::Sealed | Status::Closed => Durability::Lost,
        }
    }

    /// Garbage of failed appends that could not be cut off, known once it is closed; returned once.
    pub fn take_garbage(&self) -> u64 {
        std::mem::take(&mut self.inner.lock().garbage_bytes)
    }

    pub fn is_sealed(&self) -> bool {
        self.inner.lock().status == Status::Sealed
    }

    pub fn is_open(&self) -> bool {
        self.inner.lock().status == Status::Open
    }

    /// Returns whether a caller of `sync` has learned that bytes of this file were lost.
    pub fn loss_was_reported(&self) -> bool {
        self.inner.lock().loss_reported
    }

    /// Remembers that a caller has learned of lost bytes, if there are any.
    pub fn mark_loss_reported(&self) {
        let mut inner = self.inner.lock();
        inner.loss_reported = inner.is_over() && !inner.is_durable();
    }

    /// Size of the file, which must be at least `bytes`.
    fn find(&self, storage: &dyn Storage, bytes: u64) -> Result<u64> {
        let found = storage.len(&self.id.file_name())?;
        if found >= bytes {
            return Ok(found);
        }
        Err(Error::corrupt(format!(
            "{}/{}: expected at least {bytes} bytes, found {found}",
            storage.location(),
            self.id
        )))
    }

    fn tell(&self, inner: &Inner, observer: &dyn Observer) {
        observer.changed(&FileChange {
            file: self.id,
            open: inner.handle.is_some() || inner.status == Status::Lent,
            physical_bytes: inner.physical_bytes,
            durable_bytes: inner.durable_bytes,
        });
    }

    fn lost(&self, inner: &Inner, storage: &dyn Storage) -> Error {
        Error::new(ErrorKind::Poisoned, self.lost_what(inner, storage))
    }

    fn lost_what(&self, inner: &Inner, storage: &dyn Storage) -> String {
        format!(
            "segments of {}/{} from offset {} to {} may not survive a machine crash",
            storage.location(),
            self.id,
            inner.durable_bytes,
            inner.good_bytes
        )
    }
}

/// The durability of a segment in a machine crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// It survives.
    Durable,
    /// Once its file is synced or sealed.
    Pending,
    /// It may be lost: its file could not be synced or sealed.
    Lost,
}
