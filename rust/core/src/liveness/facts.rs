//! Facts about checkpoints, segments and physical files.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::ids::{CheckpointId, Owner, SegmentRef};

/// Owners that fell back in a checkpoint, with the origin of the state that it has for them.
pub type Fallbacks = BTreeMap<Owner, CheckpointId>;

/// Facts about a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentFacts {
    /// Owner of the state.
    pub owner: Arc<Owner>,
    /// Length in bytes, as stored.
    pub len: u64,
    /// Digest of its stored bytes.
    pub digest: u128,
    /// Checkpoint it was written for.
    pub created: CheckpointId,
    /// Newest known checkpoint that uses it; never before `created`, and never goes back.
    pub last_used: CheckpointId,
    /// Open attempts that will reuse it.
    pub leases: BTreeSet<CheckpointId>,
    /// The checkpoint that it watches, see `Ledger`.
    pub(super) watch: Option<CheckpointId>,
}

impl SegmentFacts {
    pub(super) fn new(owner: Arc<Owner>, reference: &SegmentRef, created: CheckpointId) -> Self {
        Self {
            owner,
            len: reference.len,
            digest: reference.digest,
            created,
            last_used: created,
            leases: BTreeSet::new(),
            watch: None,
        }
    }
}

/// Facts about a physical file and its segments, without the dead ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileFacts {
    /// It takes appends, or its writer is still closing it.
    pub open: bool,
    /// A decision was made to seal it: it counts as closed.
    pub(super) sealing: bool,
    /// The only checkpoint whose segments it takes, if files do not span checkpoints.
    pub only_for: Option<CheckpointId>,
    /// Size in bytes: segments, dead or not, garbage and footer.
    pub physical_bytes: u64,
    /// Segments that end here or before survive a machine crash.
    pub durable_bytes: u64,
    /// It has had a segment.
    pub used: bool,
    /// It is being deleted.
    pub deleting: bool,
    /// Segments that were live at the last decision, by offset.
    pub(super) segments: BTreeMap<u64, SegmentFacts>,
    pub(super) live_bytes: u64,
    /// Number of segments whose owner fell back in the newest checkpoint.
    pub(super) fallen: usize,
}

impl FileFacts {
    /// A new file, open and empty.
    pub fn created(only_for: Option<CheckpointId>, physical_bytes: u64) -> Self {
        Self {
            open: true,
            sealing: false,
            only_for,
            physical_bytes,
            durable_bytes: 0,
            used: false,
            deleting: false,
            segments: BTreeMap::new(),
            live_bytes: 0,
            fallen: 0,
        }
    }

    /// A file found in storage, closed and as durable as it can be.
    pub fn found(physical_bytes: u64) -> Self {
        Self {
            open: false,
            durable_bytes: physical_bytes,
            used: true,
            ..Self::created(None, physical_bytes)
        }
    }

    /// Returns whether it takes appends, and no decision was made to seal it.
    pub(super) fn stays_open(&self) -> bool {
        self.open && !self.sealing
    }

    /// Its live segments, by offset.
    pub fn segments(&self) -> &BTreeMap<u64, SegmentFacts> {
        &self.segments
    }

    /// Bytes of its live segments.
    pub fn live_bytes(&self) -> u64 {
        self.live_bytes
    }

    /// Returns whether the segment at `offset` and all before it survive a machine crash.
    pub(super) fn is_durable(&self, offset: u64) -> bool {
        let segment = self.segments.get(&offset);
        segment.is_none_or(|segment| offset + segment.len <= self.durable_bytes)
    }
}
