//! Reclaims files that no manager looks after: those of dead executors, and, for the state store
//! plugin, every file whose checkpoints the driver stopped retaining.
//!
//! Everything is classified before anything is deleted, and protection wins: what is unknown,
//! unreadable or damaged stays and is reported.

mod index_cache;
mod reclaim;

use std::sync::Arc;

use crate::ids::{CheckpointId, FileId, Owner, Term};

pub use index_cache::IndexCache;
pub use reclaim::{ReclaimReport, reclaim};

/// What is known about a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileFacts {
    /// The file.
    pub file: FileId,
    /// It has a footer, so nobody appends to it.
    pub sealed: bool,
    /// Part of it does not verify, so there may be more segments than are listed.
    pub damaged: bool,
    /// Its size.
    pub physical_bytes: u64,
    /// Its segments, as far as they are known. Shared: facts are kept from pass to pass.
    pub segments: Arc<[SegmentFacts]>,
}

/// What is known about a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentFacts {
    /// Whose it is.
    pub owner: Arc<Owner>,
    /// Checkpoint it was written for.
    pub created: CheckpointId,
    /// Its stored size in bytes.
    pub len: u64,
}

/// Space taken by closed files, and who wastes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// Bytes of all closed files.
    pub physical_bytes: u64,
    /// Bytes of their segments that a retained checkpoint needs.
    pub needed_bytes: u64,
    /// The most wasteful files, as many as must go to come back below the bound. Owners that are
    /// still at work free them by writing what they need from them again.
    pub wasteful: Vec<FileId>,
}

impl Space {
    /// Bytes that nobody needs and that stay because of others in the same file.
    pub fn pinned_bytes(&self) -> u64 {
        self.physical_bytes.saturating_sub(self.needed_bytes)
    }
}

/// The files that may go: nobody appends to them (they are sealed, or the holder of their term is
/// gone), and every segment is older than the oldest checkpoint its owner still needs.
///
/// `floor_of` tells that checkpoint of an owner; an owner without one keeps its files. `may_append`
/// tells whether the holder of a term may still append.
///
/// ```
/// use holdfast_core::gc::{FileFacts, SegmentFacts, plan};
/// use holdfast_core::{CheckpointId, FileId, Owner, Term};
/// let owner = Owner::new("", "0", "7", "default");
/// let file = FileId { term: Term(1), seq: 1 };
/// let segments = [SegmentFacts { owner: owner.into(), created: CheckpointId(4), len: 100 }].into();
/// let facts = FileFacts { file, sealed: true, damaged: false, physical_bytes: 200, segments };
/// let floor = |id| move |_: &Owner| Some(CheckpointId(id));
/// let nobody = |_| false;
/// assert_eq!(plan(&[facts.clone()], &floor(4), &nobody), []);
/// assert_eq!(plan(&[facts], &floor(5), &nobody), [file]);
/// ```
pub fn plan(
    files: &[FileFacts],
    floor_of: &dyn Fn(&Owner) -> Option<CheckpointId>,
    may_append: &dyn Fn(Term) -> bool,
) -> Vec<FileId> {
    let may_go = |facts: &&FileFacts| {
        is_closed(facts, may_append)
            && !facts.damaged
            && !facts
                .segments
                .iter()
                .any(|segment| is_needed(segment, floor_of))
    };
    files
        .iter()
        .filter(may_go)
        .map(|facts| facts.file)
        .collect()
}

/// The space that `files`, all of which stay, take beyond what is needed. `max_space_amplification`
/// is the bound on physical bytes divided by needed ones.
pub fn space(
    files: &[FileFacts],
    floor_of: &dyn Fn(&Owner) -> Option<CheckpointId>,
    may_append: &dyn Fn(Term) -> bool,
    max_space_amplification: f64,
) -> Space {
    let closed = files
        .iter()
        .filter(|facts| is_closed(facts, may_append) && !facts.damaged);
    let mut by_waste: Vec<(u64, u64, FileId)> = closed
        .map(|facts| {
            let needed = facts.segments.iter().filter(|s| is_needed(s, floor_of));
            let needed: u64 = needed.map(|segment| segment.len).sum();
            (facts.physical_bytes, needed, facts.file)
        })
        .collect();
    let physical_bytes = by_waste.iter().map(|(physical, ..)| physical).sum();
    let needed_bytes = by_waste.iter().map(|(_, needed, _)| needed).sum();
    by_waste.sort_by_key(|(physical, needed, file)| {
        (std::cmp::Reverse(physical.saturating_sub(*needed)), *file)
    });
    let goal = needed_bytes as f64 * max_space_amplification;
    let mut left = physical_bytes;
    let mut wasteful = Vec::new();
    for (physical, needed, file) in by_waste {
        if left as f64 <= goal || physical as f64 <= needed as f64 * max_space_amplification {
            break;
        }
        // What is needed of it is written again elsewhere.
        left -= physical.saturating_sub(needed);
        wasteful.push(file);
    }
    Space {
        physical_bytes,
        needed_bytes,
        wasteful,
    }
}

fn is_closed(facts: &FileFacts, may_append: &dyn Fn(Term) -> bool) -> bool {
    facts.sealed || !may_append(facts.file.term)
}

fn is_needed(segment: &SegmentFacts, floor_of: &dyn Fn(&Owner) -> Option<CheckpointId>) -> bool {
    floor_of(&segment.owner).is_none_or(|floor| segment.created >= floor)
}
