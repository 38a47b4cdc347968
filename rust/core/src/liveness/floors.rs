//! What a driver knows from Spark's commit log: how far back each store is needed.

use std::collections::HashMap;

use super::rule::Evidence;
use crate::ids::{CheckpointId, Owner, OwnerTag};

/// The oldest versions that are needed, by store. A floor is the live set `[floor, infinity)`, with
/// nothing open and no lease: a version that a running batch writes is above the floor.
///
/// ```
/// use holdfast_core::liveness::{Evidence, Floors};
/// use holdfast_core::{CheckpointId, Owner};
/// let owner = Owner::new("", "0", "7", "default");
/// let mut floors = Floors::default();
/// floors.add("0/7", Some(owner.tag()), CheckpointId(5));
/// assert!(!floors.is_needed(&owner, CheckpointId(4), CheckpointId(4)));
/// assert!(floors.is_needed(&owner, CheckpointId(5), CheckpointId(5)));
/// ```
#[derive(Debug, Default)]
pub struct Floors {
    of_stores: HashMap<OwnerTag, CheckpointId>,
    /// By `operator/partition`, for ids that do not say whose they are: the oldest of the stores of a
    /// partition speaks for all.
    of_partitions: HashMap<String, CheckpointId>,
}

impl Floors {
    /// The oldest retained entry of the commit log needs a store of `partition`
    /// (`operator/partition`) from `floor` on; `owner` says which store, if the entry does.
    pub fn add(&mut self, partition: &str, owner: Option<OwnerTag>, floor: CheckpointId) {
        let known = match owner {
            Some(owner) => self.of_stores.entry(owner).or_insert(floor),
            None => self
                .of_partitions
                .entry(partition.to_owned())
                .or_insert(floor),
        };
        *known = floor.min(*known);
    }

    /// `None` for a store that no entry names: it keeps everything.
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_that_rests_does_not_hold_up_the_others_of_its_partition() {
        let [busy, idle, untold] =
            ["left", "right", "none"].map(|store| Owner::new("", "0", "7", store));
        let mut floors = Floors::default();
        floors.add("0/7", Some(busy.tag()), CheckpointId(8));
        floors.add("0/7", Some(idle.tag()), CheckpointId(1));
        assert_eq!(floors.of(&busy), Some(CheckpointId(8)));
        assert_eq!(floors.of(&idle), Some(CheckpointId(1)));
        assert_eq!(floors.of(&untold), None);
    }

    #[test]
    fn of_ids_that_do_not_say_whose_they_are_the_oldest_speaks_for_the_partition() {
        let mut floors = Floors::default();
        for floor in [8, 1, 5] {
            floors.add("0/7", None, CheckpointId(floor));
        }
        let of = |partition| floors.of(&Owner::new("", "0", partition, "left"));
        assert_eq!(of("7"), Some(CheckpointId(1)));
        assert_eq!(of("8"), None);
    }
}
