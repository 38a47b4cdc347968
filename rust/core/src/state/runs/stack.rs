//! The runs below the tables of a store. An entry of a newer run hides the key in older ones.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::error::{Error, Result};
use crate::format::{Group, RunReader, parse_entry};
use crate::ids::SegmentRef;

const MAX_BLOCKS: usize = 8;

/// A base image and the delta runs above it, for all tables of a store.
#[derive(Debug)]
pub(crate) struct RunStack {
    /// Oldest first.
    pub runs: Vec<Arc<OpenRun>>,
    blocks: Mutex<VecDeque<CachedBlock>>,
    reads: AtomicU64,
}

/// A block, at most [`MAX_BLOCKS`] of them, by the numbers of run, group and block.
#[derive(Debug)]
struct CachedBlock {
    at: (usize, usize, usize),
    entries: Arc<Vec<u8>>,
}

impl RunStack {
    pub fn new(runs: Vec<Arc<OpenRun>>) -> Self {
        Self {
            runs,
            blocks: Mutex::default(),
            reads: AtomicU64::new(0),
        }
    }

    pub fn newest(&self) -> Option<SegmentRef> {
        self.runs.last().map(|run| run.reader.reference)
    }

    /// Bound on the keys with the prefix of a table, which is their number for a single run.
    pub fn at_most_behind(&self, prefix: &[u8]) -> u64 {
        let keys = self.runs.iter().map(|run| run.reader.keys_behind(prefix));
        keys.sum()
    }

    pub fn prefixes(&self) -> impl Iterator<Item = &[u8]> {
        self.runs.iter().flat_map(|run| run.reader.prefixes())
    }

    pub fn reads(&self) -> u64 {
        self.reads.load(Ordering::Relaxed)
    }

    pub fn memory_bytes(&self) -> usize {
        let blocks = self.blocks.lock();
        let blocks = blocks.iter().map(|block| block.entries.capacity());
        let runs = self.runs.iter().map(|run| run.memory_bytes());
        blocks.chain(runs).sum()
    }

    /// Reads at most one group and one block of each run, mostly only of the run that has the key.
    pub fn find(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        for number in (0..self.runs.len()).rev() {
            if let Some(change) = self.find_in(number, key)? {
                return Ok(change);
            }
        }
        Ok(None)
    }

    fn find_in(&self, number: usize, key: &[u8]) -> Result<Option<Option<Vec<u8>>>> {
        let run = self.run(number)?;
        let Some(group_number) = run.reader.group_of(key) else {
            return Ok(None);
        };
        let group = run.group(group_number)?;
        let Some(block) = group.block_of(key) else {
            return Ok(None);
        };
        let entries = self.cached_block(&group, (number, group_number, block))?;
        let mut next = 0;
        while let Some(entry) = parse_entry(&entries, next) {
            let found = entries.get(entry.key).unwrap_or_default();
            if found >= key {
                let value = entry.value.and_then(|at| entries.get(at));
                return Ok((found == key).then(|| value.map(<[u8]>::to_vec)));
            }
            next = entry.end;
        }
        Ok(None)
    }

    pub fn forget_blocks(&self) {
        *self.blocks.lock() = VecDeque::new();
    }

    /// Evicts the indexes and filters that were not used since this was last called.
    pub fn forget_unused_groups(&self) {
        self.runs.iter().for_each(|run| run.forget_unused_groups());
    }

    pub fn count_reads(&self, blocks: u64) {
        self.reads.fetch_add(blocks, Ordering::Relaxed);
    }

    fn cached_block(&self, group: &Group, at: (usize, usize, usize)) -> Result<Arc<Vec<u8>>> {
        let mut blocks = self.blocks.lock();
        let known = blocks.iter().position(|block| block.at == at);
        let block = match known.and_then(|place| blocks.remove(place)) {
            Some(block) => block,
            None => {
                let entries = match group.blocks.get(at.2) {
                    Some(block) => {
                        self.count_reads(1);
                        self.run(at.0)?.reader.block(block)?
                    }
                    None => Vec::new(),
                };
                blocks.truncate(MAX_BLOCKS - 1);
                let entries = Arc::new(entries);
                CachedBlock { at, entries }
            }
        };
        let entries = Arc::clone(&block.entries);
        blocks.push_front(block);
        Ok(entries)
    }

    fn run(&self, number: usize) -> Result<&Arc<OpenRun>> {
        let run = self.runs.get(number);
        run.ok_or_else(|| Error::invalid_input(format!("run {number} of {}", self.runs.len())))
    }
}

#[derive(Debug)]
pub(crate) struct OpenRun {
    pub reader: RunReader,
    groups: Mutex<Groups>,
}

/// Groups by number. They take 1 to 3 bytes for each of their keys.
#[derive(Debug, Default)]
struct Groups {
    read: Vec<Option<KeptGroup>>,
    bytes: usize,
}

#[derive(Debug)]
struct KeptGroup {
    group: Arc<Group>,
    /// It was used since unused groups were last evicted.
    is_used: bool,
}

impl OpenRun {
    pub fn new(reader: RunReader) -> Self {
        Self {
            reader,
            groups: Mutex::default(),
        }
    }

    pub fn memory_bytes(&self) -> usize {
        let groups = self.groups.lock();
        groups.bytes + groups.read.capacity() * size_of::<Option<KeptGroup>>()
    }

    pub fn forget_unused_groups(&self) {
        let mut groups = self.groups.lock();
        let Groups { read, bytes } = &mut *groups;
        for place in read {
            if let Some(unused) = place.take_if(|kept| !std::mem::take(&mut kept.is_used)) {
                *bytes -= unused.group.memory_bytes();
            }
        }
    }

    pub fn group(&self, number: usize) -> Result<Arc<Group>> {
        if let Some(Some(kept)) = self.groups.lock().read.get_mut(number) {
            kept.is_used = true;
            return Ok(Arc::clone(&kept.group));
        }
        let group = Arc::new(self.reader.group(number)?);
        let mut groups = self.groups.lock();
        groups.read.resize_with(self.reader.groups(), || None);
        if let Some(place @ None) = groups.read.get_mut(number) {
            *place = Some(KeptGroup {
                group: Arc::clone(&group),
                is_used: true,
            });
            groups.bytes += group.memory_bytes();
        }
        Ok(group)
    }
}
