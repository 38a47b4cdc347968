//! Base images: the full content of a store at a version, merged from files.
//!
//! Maintenance reads the previous base image and the changelogs after it and merges them into a
//! new base image, newest change first. The live table and its writer are not involved.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::entries::{Change, ChangeReader, ChangeWriter};
use crate::error::{Error, Result};
use crate::format::{NewSegment, SegmentKind, SegmentReader};
use crate::ids::{CheckpointId, Owner, SegmentRef};
use crate::segment::SegmentWriter;
use crate::storage::Storage;

/// What to merge: a durable lineage as it stood when the task was made.
#[derive(Clone, Debug)]
pub struct BaseImageTask {
    pub(super) owner: Owner,
    /// Oldest first: an optional base image, then changelogs.
    pub(super) lineage: Vec<SegmentRef>,
    /// Version whose content the lineage is.
    pub(super) created: CheckpointId,
}

/// A base image and the segments it stands for. It may be cited once its file is durable. The
/// caller sees to that: the merge syncs nothing.
#[derive(Clone, Debug)]
pub struct BaseImage {
    pub(super) reference: SegmentRef,
    pub(super) created: CheckpointId,
    pub(super) replaces: Vec<SegmentRef>,
}

impl BaseImageTask {
    /// Reads the lineage from `storage`, merges it, and appends the result.
    ///
    /// # Errors
    /// `NotFound` or `Corrupt` when a segment of the lineage is gone or damaged; `Storage`.
    pub fn run(self, storage: &dyn Storage, writer: &SegmentWriter) -> Result<BaseImage> {
        let mut segments = SegmentReader::new(storage);
        let mut payloads = Vec::with_capacity(self.lineage.len());
        for reference in &self.lineage {
            payloads.push(segments.read(reference, &self.owner)?.payload);
        }
        let sources: Vec<&[u8]> = payloads.iter().map(Vec::as_slice).collect();
        let merged = merge(&sources).map_err(|e| e.context(&self.owner))?;
        let entries = merged.entries();
        let new = NewSegment {
            owner: &self.owner,
            created: self.created,
            kind: SegmentKind::BaseImage,
            lineage: &[],
            replaced: self.lineage.last().copied(),
            entries,
        };
        let reference = writer.append(&new, &merged.into_bytes())?;
        Ok(BaseImage {
            reference,
            created: self.created,
            replaces: self.lineage,
        })
    }
}

/// Merges runs of entries, oldest run first, into one run without removals.
fn merge(runs: &[&[u8]]) -> Result<ChangeWriter> {
    let mut readers: Vec<ChangeReader<'_>> =
        runs.iter().map(|run| ChangeReader::new(run)).collect();
    // Smallest key first; among equal keys the newest run (highest number) first.
    let mut heads = BinaryHeap::new();
    let mut pending: Vec<Option<Change<'_>>> = vec![None; readers.len()];
    for (run, reader) in readers.iter_mut().enumerate() {
        advance(run, reader, &mut heads, &mut pending)?;
    }
    let mut out = ChangeWriter::default();
    let mut last_key: Option<&[u8]> = None;
    while let Some(Reverse((key, Reverse(run)))) = heads.pop() {
        let change = pending.get_mut(run).and_then(Option::take);
        if last_key != Some(key) {
            last_key = Some(key);
            if let Some(Change::Put(value)) = change {
                out.push(&[], key, Change::Put(value));
            }
        }
        if let Some(reader) = readers.get_mut(run) {
            advance(run, reader, &mut heads, &mut pending)?;
        }
    }
    Ok(out)
}

type Heads<'a> = BinaryHeap<Reverse<(&'a [u8], Reverse<usize>)>>;

fn advance<'a>(
    run: usize,
    reader: &mut ChangeReader<'a>,
    heads: &mut Heads<'a>,
    pending: &mut [Option<Change<'a>>],
) -> Result<()> {
    let Some((key, change)) = reader.next()? else {
        return Ok(());
    };
    let slot = pending
        .get_mut(run)
        .ok_or_else(|| Error::corrupt(format!("merge source {run} does not exist")))?;
    *slot = Some(change);
    heads.push(Reverse((key, Reverse(run))));
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::collections::BTreeMap;

    use super::*;
    use proptest::prelude::*;

    type Run = BTreeMap<u8, Option<u16>>;

    fn encode(run: &Run) -> Vec<u8> {
        let mut writer = ChangeWriter::default();
        for (key, value) in run {
            let bytes = value.map(u16::to_le_bytes);
            writer.push(
                &[],
                &[*key],
                bytes.as_ref().map_or(Change::Remove, |v| Change::Put(v)),
            );
        }
        writer.into_bytes()
    }

    proptest! {
        #[test]
        fn merging_equals_applying_in_order(
            runs in prop::collection::vec(
                prop::collection::btree_map(any::<u8>(), prop::option::of(any::<u16>()), 0..30), 0..6)
        ) {
            let mut model = BTreeMap::new();
            for run in &runs {
                for (key, value) in run {
                    match value {
                        Some(value) => { model.insert(*key, Some(*value)); }
                        None => { model.remove(key); }
                    }
                }
            }
            let encoded: Vec<Vec<u8>> = runs.iter().map(encode).collect();
            let slices: Vec<&[u8]> = encoded.iter().map(Vec::as_slice).collect();
            prop_assert_eq!(merge(&slices).unwrap().into_bytes(), encode(&model));
        }
    }
}
