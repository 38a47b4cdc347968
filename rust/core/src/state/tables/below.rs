//! The keys of one table in the runs below it.

use std::sync::Arc;

use crate::error::Result;
use crate::state::runs::cursor::StackCursor;
use crate::state::runs::key_range::KeyRange;
use crate::state::runs::stack::RunStack;

#[derive(Debug)]
pub(crate) struct Below {
    runs: Arc<RunStack>,
    prefix: Vec<u8>,
    /// Number of the table's keys that are in runs and have no slot.
    pub unlinked: u64,
    /// `unlinked` is not right for now, so that loads look for no key.
    pub is_uncounted: bool,
    /// Hydration went through the runs, and every key has a slot.
    pub is_in_memory: bool,
}

impl Below {
    /// `None` if no key is behind `prefix`. Over several runs the number of keys is not known yet.
    pub fn of(runs: &Arc<RunStack>, prefix: &[u8]) -> Option<Self> {
        let unlinked = runs.at_most_behind(prefix);
        (unlinked > 0).then(|| Self {
            runs: Arc::clone(runs),
            prefix: prefix.to_vec(),
            unlinked,
            is_uncounted: false,
            is_in_memory: false,
        })
    }

    pub fn find(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        if self.prefix.is_empty() {
            return self.runs.find(key);
        }
        self.runs.find(&[&self.prefix, key].concat())
    }

    /// A cursor at the first entry whose key is in `range`.
    pub fn cursor(&self, range: KeyRange<'_>) -> Result<StackCursor> {
        StackCursor::new(&self.runs, &self.prefix, range)
    }
}
