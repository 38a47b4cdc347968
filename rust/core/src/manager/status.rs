//! Reports of a manager about its files and segments.

use super::registry::Registry;
use crate::ids::{CheckpointId, FileId, Owner, SegmentRef};
use crate::liveness::{FileFacts, segment_ref};
use crate::segment::WriterStats;

/// Counts and sizes of a manager.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ManagerStats {
    /// Known physical files.
    pub physical_files: u64,
    /// Their size in bytes.
    pub physical_bytes: u64,
    /// Live segments.
    pub live_segments: u64,
    /// Their size in bytes, as stored.
    pub live_bytes: u64,
    /// Size in bytes of the files that only owners that fell back keep alive.
    pub pinned_bytes: u64,
    /// Files sealed.
    pub seals: u64,
    /// Syncs of storage, including syncs of sealing.
    pub syncs: u64,
    /// Segments appended.
    pub appends: u64,
    /// Files deleted.
    pub deletes: u64,
    /// Failed deletes. The next message tries each again.
    pub delete_failures: u64,
    /// Judgements of segments, a measure of the cost of messages.
    pub judgements: u64,
    /// Owners with a live segment.
    pub owners: u64,
    /// Physical bytes divided by live bytes; 1 without any file, infinite without a live segment.
    pub space_amplification: f64,
}

/// One physical file, for inspection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileStatus {
    /// The file.
    pub file: FileId,
    /// It takes appends, or its writer is still closing it.
    pub open: bool,
    /// Size in bytes, with dead segments, garbage and footer.
    pub physical_bytes: u64,
    /// Number of its live segments.
    pub live_segments: u64,
    /// Their size in bytes, as stored.
    pub live_bytes: u64,
    /// Only owners that fell back keep it alive.
    pub pinned: bool,
    /// Its segments are not offered for reuse any more, so that it can go.
    pub wasteful: bool,
}

/// One live segment, for inspection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentStatus {
    /// The reference to it.
    pub reference: SegmentRef,
    /// Owner of the state.
    pub owner: Owner,
    /// Checkpoint it was written for.
    pub created: CheckpointId,
    /// Newest known checkpoint that uses it.
    pub last_used: CheckpointId,
    /// An open attempt will reuse it.
    pub leased: bool,
}

pub(super) fn segments(registry: &Registry) -> Vec<SegmentStatus> {
    let mut all = Vec::new();
    for (file, facts) in registry.ledger.files() {
        let segments = facts.segments().iter();
        all.extend(segments.map(|(offset, segment)| SegmentStatus {
            reference: segment_ref(*file, *offset, segment),
            owner: Owner::clone(&segment.owner),
            created: segment.created,
            last_used: segment.last_used,
            leased: !segment.leases.is_empty(),
        }));
    }
    all
}

pub(super) fn files(registry: &Registry) -> Vec<FileStatus> {
    let status = |(id, facts): (&FileId, &FileFacts)| FileStatus {
        file: *id,
        open: facts.open,
        physical_bytes: facts.physical_bytes,
        live_segments: facts.segments().len() as u64,
        live_bytes: facts.live_bytes(),
        pinned: registry.ledger.is_pinned(*id),
        wasteful: registry.ledger.is_wasteful(*id),
    };
    registry.ledger.files().iter().map(status).collect()
}

pub(super) fn stats(registry: &Registry, writer: WriterStats) -> ManagerStats {
    let mut stats = ManagerStats {
        seals: writer.files_sealed,
        syncs: writer.syncs,
        appends: writer.segments,
        deletes: registry.deletes,
        delete_failures: registry.delete_failures,
        judgements: registry.ledger.judgements(),
        owners: registry.ledger.owners() as u64,
        ..ManagerStats::default()
    };
    for file in files(registry) {
        stats.physical_files += 1;
        stats.physical_bytes += file.physical_bytes;
        stats.live_segments += file.live_segments;
        stats.live_bytes += file.live_bytes;
        if file.pinned {
            stats.pinned_bytes += file.physical_bytes;
        }
    }
    stats.space_amplification = match (stats.physical_bytes, stats.live_bytes) {
        (0, _) => 1.0,
        (_, 0) => f64::INFINITY,
        (physical, live) => physical as f64 / live as f64,
    };
    stats
}
