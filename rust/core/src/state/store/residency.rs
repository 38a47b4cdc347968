//! The place of a store's keys, in memory or in runs, and the decision about it.

use std::sync::Arc;

use crate::ids::SegmentRef;
use crate::state::content::hydration::Progress;
use crate::state::runs::stack::OpenRun;

#[derive(Debug, Default)]
pub(crate) struct Residency {
    /// The runs that the next session moves to, and their version.
    pub next: Option<(Vec<Arc<OpenRun>>, u64)>,
    pub hydration: Progress,
    /// A session has read a block for a key since another caller last asked for work.
    pub session_reads: bool,
    /// The newest of the runs that the store last considered to lie over.
    pub looked_at: Option<SegmentRef>,
    /// The store was opened, or began a session, since the last maintenance.
    pub is_used: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct RunFacts {
    pub newest: Option<SegmentRef>,
    /// The newest of the runs that the store lies over.
    pub below: Option<SegmentRef>,
    pub looked_at: Option<SegmentRef>,
    pub is_short: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Stay,
    /// It moves to these. Files of the old runs go with the last batch that needs them.
    Follow(SegmentRef),
    /// It is loaded again over these, so that their keys leave memory.
    Leave(SegmentRef),
}

pub(crate) fn next(facts: &RunFacts) -> Step {
    match facts.newest {
        Some(_) if [facts.below, facts.looked_at].contains(&facts.newest) => Step::Stay,
        Some(newest) if facts.below.is_some() => Step::Follow(newest),
        Some(newest) if facts.is_short => Step::Leave(newest),
        _ => Step::Stay,
    }
}

#[cfg(test)]
#[path = "residency_tests.rs"]
mod tests;
