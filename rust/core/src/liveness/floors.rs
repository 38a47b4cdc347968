//! A driver's facts from Spark's commit log: the oldest version of each store that is needed.

use std::collections::{HashMap, HashSet};

use super::rule::{Evidence, ListedKind};
use crate::ids::{CheckpointId, Owner, OwnerTag};
use crate::state::{DeltaRuns, VersionId};

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
/// floors.add(owner.tag(), CheckpointId(5), DeltaRuns::NONE);
/// assert!(!floors.is_needed(&owner, CheckpointId(4), CheckpointId(4)));
/// assert!(floors.is_needed(&owner, CheckpointId(5), CheckpointId(5)));
/// ```
#[derive(Debug, Default)]
pub struct Floors {
    of_stores: HashMap<OwnerTag, CheckpointId>,
    /// The delta runs of the stores that have some.
    deltas: HashMap<OwnerTag, DeltaRuns>,
    /// The oldest pending input that may be needed, by store.
    pending: HashMap<OwnerTag, CheckpointId>,
    /// Each `operator/partition` that has a version.
    named: HashSet<String>,
    /// By operator, the first version behind those that were added.
    later: HashMap<String, CheckpointId>,
}

impl Floors {
    /// Adds a store of the oldest retained entry of the commit log, see [`Floors::add`]. Of the input
    /// that was parked until this version, only what it still waits for is needed: no later version waits
    /// for input that an earlier one had replayed.
    pub fn add_version(&mut self, partition: &str, id: &VersionId) {
        let VersionId { state, .. } = id;
        self.add(state.owner, state.floor, state.deltas);
        self.named.insert(partition.to_owned());
        let operator = partition.split('/').next().unwrap_or_default();
        let later = CheckpointId(state.version + 1);
        let known = self.later.entry(operator.to_owned()).or_insert(later);
        *known = later.max(*known);
        let oldest = CheckpointId(id.pending_since().unwrap_or(state.version + 1));
        let known = self.pending.entry(state.owner).or_insert(oldest);
        *known = oldest.min(*known);
    }

    /// Adds a store of the oldest retained entry: needed from `floor` on, with these delta runs.
    pub fn add(&mut self, owner: OwnerTag, floor: CheckpointId, deltas: DeltaRuns) {
        let known = *self.deltas.entry(owner).or_insert(deltas);
        if known != deltas {
            // Two versions of one store, so nothing counts as merged.
            self.deltas.insert(owner, DeltaRuns::NONE);
        }
        let known = self.of_stores.entry(owner).or_insert(floor);
        *known = floor.min(*known);
    }

    /// The floor of a store. `None` if no entry names it: it keeps everything. A partition that its
    /// operator does not have in this version is one of an older number of partitions, or of a later one.
    pub fn of(&self, owner: &Owner) -> Option<CheckpointId> {
        let of_store = self.of_stores.get(&owner.tag());
        of_store.copied().or_else(|| {
            let partition = format!("{}/{}", owner.operator, owner.region);
            let later = self.later.get(&owner.operator);
            later.filter(|_| !self.named.contains(&partition)).copied()
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

    fn decides(&self, owner: &Owner, created: CheckpointId, kind: ListedKind) -> Option<bool> {
        if kind == ListedKind::PendingInput {
            // It may be older than the content.
            let oldest = self.pending.get(&owner.tag());
            return oldest.map(|oldest| created >= *oldest);
        }
        let (deltas, floor) = (self.deltas.get(&owner.tag())?, self.of(owner)?);
        // A run may have the same version as the newest changelog in it.
        let older = deltas.newest().is_some_and(|newest| created < newest);
        let is_own = created == floor || deltas.iter().any(|run| run == created);
        (older && !(kind == ListedKind::Run && is_own)).then_some(false)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::*;
    use crate::ids::{FileId, SegmentRef, Term};
    use crate::state::{CommitId, Pending};

    const NONE: DeltaRuns = DeltaRuns::NONE;

    #[test]
    fn a_store_that_rests_does_not_hold_up_the_others_of_its_partition() {
        let [busy, idle, untold] =
            ["left", "right", "none"].map(|store| Owner::new("", "0", "7", store));
        let mut floors = Floors::default();
        floors.add(busy.tag(), CheckpointId(8), NONE);
        floors.add(idle.tag(), CheckpointId(1), NONE);
        assert_eq!(floors.of(&busy), Some(CheckpointId(8)));
        assert_eq!(floors.of(&idle), Some(CheckpointId(1)));
        assert_eq!(floors.of(&untold), None);
    }

    #[test]
    fn a_partition_that_its_operator_has_no_more_is_needed_only_if_it_comes_back() {
        let [kept, gone, of_another] = [("0", "6"), ("0", "7"), ("1", "7")]
            .map(|(operator, partition)| Owner::new("", operator, partition, "left"));
        let state = CommitId {
            version: 20,
            floor: CheckpointId(20),
            deltas: NONE,
            owner: kept.tag(),
            segment: None,
            replaced: None,
        };
        let mut floors = Floors::default();
        floors.add_version("0/6", &state.into());
        assert!(!floors.is_needed(&gone, CheckpointId(20), CheckpointId(20)));
        assert!(floors.is_needed(&gone, CheckpointId(21), CheckpointId(21)));
        assert!(floors.is_needed(&of_another, CheckpointId(1), CheckpointId(1)));
        let untold = Owner::new("", "0", "6", "right");
        assert!(floors.is_needed(&untold, CheckpointId(1), CheckpointId(1)));
    }

    #[test]
    fn what_runs_stand_for_is_not_needed_and_the_runs_are() {
        let [merged, plain] = ["left", "right"].map(|store| Owner::new("", "0", "7", store));
        let deltas = DeltaRuns::of([40, 60].map(CheckpointId)).unwrap();
        let mut floors = Floors::default();
        floors.add(merged.tag(), CheckpointId(10), deltas);
        floors.add(plain.tag(), CheckpointId(10), NONE);
        let is_over =
            |created, kind| floors.decides(&merged, CheckpointId(created), kind) == Some(false);
        let runs: Vec<u64> = (0..100)
            .filter(|created| !is_over(*created, ListedKind::Run))
            .collect();
        assert_eq!(runs[..3], [10, 40, 60], "and what later versions may have");
        assert_eq!(runs.len(), 2 + 40);
        let first_changelog = (0..100).find(|created| !is_over(*created, ListedKind::Other));
        assert_eq!(first_changelog, Some(60));
        let of_changelog =
            |floors: &Floors, owner| floors.decides(owner, CheckpointId(30), ListedKind::Other);
        assert_eq!(of_changelog(&floors, &plain), None);

        // Two versions of one store.
        floors.add(merged.tag(), CheckpointId(10), NONE);
        assert_eq!(of_changelog(&floors, &merged), None);
    }

    #[test]
    fn pending_input_is_needed_from_the_oldest_that_the_oldest_version_waits_for() {
        let owner = Owner::new("", "0", "7", "left");
        let file = FileId {
            term: Term(1),
            seq: 1,
        };
        let segment = SegmentRef {
            file,
            offset: 0,
            len: 9,
            digest: 0,
        };
        let state = CommitId {
            version: 20,
            floor: CheckpointId(10),
            deltas: NONE,
            owner: owner.tag(),
            segment: Some(segment),
            replaced: None,
        };
        let input = |version| Pending { version, segment };
        // Input that keys wait for may be older than the content.
        for (pending, oldest) in [(vec![], 21), (vec![input(9), input(20)], 9)] {
            let mut floors = Floors::default();
            let decided = |floors: &Floors, created, kind| {
                floors.decides(&owner, CheckpointId(created), kind)
            };
            floors.add(state.owner, state.floor, state.deltas);
            assert_eq!(decided(&floors, 1, ListedKind::PendingInput), None);
            floors.add_version("0/7", &VersionId { state, pending });
            for created in 0..100 {
                let of_input = decided(&floors, created, ListedKind::PendingInput);
                assert_eq!(of_input, Some(created >= oldest), "{created}");
            }
            assert_eq!(decided(&floors, 1, ListedKind::Other), None);
        }
    }
}
