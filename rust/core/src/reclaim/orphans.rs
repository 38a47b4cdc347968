//! The pass over the files of managers that are gone, where retained checkpoints say by themselves
//! what they need: those of regional pipelines.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::pass::{ReclaimReport, carry_out, physical_files};
use crate::error::{ErrorKind, Result};
use crate::ids::{CheckpointId, FileId, Owner, SegmentRef, Term};
use crate::liveness::{ListedFile, ListedSegment, RestoredCheckpoint, View};
use crate::storage::Storage;

/// Deletes the files of managers that are gone which no retained checkpoint needs. To be called
/// while no attempt is under way: then checkpoints refer to every segment that is needed, so no file
/// has to be opened. The files of living managers are left to these: they know of leases as well.
///
/// `retained` returns all retained checkpoints; it is called if there is a file to judge. The terms
/// are as for [`reclaim`](super::reclaim).
///
/// # Errors
/// As [`reclaim`](super::reclaim); those of `retained`; `InvalidInput` when a checkpoint gives an
/// owner two origins, or one that is newer than itself; `NotFound` when segments that a checkpoint
/// refers to are missing. Nothing was deleted then.
pub fn reclaim_orphans(
    storage: &dyn Storage,
    retained: impl FnOnce() -> Result<Vec<RestoredCheckpoint>>,
    may_append: &dyn Fn(Term) -> bool,
    newest_term: Term,
) -> Result<ReclaimReport> {
    let files = physical_files(storage, newest_term)?;
    let mut sizes: BTreeMap<FileId, u64> = files
        .into_iter()
        .filter(|(file, _)| !may_append(file.term))
        .collect();
    let mut report = ReclaimReport::default();
    if sizes.is_empty() {
        return Ok(report);
    }
    let retained = retained()?;
    let view = View::of(&retained)?;
    look_at_short_files(storage, &mut sizes, &retained)?;
    let mut segments = segments_by_file(&retained, may_append);
    RestoredCheckpoint::require_present(&storage.location(), &retained, |_, _, reference| {
        may_append(reference.file.term)
            || sizes
                .get(&reference.file)
                .is_some_and(|len| end_of(reference) <= *len)
    })?;
    let facts = sizes.into_iter().map(|(file, physical_bytes)| ListedFile {
        file,
        // Not looked into, and closed as its writer is gone.
        sealed: false,
        damaged: false,
        physical_bytes,
        segments: segments.remove(&file).unwrap_or_default().into(),
    });
    carry_out(storage, facts.collect(), &view, may_append, &mut report);
    Ok(report)
}

fn end_of(reference: &SegmentRef) -> u64 {
    reference.offset.saturating_add(reference.len)
}

/// Asks for the length of files that are listed shorter than what is referred to in them: where a
/// writer died, HDFS lists the length of its file late, and readers see all of it.
fn look_at_short_files(
    storage: &dyn Storage,
    sizes: &mut BTreeMap<FileId, u64>,
    retained: &[RestoredCheckpoint],
) -> Result<()> {
    let references = retained.iter().flat_map(|one| &one.segments);
    let short: BTreeSet<FileId> = references
        .filter(|(_, _, reference)| {
            sizes
                .get(&reference.file)
                .is_some_and(|len| end_of(reference) > *len)
        })
        .map(|(_, _, reference)| reference.file)
        .collect();
    for file in short {
        match storage.len(&file.file_name()) {
            Ok(len) => sizes.insert(file, len),
            Err(e) if e.kind() == ErrorKind::NotFound => sizes.remove(&file),
            Err(e) => return Err(e),
        };
    }
    Ok(())
}

/// What checkpoints refer to in files of managers that are gone, each segment once.
fn segments_by_file(
    retained: &[RestoredCheckpoint],
    may_append: &dyn Fn(Term) -> bool,
) -> BTreeMap<FileId, Vec<ListedSegment>> {
    let mut found: BTreeMap<SegmentRef, (&Owner, CheckpointId)> = BTreeMap::new();
    for (owner, origin, reference) in retained.iter().flat_map(|one| &one.segments) {
        if !may_append(reference.file.term) {
            // As state of any of its origins it is needed.
            found.insert(*reference, (owner, *origin));
        }
    }
    let mut by_file: BTreeMap<FileId, Vec<ListedSegment>> = BTreeMap::new();
    for (reference, (owner, created)) in found {
        by_file
            .entry(reference.file)
            .or_default()
            .push(ListedSegment {
                owner: Arc::new(owner.clone()),
                created,
                len: reference.len,
                is_run: false,
            });
    }
    by_file
}
