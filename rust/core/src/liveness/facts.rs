//! What is known about segments and physical files.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::ids::{CheckpointId, Owner, SegmentRef};

/// What is known about a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentFacts {
    /// Whose state it is.
    pub owner: Arc<Owner>,
    /// Length in bytes, as stored.
    pub len: u64,
    /// Digest of its stored bytes.
    pub digest: u128,
    /// Checkpoint it was written for.
    pub created: CheckpointId,
    /// Newest checkpoint that is known to use it; never before `created`, never goes back.
    pub last_used: CheckpointId,
    /// Attempts that decided to reuse it and whose outcome is not known yet.
    pub leases: BTreeSet<CheckpointId>,
    /// The checkpoint that keeps it, see `Ledger`.
    pub(super) watch: Option<CheckpointId>,
}

impl SegmentFacts {
    /// A segment that nothing but `created` uses so far.
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

/// What is known about a physical file, by offset of its segments. Dead segments are not kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileFacts {
    /// Takes appends, or its writer is still closing it.
    pub open: bool,
    /// It was decided to seal it: as good as closed.
    pub(super) sealing: bool,
    /// The checkpoint whose segments the file takes, when files do not span checkpoints.
    pub only_for: Option<CheckpointId>,
    /// Size in bytes: segments, dead or not, garbage and footer.
    pub physical_bytes: u64,
    /// Segments that end here or before survive a machine crash.
    pub durable_bytes: u64,
    /// Some segment was appended to it, dead or not.
    pub used: bool,
    /// It is being deleted.
    pub deleting: bool,
    /// Segments that were live at the last decision.
    pub(super) segments: BTreeMap<u64, SegmentFacts>,
    /// Their bytes.
    pub(super) live_bytes: u64,
    /// How many of them have an owner that fell back in the newest checkpoint.
    pub(super) fallen: usize,
}

impl FileFacts {
    /// A file that was just created: open, empty.
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

    /// A file found in storage: closed, and as durable as it can be.
    pub fn found(physical_bytes: u64) -> Self {
        Self {
            open: false,
            durable_bytes: u64::MAX,
            used: true,
            ..Self::created(None, physical_bytes)
        }
    }

    /// It takes appends, and nothing was decided against that.
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

    /// The last of these segments survives a machine crash, and so do all before it.
    pub(super) fn is_durable(&self, offset: u64) -> bool {
        let end = self
            .segments
            .get(&offset)
            .map(|segment| offset + segment.len);
        end.is_none_or(|end| end <= self.durable_bytes)
    }
}
