//! Reclaims files that no manager looks after: those of dead executors, and, for the state store
//! plugin, every file whose checkpoints the driver stopped retaining.
//!
//! Everything is classified before anything is deleted, and protection wins: what is unknown,
//! unreadable or damaged stays and is reported.

mod reclaim;

use crate::ids::{CheckpointId, FileId, Owner, Term};

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
    /// Owner and checkpoint of each of its segments.
    pub segments: Vec<(Owner, CheckpointId)>,
}

/// The files that may go: nobody appends to them (they are sealed, or the holder of their term is gone), and
/// every segment is older than the oldest checkpoint its owner still needs.
///
/// `floor_of` tells that checkpoint of an owner; an owner without one keeps its files. `may_append`
/// tells whether the holder of a term may still append.
///
/// ```
/// use holdfast_core::gc::{FileFacts, plan};
/// use holdfast_core::{CheckpointId, FileId, Owner, Term};
/// let owner = Owner::new("", "0", "7", "default");
/// let file = FileId { term: Term(1), seq: 1 };
/// let segments = vec![(owner.clone(), CheckpointId(4))];
/// let facts = FileFacts { file, sealed: true, damaged: false, segments };
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
    let unneeded = |(owner, created): &(Owner, CheckpointId)| {
        floor_of(owner).is_some_and(|floor| *created < floor)
    };
    let may_go = |facts: &&FileFacts| {
        let closed = facts.sealed || !may_append(facts.file.term);
        closed && !facts.damaged && facts.segments.iter().all(unneeded)
    };
    files
        .iter()
        .filter(may_go)
        .map(|facts| facts.file)
        .collect()
}
