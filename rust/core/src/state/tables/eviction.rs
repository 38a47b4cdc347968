//! The slots of a store that leave memory, oldest sessions first.

use std::cmp::Ordering;
use std::collections::BTreeMap;

/// Evicts all slots last touched before session `newest`, and `bytes_of_newest` of its own slots,
/// nearly all after a load. Call [`Self::takes`] once for each slot, because it counts bytes.
#[derive(Debug, Default)]
pub(crate) struct Eviction {
    newest: Option<u32>,
    bytes_of_newest: usize,
}

impl Eviction {
    /// Evicts `bytes` or a little more. `ages` are all evictable bytes, by session of last use.
    pub fn of(bytes: usize, ages: BTreeMap<u32, usize>) -> Self {
        let mut eviction = Self::default();
        let mut left = bytes;
        for (session, of_session) in ages {
            if left == 0 {
                break;
            }
            eviction = Self {
                newest: Some(session),
                bytes_of_newest: left,
            };
            left = left.saturating_sub(of_session);
        }
        eviction
    }

    pub fn reaches(&self, session: u32) -> bool {
        match Some(session).cmp(&self.newest) {
            Ordering::Less => true,
            Ordering::Equal => self.bytes_of_newest > 0,
            Ordering::Greater => false,
        }
    }

    pub fn takes(&mut self, session: u32, bytes: usize) -> bool {
        let goes = self.reaches(session);
        if goes && Some(session) == self.newest {
            self.bytes_of_newest = self.bytes_of_newest.saturating_sub(bytes);
        }
        goes
    }
}

#[cfg(test)]
#[path = "eviction_tests.rs"]
mod tests;
