//! The pass over the files of managers that are gone, for regional pipelines: their retained
//! checkpoints name all segments that they need.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::pass::{ReclaimReport, carry_out, physical_files};
use crate::error::{ErrorKind, Result};
use crate::ids::{CheckpointId, FileId, Owner, SegmentRef, Term};
use crate::liveness::{ListedFile, ListedKind, ListedSegment, RestoredCheckpoint, View};
use crate::storage::Storage;

/// Deletes the files of managers that are gone, unless a retained checkpoint needs them. Call it
/// while no attempt is under way: then checkpoints name every needed segment, so no file has to be
/// opened. Living managers, which know the leases, delete their own files.
///
/// `retained` returns all retained checkpoints. It is only called if there is a file to judge.
/// Terms up to `newest_term` are known, as for [`reclaim`](super::reclaim).
///
/// # Errors
/// Errors of [`reclaim`](super::reclaim) and `retained`; `InvalidInput` when a checkpoint gives an
/// owner two origins, or an origin newer than itself; `NotFound` when segments that a checkpoint
/// needs are missing. Nothing was deleted then.
pub fn reclaim_orphans(
    storage: &dyn Storage,
    retained: impl FnOnce() -> Result<Vec<RestoredCheckpoint>>,
    may_append: &dyn Fn(Term) -> bool,
    newest_term: Term,
) -> Result<ReclaimReport> {
    let files = physical_files(storage, &newest_term.into())?.into_iter();
    let orphans = files.filter(|(file, _)| !may_append(file.term));
    let mut sizes: BTreeMap<FileId, u64> = orphans.collect();
    let mut report = ReclaimReport::default();
    if sizes.is_empty() {
        return Ok(report);
    }
    let retained = retained()?;
    let view = View::of(&retained)?;
    look_at_short_files(storage, &mut sizes, &retained)?;
    let mut segments = segments_by_file(&retained, may_append);
    RestoredCheckpoint::require_present(&storage.location(), &retained, |_, _, reference| {
        let len = sizes.get(&reference.file);
        may_append(reference.file.term) || len.is_some_and(|len| reference.end() <= *len)
    })?;
    let facts = sizes.into_iter().map(|(file, physical_bytes)| ListedFile {
        file,
        // Not opened. It is closed, because its writer is gone.
        sealed: false,
        damaged: false,
        physical_bytes,
        segments: segments.remove(&file).unwrap_or_default().into(),
    });
    carry_out(storage, facts.collect(), &view, may_append, &mut report);
    Ok(report)
}

/// Asks for the length of files that seem to end before a segment. After the death of a writer HDFS
/// lists a stale length, although readers see all of the file.
fn look_at_short_files(
    storage: &dyn Storage,
    sizes: &mut BTreeMap<FileId, u64>,
    retained: &[RestoredCheckpoint],
) -> Result<()> {
    let references = retained.iter().flat_map(|one| &one.segments);
    let files: BTreeSet<FileId> = references
        .filter(|(_, _, reference)| {
            let len = sizes.get(&reference.file);
            len.is_some_and(|len| reference.end() > *len)
        })
        .map(|(_, _, reference)| reference.file)
        .collect();
    for file in files {
        match storage.len(&file.file_name()) {
            Ok(len) => sizes.insert(file, len),
            Err(e) if e.kind() == ErrorKind::NotFound => sizes.remove(&file),
            Err(e) => return Err(e),
        };
    }
    Ok(())
}

/// The segments of checkpoints in files of managers that are gone, each once.
fn segments_by_file(
    retained: &[RestoredCheckpoint],
    may_append: &dyn Fn(Term) -> bool,
) -> BTreeMap<FileId, Vec<ListedSegment>> {
    let mut found: BTreeMap<SegmentRef, (&Owner, CheckpointId)> = BTreeMap::new();
    for (owner, origin, reference) in retained.iter().flat_map(|one| &one.segments) {
        if !may_append(reference.file.term) {
            // Any of its origins proves that it is needed.
            found.insert(*reference, (owner, *origin));
        }
    }
    let mut by_file: BTreeMap<FileId, Vec<ListedSegment>> = BTreeMap::new();
    for (reference, (owner, created)) in found {
        let segments = by_file.entry(reference.file).or_default();
        segments.push(ListedSegment {
            owner: Arc::new(owner.clone()),
            created,
            len: reference.len,
            kind: ListedKind::Other,
        });
    }
    by_file
}
