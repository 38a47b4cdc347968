//! Space amplification: physical bytes divided by live bytes, and what to do about it.

use std::collections::BTreeSet;

use super::FileFacts;
use crate::ids::FileId;

/// A file with at least one live segment.
#[derive(Clone, Debug)]
pub(super) struct LiveFile {
    id: FileId,
    open: bool,
    physical_bytes: u64,
    live_bytes: u64,
    pub segments: usize,
    /// Only owners that fell back keep it alive.
    pinned: bool,
}

impl LiveFile {
    pub fn new(id: FileId, file: &FileFacts) -> Self {
        Self {
            id,
            open: file.open,
            physical_bytes: file.physical_bytes,
            live_bytes: 0,
            segments: 0,
            pinned: !file.open,
        }
    }

    pub fn add(&mut self, len: u64, fell_back: bool) {
        self.live_bytes += len;
        self.segments += 1;
        self.pinned &= fell_back;
    }

    fn waste(&self) -> u64 {
        self.physical_bytes.saturating_sub(self.live_bytes)
    }
}

pub(super) fn pinned(files: &[LiveFile]) -> BTreeSet<FileId> {
    files
        .iter()
        .filter(|file| file.pinned)
        .map(|file| file.id)
        .collect()
}

/// The most wasteful closed files, as many as must go to come back below the bound. Files pinned by
/// owners that fell back are left out of the account: those owners are not writing, so refusing
/// them reuse frees nothing and would only blame the healthy ones.
pub(super) fn wasteful(files: &[LiveFile], max_space_amplification: f64) -> BTreeSet<FileId> {
    let mut chosen = BTreeSet::new();
    if max_space_amplification < 1.0 {
        return chosen;
    }
    let counted: Vec<_> = files.iter().filter(|file| !file.pinned).collect();
    let live: u64 = counted.iter().map(|file| file.live_bytes).sum();
    let mut physical: u64 = counted.iter().map(|file| file.physical_bytes).sum();
    let goal = live as f64 * max_space_amplification;
    let mut closed: Vec<_> = counted.into_iter().filter(|file| !file.open).collect();
    // Equal waste is told apart by name: two files never collapse into one entry.
    closed.sort_by_key(|file| (std::cmp::Reverse(file.waste()), file.id));
    for file in closed {
        if physical as f64 <= goal {
            break;
        }
        if file.live_bytes as f64 * max_space_amplification < file.physical_bytes as f64 {
            physical -= file.waste();
            chosen.insert(file.id);
        }
    }
    chosen
}
