//! What the metadata of a checkpoint says, before it is checked.

use std::collections::BTreeMap;

use super::region::RegionEntry;
use crate::ids::CheckpointId;

/// Why a checkpoint was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CheckpointKind {
    /// For a batch.
    Checkpoint = 1,
    /// Because a user asked; never subsumed.
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

/// Metadata to be made.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NewMetadata {
    /// The checkpoint.
    pub id: CheckpointId,
    /// Spark's batch, -1 before the first.
    pub batch_id: i64,
    /// Why it was taken.
    pub kind: CheckpointKind,
    /// When, in milliseconds since the epoch.
    pub created_ms: u64,
    /// What the pipeline looked like, for the driver that restores it.
    pub topology: Vec<u8>,
    /// Entries of all regions, in any order.
    pub regions: Vec<RegionEntry>,
    /// Snapshots of the operator coordinators, by operator.
    pub coordinators: BTreeMap<String, Vec<u8>>,
    /// Regional completions in a row up to this one (R20).
    pub consecutive_regional: u64,
    /// The next attempt must be global (R21).
    pub force_global: bool,
    /// Operators that are finished in every region (R60).
    pub finished_operators: Vec<String>,
    /// What else a pipeline must find again.
    pub properties: BTreeMap<String, String>,
}
