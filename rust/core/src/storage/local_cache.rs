//! Pages of remote objects on a local disk, for bytes that were read or written once.
//!
//! The cache may lose any page at any time. Its file has no name: the operating system frees it
//! when the process ends, however it ends.

#![expect(
    clippy::disallowed_methods,
    reason = "its file is no object: nothing but this cache can see it"
)]

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use xxhash_rust::xxh3::{xxh3_64, xxh3_128};

use crate::error::{Error, Result};

/// Size of a page. The last page of an object may be shorter.
pub(super) const PAGE_BYTES: u64 = 256 << 10;

/// Bytes that are read and verified together.
const PART_BYTES: usize = 32 << 10;
const PARTS: usize = PAGE_BYTES as usize / PART_BYTES;

/// Pages of many objects in one file of bounded size. Pages that were not asked for lately make
/// room for others. The cache verifies the bytes of the disk, and drops a page that is wrong.
///
/// Memory: 150 bytes a page, that is 600 KiB for 1 GiB.
#[derive(Debug, Default)]
pub struct LocalCache {
    inner: Mutex<Inner>,
    hits: AtomicU64,
    misses: AtomicU64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct PageKey {
    object: u128,
    number: u64,
}

impl PageKey {
    pub fn new(object: u128, number: u64) -> Self {
        Self { object, number }
    }
}

pub(super) fn object_key(location: &str, name: &str) -> u128 {
    xxh3_128(format!("{location}/{name}").as_bytes())
}

#[derive(Debug, Default)]
struct Inner {
    /// `None` while the cache is off.
    file: Option<Arc<File>>,
    dir: PathBuf,
    max_pages: usize,
    slots: Vec<Slot>,
    index: HashMap<PageKey, usize>,
    hand: usize,
    /// The failure that turned the cache off, until a caller asks.
    failure: Option<Error>,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    /// `None` while it is written, and after its page was dropped.
    key: Option<PageKey>,
    is_busy: bool,
    was_used: bool,
    len: usize,
    digests: [u64; PARTS],
}

const FREE: Slot = Slot {
    key: None,
    is_busy: false,
    was_used: false,
    len: 0,
    digests: [0; PARTS],
};

impl LocalCache {
    /// Keeps up to `max_bytes` in a file in the folder `dir`, which it makes if it is missing. Less
    /// than a page turns the cache off. A cache that is on in that folder keeps the pages that fit.
    ///
    /// # Errors
    /// `Storage` if no file can be made there: the cache is off then.
    pub fn keep_in(&self, dir: &Path, max_bytes: u64) -> Result<()> {
        let mut inner = self.inner.lock();
        let max_pages = usize::try_from(max_bytes / PAGE_BYTES).unwrap_or(usize::MAX);
        if max_pages == 0 || (inner.file.is_some() && inner.dir != dir) {
            *inner = Inner::default();
        }
        if max_pages == 0 {
            return Ok(());
        }
        if inner.file.is_none() {
            let what = || format!("making a file for the local cache in {}", dir.display());
            let file = nameless_file(dir).map_err(|e| Error::io(what(), e))?;
            inner.file = Some(Arc::new(file));
            inner.dir = dir.to_path_buf();
            inner.failure = None;
        }
        inner.max_pages = max_pages;
        inner.shrink();
        Ok(())
    }

    /// Returns whether it keeps anything.
    pub fn is_on(&self) -> bool {
        self.inner.lock().file.is_some()
    }

    /// The failure of the disk that turned the cache off. Returned once.
    pub fn take_failure(&self) -> Option<Error> {
        self.inner.lock().failure.take()
    }

    /// Bytes of its pages.
    pub fn used_bytes(&self) -> u64 {
        let inner = self.inner.lock();
        let pages = inner.index.values().filter_map(|at| inner.slots.get(*at));
        pages.map(|slot| slot.len as u64).sum()
    }

    /// Reads that found a page in the cache.
    pub fn hits(&self) -> u64 {
        self.hits.load(Ordering::Relaxed)
    }

    /// Reads of remote storage for pages that were not in the cache.
    pub fn misses(&self) -> u64 {
        self.misses.load(Ordering::Relaxed)
    }

    pub(super) fn count_miss(&self) {
        self.misses.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns whether a page is here. A later read may still find that it is gone or damaged.
    pub(super) fn has(&self, key: PageKey) -> bool {
        self.inner.lock().index.contains_key(&key)
    }

    /// False, with `out` unchanged, if the bytes are not here or damaged.
    pub(super) fn get(&self, key: PageKey, start: usize, end: usize, out: &mut Vec<u8>) -> bool {
        let Some((file, at, slot)) = self.look_up(key, end) else {
            return false;
        };
        let first = start / PART_BYTES;
        let from = first * PART_BYTES;
        let to = slot.len.min(end.next_multiple_of(PART_BYTES));
        let mut bytes = vec![0; to - from];
        let read = file.read_exact_at(&mut bytes, offset_of(at) + from as u64);
        let expected = slot.digests.get(first..).unwrap_or_default();
        let mut parts = bytes.chunks(PART_BYTES).zip(expected);
        if read.is_err() || !parts.all(|(part, digest)| xxh3_64(part) == *digest) {
            // Does nothing if it has made room for another page by now.
            self.inner.lock().forget_if(key, at);
            return false;
        }
        out.extend_from_slice(bytes.get(start - from..end - from).unwrap_or_default());
        self.hits.fetch_add(1, Ordering::Relaxed);
        true
    }

    fn look_up(&self, key: PageKey, end: usize) -> Option<(Arc<File>, usize, Slot)> {
        let mut inner = self.inner.lock();
        let file = Arc::clone(inner.file.as_ref()?);
        let at = *inner.index.get(&key)?;
        let slot = inner.slots.get_mut(at).filter(|slot| slot.len >= end)?;
        slot.was_used = true;
        Some((file, at, *slot))
    }

    /// Keeps the first bytes of a page, unless as many are here. A disk that is full or fails turns
    /// the cache off, which frees its space.
    pub(super) fn put(&self, key: PageKey, page: &[u8]) {
        let mut digests = [0; PARTS];
        for (digest, part) in digests.iter_mut().zip(page.chunks(PART_BYTES)) {
            *digest = xxh3_64(part);
        }
        let Some((file, at)) = self.make_room(key, page.len()) else {
            return;
        };
        let written = file.write_all_at(page, offset_of(at));
        let mut inner = self.inner.lock();
        // The cache may have been turned off, or started again.
        let now = inner.file.as_ref();
        if now.is_none_or(|now| !Arc::ptr_eq(now, &file)) {
            return;
        }
        if let Err(e) = written {
            let context = format!("writing to the local cache in {}", inner.dir.display());
            *inner = Inner {
                failure: Some(Error::io(context, e)),
                ..Inner::default()
            };
            return;
        }
        let kept = at < inner.max_pages && !inner.index.contains_key(&key);
        let Some(slot) = inner.slots.get_mut(at) else {
            return;
        };
        *slot = FREE;
        if kept {
            *slot = Slot {
                key: Some(key),
                was_used: true,
                len: page.len(),
                digests,
                ..FREE
            };
            inner.index.insert(key, at);
        }
    }

    fn make_room(&self, key: PageKey, len: usize) -> Option<(Arc<File>, usize)> {
        let mut inner = self.inner.lock();
        let file = Arc::clone(inner.file.as_ref()?);
        if let Some(at) = inner.index.get(&key).copied() {
            if inner.slots.get(at).is_some_and(|slot| slot.len >= len) {
                return None;
            }
            inner.forget_if(key, at);
        }
        let at = inner.free_slot()?;
        if let Some(slot) = inner.slots.get_mut(at) {
            slot.is_busy = true;
        }
        Some((file, at))
    }

    pub(super) fn forget_object(&self, object: u128) {
        let mut inner = self.inner.lock();
        let keys = inner.index.iter().filter(|(key, _)| key.object == object);
        let gone: Vec<_> = keys.map(|(key, at)| (*key, *at)).collect();
        for (key, at) in gone {
            inner.forget_if(key, at);
        }
    }
}

impl Inner {
    fn forget_if(&mut self, key: PageKey, at: usize) {
        let slot = self.slots.get_mut(at).filter(|s| s.key == Some(key));
        if let Some(slot) = slot {
            *slot = FREE;
            self.index.remove(&key);
        }
    }

    /// A new slot if possible, else one whose page was not used since the hand was last here.
    fn free_slot(&mut self) -> Option<usize> {
        if self.slots.len() < self.max_pages {
            self.slots.push(FREE);
            return Some(self.slots.len() - 1);
        }
        // In the second round all are unused, except pages that are being written.
        for _ in 0..2 * self.slots.len() {
            let at = self.hand;
            self.hand = (at + 1) % self.slots.len();
            let Some(slot) = self.slots.get_mut(at).filter(|slot| !slot.is_busy) else {
                continue;
            };
            if std::mem::take(&mut slot.was_used) {
                continue;
            }
            if let Some(key) = std::mem::replace(slot, FREE).key {
                self.index.remove(&key);
            }
            return Some(at);
        }
        None
    }

    fn shrink(&mut self) {
        if self.slots.len() <= self.max_pages {
            return;
        }
        for slot in self.slots.split_off(self.max_pages) {
            if let Some(key) = slot.key {
                self.index.remove(&key);
            }
        }
        self.hand = 0;
        if let Some(file) = &self.file {
            // `put` does not keep a page that it writes after this end.
            let _ = file.set_len(offset_of(self.max_pages));
        }
    }
}

fn offset_of(slot: usize) -> u64 {
    slot as u64 * PAGE_BYTES
}

/// On Linux it never has a name, unless the file system cannot make such a file.
fn nameless_file(dir: &Path) -> io::Result<File> {
    std::fs::create_dir_all(dir)?;
    tempfile::tempfile_in(dir)
}
