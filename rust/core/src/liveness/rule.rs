//! The rule of life for one segment.

use std::collections::BTreeSet;

use super::facts::SegmentFacts;
use crate::ids::{CheckpointId, Owner};

/// What is known about checkpoints. The rule needs no more to judge a segment.
pub trait Evidence {
    /// The attempt is not decided: it may still become a checkpoint.
    fn is_open(&self, attempt: CheckpointId) -> bool;

    /// The live set of the owner meets `[first, last]`.
    fn is_needed(&self, owner: &Owner, first: CheckpointId, last: CheckpointId) -> bool;

    /// A run stands for the segment, so that nothing needs it although `is_needed` says that something
    /// may. `is_run` says whether it is a run itself.
    fn is_merged(&self, _owner: &Owner, _created: CheckpointId, _is_run: bool) -> bool {
        false
    }
}

/// What is to be remembered about a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing can ever need it again.
    Dead,
    /// It lives; the outcome of some attempts that leased it became known.
    Renewed {
        /// As in [`SegmentFacts`].
        last_used: CheckpointId,
        /// As in [`SegmentFacts`].
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
        // The attempt is decided. Either its checkpoint contains what the owner reused, or no
        // later checkpoint ever can: a later origin is a later id, or one of today's live set.
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
