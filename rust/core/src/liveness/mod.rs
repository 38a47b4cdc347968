//! Decides which segments live: facts in, actions out. No storage, no clock, and no counter that a
//! lost message could spoil.
//!
//! The rule: a segment is live iff
//! - `created` is newer than the last decided checkpoint (its attempt is open), or
//! - an open attempt holds a lease on it (it decided to reuse it), or
//! - the live set of its owner intersects `[created, last_used]`.
//!
//! The live set of an owner is the set of origins of its state over all retained checkpoints. So a
//! partially completed checkpoint is no special case. The live set of an owner that fell back has
//! the origin, not the checkpoint's own id: segments of the checkpoint are dead, the origin's live.
//!
//! A closed file goes iff no segment of it is needed. There are two kinds of [`Evidence`] for that:
//! the [`View`] from absolute messages or the metadata of retained checkpoints, and the [`Floors`]
//! from Spark's commit log.
//!
//! [`Ledger`] applies the rule to the segments that a message may change. Debug builds apply it to
//! all after every decision: nothing more may change. [`sort_out`] judges files without managers.

#[cfg(any(test, debug_assertions))]
mod check;
mod facts;
mod floors;
mod leased;
mod ledger;
mod listed;
mod restored;
mod rule;
mod space;
mod view;

pub use facts::{Fallbacks, FileFacts, SegmentFacts};
pub use floors::Floors;
pub use leased::{Leased, Needed};
pub(crate) use ledger::segment_ref;
pub use ledger::{Actions, Ledger, Occasion};
pub use listed::{ClosedSpace, ListedFile, ListedSegment, SortedOut, sort_out};
pub use restored::{PostponedCheckpoints, RestoredCheckpoint};
pub use rule::{Evidence, ListedKind};
pub use view::{Retained, View};

#[cfg(test)]
mod liveness_tests;
