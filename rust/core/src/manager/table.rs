//! A table of a region that is open, and the checkpoints that it belongs to.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::error::{Error, ErrorKind, Result};
use crate::ids::{CheckpointId, Owner, SegmentRef};
use crate::liveness::Ledger;
use crate::state::{MergedRun, SharedStore};

#[derive(Debug)]
pub(super) struct Table {
    pub owner: Owner,
    pub store: SharedStore,
    /// The session that may use it. Changes only under the lock of the store.
    pub session: AtomicU64,
    /// Its keys are hydrated during attempts.
    pub hydrates: AtomicBool,
    pub place: Mutex<Place>,
}

#[derive(Debug)]
pub(super) struct Place {
    pub attempt: CheckpointId,
    /// Version that it was opened at.
    pub base: u64,
    pub held: BTreeSet<SegmentRef>,
    pub merge: Merge,
}

#[derive(Debug, Default)]
pub(super) enum Merge {
    #[default]
    None,
    /// It waits or runs.
    Running,
    /// Its run is durable and held. The next commit with changes builds on it.
    Done(MergedRun),
}

impl Table {
    pub fn check(&self, session: u64) -> Result<()> {
        if self.session.load(Ordering::Relaxed) == session {
            return Ok(());
        }
        Err(ended())
    }

    pub fn let_go(&self, ledger: &mut Ledger) {
        let mut place = self.place.lock();
        place.merge = Merge::None;
        let held = std::mem::take(&mut place.held);
        held.iter().for_each(|segment| ledger.let_go(segment));
    }
}

pub(super) fn ended() -> Error {
    Error::new(
        ErrorKind::AttemptEnded,
        "this session of a table has ended: it was committed or closed, or a later attempt opened \
         the table",
    )
}
