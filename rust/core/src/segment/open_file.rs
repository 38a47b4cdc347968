//! One physical file of this incarnation: `Open -> Closing -> Sealed | Closed`, never back. A file of
//! large runs is lent to one run after the other meanwhile.
//!
//! Two locks, always taken in this order: `durability` serialises sync and close (so that calls
//! that wait for one sync often find their bytes covered by it), `inner` guards the bytes and is
//! held for one write, never for a sync.

mod lending;

use std::sync::Arc;

use parking_lot::{Condvar, Mutex};

use super::observer::{FileChange, Observer};
use crate::error::{Error, ErrorKind, Result};
use crate::format::{IndexEntry, encode_footer};
use crate::ids::{FileId, SegmentRef};
use crate::storage::{AppendFile, Storage, SyncFile};

pub(super) use lending::{Left, LentFile};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Status {
    /// Takes appends.
    Open,
    /// A run is written to it by the one that has its handle.
    Lent,
    /// A thread writes the footer.
    Closing,
    /// Has a durable footer.
    Sealed,
    /// Takes no appends and has no durable footer: a scan finds its segments.
    Closed,
}

#[derive(Debug)]
struct Inner {
    handle: Option<Box<dyn AppendFile>>,
    /// Syncs the file without this lock, where storage can do that. There as long as a handle is.
    syncer: Option<Arc<dyn SyncFile>>,
    status: Status,
    /// End of the last whole segment.
    good_bytes: u64,
    /// Bytes known to survive a machine crash.
    durable_bytes: u64,
    /// Size of the file as far as known: garbage of a cut append and the footer included.
    physical_bytes: u64,
    /// What failed appends left in it, known once it is closed.
    garbage_bytes: u64,
    entries: Vec<IndexEntry>,
    /// No run is to follow the one that is written to it.
    closes_next: bool,
    /// `sync` has reported to a caller that bytes of this file were lost.
    loss_reported: bool,
    /// Why the file has no footer although everything in it is durable.
    footer_failure: Option<Error>,
}

impl Inner {
    /// Closes the file as it is.
    fn end(&mut self) {
        self.handle = None;
        self.syncer = None;
        self.status = Status::Closed;
    }

    /// Takes no appends any more, and no footer.
    fn is_over(&self) -> bool {
        matches!(self.status, Status::Sealed | Status::Closed)
    }

    fn is_durable(&self) -> bool {
        self.durable_bytes >= self.good_bytes
    }
}

/// What became of an append.
pub(super) enum Appended {
    /// The segment is in the file. `full` when the file should be sealed now.
    Written { reference: SegmentRef, full: bool },
    /// The file takes no appends any more: use another one.
    Refused,
    /// It has no room for so many segments: close it and use another one.
    TooMany,
    /// The disk is full, and nothing of the segment is left: the file takes what fits.
    NoSpace(Error),
    /// The write failed. The file takes no appends any more and must be closed.
    Cut(Error),
}

/// When a file counts as full.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub max_file_bytes: u64,
    pub max_segments: usize,
}

#[derive(Debug)]
pub(super) struct OpenFile {
    pub id: FileId,
    pub lane: u64,
    inner: Mutex<Inner>,
    durability: Mutex<()>,
    /// It was lent, and is not any more.
    returned: Condvar,
}

impl OpenFile {
    /// A file that was just created; `header_bytes` were written to it.
    pub fn new(id: FileId, lane: u64, handle: Box<dyn AppendFile>, header_bytes: u64) -> Self {
        let inner = Inner {
            syncer: handle.syncer(),
            handle: Some(handle),
            status: Status::Open,
            good_bytes: header_bytes,
            durable_bytes: 0,
            physical_bytes: header_bytes,
            garbage_bytes: 0,
            entries: Vec::new(),
            closes_next: false,
            loss_reported: false,
            footer_failure: None,
        };
        Self {
            id,
            lane,
            inner: Mutex::new(inner),
            durability: Mutex::new(()),
            returned: Condvar::new(),
        }
    }

    /// Appends the bytes of one segment, which those of others, `before`, precede; the entries learn
    /// where they lie.
    pub fn append(
        &self,
        bytes: &[u8],
        before: &[IndexEntry],
        mut entry: IndexEntry,
        bounds: Bounds,
        observer: &dyn Observer,
    ) -> Appended {
        let mut inner = self.inner.lock();
        let inner = &mut *inner;
        let (Status::Open, Some(handle)) = (inner.status, inner.handle.as_mut()) else {
            return Appended::Refused;
        };
        if inner.entries.len() + before.len() >= bounds.max_segments {
            return Appended::TooMany;
        }
        if let Err(e) = handle.append(bytes) {
            // How much was written is unknown. It takes space for as long as a neighbour is needed.
            let is_cut = handle.cut(inner.good_bytes).is_ok();
            if is_cut && e.is_out_of_space() {
                // Neither a footer nor another file would find room either.
                return Appended::NoSpace(e);
            }
            // Nothing may follow but a footer.
            inner.status = Status::Closing;
            return Appended::Cut(e);
        }
        let mut offset = inner.good_bytes;
        inner.good_bytes += bytes.len() as u64;
        inner.physical_bytes = inner.good_bytes;
        let mut place = |entry: &mut IndexEntry| {
            entry.reference.file = self.id;
            entry.reference.offset = offset;
            offset += entry.reference.len;
            // Under the lock, so that an observer that learns of the end knows all segments.
            observer.appended(entry, inner.physical_bytes);
        };
        let mut before = before.to_vec();
        before.iter_mut().for_each(&mut place);
        place(&mut entry);
        let reference = entry.reference;
        inner.entries.append(&mut before);
        inner.entries.push(entry);
        let full =
            inner.good_bytes >= bounds.max_file_bytes || inner.entries.len() >= bounds.max_segments;
        Appended::Written { reference, full }
    }

    /// Size of the file, as far as known.
    pub fn physical_bytes(&self) -> u64 {
        self.inner.lock().physical_bytes
    }

    /// It has a whole segment and no footer.
    pub fn has_segments(&self) -> bool {
        !self.inner.lock().entries.is_empty()
    }

    /// Makes everything appended so far survive a machine crash. A failure poisons the file.
    pub fn make_durable(&self, storage: &dyn Storage, observer: &dyn Observer) -> Result<Synced> {
        if self.inner.lock().is_durable() {
            // Not behind another that closes it.
            return Ok(Synced::Already);
        }
        let durability = self.durability.lock();
        let (wanted, syncer) = {
            let inner = self.inner.lock();
            if inner.is_durable() {
                return Ok(Synced::Already);
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
            return self.close(storage, observer).map(|()| Synced::Now);
        }
        // Without our lock, so that others append meanwhile, where storage can do that.
        let synced = match syncer {
            // The bytes of a file that was deleted can be synced as well. A look at the file is
            // cheap there; storage that only the writer can sync would pay a request for it.
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
                Ok(Synced::Now)
            }
            Err(e) => {
                // After a failed sync the system may have dropped the bytes and a second sync may
                // still report success, so nothing in this file can be trusted to become durable.
                inner.end();
                self.tell(&inner, observer);
                Err(e.context(self.lost_what(&inner, storage)))
            }
        }
    }

    /// Writes the footer, makes the file durable and closes it. A file that is closed already only
    /// reports whether all its segments are durable. One that is lent is closed by the one that has it:
    /// this waits for that if not all its segments are durable. That the footer could not be written is
    /// no error, see [`OpenFile::take_footer_failure`].
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
                // Best effort: what stays is counted below.
                let _ = handle.cut(good_bytes);
            }
            written.map(|()| footer.len() as u64)
        });
        // Without a footer the file is still worth syncing: a scan finds its segments.
        let finished = handle.finish();
        let found = match &footer {
            // The object is what was handed over, or finishing it would have failed: nothing to ask for.
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
        self.tell(&inner, observer);
        inner.footer_failure = footer.err().filter(|_| finished.is_ok());
        finished.map_err(|e| e.context(self.lost_what(&inner, storage)))
    }

    /// Why `close` left the file without a footer, everything in it being durable; returned once.
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

    /// Closes the file as it is: there is nothing to write a footer to.
    pub fn give_up(&self, observer: &dyn Observer) {
        let _durability = self.durability.lock();
        let mut inner = self.inner.lock();
        // Another thread may have closed it meanwhile, with a footer.
        if inner.handle.is_some() {
            inner.end();
            self.tell(&inner, observer);
        }
    }

    /// Closes the file, which is gone: nothing of it survives anything.
    pub fn lose(&self, observer: &dyn Observer) {
        let _durability = self.durability.lock();
        let mut inner = self.inner.lock();
        inner.end();
        inner.durable_bytes = 0;
        self.tell(&inner, observer);
    }

    /// All its segments survive a machine crash and it takes no more: the writer can forget it.
    pub fn is_settled(&self) -> bool {
        let inner = self.inner.lock();
        inner.is_over() && inner.is_durable()
    }

    /// It takes no appends, and some of its segments may not survive a machine crash, ever.
    pub fn is_lost(&self) -> bool {
        let inner = self.inner.lock();
        inner.status == Status::Closed && !inner.is_durable()
    }

    /// Whether the bytes before `end` survive a machine crash.
    pub fn durability(&self, end: u64) -> Durability {
        let inner = self.inner.lock();
        match inner.status {
            _ if inner.durable_bytes >= end => Durability::Durable,
            Status::Open | Status::Lent | Status::Closing => Durability::Pending,
            Status::Sealed | Status::Closed => Durability::Lost,
        }
    }

    /// What failed appends left in it and could not be cut off, once it is closed; returned once.
    pub fn take_garbage(&self) -> u64 {
        std::mem::take(&mut self.inner.lock().garbage_bytes)
    }

    pub fn is_sealed(&self) -> bool {
        self.inner.lock().status == Status::Sealed
    }

    /// Takes appends still.
    pub fn is_open(&self) -> bool {
        self.inner.lock().status == Status::Open
    }

    /// `sync` has reported to a caller already that bytes of this file were lost.
    pub fn loss_was_reported(&self) -> bool {
        self.inner.lock().loss_reported
    }

    /// Remembers that the loss of this file's bytes, if any, was reported to a caller.
    pub fn mark_loss_reported(&self) {
        let mut inner = self.inner.lock();
        inner.loss_reported = inner.is_over() && !inner.is_durable();
    }

    /// Size of the file, which has at least `bytes` bytes unless it is not what was written.
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

/// Whether a segment survives a machine crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// It does.
    Durable,
    /// Once its file is synced or sealed.
    Pending,
    /// It may be lost: its file could not be synced or sealed.
    Lost,
}

/// Whether a sync was needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Synced {
    /// The bytes were durable before.
    Already,
    /// They are now.
    Now,
}
