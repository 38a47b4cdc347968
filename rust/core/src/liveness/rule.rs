//! The rule for one segment.

use std::collections::BTreeSet;

use super::facts::SegmentFacts;
use crate::format::SegmentKind;
use crate::ids::{CheckpointId, Owner};

/// The kind of a segment, for the rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListedKind {
    /// A run.
    Run,
    /// Pending rows of a parked partition, or rows that were replayed.
    PendingInput,
    /// Anything else, or unknown.
    Other,
}

impl From<SegmentKind> for ListedKind {
    fn from(kind: SegmentKind) -> Self {
        match kind {
            SegmentKind::Run => Self::Run,
            SegmentKind::InFlight => Self::PendingInput,
            SegmentKind::Changelog | SegmentKind::Snapshot => Self::Other,
        }
    }
}

/// Facts about checkpoints, as the rule needs them to judge a segment.
pub trait Evidence {
    /// Returns whether the attempt is undecided: it may still become a checkpoint.
    fn is_open(&self, attempt: CheckpointId) -> bool;

    /// Returns whether the live set of the owner meets `[first, last]`.
    fn is_needed(&self, owner: &Owner, first: CheckpointId, last: CheckpointId) -> bool;

    /// Returns whether the segment is needed, whatever `is_needed` says: not if it was merged into
    /// a run, and pending rows until their replay. `None` if `is_needed` decides.
    fn decides(&self, _owner: &Owner, _created: CheckpointId, _kind: ListedKind) -> Option<bool> {
        None
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing can ever need it again.
    Dead,
    /// It lives; some attempts that leased it were decided.
    Renewed {
        /// Like in [`SegmentFacts`].
        last_used: CheckpointId,
        /// Like in [`SegmentFacts`].
        leases: BTreeSet<CheckpointId>,
    },
}

/// The rule, for a segment that no open attempt holds a lease on.
pub(super) fn is_live(
    evidence: &dyn Evidence,
    owner: &Owner,
    created: CheckpointId,
    last_used: CheckpointId,
) -> bool {
    evidence.is_open(created) || evidence.is_needed(owner, created, last_used)
}

/// Applies the rule; `None` when nothing about the segment changes.
pub(super) fn judge(evidence: &dyn Evidence, segment: &SegmentFacts) -> Option<Verdict> {
    let owner = &*segment.owner;
    let mut last_used = segment.last_used;
    let mut leases = segment.leases.clone();
    leases.retain(|attempt| {
        let open = evidence.is_open(*attempt);
        // The attempt is decided. Either its checkpoint contains the reused segment, or no later
        // checkpoint ever can: a later origin is a later id, or is in the live set of today.
        if !open && evidence.is_needed(owner, *attempt, *attempt) {
            last_used = last_used.max(*attempt);
        }
        open
    });
    if leases.is_empty() && !is_live(evidence, owner, segment.created, last_used) {
        return Some(Verdict::Dead);
    }
    let changed = last_used != segment.last_used || leases != segment.leases;
    changed.then_some(Verdict::Renewed { last_used, leases })
}
