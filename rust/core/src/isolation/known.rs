//! The knowledge of a run about all its batches.

use std::collections::BTreeMap;

use super::groups::Groups;
use super::marker::{Marker, Parked};

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Known {
    /// Spark's id of the run, and the checkpoint, for texts.
    pub(super) id: String,
    pub(super) checkpoint: String,
    /// The durable markers, by batch.
    pub(super) markers: BTreeMap<u64, Marker>,
    /// By partition. A restart tries every parked partition at once.
    pub(super) backoffs: BTreeMap<u32, Backoff>,
    /// The log says that a job reads the operator in another shape.
    pub(super) has_warned: bool,
}

/// A parked partition is tried again 1, 2, 4, ... batches (`pause`) after its last try, in `next`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Backoff {
    pub(super) pause: u64,
    pub(super) next: u64,
}

impl Known {
    pub(super) fn last(&self, partition: u32, batch: u64) -> Option<&Parked> {
        let mut before = self.markers.range(..batch).rev();
        before.find_map(|(_, marker)| marker.parked.get(&partition))
    }

    pub(super) fn waits(&self, partition: u32, batch: u64) -> Groups {
        let last = self.last(partition, batch);
        last.map_or_else(Groups::all, |parked| parked.waits.clone())
    }

    /// Tries a partition again `pause` batches after this one; returns the batch.
    pub(super) fn back_off(&mut self, partition: u32, batch: u64, pause: u64) -> u64 {
        let next = batch + pause;
        self.backoffs.insert(partition, Backoff { pause, next });
        next
    }
}
