//! A driver's facts from Spark's commit log: the oldest version of each store that is needed.

use std::collections::HashMap;

use super::rule::Evidence;
use crate::ids::{CheckpointId, Owner, OwnerTag};
use crate::state::DeltaRuns;

/// The oldest versions that are needed, by store. A floor is the live set `[floor, infinity)`,
/// without open attempts and leases: a running batch writes versions above the floor.
///
/// The floor of a version with delta runs is that of its base image, which may be old. Segments
/// that are older than the newest delta run, and no runs of the version, were merged into its runs.
/// Later versions have the same runs, or newer ones.
///
/// ```
/// use holdfast_core::liveness::{Evidence, Floors};
/// use holdfast_core::state::DeltaRuns;
/// use holdfast_core::{CheckpointId, Owner};
/// let owner = Owner::new("", "0", "7", "default");
/// let mut floors = Floors::default();
/// floors.add("0/7", Some(owner.tag()), CheckpointId(5), DeltaRuns::NONE);
/// assert!(!floors.is_needed(&owner, CheckpointId(4), CheckpointId(4)));
/// assert!(floors.is_needed(&owner, CheckpointId(5), CheckpointId(5)));
/// ```
#[derive(Debug, Default)]
pub struct Floors {
    of_stores: HashMap<OwnerTag, CheckpointId>,
    /// By `operator/partition`, for ids without an owner: the oldest store of a partition speaks
    /// for all.
    of_partitions: HashMap<String, CheckpointId>,
    /// The delta runs of the stores that have some.
    deltas: HashMap<OwnerTag, DeltaRuns>,
}

impl Floors {
    /// Adds a store of the oldest retained entry of the commit log: it is needed from `floor` on,
    /// with these delta runs. `partition` is `operator/partition`; `owner` is the store, if the
    /// entry names it.
    pub fn add(
        &mut self,
        partition: &str,
        owner: Option<OwnerTag>,
        floor: CheckpointId,
        deltas: DeltaRuns,
    ) {
        if let Some(owner) = owner {
            let known = *self.deltas.entry(owner).or_insert(deltas);
            if known != deltas {
                // Two versions of one store, so nothing counts as merged.
                self.deltas.insert(owner, DeltaRuns::NONE);
            }
        }
        let known = match owner {
            Some(owner) => self.of_stores.entry(owner).or_insert(floor),
            None => self
                .of_partitions
                .entry(partition.to_owned())
                .or_insert(floor),
        };
        *known = floor.min(*known);
    }

    /// The floor of a store. `None` if no entry names it: it keeps everything.
    pub fn of(&self, owner: &Owner) -> Option<CheckpointId> {
        let of_store = self.of_stores.get(&owner.tag());
        of_store.copied().or_else(|| {
            let partition = format!("{}/{}", owner.operator, owner.region);
            self.of_partitions.get(&partition).copied()
        })
    }
}

impl Evidence for Floors {
    fn is_open(&self, _: CheckpointId) -> bool {
        false
    }

    fn is_needed(&self, owner: &Owner, _: CheckpointId, last: CheckpointId) -> bool {
        self.of(owner).is_none_or(|floor| last >= floor)
    }

    fn is_merged(&self, owner: &Owner, created: CheckpointId, is_run: bool) -> bool {
        let (Some(deltas), Some(floor)) = (self.deltas.get(&owner.tag()), self.of(owner)) else {
            return false;
        };
        // A run may have the same version as the newest changelog in it.
        let older = deltas.newest().is_some_and(|newest| created < newest);
        older && !(is_run && (created == floor || deltas.iter().any(|run| run == created)))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::*;

    const NONE: DeltaRuns = DeltaRuns::NONE;

    #[test]
    fn a_store_that_rests_does_not_hold_up_the_others_of_its_partition() {
        let [busy, idle, untold] =
            ["left", "right", "none"].map(|store| Owner::new("", "0", "7", store));
        let mut floors = Floors::default();
        floors.add("0/7", Some(busy.tag()), CheckpointId(8), NONE);
        floors.add("0/7", Some(idle.tag()), CheckpointId(1), NONE);
        assert_eq!(floors.of(&busy), Some(CheckpointId(8)));
        assert_eq!(floors.of(&idle), Some(CheckpointId(1)));
        assert_eq!(floors.of(&untold), None);
    }

    #[test]
    fn of_ids_that_do_not_say_whose_they_are_the_oldest_speaks_for_the_partition() {
        let mut floors = Floors::default();
        for floor in [8, 1, 5] {
            floors.add("0/7", None, CheckpointId(floor), NONE);
        }
        let of = |partition| floors.of(&Owner::new("", "0", partition, "left"));
        assert_eq!(of("7"), Some(CheckpointId(1)));
        assert_eq!(of("8"), None);
    }

    #[test]
    fn what_runs_stand_for_is_not_needed_and_the_runs_are() {
        let [merged, plain] = ["left", "right"].map(|store| Owner::new("", "0", "7", store));
        let deltas = DeltaRuns::of([40, 60].map(CheckpointId)).unwrap();
        let mut floors = Floors::default();
        floors.add("0/7", Some(merged.tag()), CheckpointId(10), deltas);
        floors.add("0/7", Some(plain.tag()), CheckpointId(10), NONE);
        let is_merged = |created, is_run| floors.is_merged(&merged, CheckpointId(created), is_run);
        let runs: Vec<u64> = (0..100)
            .filter(|created| !is_merged(*created, true))
            .collect();
        assert_eq!(runs[..3], [10, 40, 60], "and what later versions may have");
        assert_eq!(runs.len(), 2 + 40);
        let first_changelog = (0..100).find(|created| !is_merged(*created, false));
        assert_eq!(first_changelog, Some(60));
        assert!(!floors.is_merged(&plain, CheckpointId(30), false));

        // Two versions of one store.
        floors.add("0/7", Some(merged.tag()), CheckpointId(10), NONE);
        assert!(!floors.is_merged(&merged, CheckpointId(30), false));
    }
}
