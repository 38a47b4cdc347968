//! A driver's facts from Spark's commit log: the oldest version of each store that is needed.

use std::collections::{HashMap, HashSet};

use super::rule::{Evidence, ListedKind};
use crate::ids::{CheckpointId, Owner, OwnerTag};
use crate::state::{DeltaMarks, VersionId};

/// The oldest versions that are needed, by store. A floor is the live set `[floor, infinity)`,
/// without open attempts and leases: a running batch writes versions above the floor.
///
/// The floor of a version with delta runs is the floor of its base image, which may be old.
/// Segments that are older than the newest delta run, and no runs of the version, were merged into
/// its runs. Later versions have the same runs, or newer ones. Commit ids only mark the runs, so a
/// few older runs stay until the marks change.
///
/// ```
/// use holdfast_core::liveness::{Evidence, Floors};
/// use holdfast_core::state::DeltaMarks;
/// use holdfast_core::{CheckpointId, Owner};
/// let owner = Owner::new("", "0", "7", "default");
/// let mut floors = Floors::default();
/// floors.add(owner.tag(), CheckpointId(5), DeltaMarks::NONE);
/// assert!(!floors.is_needed(&owner, CheckpointId(4), CheckpointId(4)));
/// assert!(floors.is_needed(&owner, CheckpointId(5), CheckpointId(5)));
/// ```
#[derive(Debug, Default)]
pub struct Floors {
    of_stores: HashMap<OwnerTag, CheckpointId>,
    /// The delta runs of the stores that have some.
    deltas: HashMap<OwnerTag, DeltaMarks>,
    /// The oldest pending input that may be needed, by store.
    pending: HashMap<OwnerTag, CheckpointId>,
    /// Each `operator/partition` that has a version.
    named: HashSet<String>,
    /// By operator, the first version after those that were added.
    later: HashMap<String, CheckpointId>,
}

impl Floors {
    /// Adds a store of the oldest retained entry of the commit log, see [`Floors::add`], and the
    /// rows that are pending in it. No later version waits for rows that an earlier one replayed.
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
    pub fn add(&mut self, owner: OwnerTag, floor: CheckpointId, deltas: DeltaMarks) {
        let known = *self.deltas.entry(owner).or_insert(deltas);
        if known != deltas {
            // Two versions of one store, or two stores, so nothing counts as merged.
            self.deltas.insert(owner, DeltaMarks::NONE);
        }
        let known = self.of_stores.entry(owner).or_insert(floor);
        *known = floor.min(*known);
    }

    /// The floor of a store; `None` if no entry names it: it keeps everything. A partition without
    /// a version of its operator belongs to an older or a later number of partitions.
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
        let deltas = self.deltas.get(&owner.tag())?;
        // A run may have the same version as the newest changelog in it.
        let is_own = kind == ListedKind::Run && deltas.may_have(created);
        (created < deltas.newest() && !is_own).then_some(false)
    }
}

#[cfg(test)]
#[path = "floors_tests.rs"]
mod tests;
