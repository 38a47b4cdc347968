//! A checkpoint: its regions, its coordinators, and facts for the next attempt.

use std::collections::BTreeMap;
use std::sync::Arc;

use prost::Message;

use super::outline::groups_of;
use super::region::RegionEntry;
use super::regions::Regions;
use super::sections::{HeaderMessage, VERSION};
use super::{MAX_NAME_BYTES, check_length, check_name};
use crate::error::{Error, Result};
use crate::format::frame::MAX_BODY_BYTES;
use crate::ids::{CheckpointId, FileId, Owner, SegmentRef};
use crate::liveness::{Fallbacks, PostponedCheckpoints, RestoredCheckpoint};

/// The reason for a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CheckpointKind {
    /// For a batch.
    Checkpoint = 1,
    /// For a user; never subsumed.
    Savepoint = 2,
    /// At the end of all input.
    Final = 3,
}

impl CheckpointKind {
    /// All kinds.
    pub const ALL: [Self; 3] = [Self::Checkpoint, Self::Savepoint, Self::Final];

    /// Stable number, as stored.
    pub fn tag(self) -> u32 {
        self as u32
    }

    /// Inverse of [`CheckpointKind::tag`].
    pub fn from_tag(tag: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.tag() == tag)
    }

    /// Name, for people and for Python.
    pub fn name(self) -> &'static str {
        match self {
            Self::Checkpoint => "checkpoint",
            Self::Savepoint => "savepoint",
            Self::Final => "final",
        }
    }
}

/// Everything about a checkpoint but its regions.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CheckpointFacts {
    /// The checkpoint.
    pub id: CheckpointId,
    /// Spark's batch, -1 before the first.
    pub batch_id: i64,
    /// Its reason.
    pub kind: CheckpointKind,
    /// Its time in milliseconds since the epoch.
    pub created_ms: u64,
    /// The topology of the pipeline, for the driver that restores it.
    pub topology: Vec<u8>,
    /// Snapshots of the operator coordinators, by operator.
    pub coordinators: BTreeMap<String, Vec<u8>>,
    /// Regional completions in a row up to this one (R20).
    pub consecutive_regional: u64,
    /// The next attempt must be global (R21).
    pub force_global: bool,
    /// Operators that are finished in every region (R60).
    pub finished_operators: Vec<String>,
    /// Anything else that a pipeline must find again.
    pub properties: BTreeMap<String, String>,
}

impl CheckpointFacts {
    /// The header of the file with all regions.
    pub(super) fn header(&self) -> HeaderMessage {
        HeaderMessage {
            version: VERSION,
            id: self.id.0,
            batch_id: self.batch_id,
            kind: self.kind.tag(),
            created_ms: self.created_ms,
            topology: self.topology.clone(),
            consecutive_regional: self.consecutive_regional,
            force_global: self.force_global,
            finished_operators: self.finished_operators.clone(),
            properties: self.properties.clone(),
            ..HeaderMessage::default()
        }
    }

    fn check(&self) -> Result<()> {
        if self.batch_id < -1 {
            return Err(Error::invalid_input(format!(
                "batch id: expected at least -1 (before the first batch), found {}",
                self.batch_id
            )));
        }
        for name in self.coordinators.keys() {
            check_name("name of a coordinator", name)?;
        }
        for name in &self.finished_operators {
            check_name("name of a finished operator", name)?;
        }
        for key in self.properties.keys() {
            check_length("key of a property", key, MAX_NAME_BYTES)?;
        }
        let found = self.header().encoded_len();
        if found > MAX_BODY_BYTES {
            return Err(Error::invalid_input(format!(
                "topology, finished operators and properties: expected at most {MAX_BODY_BYTES} \
                 bytes together, found {found}"
            )));
        }
        Ok(())
    }
}

/// Metadata of a checkpoint: immutable, and consistent in itself. Its regions are sorted by name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Metadata {
    facts: CheckpointFacts,
    regions: Regions,
}

impl Metadata {
    /// Checks it and sorts the entries of all regions by name.
    ///
    /// # Errors
    /// `InvalidInput` for a wrong name, a region that occurs twice, or an origin not in its past.
    pub fn new(facts: CheckpointFacts, entries: Vec<RegionEntry>) -> Result<Self> {
        Self::checked(facts, |id| {
            let regions = Regions::new(entries)?;
            check_origins(id, &regions)?;
            Ok(regions)
        })
    }

    /// Like [`Metadata::new`], for a checkpoint that differs from this one in the regions of
    /// `entries`, and has no region that is `gone`. Costs as much as it differs.
    ///
    /// # Errors
    /// Errors of [`Metadata::new`], and `InvalidInput` for a checkpoint that is not newer.
    pub fn next<'a>(
        &self,
        facts: CheckpointFacts,
        entries: Vec<RegionEntry>,
        gone: impl IntoIterator<Item = &'a str>,
    ) -> Result<Self> {
        Self::checked(facts, |id| {
            if id <= self.id() {
                return Err(Error::invalid_input(format!(
                    "expected a checkpoint newer than {}, on which it builds",
                    self.id()
                )));
            }
            entries
                .iter()
                .try_for_each(|entry| check_origin(id, entry))?;
            self.regions.changed(entries, gone)
        })
    }

    pub(super) fn checked(
        facts: CheckpointFacts,
        regions: impl FnOnce(CheckpointId) -> Result<Regions>,
    ) -> Result<Self> {
        let id = facts.id;
        regions(id)
            .and_then(|regions| facts.check().map(|()| Self { facts, regions }))
            .map_err(|e| e.context(format!("checkpoint {id}")))
    }

    /// The checkpoint.
    pub fn id(&self) -> CheckpointId {
        self.facts.id
    }

    /// Everything but its regions.
    pub fn facts(&self) -> &CheckpointFacts {
        &self.facts
    }

    /// Entries of all regions, sorted by name.
    pub fn regions(&self) -> &Regions {
        &self.regions
    }

    /// No region fell back.
    pub fn is_global(&self) -> bool {
        self.regions.failed() == 0
    }

    /// Every segment it needs, for `SnapshotManager::restore`. State has the origin of its region,
    /// even if it is in an older segment. In-flight data has the checkpoint that stored it.
    pub fn restored(&self, pipeline: &str) -> Result<RestoredCheckpoint> {
        let mut segments = Vec::new();
        for entry in self.regions.iter()? {
            segments.extend(self.references(entry, pipeline)?);
        }
        Ok(RestoredCheckpoint {
            id: self.id(),
            segments,
        })
    }

    /// These checkpoints, for `SnapshotManager::restore_later`. Costs as much as they differ.
    pub fn postponed(pipeline: &str, checkpoints: Vec<Arc<Self>>) -> Result<PostponedCheckpoints> {
        let mut files = BTreeMap::new();
        for one in &checkpoints {
            for (file, bytes) in one.regions.files_at_most()? {
                let known: &mut u64 = files.entry(file).or_default();
                *known = (*known).max(bytes);
            }
        }
        let newest = checkpoints.iter().map(|one| one.id()).max();
        let pipeline = pipeline.to_owned();
        let restored = move || {
            let checkpoints = checkpoints.iter();
            checkpoints.map(|one| one.restored(&pipeline)).collect()
        };
        Ok(PostponedCheckpoints::new(files, newest, restored))
    }

    /// Owners whose origin is not this checkpoint, for managers. Regions that fell back may have
    /// written state under the names of the `usual` operators and states, unknown to their entries.
    pub fn at_rest(&self, pipeline: &str, usual: &[(String, String)]) -> Result<Fallbacks> {
        let mut found = Fallbacks::new();
        for entry in self.regions.iter()? {
            let (region, origin) = (entry.region(), entry.origin());
            if origin == self.id() && entry.in_flight_bytes() == 0 {
                continue;
            }
            let references = self.references(entry, pipeline)?.into_iter();
            let older = references.filter(|(_, origin, _)| *origin != self.id());
            found.extend(older.map(|(owner, origin, _)| (owner, origin)));
            if entry.fallbacks() > 0 && origin != self.id() {
                let owner = |(operator, store): &(String, String)| {
                    (Owner::new(pipeline, operator, region, store), origin)
                };
                found.extend(usual.iter().map(owner));
            }
        }
        Ok(found)
    }

    fn references(
        &self,
        entry: &RegionEntry,
        pipeline: &str,
    ) -> Result<Vec<(Owner, CheckpointId, SegmentRef)>> {
        let references = entry.references(pipeline);
        references.map_err(|e| e.context(format!("checkpoint {}", self.id())))
    }

    /// Names of the regions that have not finished, together where operators have the same states:
    /// names, kinds, types, and shapes of arrays. The description of a table counts whole.
    pub fn alike<'a>(&'a self) -> Result<Vec<Vec<&'a str>>> {
        let groups = groups_of(self.regions.iter()?, usize::MAX)?.unwrap_or_default();
        let names = |group: Vec<&'a RegionEntry>| group.into_iter().map(RegionEntry::region);
        Ok(groups
            .into_iter()
            .map(|group| names(group).collect())
            .collect())
    }

    /// Least size in bytes of each file with its segments.
    pub fn file_bytes(&self) -> Result<BTreeMap<FileId, u64>> {
        let mut bytes = BTreeMap::new();
        for entry in self.regions.iter()? {
            entry.note_files(&mut bytes)?;
        }
        Ok(bytes)
    }
}

pub(super) fn check_origins(id: CheckpointId, regions: &Regions) -> Result<()> {
    let check_newest = |newest| match newest <= id {
        true => Ok(()),
        false => Err(Error::invalid_input(format!(
            "origin of a region: expected up to checkpoint {id}, found {newest}"
        ))),
    };
    regions.check(|entry| check_origin(id, entry), check_newest)
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
