//! The run below the tables of a store: entries that are not in memory and are read when they are asked
//! for.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use super::order::KeyRange;
use crate::error::Result;
use crate::format::{Block, EntryAt, Group, RunReader, parse_entry};
use crate::ids::SegmentRef;

/// Blocks that stay in memory: those that were read last.
const MAX_BLOCKS: usize = 8;

/// A run of which keys are looked up one by one, for all tables of a store.
#[derive(Debug)]
pub(super) struct OpenRun {
    run: RunReader,
    cache: Mutex<Cache>,
    /// Blocks of entries that were read from storage.
    reads: AtomicU64,
}

#[derive(Debug, Default)]
struct Cache {
    /// Those that were needed, by number. They take 1 to 3 bytes for each of their keys.
    groups: Vec<Option<Arc<Group>>>,
    group_bytes: usize,
    blocks: VecDeque<CachedBlock>,
}

/// A block by the numbers of its group and of itself in that.
#[derive(Debug)]
struct CachedBlock {
    at: (usize, usize),
    entries: Arc<Vec<u8>>,
}

impl OpenRun {
    pub fn new(run: RunReader) -> Self {
        Self {
            run,
            cache: Mutex::default(),
            reads: AtomicU64::new(0),
        }
    }

    /// The segment that it is.
    pub fn reference(&self) -> SegmentRef {
        self.run.reference()
    }

    /// Number of keys that begin with the prefix of a table; `None` where the run does not know.
    pub fn keys_behind(&self, prefix: &[u8]) -> Option<u64> {
        self.run.keys_behind(prefix)
    }

    /// Prefixes of the tables that have keys.
    pub fn prefixes(&self) -> impl Iterator<Item = &[u8]> {
        self.run.prefixes()
    }

    /// Blocks of entries that were read from storage so far.
    pub fn reads(&self) -> u64 {
        self.reads.load(Ordering::Relaxed)
    }

    /// Bytes taken from the allocator.
    pub fn memory_bytes(&self) -> usize {
        let cache = self.cache.lock();
        let blocks = cache.blocks.iter().map(|block| block.entries.capacity());
        cache.group_bytes
            + cache.groups.capacity() * size_of::<Option<Arc<Group>>>()
            + blocks.sum::<usize>()
    }

    /// The value of a key. Reads at most one group and one block.
    ///
    /// # Errors
    /// `Corrupt`, with file, offset and owner, where they are damaged; those of storage.
    fn find(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let Some(number) = self.run.group_of(key) else {
            return Ok(None);
        };
        let group = self.group(number)?;
        let Some(block) = group.block_of(key) else {
            return Ok(None);
        };
        let entries = self.cached_block(&group, (number, block))?;
        let mut next = 0;
        while let Some(entry) = parse_entry(&entries, next) {
            let found = entries.get(entry.key).unwrap_or_default();
            if found >= key {
                let value = entry.value.filter(|_| found == key);
                return Ok(value.and_then(|at| entries.get(at)).map(<[u8]>::to_vec));
            }
            next = entry.end;
        }
        Ok(None)
    }

    fn group(&self, number: usize) -> Result<Arc<Group>> {
        if let Some(Some(group)) = self.cache.lock().groups.get(number) {
            return Ok(Arc::clone(group));
        }
        let group = Arc::new(self.run.group(number)?);
        let mut cache = self.cache.lock();
        cache.groups.resize_with(self.run.groups(), || None);
        cache.group_bytes += group.memory_bytes();
        if let Some(place) = cache.groups.get_mut(number) {
            *place = Some(Arc::clone(&group));
        }
        Ok(group)
    }

    /// The entries of a block, which is the newest in the cache then.
    fn cached_block(&self, group: &Group, at: (usize, usize)) -> Result<Arc<Vec<u8>>> {
        let mut cache = self.cache.lock();
        let known = cache.blocks.iter().position(|block| block.at == at);
        let block = match known.and_then(|place| cache.blocks.remove(place)) {
            Some(block) => block,
            None => {
                let entries = match group.blocks().get(at.1) {
                    Some(block) => self.read(block)?,
                    None => Vec::new(),
                };
                cache.blocks.truncate(MAX_BLOCKS - 1);
                let entries = Arc::new(entries);
                CachedBlock { at, entries }
            }
        };
        let entries = Arc::clone(&block.entries);
        cache.blocks.push_front(block);
        Ok(entries)
    }

    fn read(&self, block: &Block) -> Result<Vec<u8>> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.run.block(block)
    }
}

/// What a table has in a run: the keys behind its prefix.
#[derive(Debug)]
pub(super) struct Below {
    run: Arc<OpenRun>,
    prefix: Vec<u8>,
    /// Keys of the table in the run that have no slot.
    pub unlinked: u64,
    /// `unlinked` is not kept right just now, so that no key need be looked for.
    pub is_uncounted: bool,
}

impl Below {
    /// The keys behind `prefix`, none of which has a slot; `None` where there are none.
    pub fn of(run: &Arc<OpenRun>, prefix: &[u8]) -> Option<Self> {
        let unlinked = run.keys_behind(prefix).filter(|keys| *keys > 0)?;
        Some(Self {
            run: Arc::clone(run),
            prefix: prefix.to_vec(),
            unlinked,
            is_uncounted: false,
        })
    }

    /// The value of a key. Reads at most one group and one block.
    ///
    /// # Errors
    /// `Corrupt`, with file, offset and owner, where they are damaged; those of storage.
    pub fn find(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        if self.prefix.is_empty() {
            return self.run.find(key);
        }
        self.run.find(&[&self.prefix, key].concat())
    }

    /// A cursor at the first entry whose key is in `range`.
    ///
    /// # Errors
    /// As [`Below::find`].
    pub fn cursor(&self, range: KeyRange<'_>) -> Result<RunCursor> {
        RunCursor::new(&self.run, &self.prefix, range)
    }
}

/// Goes over the entries of a table in a run in the order of their keys, with one block in memory.
#[derive(Debug)]
pub(super) struct RunCursor {
    run: Arc<OpenRun>,
    /// Length of the table's prefix.
    prefix_bytes: usize,
    /// Number of the group, and the group once it was read.
    group: (usize, Option<Group>),
    /// Number of the next block in it.
    block: usize,
    entries: Vec<u8>,
    /// The current entry, if there is one.
    current: Option<EntryAt>,
    until: Until,
}

/// Where a cursor ends.
#[derive(Debug)]
enum Until {
    /// With the last key that begins so.
    Prefix(Vec<u8>),
    /// Before this key.
    Before(Vec<u8>),
}

impl RunCursor {
    /// A cursor at the first entry of the table behind `prefix` whose key is in `range`.
    ///
    /// # Errors
    /// As [`Below::find`].
    pub fn new(run: &Arc<OpenRun>, prefix: &[u8], range: KeyRange<'_>) -> Result<Self> {
        let behind = |key: &[u8]| [prefix, key].concat();
        let (from, until) = match range {
            KeyRange::All => (prefix.to_vec(), Until::Prefix(prefix.to_vec())),
            KeyRange::Prefix(first) => (behind(first), Until::Prefix(behind(first))),
            KeyRange::Between { from, to } => (
                behind(from.unwrap_or_default()),
                to.map_or_else(
                    || Until::Prefix(prefix.to_vec()),
                    |to| Until::Before(behind(to)),
                ),
            ),
        };
        let from = from.as_slice();
        let mut cursor = Self {
            group: (run.run.group_of(from).unwrap_or(0), None),
            run: Arc::clone(run),
            prefix_bytes: prefix.len(),
            block: 0,
            entries: Vec::new(),
            current: None,
            until,
        };
        if let Some(group) = cursor.read_group()? {
            cursor.block = group.block_before(from).unwrap_or(0);
        }
        cursor.advance()?;
        while cursor.key().is_some_and(|key| key < from) {
            cursor.advance()?;
        }
        Ok(cursor)
    }

    fn key(&self) -> Option<&[u8]> {
        self.entries.get(self.current.as_ref()?.key.clone())
    }

    /// Key in the table and value of the current entry; `None` at the end of the range.
    pub fn entry(&self) -> Option<(&[u8], &[u8])> {
        let EntryAt { value, .. } = self.current.as_ref()?;
        let key = self.key()?;
        let inside = match &self.until {
            Until::Prefix(prefix) => key.starts_with(prefix),
            Until::Before(to) => key < to.as_slice(),
        };
        // A run without lineage has no removals.
        let value = self.entries.get(value.clone()?)?;
        inside.then_some((key.get(self.prefix_bytes..)?, value))
    }

    /// Moves to the next entry.
    ///
    /// # Errors
    /// As [`Below::find`].
    pub fn advance(&mut self) -> Result<()> {
        let mut next = self.current.take().map_or(0, |entry| entry.end);
        loop {
            self.current = parse_entry(&self.entries, next);
            if self.current.is_some() {
                return Ok(());
            }
            self.entries.clear();
            if !self.next_block()? {
                return Ok(());
            }
            next = 0;
        }
    }

    /// Reads the next block; false after the last one.
    fn next_block(&mut self) -> Result<bool> {
        loop {
            let number = self.block;
            let run = Arc::clone(&self.run);
            let Some(group) = self.read_group()? else {
                return Ok(false);
            };
            if let Some(block) = group.blocks().get(number) {
                let entries = run.read(block)?;
                self.entries = entries;
                self.block += 1;
                return Ok(true);
            }
            self.group = (self.group.0 + 1, None);
            self.block = 0;
        }
    }

    fn read_group(&mut self) -> Result<Option<&Group>> {
        if self.group.1.is_none() && self.group.0 < self.run.run.groups() {
            self.group.1 = Some(self.run.run.group(self.group.0)?);
        }
        Ok(self.group.1.as_ref())
    }
}
