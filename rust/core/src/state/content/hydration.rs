//! Hydration: keys that a store left in runs come into memory while the store works. A store with
//! large runs is opened over them, so that its first row does not wait for all others. The keys of
//! delta runs come first, because they changed last; then, if they fit, all keys. The caller reads
//! without the store's lock, so no task waits for reads that it did not ask for. The store takes
//! over only keys without a slot, so changes of a session remain.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::error::Result;
use crate::state::memory::SLOT_BYTES;
use crate::state::runs::cursor::StackCursor;
use crate::state::runs::stack::RunStack;

/// Bytes of entries to hand over together, so that a task waits for less than a millisecond.
pub const HYDRATION_BYTES: usize = 128 << 10;
/// Entries that a session hydrates with its first block: they take about as long as some blocks.
pub(crate) const ALONG_ENTRIES: u64 = 256;
/// Additional entries with each further block. A session that wants few of many keys reads little
/// else. One that wants all of `n` keys has them after about the square root of `n` blocks.
pub(crate) const MORE_ENTRIES: u64 = 2;

/// The keys that a store still has to read; with `everything` also those of the oldest run.
#[derive(Debug)]
pub struct Hydration {
    pub(crate) runs: Arc<RunStack>,
    /// Prefix of each table to read, and how many of the oldest runs to leave out; last one first.
    passes: Vec<(Vec<u8>, usize)>,
    pub(crate) everything: bool,
    cursor: Option<StackCursor>,
}

/// Entries of one table in the runs, with the lengths of each key and value (`lens`).
#[derive(Debug, Default)]
pub struct HydratedEntries {
    pub(crate) prefix: Vec<u8>,
    bytes: Vec<u8>,
    lens: Vec<(usize, usize)>,
}

/// `Over`: nothing is left. `Waits`: a caller may read the next entries. `Taken`: a caller does.
#[derive(Debug, Default)]
pub(crate) enum Progress {
    #[default]
    Over,
    Waits(Hydration),
    Taken,
    Whole,
}

impl Hydration {
    pub(crate) fn of(runs: &Arc<RunStack>, tables: &BTreeSet<&[u8]>, everything: bool) -> Self {
        let pass = |left_out| tables.iter().rev().map(move |p| (p.to_vec(), left_out));
        let mut passes = Vec::new();
        if everything {
            passes.extend(pass(0));
        }
        if runs.runs.len() > 1 {
            passes.extend(pass(1));
        }
        Self {
            runs: Arc::clone(runs),
            passes,
            everything,
            cursor: None,
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.passes.is_empty()
    }

    /// Reads the next entries: `max_bytes` and up to one more. Needs no lock of the store.
    ///
    /// # Errors
    /// `Corrupt`, with file, offset and owner, for a damaged run; errors of storage.
    pub fn read(&mut self, max_bytes: usize) -> Result<HydratedEntries> {
        self.read_some(max_bytes, usize::MAX)
    }

    pub(crate) fn read_some(
        &mut self,
        max_bytes: usize,
        max_entries: usize,
    ) -> Result<HydratedEntries> {
        let mut batch = HydratedEntries::default();
        let Some((prefix, left_out)) = self.passes.last() else {
            return Ok(batch);
        };
        batch.prefix.clone_from(prefix);
        let cursor = match &mut self.cursor {
            Some(cursor) => cursor,
            None => {
                let cursor = StackCursor::of_all(&self.runs, prefix, *left_out)?;
                self.cursor.insert(cursor)
            }
        };
        while let Some((key, value)) = cursor.entry() {
            batch.push(key, value);
            cursor.advance()?;
            if batch.bytes.len() >= max_bytes || batch.lens.len() >= max_entries {
                return Ok(batch);
            }
        }
        self.cursor = None;
        self.passes.pop();
        Ok(batch)
    }
}

impl HydratedEntries {
    fn push(&mut self, key: &[u8], value: &[u8]) {
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value);
        self.lens.push((key.len(), value.len()));
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let mut rest = self.bytes.as_slice();
        self.lens.iter().map_while(move |(key_len, value_len)| {
            let (key, behind) = rest.split_at_checked(*key_len)?;
            let (value, behind) = behind.split_at_checked(*value_len)?;
            rest = behind;
            Some((key, value))
        })
    }

    pub(crate) fn memory_bytes(&self) -> u64 {
        self.bytes.len() as u64 + self.lens.len() as u64 * SLOT_BYTES
    }
}
