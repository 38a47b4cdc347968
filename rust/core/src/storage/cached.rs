//! A storage with a cache of its objects on a local disk.

use std::sync::Arc;

use parking_lot::Mutex;

use super::layer::Layer;
use super::local_cache::{LocalCache, PAGE_BYTES, PageKey, object_key};
use super::{AppendFile, ReadFile, Storage, SyncFile, check_range};
use crate::error::Result;

/// Bound on the pages of one read: 4 MiB.
const MAX_AHEAD_PAGES: u64 = 16;

/// Remote storage with a [`LocalCache`], which gets the bytes that this process appends, and the
/// pages that it reads. A reader that continues where it stopped reads more and more ahead.
///
/// No name gets other content later. Each opening asks remote storage: it finds no deleted object.
#[derive(Debug)]
pub struct CachedStorage {
    remote: Arc<dyn Storage>,
    cache: Arc<LocalCache>,
}

impl CachedStorage {
    /// `remote` with `cache`, which other storages may share.
    pub fn new(remote: Arc<dyn Storage>, cache: Arc<LocalCache>) -> Self {
        Self { remote, cache }
    }

    fn key(&self, name: &str) -> u128 {
        object_key(&self.remote.location(), name)
    }
}

impl Layer for CachedStorage {
    fn below(&self) -> &dyn Storage {
        self.remote.as_ref()
    }

    fn forget_object(&self, name: &str) {
        self.cache.forget_object(self.key(name));
    }

    fn create(&self, name: &str) -> Result<Box<dyn AppendFile>> {
        let remote = self.remote.create(name)?;
        self.forget_object(name);
        Ok(Box::new(CachedFile {
            remote,
            object: self.key(name),
            cache: Some(Arc::clone(&self.cache)),
            page: Vec::new(),
            number: 0,
        }))
    }

    fn open(&self, name: &str) -> Result<Box<dyn ReadFile>> {
        Ok(Box::new(CachedReader {
            remote: self.remote.open(name)?,
            object: self.key(name),
            cache: Arc::clone(&self.cache),
            ahead: Mutex::default(),
        }))
    }
}

#[derive(Debug)]
struct CachedReader {
    remote: Box<dyn ReadFile>,
    object: u128,
    cache: Arc<LocalCache>,
    ahead: Mutex<Ahead>,
}

#[derive(Debug, Default)]
struct Ahead {
    /// The page after the last one that was fetched.
    next: u64,
    pages: u64,
}

impl Ahead {
    /// Number of pages to fetch from `first`, at least one.
    fn from(&mut self, first: u64) -> u64 {
        let goes_on = first > 0 && first == self.next;
        self.pages = if goes_on {
            (self.pages * 2).min(MAX_AHEAD_PAGES)
        } else {
            1
        };
        self.pages
    }
}

impl CachedReader {
    /// Fetches these pages, and more if the reader reads ahead, up to a page that the cache has.
    fn fetch(&self, first: u64, last: u64) -> Result<Vec<u8>> {
        let pages = self.remote.size_bytes().div_ceil(PAGE_BYTES);
        let ahead = self.ahead.lock().from(first);
        let end = (last + 1).max(first + ahead).min(pages);
        let is_here = |number: &u64| self.cache.has(PageKey::new(self.object, *number));
        let end = (first + 1..end).find(is_here).unwrap_or(end);
        let bytes = match self.fetch_pages(first, end) {
            // Read-ahead must not fail a reader.
            Err(_) if end > last + 1 => self.fetch_pages(first, last + 1)?,
            fetched => fetched?,
        };
        self.ahead.lock().next = first + (bytes.len() as u64).div_ceil(PAGE_BYTES);
        for (number, page) in (first..).zip(bytes.chunks(PAGE_BYTES as usize)) {
            self.cache.put(PageKey::new(self.object, number), page);
        }
        Ok(bytes)
    }

    fn fetch_pages(&self, first: u64, end: u64) -> Result<Vec<u8>> {
        let from = first * PAGE_BYTES;
        let to = self.remote.size_bytes().min(end * PAGE_BYTES);
        self.cache.count_miss();
        self.remote.read(from, to.saturating_sub(from))
    }
}

impl ReadFile for CachedReader {
    fn size_bytes(&self) -> u64 {
        self.remote.size_bytes()
    }

    fn read(&self, offset: u64, len: u64) -> Result<Vec<u8>> {
        let end = offset.saturating_add(len);
        // The error of remote storage names the object.
        let is_inside = check_range("", self.size_bytes(), offset, len).is_ok();
        if len == 0 || !is_inside || !self.cache.is_on() {
            return self.remote.read(offset, len);
        }
        let last = (end - 1) / PAGE_BYTES;
        let mut out = Vec::with_capacity(len as usize);
        let mut position = offset;
        while position < end {
            let number = position / PAGE_BYTES;
            let page = number * PAGE_BYTES;
            let until = end.min(page + PAGE_BYTES);
            let (from, to) = ((position - page) as usize, (until - page) as usize);
            let key = PageKey::new(self.object, number);
            if self.cache.get(key, from, to, &mut out) {
                position = until;
                continue;
            }
            let fetched = self.fetch(number, last)?;
            let wanted = fetched.get(from..).unwrap_or_default();
            let wanted = wanted.get(..(end - position) as usize).unwrap_or(wanted);
            out.extend_from_slice(wanted);
            position += wanted.len() as u64;
        }
        Ok(out)
    }
}

#[derive(Debug)]
struct CachedFile {
    remote: Box<dyn AppendFile>,
    object: u128,
    /// `None` once the content of the object is not certain.
    cache: Option<Arc<LocalCache>>,
    /// Bytes of the page `number` so far.
    page: Vec<u8>,
    number: u64,
}

impl CachedFile {
    fn keep(&mut self, mut bytes: &[u8]) {
        let Some(cache) = self.cache.as_ref().filter(|cache| cache.is_on()) else {
            // Later bytes would not start at the beginning of a page.
            self.cache = None;
            return;
        };
        while !bytes.is_empty() {
            let room = PAGE_BYTES as usize - self.page.len();
            let (now, later) = bytes.split_at(room.min(bytes.len()));
            self.page.extend_from_slice(now);
            bytes = later;
            if self.page.len() == PAGE_BYTES as usize {
                cache.put(PageKey::new(self.object, self.number), &self.page);
                self.page.clear();
                self.number += 1;
            }
        }
    }

    /// Keeps the page so far: others may read durable bytes.
    fn keep_rest(&self) {
        if let Some(cache) = &self.cache {
            keep_page(cache, PageKey::new(self.object, self.number), &self.page);
        }
    }

    fn distrust(&mut self) {
        if let Some(cache) = self.cache.take() {
            cache.forget_object(self.object);
        }
    }
}

impl AppendFile for CachedFile {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        let appended = self.remote.append(bytes);
        match appended {
            Ok(()) => self.keep(bytes),
            Err(_) => self.distrust(),
        }
        appended
    }

    fn cut(&mut self, len: u64) -> Result<()> {
        self.distrust();
        self.remote.cut(len)
    }

    fn sync(&mut self) -> Result<()> {
        let synced = self.remote.sync();
        match synced {
            Ok(()) => self.keep_rest(),
            Err(_) => self.distrust(),
        }
        synced
    }

    fn syncer(&self) -> Option<Arc<dyn SyncFile>> {
        self.remote.syncer()
    }

    fn finish(self: Box<Self>) -> Result<()> {
        let file = *self;
        let finished = file.remote.finish();
        if let Some(cache) = file.cache {
            match finished {
                Ok(()) => keep_page(&cache, PageKey::new(file.object, file.number), &file.page),
                Err(_) => cache.forget_object(file.object),
            }
        }
        finished
    }
}

fn keep_page(cache: &LocalCache, key: PageKey, page: &[u8]) {
    if !page.is_empty() {
        cache.put(key, page);
    }
}
