//! Going over the entries of a table in the runs below it, in the order of their keys.

use std::sync::Arc;

use super::open_run::OpenRun;
use super::order::KeyRange;
use super::run_stack::RunStack;
use crate::error::Result;
use crate::format::{EntryAt, Group, parse_entry};

/// Goes over the keys that a table has in runs, each with what the newest run says of it. In memory is
/// one block of each run.
#[derive(Debug)]
pub(super) struct StackCursor {
    /// Oldest run first.
    cursors: Vec<RunCursor>,
    /// Which of them has the current entry.
    current: Option<usize>,
}

impl StackCursor {
    /// A cursor at the first entry of the table behind `prefix` whose key is in `range`.
    ///
    /// # Errors
    /// As [`RunStack::find`].
    pub fn new(runs: &Arc<RunStack>, prefix: &[u8], range: KeyRange<'_>) -> Result<Self> {
        let numbered = runs.runs().iter().enumerate();
        let cursors = numbered.map(|run| RunCursor::new(runs, run, prefix, range));
        let mut cursor = Self {
            cursors: cursors.collect::<Result<_>>()?,
            current: None,
        };
        cursor.settle()?;
        Ok(cursor)
    }

    /// Key in the table and value of the current entry; `None` at the end of the range.
    pub fn entry(&self) -> Option<(&[u8], &[u8])> {
        let (key, value) = self.cursors.get(self.current?)?.entry()?;
        Some((key, value?))
    }

    /// Moves to the next entry.
    ///
    /// # Errors
    /// As [`RunStack::find`].
    pub fn advance(&mut self) -> Result<()> {
        if let Some(current) = self.current {
            self.leave_key(current)?;
            self.settle()?;
        }
        Ok(())
    }

    /// Finds the smallest key that is there, and of the runs that have it the newest.
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

    /// Moves all cursors behind the key of the one with this number. Newer runs do not have the key.
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

/// Goes over the entries of a table in one run in the order of their keys, with one block in memory.
#[derive(Debug)]
struct RunCursor {
    runs: Arc<RunStack>,
    run: Arc<OpenRun>,
    /// Number of the run.
    number: usize,
    /// Length of the table's prefix.
    prefix_bytes: usize,
    /// Number of the group, and the group once it was read.
    group: (usize, Option<Arc<Group>>),
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
    fn new(
        runs: &Arc<RunStack>,
        (number, run): (usize, &Arc<OpenRun>),
        prefix: &[u8],
        range: KeyRange<'_>,
    ) -> Result<Self> {
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
            group: (run.reader().group_of(from).unwrap_or(0), None),
            runs: Arc::clone(runs),
            run: Arc::clone(run),
            number,
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

    /// Key in the table and value of the current entry, none if the key is gone; `None` at the end of the
    /// range.
    fn entry(&self) -> Option<(&[u8], Option<&[u8]>)> {
        let EntryAt { value, .. } = self.current.as_ref()?;
        let key = self.key()?;
        let inside = match &self.until {
            Until::Prefix(prefix) => key.starts_with(prefix),
            Until::Before(to) => key < to.as_slice(),
        };
        let value = value.clone().and_then(|at| self.entries.get(at));
        inside.then_some((key.get(self.prefix_bytes..)?, value))
    }

    /// Moves to the next entry.
    fn advance(&mut self) -> Result<()> {
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
            let Some(group) = self.read_group()? else {
                return Ok(false);
            };
            if let Some(block) = group.blocks().get(self.block) {
                self.entries = self.runs.read(self.number, block)?;
                self.block += 1;
                return Ok(true);
            }
            self.group = (self.group.0 + 1, None);
            self.block = 0;
        }
    }

    fn read_group(&mut self) -> Result<Option<Arc<Group>>> {
        let reader = self.run.reader();
        if self.group.1.is_none() && self.group.0 < reader.groups() {
            self.group.1 = Some(Arc::new(reader.group(self.group.0)?));
        }
        Ok(self.group.1.clone())
    }
}
