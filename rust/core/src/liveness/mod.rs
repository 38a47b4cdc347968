//! Decides what lives: facts in, actions out. No storage, no clock, no counter that a lost message
//! could spoil.
//!
//! The rule (rule P2 of the design): a segment is live iff
//! - `created` is newer than the last decided checkpoint (its attempt is open), or
//! - an open attempt holds a lease on it (it decided to reuse it), or
//! - the live set of its owner intersects `[created, last_used]`.
//!
//! The live set of an owner is the set of origins of its state over all retained checkpoints.
//! A checkpoint that completed partially needs nothing special: for an owner that fell back the
//! checkpoint's own id is not in the live set, so what was written for it is dead, and the origin
//! is, so what the origin needs is not.

mod space;
mod view;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::ids::{CheckpointId, FileId, Owner};

pub use view::{Fallbacks, Retained, View};

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
}

/// What is known about a physical file, by offset of its segments. Dead segments are not kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileFacts {
    /// Takes appends, or somebody is still closing it.
    pub open: bool,
    /// The checkpoint whose segments the file takes, when files do not span checkpoints.
    pub only_for: Option<CheckpointId>,
    /// Size in bytes: segments, dead or not, garbage and footer.
    pub physical_bytes: u64,
    /// Segments that end here or before survive a machine crash.
    pub durable_bytes: u64,
    /// Some segment was appended to it, dead or not.
    pub used: bool,
    /// Somebody is deleting it.
    pub deleting: bool,
    /// Segments that were live at the last decision.
    pub segments: BTreeMap<u64, SegmentFacts>,
}

impl FileFacts {
    /// Bytes of its live segments.
    pub fn live_bytes(&self) -> u64 {
        self.segments.values().map(|segment| segment.len).sum()
    }
}

/// Everything a decision rests on.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// What is retained.
    pub view: &'a View,
    /// All files.
    pub files: &'a BTreeMap<FileId, FileFacts>,
    /// Bound on physical bytes divided by live bytes; below 1 there is no bound.
    pub max_space_amplification: f64,
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

/// What follows from the facts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Actions {
    /// Segments whose facts change.
    pub segments: Vec<(FileId, u64, Verdict)>,
    /// Files to delete: closed, and without a live segment.
    pub delete: Vec<FileId>,
    /// Open files to close without a footer: every segment in them is dead.
    pub abandon: Vec<FileId>,
    /// Open files to seal: the only checkpoint they take segments for is decided.
    pub seal: Vec<FileId>,
    /// Files whose segments are not offered for reuse any more, so that they can go.
    pub wasteful: BTreeSet<FileId>,
    /// Files that only owners who fell back keep alive.
    pub pinned: BTreeSet<FileId>,
}

/// Applies the rule of life to all segments and files.
pub fn decide(facts: &Facts<'_>) -> Actions {
    let mut actions = Actions::default();
    let mut live_files = Vec::new();
    for (id, file) in facts.files {
        let mut live = space::LiveFile::new(*id, file);
        for (offset, segment) in &file.segments {
            match judge(facts.view, segment) {
                Some(Verdict::Dead) => actions.segments.push((*id, *offset, Verdict::Dead)),
                renewed => {
                    actions
                        .segments
                        .extend(renewed.map(|verdict| (*id, *offset, verdict)));
                    live.add(segment.len, facts.view.fell_back(&segment.owner));
                }
            }
        }
        if live.segments > 0 {
            let ended = file
                .only_for
                .is_some_and(|only| facts.view.is_decided(only));
            if file.open && ended {
                actions.seal.push(*id);
            }
            live_files.push(live);
        } else if file.open {
            // An open file nobody has used yet is about to be.
            actions.abandon.extend(file.used.then_some(*id));
        } else if !file.deleting {
            actions.delete.push(*id);
        }
    }
    actions.pinned = space::pinned(&live_files);
    actions.wasteful = space::wasteful(&live_files, facts.max_space_amplification);
    actions
}

/// The rule of life for one segment; `None` when nothing about it changes.
fn judge(view: &View, segment: &SegmentFacts) -> Option<Verdict> {
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

#[cfg(test)]
mod tests;
