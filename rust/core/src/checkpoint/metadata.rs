//! A checkpoint: its regions, its coordinators, and facts for the next attempt.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::outline::groups_of;
use super::region::RegionEntry;
use super::regions::{BaseFile, Regions};
use super::{MAX_NAME_BYTES, check_length, check_name, file};
use crate::error::{Error, Result};
use crate::ids::{CheckpointId, FileId, Owner};
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

/// New metadata. Its regions are checked where they are [`Regions`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NewMetadata<R = Vec<RegionEntry>> {
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
    /// Entries of all regions, in any order.
    pub regions: R,
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

/// Metadata of a checkpoint: immutable, and consistent in itself. Its regions are sorted by name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Metadata(NewMetadata<Regions>);

impl Metadata {
    /// Checks it and sorts the regions by name.
    ///
    /// # Errors
    /// `InvalidInput` for a wrong name, a region that occurs twice, or an origin that is not in
    /// this checkpoint's past.
    pub fn new(new: NewMetadata) -> Result<Self> {
        Self::checked(new, |id, entries| {
            let regions = Regions::new(entries)?;
            check_origins(id, &regions)?;
            Ok(regions)
        })
    }

    /// Like [`Metadata::new`], for a checkpoint that differs from this one in the regions of `new`,
    /// and has no region that is `gone`. Costs as much as it differs.
    ///
    /// # Errors
    /// Those of [`Metadata::new`], and `InvalidInput` for a checkpoint that is not newer.
    pub fn next<'a>(
        &self,
        new: NewMetadata,
        gone: impl IntoIterator<Item = &'a str>,
    ) -> Result<Self> {
        Self::checked(new, |id, entries| {
            if id <= self.0.id {
                return Err(Error::invalid_input(format!(
                    "expected a checkpoint newer than {}, on which it builds",
                    self.0.id
                )));
            }
            entries
                .iter()
                .try_for_each(|entry| check_origin(id, entry))?;
            self.0.regions.changed(entries, gone)
        })
    }

    fn checked(
        new: NewMetadata,
        regions: impl FnOnce(CheckpointId, Vec<RegionEntry>) -> Result<Regions>,
    ) -> Result<Self> {
        let NewMetadata {
            id,
            batch_id,
            kind,
            created_ms,
            topology,
            regions: entries,
            coordinators,
            consecutive_regional,
            force_global,
            finished_operators,
            properties,
        } = new;
        regions(id, entries)
            .map(|regions| NewMetadata {
                id,
                batch_id,
                kind,
                created_ms,
                topology,
                regions,
                coordinators,
                consecutive_regional,
                force_global,
                finished_operators,
                properties,
            })
            .and_then(|fields| check_fields(&fields).map(|()| Self(fields)))
            .map_err(|e| e.context(format!("checkpoint {id}")))
    }

    /// Verifies and decodes all bytes of a file. `base` reads the file of regions that it names.
    ///
    /// # Errors
    /// `Newer` when a newer version wrote it, else `Corrupt`; those of `base`.
    pub(super) fn read(
        bytes: &[u8],
        base: impl FnOnce(BaseFile) -> Result<Regions>,
    ) -> Result<Self> {
        let decoded = file::read(bytes)?;
        let base = decoded.base.map(base).transpose()?;
        let made = match base {
            None => Self::new(decoded.fields),
            Some(base) => Self::checked(decoded.fields, |id, entries| {
                let gone = decoded.gone.iter().map(String::as_str);
                let regions = base.differing(entries, gone, decoded.regions)?;
                check_origins(id, &regions)?;
                Ok(regions)
            }),
        };
        made.map_err(|e| Error::corrupt(e.to_string()))
    }

    /// The checkpoint.
    pub fn id(&self) -> CheckpointId {
        self.0.id
    }

    /// Everything, with the regions sorted by name.
    pub fn fields(&self) -> &NewMetadata<Regions> {
        &self.0
    }

    /// Entries of all regions, sorted by name.
    pub fn regions(&self) -> &Regions {
        &self.0.regions
    }

    /// The entry of a region.
    ///
    /// # Errors
    /// `Corrupt`.
    pub fn region(&self, name: &str) -> Result<Option<&RegionEntry>> {
        self.0.regions.get(name)
    }

    /// No region fell back.
    pub fn is_global(&self) -> bool {
        self.0.regions.failed() == 0
    }

    /// Every segment it needs, as `SnapshotManager::restore` takes them. State has the origin of its
    /// region, even if a snapshot reused an older segment. In-flight data has the checkpoint that
    /// stored it.
    ///
    /// # Errors
    /// `Corrupt`.
    pub fn restored(&self, pipeline: &str) -> Result<RestoredCheckpoint> {
        let mut segments = Vec::new();
        for entry in self.0.regions.iter()? {
            let references = entry.references(pipeline);
            let references =
                references.map_err(|e| e.context(format!("checkpoint {}", self.0.id)))?;
            let found = references.into_iter();
            segments.extend(found.map(|one| (one.owner, one.origin, one.reference)));
        }
        Ok(RestoredCheckpoint {
            id: self.0.id,
            segments,
        })
    }

    /// These checkpoints, as `SnapshotManager::restore_later` takes them. Costs as much as they differ.
    ///
    /// # Errors
    /// `Corrupt`.
    pub fn postponed(pipeline: &str, checkpoints: Vec<Arc<Self>>) -> Result<PostponedCheckpoints> {
        let mut files = BTreeMap::new();
        for one in &checkpoints {
            for (file, bytes) in one.files_at_most()? {
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

    /// Owners whose origin is not this checkpoint, as managers hear of it. Regions that fell back may
    /// have written state under the names of the `usual` operators and states, which their entries
    /// do not know.
    ///
    /// # Errors
    /// `Corrupt`.
    pub fn at_rest(&self, pipeline: &str, usual: &[(String, String)]) -> Result<Fallbacks> {
        let mut found = Fallbacks::new();
        for entry in self.0.regions.iter()? {
            let (region, origin) = (entry.region(), entry.origin());
            if origin == self.0.id && entry.in_flight_bytes() == 0 {
                continue;
            }
            let references = entry
                .references(pipeline)
                .map_err(|e| e.context(format!("checkpoint {}", self.0.id)))?;
            let older = references.into_iter().filter(|one| one.origin != self.0.id);
            found.extend(older.map(|one| (one.owner, one.origin)));
            if entry.fallbacks() > 0 && origin != self.0.id {
                let owner = |(operator, store): &(String, String)| {
                    (Owner::new(pipeline, operator, region, store), origin)
                };
                found.extend(usual.iter().map(owner));
            }
        }
        Ok(found)
    }

    /// Names of the regions that have not finished, together where operators have the same states:
    /// names, kinds, types, and shapes of arrays. The description of a table counts whole.
    ///
    /// # Errors
    /// `Corrupt`.
    pub fn alike<'a>(&'a self) -> Result<Vec<Vec<&'a str>>> {
        let groups = groups_of(self.0.regions.iter()?, usize::MAX)?.unwrap_or_default();
        let names = |group: Vec<&'a RegionEntry>| group.into_iter().map(RegionEntry::region);
        Ok(groups
            .into_iter()
            .map(|group| names(group).collect())
            .collect())
    }

    /// Least size in bytes of each file with its segments.
    ///
    /// # Errors
    /// `Corrupt`.
    pub fn file_bytes(&self) -> Result<BTreeMap<FileId, u64>> {
        let mut bytes = BTreeMap::new();
        for entry in self.0.regions.iter()? {
            entry.note_files(&mut bytes)?;
        }
        Ok(bytes)
    }

    /// Like [`Metadata::file_bytes`], with what its regions had when they were first shared.
    /// Costs as much as checkpoints differ.
    ///
    /// # Errors
    /// `Corrupt`.
    pub fn files_at_most(&self) -> Result<BTreeMap<FileId, u64>> {
        self.0.regions.files_at_most()
    }

    /// Outputs with files that its regions staged, now or when they were first shared. Costs as much
    /// as checkpoints differ.
    ///
    /// # Errors
    /// `Corrupt`.
    pub fn outputs_at_most(&self) -> Result<BTreeSet<String>> {
        self.0.regions.outputs_at_most()
    }

    /// Some of each group of [`Metadata::alike`]; a group may be divided. Costs as much as checkpoints
    /// differ, unless there are many groups.
    ///
    /// # Errors
    /// `Corrupt`.
    pub fn samples(&self) -> Result<Vec<Vec<RegionEntry>>> {
        self.0.regions.samples()
    }
}

fn check_fields<R>(new: &NewMetadata<R>) -> Result<()> {
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
    file::check_header(new)
}

fn check_origins(id: CheckpointId, regions: &Regions) -> Result<()> {
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
