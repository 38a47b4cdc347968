//! What one table has in the runs below it.

use std::sync::Arc;

use super::order::KeyRange;
use super::run_cursor::StackCursor;
use super::run_stack::RunStack;
use crate::error::Result;

/// What a table has in runs: the keys behind its prefix.
#[derive(Debug)]
pub(super) struct Below {
    runs: Arc<RunStack>,
    prefix: Vec<u8>,
    /// Keys of the table in the runs that have no slot.
    pub unlinked: u64,
    /// `unlinked` is not kept right just now, so that no key need be looked for.
    pub is_uncounted: bool,
    /// All that the runs have was gone through, and every key has a slot since.
    pub is_in_memory: bool,
}

impl Below {
    /// The keys behind `prefix`, none of which has a slot; `None` where there are none. Where there are
    /// several runs, their number is to be taken over from elsewhere.
    pub fn of(runs: &Arc<RunStack>, prefix: &[u8]) -> Option<Self> {
        let unlinked = runs.at_most_behind(prefix).filter(|keys| *keys > 0)?;
        Some(Self {
            runs: Arc::clone(runs),
            prefix: prefix.to_vec(),
            unlinked,
            is_uncounted: false,
            is_in_memory: false,
        })
    }

    /// The value of a key.
    ///
    /// # Errors
    /// As [`RunStack::find`].
    pub fn find(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        if self.prefix.is_empty() {
            return self.runs.find(key);
        }
        self.runs.find(&[&self.prefix, key].concat())
    }

    /// A cursor at the first entry whose key is in `range`.
    ///
    /// # Errors
    /// As [`Below::find`].
    pub fn cursor(&self, range: KeyRange<'_>) -> Result<StackCursor> {
        StackCursor::new(&self.runs, &self.prefix, range)
    }
}
