//! A checkpoint: all its regions, its coordinators, and what the next attempt must know.

use std::collections::BTreeMap;

use super::fields::NewMetadata;
use super::region::RegionEntry;
use super::{MAX_NAME_BYTES, check_length, check_name, file};
use crate::error::{Error, Result};
use crate::ids::{CheckpointId, FileId, Owner, SegmentRef};

/// A segment that a checkpoint needs, as `SnapshotManager::restore` takes it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Reference {
    /// Whose it is.
    pub owner: Owner,
    /// Origin of that owner's state.
    pub origin: CheckpointId,
    /// The segment.
    pub reference: SegmentRef,
}

/// Metadata of a checkpoint: immutable, and consistent in itself. Its regions are sorted by name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Metadata(NewMetadata);

impl Metadata {
    /// Checks it and sorts the regions by name.
    ///
    /// # Errors
    /// `InvalidInput` for a name that cannot be, a region that occurs twice, or an origin that is
    /// not of this checkpoint's past.
    pub fn new(mut new: NewMetadata) -> Result<Self> {
        let id = new.id;
        check_metadata(&mut new).map_err(|e| e.context(format!("checkpoint {id}")))?;
        Ok(Self(new))
    }

    /// Verifies and decodes all bytes of a file.
    ///
    /// # Errors
    /// `Unsupported` when a newer version wrote it, else `Corrupt`.
    pub(super) fn read(bytes: &[u8]) -> Result<Self> {
        Self::new(file::read(bytes)?).map_err(|e| Error::corrupt(e.to_string()))
    }

    /// The checkpoint.
    pub fn id(&self) -> CheckpointId {
        self.0.id
    }

    /// Everything, with the regions sorted by name.
    pub fn fields(&self) -> &NewMetadata {
        &self.0
    }

    /// Entries of all regions, sorted by name.
    pub fn regions(&self) -> &[RegionEntry] {
        &self.0.regions
    }

    /// The entry of a region.
    pub fn region(&self, name: &str) -> Option<&RegionEntry> {
        let found = self.0.regions.binary_search_by(|e| e.region().cmp(name));
        found.ok().and_then(|index| self.0.regions.get(index))
    }

    /// No region fell back.
    pub fn is_global(&self) -> bool {
        !self.0.regions.iter().any(RegionEntry::failed)
    }

    /// Every segment it needs: state has the origin of its region, also where a snapshot reused an
    /// older segment; in-flight data has the checkpoint that stored it.
    ///
    /// # Errors
    /// `Corrupt`.
    pub fn references(&self, pipeline: &str) -> Result<Vec<Reference>> {
        let mut found = Vec::new();
        for entry in &self.0.regions {
            let references = entry
                .references()
                .map_err(|e| e.context(format!("checkpoint {}", self.0.id)))?;
            found.extend(references.into_iter().map(|r| Reference {
                owner: Owner::new(pipeline, &r.operator, entry.region(), &r.store),
                origin: r.origin,
                reference: r.reference,
            }));
        }
        Ok(found)
    }

    /// Bytes that each file of its segments has, at least.
    ///
    /// # Errors
    /// `Corrupt`.
    pub fn file_bytes(&self) -> Result<BTreeMap<FileId, u64>> {
        let mut bytes = BTreeMap::new();
        for found in self.references("")? {
            let segment = found.reference;
            let known: &mut u64 = bytes.entry(segment.file).or_default();
            *known = (*known).max(segment.offset.saturating_add(segment.len));
        }
        Ok(bytes)
    }
}

fn check_metadata(new: &mut NewMetadata) -> Result<()> {
    if new.batch_id < -1 {
        return Err(Error::invalid_input(format!(
            "batch id: expected at least -1 (before the first batch), found {}",
            new.batch_id
        )));
    }
    for name in new.coordinators.keys() {
        check_name("name of a coordinator", name)?;
    }
    for name in &new.finished_operators {
        check_name("name of a finished operator", name)?;
    }
    for key in new.properties.keys() {
        check_length("key of a property", key, MAX_NAME_BYTES)?;
    }
    file::check_header(new)?;
    // Stable and cheap where they are sorted already, as in every file.
    new.regions.sort_by(|a, b| a.region().cmp(b.region()));
    for (entry, next) in new.regions.iter().zip(new.regions.iter().skip(1)) {
        if entry.region() == next.region() {
            return Err(Error::invalid_input(format!(
                "region {:?} occurs twice",
                entry.region()
            )));
        }
    }
    new.regions
        .iter()
        .try_for_each(|entry| check_origin(new.id, entry))
}

/// A region has the state of this checkpoint or of an earlier one; if it failed, of an earlier one.
fn check_origin(id: CheckpointId, entry: &RegionEntry) -> Result<()> {
    let (origin, expected) = (
        entry.origin(),
        if entry.failed() { "before" } else { "up to" },
    );
    if origin < id || (origin == id && !entry.failed()) {
        return Ok(());
    }
    Err(Error::invalid_input(format!(
        "origin of region {:?}: expected {expected} checkpoint {id}, found {origin}",
        entry.region()
    )))
}
