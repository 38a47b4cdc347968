//! The scans of a store that were begun and not read to their end.

use std::collections::HashMap;

use super::content::Families;
use super::order::KeyRange;
use super::scan::Scan;
use crate::error::{Error, Result};
use crate::ids::Owner;

/// Bound on open scans; each holds 8 or 16 bytes per entry it has to hand out.
const MAX_OPEN_SCANS: usize = 4096;

/// Entries of a scan, one batch of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScanBatch {
    /// To be given to [`StateStore::scan_on`](super::StateStore::scan_on); `None` when this was the
    /// last batch.
    pub scan: Option<u32>,
    /// Entries in this batch.
    pub entries: u32,
}

/// What to scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScanOf<'a> {
    /// An entry per key in the range; the first value where a key has several.
    Keys(KeyRange<'a>),
    /// An entry per value of the keys in the range.
    Values(KeyRange<'a>),
    /// An entry per value of one key.
    ValuesOfKey(&'a [u8]),
}

/// Open scans by number, each with the family that it reads.
#[derive(Debug, Default)]
pub(super) struct OpenScans {
    scans: HashMap<u32, (u32, Scan)>,
    last: u32,
}

impl OpenScans {
    /// Keeps a scan of `family` that has entries left, and returns its number.
    ///
    /// # Errors
    /// `InvalidInput` for one too many.
    pub fn keep(&mut self, owner: &Owner, family: u32, scan: Scan) -> Result<u32> {
        if self.scans.len() >= MAX_OPEN_SCANS {
            return Err(Error::invalid_input(format!(
                "{owner}: {MAX_OPEN_SCANS} scans are open; close iterators that are not read to the end"
            )));
        }
        // Never 0, which stands for "no scan" on the way to Java.
        self.last = self.last.checked_add(1).unwrap_or(1);
        self.scans.insert(self.last, (family, scan));
        Ok(self.last)
    }

    /// The next batch of a scan, see [`StateStore::scan_on`](super::StateStore::scan_on).
    ///
    /// # Errors
    /// `InvalidInput` for a scan that ended; those of reading keys that are not in memory.
    pub fn go_on(
        &mut self,
        owner: &Owner,
        families: &Families,
        scan: u32,
        max_bytes: usize,
        out: &mut Vec<u8>,
    ) -> Result<ScanBatch> {
        let Some((family, open)) = self.scans.get_mut(&scan) else {
            return Err(Error::invalid_input(format!(
                "{owner}: this scan ended, at the latest when the next session began"
            )));
        };
        let content = families.family(*family)?;
        let entries = open.fill(content, max_bytes, out)?;
        let over = open.is_over();
        if over {
            self.scans.remove(&scan);
        }
        Ok(ScanBatch {
            scan: (!over).then_some(scan),
            entries,
        })
    }

    /// Ends a scan; nothing happens when it ended already.
    pub fn close(&mut self, scan: u32) {
        self.scans.remove(&scan);
    }

    /// Whether no scan is open.
    pub fn is_empty(&self) -> bool {
        self.scans.is_empty()
    }

    /// Ends all scans.
    pub fn clear(&mut self) {
        self.scans.clear();
    }
}
