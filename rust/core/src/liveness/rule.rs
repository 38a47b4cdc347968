//! The rule of life for one segment.

use std::collections::BTreeSet;

use super::facts::SegmentFacts;
use super::view::View;
use crate::ids::CheckpointId;

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

/// Applies the rule; `None` when nothing about the segment changes.
pub(super) fn judge(view: &View, segment: &SegmentFacts) -> Option<Verdict> {
    let live_set = view.live_set(&segment.owner);
    let mut last_used = segment.last_used;
    let mut leases = segment.leases.clone();
    leases.retain(|attempt| {
        let open = !view.is_decided(*attempt);
        // The attempt is decided. Either its checkpoint contains what the owner reused, or no
        // later checkpoint ever can: a later origin is a later id, or one of today's live set.
        if !open && live_set.contains(attempt) {
            last_used = last_used.max(*attempt);
        }
        open
    });
    let undecided = !view.is_decided(segment.created);
    let needed = live_set.range(segment.created..=last_used).next().is_some();
    if !undecided && leases.is_empty() && !needed {
        return Some(Verdict::Dead);
    }
    let changed = last_used != segment.last_used || leases != segment.leases;
    changed.then_some(Verdict::Renewed { last_used, leases })
}
