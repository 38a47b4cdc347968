//! The certain knowledge of the coordinator: the model that the manager is compared with.

use std::collections::{BTreeMap, BTreeSet};

use holdfast_core::manager::{Fallbacks, RestoredCheckpoint, Retained};
use holdfast_core::{CheckpointId, Owner, SegmentRef};

/// State of one owner in a checkpoint.
#[derive(Clone, Debug, Default)]
pub struct OwnerState {
    pub origin: u64,
    pub segments: Vec<SegmentRef>,
}

#[derive(Clone, Debug)]
pub struct Written {
    pub owner: usize,
    pub payload: Vec<u8>,
}

/// Checkpoints as the coordinator published them, and everything that was ever written.
#[derive(Debug, Default)]
pub struct Truth {
    pub owners: Vec<Owner>,
    pub decided: u64,
    pub retained: BTreeMap<u64, Vec<OwnerState>>,
    pub written: BTreeMap<SegmentRef, Written>,
    /// `[created, last_used]` of each segment this incarnation of the manager can know.
    intervals: BTreeMap<SegmentRef, (u64, u64)>,
    leases: BTreeMap<(usize, u64), BTreeSet<SegmentRef>>,
}

impl Truth {
    pub fn new(owners: Vec<Owner>) -> Self {
        Self {
            owners,
            ..Self::default()
        }
    }

    pub fn wrote(&mut self, owner: usize, created: u64, reference: SegmentRef, payload: Vec<u8>) {
        self.written.insert(reference, Written { owner, payload });
        self.intervals.insert(reference, (created, created));
    }

    pub fn leased(&mut self, owner: usize, attempt: u64, reference: SegmentRef) {
        self.leases
            .entry((owner, attempt))
            .or_default()
            .insert(reference);
    }

    /// Publishes a checkpoint. A lease is confirmed where the owner contributed, whether the
    /// segment ended up in its acknowledgement or not: the manager cannot know.
    pub fn publish(&mut self, id: u64, states: Vec<OwnerState>) {
        for (owner, state) in states.iter().enumerate() {
            let leased = self.leases.remove(&(owner, id)).unwrap_or_default();
            for reference in leased.into_iter().filter(|_| state.origin == id) {
                if let Some((_, last_used)) = self.intervals.get_mut(&reference) {
                    *last_used = (*last_used).max(id);
                }
            }
        }
        self.retained.insert(id, states);
        self.decided = id;
    }

    /// A new manager knows only what restore tells it: the origins that use a segment.
    pub fn restarted(&mut self) {
        self.leases.clear();
        self.intervals.clear();
        for state in self.retained.values().flatten() {
            for reference in &state.segments {
                let interval = self
                    .intervals
                    .entry(*reference)
                    .or_insert((state.origin, state.origin));
                interval.0 = interval.0.min(state.origin);
                interval.1 = interval.1.max(state.origin);
            }
        }
    }

    /// The absolute view that messages carry.
    pub fn view(&self) -> Retained {
        let checkpoints = self.retained.iter();
        Retained {
            decided: CheckpointId(self.decided),
            checkpoints: checkpoints
                .map(|(id, _)| (CheckpointId(*id), self.fallbacks(*id)))
                .collect(),
        }
    }

    pub fn fallbacks(&self, id: u64) -> Fallbacks {
        let states = self.retained.get(&id).into_iter().flatten();
        self.owners
            .iter()
            .zip(states)
            .filter(|(_, state)| state.origin != id)
            .map(|(owner, state)| (owner.clone(), CheckpointId(state.origin)))
            .collect()
    }

    pub fn restored(&self) -> Vec<RestoredCheckpoint> {
        let restored = |(id, states): (&u64, &Vec<OwnerState>)| {
            let owners = self.owners.iter().zip(states);
            let segments = owners.flat_map(|(owner, state)| {
                let origin = CheckpointId(state.origin);
                state
                    .segments
                    .iter()
                    .map(move |reference| (owner.clone(), origin, *reference))
            });
            RestoredCheckpoint {
                id: CheckpointId(*id),
                segments: segments.collect(),
            }
        };
        self.retained.iter().map(restored).collect()
    }

    /// The state of the owner in the newest checkpoint, on which it builds.
    pub fn base(&self, owner: usize) -> Option<&OwnerState> {
        self.retained.last_key_value()?.1.get(owner)
    }

    /// Segments of retained checkpoints.
    pub fn needed(&self) -> BTreeSet<SegmentRef> {
        let states = self.retained.values().flatten();
        states
            .flat_map(|state| state.segments.iter().copied())
            .collect()
    }

    /// The interval over-approximation, exactly: a segment that no retained checkpoint references
    /// may be kept iff some origin in its owner's live set is in `[created, last_used]`, where
    /// `last_used` is the newest checkpoint whose attempt leased it and to which the owner
    /// contributed. That is: it was skipped and reused later, written or leased by a task that was
    /// run again, or refused after its attempt was decided.
    pub fn explained(&self, reference: &SegmentRef) -> bool {
        let Some(written) = self.written.get(reference) else {
            return false;
        };
        let Some((created, last_used)) = self.intervals.get(reference) else {
            return false;
        };
        let states = self
            .retained
            .values()
            .filter_map(|states| states.get(written.owner));
        states
            .map(|state| state.origin)
            .any(|origin| (*created..=*last_used).contains(&origin))
    }
}
