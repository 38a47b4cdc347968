//! The scans of a store that are not at their end.

use std::collections::HashMap;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::ids::Owner;
use crate::state::content::families::Families;
use crate::state::content::scan::Scan;
use crate::state::runs::key_range::KeyRange;

/// Each holds 8 or 16 bytes per entry.
const MAX_OPEN_SCANS: usize = 4096;

/// A batch of entries of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScanBatch {
    /// For [`StateStore::scan_on`](crate::state::StateStore::scan_on); `None` with the last batch.
    pub scan: Option<u32>,
    /// Entries in this batch.
    pub entries: u32,
}

/// The entries of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScanOf<'a> {
    /// An entry per key in the range, with the first value of a list.
    Keys(KeyRange<'a>),
    /// An entry per value of the keys in the range.
    Values(KeyRange<'a>),
    /// An entry per value of one key.
    ValuesOfKey(&'a [u8]),
}

#[derive(Debug, Default)]
pub(crate) struct OpenScans {
    scans: HashMap<u32, OpenScan>,
    last: u32,
    /// Memory of content that the store has left, and scans have not.
    left_bytes: usize,
}

#[derive(Debug)]
struct OpenScan {
    family: u32,
    scan: Scan,
    /// The content that it reads, if the store has left it.
    of: Option<Arc<Families>>,
}

impl OpenScans {
    pub fn keep(&mut self, owner: &Owner, family: u32, scan: Scan) -> Result<u32> {
        if self.scans.len() >= MAX_OPEN_SCANS {
            return Err(Error::invalid_input(format!(
                "{owner}: {MAX_OPEN_SCANS} scans are open; close iterators that are not read to the end"
            )));
        }
        // Never 0, which means "no scan" on the way to Java.
        self.last = self.last.checked_add(1).unwrap_or(1);
        let of = None;
        self.scans.insert(self.last, OpenScan { family, scan, of });
        Ok(self.last)
    }

    pub fn go_on(
        &mut self,
        owner: &Owner,
        families: &Families,
        scan: u32,
        max_bytes: usize,
        out: &mut Vec<u8>,
    ) -> Result<ScanBatch> {
        let Some(open) = self.scans.get_mut(&scan) else {
            return Err(Error::invalid_input(format!(
                "{owner}: this scan ended, at the latest when the next session began"
            )));
        };
        let content = open.of.as_deref().unwrap_or(families).family(open.family)?;
        let entries = open.scan.fill(content, max_bytes, out)?;
        let over = open.scan.is_over();
        if over {
            self.close(scan);
        }
        Ok(ScanBatch {
            scan: (!over).then_some(scan),
            entries,
        })
    }

    pub fn close(&mut self, scan: u32) {
        if let Some(OpenScan { of: Some(_), .. }) = self.scans.remove(&scan) {
            self.count_left();
        }
    }

    /// The store leaves `content`, which the open scans continue to read.
    pub fn stay_with(&mut self, content: Families) {
        let content = Arc::new(content);
        for open in self.scans.values_mut() {
            open.of.get_or_insert_with(|| Arc::clone(&content));
        }
        self.count_left();
    }

    fn count_left(&mut self) {
        let left = self.scans.values().filter_map(|open| open.of.as_ref());
        let left: HashMap<_, _> = left.map(|of| (Arc::as_ptr(of), of)).collect();
        self.left_bytes = left.values().map(|of| of.memory_bytes()).sum();
    }

    pub fn memory_bytes(&self) -> usize {
        self.left_bytes
    }

    pub fn is_empty(&self) -> bool {
        self.scans.is_empty()
    }

    pub fn clear(&mut self) {
        self.scans.clear();
        self.left_bytes = 0;
    }
}
