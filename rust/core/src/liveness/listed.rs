//! Judges files from outside their managers: the files to delete, and the space of the others.

use std::sync::Arc;

use super::rule::{Evidence, ListedKind, is_live};
use super::space::{ClosedFile, wasteful};
use crate::ids::{CheckpointId, FileId, Owner, Term};

/// Facts about a file, from its index or from the checkpoints that refer to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedFile {
    /// The file.
    pub file: FileId,
    /// It has a footer, so it takes no more appends.
    pub sealed: bool,
    /// A part does not verify, so there may be further segments.
    pub damaged: bool,
    /// Its size.
    pub physical_bytes: u64,
    /// Its known segments. Shared, because facts are kept from pass to pass.
    pub segments: Arc<[ListedSegment]>,
}

/// Facts about a segment from outside its manager: [`SegmentFacts`](super::SegmentFacts) with
/// `last_used = created` and without leases. Small, because a driver keeps many.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedSegment {
    /// Its owner.
    pub owner: Arc<Owner>,
    /// Checkpoint it was written for.
    pub created: CheckpointId,
    /// Its stored size in bytes.
    pub len: u64,
    /// Only the part that the rule needs.
    pub kind: ListedKind,
}

/// Space of closed files, and the files that waste it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClosedSpace {
    /// Bytes of all closed files.
    pub physical_bytes: u64,
    /// Bytes of their segments that a retained checkpoint needs.
    pub needed_bytes: u64,
    /// The most wasteful files, as many as must go to reach the bound. Owners at work free them by
    /// writing the segments that they need again.
    pub wasteful: Vec<FileId>,
}

impl ClosedSpace {
    /// Bytes that no checkpoint needs, but that stay because of others in the same file.
    pub fn pinned_bytes(&self) -> u64 {
        self.physical_bytes.saturating_sub(self.needed_bytes)
    }
}

/// The verdict on all files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SortedOut {
    /// Files that may go.
    pub going: Vec<ListedFile>,
    /// All others.
    pub staying: Vec<ListedFile>,
    /// Space of the closed files in `staying`.
    pub space: ClosedSpace,
}

/// Decides which files may go: closed files without a segment that is needed. A file is closed if
/// it is sealed, or the holder of its term is gone. A damaged file stays.
///
/// `may_append` tells whether the holder of a term may still append. `max_space_amplification`
/// bounds the bytes of closed files, divided by the needed bytes in them.
///
/// ```
/// use holdfast_core::liveness::{Floors, ListedFile, ListedKind, ListedSegment, sort_out};
/// use holdfast_core::state::DeltaMarks;
/// use holdfast_core::{CheckpointId, FileId, Owner, Term};
/// let owner = Owner::new("", "0", "7", "default");
/// let file = FileId { term: Term(1), seq: 1 };
/// let created = CheckpointId(4);
/// let segments = [ListedSegment {
///     owner: owner.clone().into(),
///     created,
///     len: 100,
///     kind: ListedKind::Other,
/// }];
/// let segments = segments.into();
/// let facts = ListedFile { file, sealed: true, damaged: false, physical_bytes: 200, segments };
/// for (floor, going) in [(4, false), (5, true)] {
///     let mut floors = Floors::default();
///     floors.add(owner.tag(), CheckpointId(floor), DeltaMarks::NONE);
///     let sorted = sort_out(vec![facts.clone()], &floors, &|_| false, 2.0);
///     assert_eq!(sorted.going.len() == 1, going);
/// }
/// ```
pub fn sort_out(
    files: Vec<ListedFile>,
    evidence: &dyn Evidence,
    may_append: &dyn Fn(Term) -> bool,
    max_space_amplification: f64,
) -> SortedOut {
    let mut sorted = SortedOut::default();
    let mut closed = Vec::new();
    for facts in files {
        let is_closed = facts.sealed || !may_append(facts.file.term);
        if !is_closed || facts.damaged {
            sorted.staying.push(facts);
            continue;
        }
        let Some(live_bytes) = needed_bytes(&facts, evidence) else {
            sorted.going.push(facts);
            continue;
        };
        closed.push(ClosedFile {
            file: facts.file,
            physical_bytes: facts.physical_bytes,
            live_bytes,
        });
        sorted.staying.push(facts);
    }
    let space = &mut sorted.space;
    space.physical_bytes = closed.iter().map(|file| file.physical_bytes).sum();
    space.needed_bytes = closed.iter().map(|file| file.live_bytes).sum();
    let goal = space.needed_bytes as f64 * max_space_amplification;
    space.wasteful = wasteful(closed, space.physical_bytes, goal, max_space_amplification);
    sorted
}

/// Bytes of the needed segments; `None` if none is needed.
fn needed_bytes(facts: &ListedFile, evidence: &dyn Evidence) -> Option<u64> {
    let segments = facts.segments.iter();
    let needed = segments.filter(|s| {
        let decided = evidence.decides(&s.owner, s.created, s.kind);
        decided.unwrap_or_else(|| is_live(evidence, &s.owner, s.created, s.created))
    });
    needed.map(|s| s.len).reduce(|sum, len| sum + len)
}
