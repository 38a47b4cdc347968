//! The open session of a store.

use super::position::Position;
use crate::error::Result;
use crate::ids::SegmentRef;
use crate::state::content::journal::Journal;

#[derive(Debug)]
pub(super) struct Session {
    pub journal: Option<Journal>,
    pub spilled: Option<Spilled>,
    /// It has replayed the pending input of the opened version.
    pub replayed: bool,
    /// Blocks that were read before it, for keys that were not in memory.
    pub reads_before: u64,
}

/// The runs of an open session. They have its changes until the newest of them was written.
#[derive(Clone, Debug)]
pub(super) struct Spilled {
    /// The opened version, all of it in runs.
    pub version: Position,
    pub runs: Vec<SegmentRef>,
    /// Bytes that the session wrote so far, before compression.
    pub bytes: u64,
}

impl Spilled {
    pub fn position(&self) -> Result<Position> {
        let mut runs = self.runs.iter();
        runs.try_fold(self.version.clone(), |at, run| at.with_spilled(*run))
    }
}
