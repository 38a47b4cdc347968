//! Cursors over the entries of a table in the runs below it, in key order. A cursor reads ahead,
//! each time twice as many blocks: long scans make few requests, and short ones read little.

use std::sync::Arc;

use super::key_range::KeyRange;
use super::stack::{OpenRun, RunStack};
use crate::error::Result;
use crate::format::{Block, EntryAt, Group, parse_entry};

/// Reads of a scan: up to 1 MiB of entries of a run at once.
const SCAN: Ahead = Ahead {
    blocks: 1,
    most_blocks: 64,
    is_counted: true,
};

/// Reads of a whole run: 4 MiB at once, as loads read it.
const BULK: Ahead = Ahead {
    blocks: 256,
    most_blocks: 256,
    is_counted: false,
};

/// Size of a block, unless it has one larger entry.
pub(crate) const BLOCK_BYTES: u64 = 16 << 10;

/// The keys of a table in runs, with their newest change. Holds one read of each run in memory.
#[derive(Debug)]
pub(crate) struct StackCursor {
    /// Oldest run first.
    cursors: Vec<RunCursor>,
    current: Option<usize>,
}

impl StackCursor {
    pub fn new(runs: &Arc<RunStack>, prefix: &[u8], range: KeyRange<'_>) -> Result<Self> {
        Self::over(runs, 0, prefix, range, &SCAN)
    }

    /// Over all runs but the oldest `left_out`. [`RunStack::reads`] does not count these reads.
    pub fn of_all(runs: &Arc<RunStack>, prefix: &[u8], left_out: usize) -> Result<Self> {
        Self::over(runs, left_out, prefix, KeyRange::All, &BULK)
    }

    fn over(
        runs: &Arc<RunStack>,
        left_out: usize,
        prefix: &[u8],
        range: KeyRange<'_>,
        ahead: &Ahead,
    ) -> Result<Self> {
        let read = runs.runs.iter().skip(left_out);
        let cursors = read.map(|run| RunCursor::new(runs, run, prefix, range, ahead));
        let mut cursor = Self {
            cursors: cursors.collect::<Result<_>>()?,
            current: None,
        };
        cursor.settle()?;
        Ok(cursor)
    }

    /// Key in the table and value; `None` at the end of the range.
    pub fn entry(&self) -> Option<(&[u8], &[u8])> {
        let (key, value) = self.cursors.get(self.current?)?.entry()?;
        Some((key, value?))
    }

    pub fn advance(&mut self) -> Result<()> {
        if let Some(current) = self.current {
            self.leave_key(current)?;
            self.settle()?;
        }
        Ok(())
    }

    /// Finds the smallest key that exists, in the newest run that has it.
    fn settle(&mut self) -> Result<()> {
        loop {
            let mut first: Option<(usize, &[u8], bool)> = None;
            for (number, cursor) in self.cursors.iter().enumerate() {
                if let Some((key, value)) = cursor.entry()
                    && first.is_none_or(|(_, smallest, _)| key <= smallest)
                {
                    first = Some((number, key, value.is_some()));
                }
            }
            match first {
                Some((number, _, false)) => self.leave_key(number)?,
                first => {
                    self.current = first.map(|(number, ..)| number);
                    return Ok(());
                }
            }
        }
    }

    /// Moves all cursors past the key of this one. Newer runs do not have the key.
    fn leave_key(&mut self, number: usize) -> Result<()> {
        let (older, rest) = self.cursors.split_at_mut(number);
        let Some(cursor) = rest.first_mut() else {
            return Ok(());
        };
        if let Some((key, _)) = cursor.entry() {
            for older in older {
                if older.entry().is_some_and(|(other, _)| other == key) {
                    older.advance()?;
                }
            }
        }
        cursor.advance()
    }
}

#[derive(Clone, Debug)]
struct Ahead {
    blocks: usize,
    most_blocks: usize,
    is_counted: bool,
}

impl Ahead {
    fn take(&mut self, next: &[Block]) -> usize {
        let most_bytes = self.most_blocks as u64 * BLOCK_BYTES;
        let mut bytes = 0u64;
        let fit = next.iter().take(self.blocks).take_while(|block| {
            bytes = bytes.saturating_add(block.stored_bytes);
            bytes <= most_bytes
        });
        let taken = fit.count().max(1);
        self.blocks = (self.blocks * 2).min(self.most_blocks);
        taken
    }
}

#[derive(Debug)]
struct RunCursor {
    runs: Arc<RunStack>,
    run: Arc<OpenRun>,
    prefix_bytes: usize,
    /// Number of the group, and the group once it is read. `block` is the next one in it.
    group: (usize, Option<Arc<Group>>),
    block: usize,
    ahead: Ahead,
    entries: Vec<u8>,
    current: Option<EntryAt>,
    prefix: Vec<u8>,
    to: Option<Vec<u8>>,
}

impl RunCursor {
    fn new(
        runs: &Arc<RunStack>,
        run: &Arc<OpenRun>,
        prefix: &[u8],
        range: KeyRange<'_>,
        ahead: &Ahead,
    ) -> Result<Self> {
        let behind = |key: &[u8]| [prefix, key].concat();
        let (from, in_all, to) = match range {
            KeyRange::All => (prefix.to_vec(), prefix.to_vec(), None),
            KeyRange::Prefix(first) => (behind(first), behind(first), None),
            KeyRange::Between { from, to } => (
                behind(from.unwrap_or_default()),
                prefix.to_vec(),
                to.map(behind),
            ),
        };
        let from = from.as_slice();
        let mut cursor = Self {
            group: (run.reader.group_of(from).unwrap_or(0), None),
            runs: Arc::clone(runs),
            run: Arc::clone(run),
            prefix_bytes: prefix.len(),
            block: 0,
            ahead: ahead.clone(),
            entries: Vec::new(),
            current: None,
            prefix: in_all,
            to,
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

    /// `None` at the end of the range. Without a value the key is gone.
    fn entry(&self) -> Option<(&[u8], Option<&[u8]>)> {
        let EntryAt { value, .. } = self.current.as_ref()?;
        let key = self.key()?;
        let to = self.to.as_ref();
        let inside = key.starts_with(&self.prefix) && to.is_none_or(|to| key < to.as_slice());
        let value = value.clone().and_then(|at| self.entries.get(at));
        inside.then_some((key.get(self.prefix_bytes..)?, value))
    }

    fn advance(&mut self) -> Result<()> {
        let mut next = self.current.take().map_or(0, |entry| entry.end);
        loop {
            self.current = parse_entry(&self.entries, next);
            if self.current.is_some() {
                return Ok(());
            }
            self.entries.clear();
            if !self.next_blocks()? {
                return Ok(());
            }
            next = 0;
        }
    }

    fn next_blocks(&mut self) -> Result<bool> {
        loop {
            let Some(group) = self.read_group()? else {
                return Ok(false);
            };
            let next = group.blocks.get(self.block..).unwrap_or_default();
            if !next.is_empty() {
                let taken = self.ahead.take(next);
                self.block += self.read(next, taken)?;
                return Ok(true);
            }
            self.group = (self.group.0 + 1, None);
            self.block = 0;
        }
    }

    /// Returns how many it read: only one if a later one is damaged, which may be past the end.
    fn read(&mut self, next: &[Block], taken: usize) -> Result<usize> {
        let ahead = next.get(..taken).unwrap_or(next);
        let first = next.get(..1).unwrap_or(next);
        let (read, entries) = match self.run.reader.blocks(ahead) {
            Ok(entries) => (ahead, entries),
            Err(_) if taken > 1 => (first, self.run.reader.blocks(first)?),
            Err(e) => return Err(e),
        };
        self.entries = entries;
        if self.ahead.is_counted {
            self.runs.count_reads(read.len() as u64);
        }
        Ok(read.len())
    }

    fn read_group(&mut self) -> Result<Option<Arc<Group>>> {
        let reader = &self.run.reader;
        if self.group.1.is_none() && self.group.0 < reader.groups() {
            self.group.1 = Some(Arc::new(reader.group(self.group.0)?));
        }
        Ok(self.group.1.clone())
    }
}
