//! The run below a table: entries that are not in memory and are read when they are asked for.

use std::collections::VecDeque;
use std::sync::Arc;

use super::order::KeyRange;
use crate::error::Result;
use crate::format::{EntryAt, Group, RunReader, parse_entry};

/// Blocks that stay in memory: those that were read last.
const MAX_BLOCKS: usize = 8;

/// A run of which keys are looked up one by one.
#[derive(Debug)]
pub(super) struct Below {
    run: Arc<RunReader>,
    /// Those that were needed, by number. They take 1 to 3 bytes for each of their keys.
    groups: Vec<Option<Arc<Group>>>,
    group_bytes: usize,
    blocks: VecDeque<CachedBlock>,
    /// Keys of the run that have no slot in the table.
    pub unlinked: u64,
}

/// A block by the numbers of its group and of itself in that.
#[derive(Debug)]
struct CachedBlock {
    at: (usize, usize),
    entries: Vec<u8>,
}

impl Below {
    /// A run none of whose keys has a slot.
    pub fn new(run: RunReader) -> Self {
        let mut groups = Vec::new();
        groups.resize_with(run.groups(), || None);
        Self {
            unlinked: run.head().entries,
            run: Arc::new(run),
            groups,
            group_bytes: 0,
            blocks: VecDeque::new(),
        }
    }

    /// The run, for scans.
    pub fn run(&self) -> Arc<RunReader> {
        Arc::clone(&self.run)
    }

    /// Bytes taken from the allocator.
    pub fn memory_bytes(&self) -> usize {
        let blocks = self.blocks.iter().map(|block| block.entries.capacity());
        self.group_bytes
            + self.groups.capacity() * size_of::<Option<Arc<Group>>>()
            + blocks.sum::<usize>()
    }

    /// The value of a key. Reads at most one group and one block.
    ///
    /// # Errors
    /// `Corrupt`, with file, offset and owner, where they are damaged; those of storage.
    pub fn find(&mut self, key: &[u8]) -> Result<Option<&[u8]>> {
        let Some(number) = self.run.group_of(key) else {
            return Ok(None);
        };
        let group = self.group(number)?;
        let Some(block) = group.block_of(key) else {
            return Ok(None);
        };
        let entries = self.block(&group, (number, block))?;
        let mut next = 0;
        while let Some(entry) = parse_entry(entries, next) {
            let found = entries.get(entry.key).unwrap_or_default();
            if found >= key {
                let value = entry.value.filter(|_| found == key);
                return Ok(value.and_then(|at| entries.get(at)));
            }
            next = entry.end;
        }
        Ok(None)
    }

    fn group(&mut self, number: usize) -> Result<Arc<Group>> {
        if let Some(Some(group)) = self.groups.get(number) {
            return Ok(Arc::clone(group));
        }
        let group = Arc::new(self.run.group(number)?);
        self.group_bytes += group.memory_bytes();
        if let Some(place) = self.groups.get_mut(number) {
            *place = Some(Arc::clone(&group));
        }
        Ok(group)
    }

    /// The entries of a block, which is the newest in the cache then.
    fn block(&mut self, group: &Group, at: (usize, usize)) -> Result<&[u8]> {
        let known = self.blocks.iter().position(|block| block.at == at);
        let block = match known.and_then(|place| self.blocks.remove(place)) {
            Some(block) => block,
            None => {
                let entries = match group.blocks().get(at.1) {
                    Some(block) => self.run.block(block)?,
                    None => Vec::new(),
                };
                self.blocks.truncate(MAX_BLOCKS - 1);
                CachedBlock { at, entries }
            }
        };
        self.blocks.push_front(block);
        Ok(self.blocks.front().map_or(&[], |block| &block.entries))
    }
}

/// Goes over the entries of a run in the order of their keys, with one block in memory.
#[derive(Debug)]
pub(super) struct RunCursor {
    run: Arc<RunReader>,
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
    End,
    /// With the last key that begins so.
    Prefix(Vec<u8>),
    /// Before this key.
    Before(Vec<u8>),
}

impl RunCursor {
    /// A cursor at the first entry whose key is in `range`.
    ///
    /// # Errors
    /// As [`Below::find`].
    pub fn new(run: Arc<RunReader>, range: KeyRange<'_>) -> Result<Self> {
        let (from, until) = match range {
            KeyRange::All => (&[][..], Until::End),
            KeyRange::Prefix(prefix) => (prefix, Until::Prefix(prefix.to_vec())),
            KeyRange::Between { from, to } => (
                from.unwrap_or_default(),
                to.map_or(Until::End, |to| Until::Before(to.to_vec())),
            ),
        };
        let mut cursor = Self {
            group: (run.group_of(from).unwrap_or(0), None),
            run,
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

    /// Key and value of the current entry; `None` at the end of the range.
    pub fn entry(&self) -> Option<(&[u8], &[u8])> {
        let EntryAt { value, .. } = self.current.as_ref()?;
        let key = self.key()?;
        let inside = match &self.until {
            Until::End => true,
            Until::Prefix(prefix) => key.starts_with(prefix),
            Until::Before(to) => key < to.as_slice(),
        };
        // A run without lineage has no removals.
        let value = self.entries.get(value.clone()?)?;
        inside.then_some((key, value))
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
                let entries = run.block(block)?;
                self.entries = entries;
                self.block += 1;
                return Ok(true);
            }
            self.group = (self.group.0 + 1, None);
            self.block = 0;
        }
    }

    fn read_group(&mut self) -> Result<Option<&Group>> {
        if self.group.1.is_none() && self.group.0 < self.run.groups() {
            self.group.1 = Some(self.run.group(self.group.0)?);
        }
        Ok(self.group.1.as_ref())
    }
}
