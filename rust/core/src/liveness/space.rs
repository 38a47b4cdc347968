//! Space amplification: physical bytes divided by live bytes, and the files to empty because of it.

use std::collections::{BTreeMap, BTreeSet};

use super::facts::FileFacts;
use crate::ids::FileId;

/// Dead bytes in an open file that are not worth a new file. With only a bound on the ratio, tiny
/// states would begin a file at every other checkpoint.
pub(super) const OPEN_WASTE_BYTES: u64 = 64 << 10;

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Space {
    /// Files that only owners that fell back keep alive.
    pub pinned: BTreeSet<FileId>,
    /// Files whose segments are not offered for reuse any more, so that they can go.
    pub wasteful: BTreeSet<FileId>,
    /// Open files to seal, so that they can go before the bound is broken.
    pub full: BTreeSet<FileId>,
}

/// Leaves out files pinned by owners that fell back. These owners do not write, so to refuse them
/// reuse frees nothing, and healthy owners would pay for it.
pub(super) fn space(files: &BTreeMap<FileId, FileFacts>, max_space_amplification: f64) -> Space {
    let mut found = Space::default();
    let mut counted = Vec::new();
    for (id, file) in files.iter().filter(|(_, file)| !file.segments.is_empty()) {
        if !file.stays_open() && file.fallen == file.segments.len() {
            found.pinned.insert(*id);
        } else {
            counted.push((*id, file));
        }
    }
    if max_space_amplification < 1.0 {
        return found;
    }
    let live: u64 = counted.iter().map(|(_, file)| file.live_bytes).sum();
    let physical: u64 = counted.iter().map(|(_, file)| file.physical_bytes).sum();
    let goal = live as f64 * max_space_amplification;
    found.full = full(&counted, physical, goal);
    let closed = counted.iter().filter(|(_, file)| !file.stays_open());
    let closed = closed.map(|(id, file)| ClosedFile {
        file: *id,
        physical_bytes: file.physical_bytes,
        live_bytes: file.live_bytes,
    });
    let chosen = wasteful(closed.collect(), physical, goal, max_space_amplification);
    found.wasteful = chosen.into_iter().collect();
    found
}

#[derive(Clone, Copy, Debug)]
pub(super) struct ClosedFile {
    pub file: FileId,
    pub physical_bytes: u64,
    pub live_bytes: u64,
}

/// The most wasteful closed files, worst first, as many as must go to bring `physical` down to the
/// goal. Leaves out files within the bound: to empty them would write more than it frees.
pub(super) fn wasteful(
    mut closed: Vec<ClosedFile>,
    mut physical: u64,
    goal: f64,
    max_space_amplification: f64,
) -> Vec<FileId> {
    if physical as f64 <= goal {
        return Vec::new();
    }
    let waste = |file: &ClosedFile| file.physical_bytes.saturating_sub(file.live_bytes);
    // Files of equal waste are ordered by name: two files never collapse into one entry.
    closed.sort_by_key(|file| (std::cmp::Reverse(waste(file)), file.file));
    let mut chosen = Vec::new();
    for file in closed {
        if physical as f64 <= goal {
            break;
        }
        if file.live_bytes as f64 * max_space_amplification < file.physical_bytes as f64 {
            // Its live bytes are written again elsewhere.
            physical -= waste(&file);
            chosen.push(file.file);
        }
    }
    chosen
}

/// The open files to seal. A file goes once its live segments were written again elsewhere. Both
/// copies exist until then, so it must be sealed while there is room for both.
fn full(counted: &[(FileId, &FileFacts)], physical: u64, goal: f64) -> BTreeSet<FileId> {
    counted
        .iter()
        .filter(|(_, file)| {
            let peak = (physical + file.live_bytes) as f64;
            file.stays_open()
                && file.only_for.is_none()
                && waste(file) > OPEN_WASTE_BYTES
                && peak > goal
        })
        .map(|(id, _)| *id)
        .collect()
}

fn waste(file: &FileFacts) -> u64 {
    file.physical_bytes.saturating_sub(file.live_bytes)
}
