//! Groups of the keys of a partition.

use serde::{Deserialize, Serialize};

/// A group with so many bits is one key, almost always, and is not divided.
const BITS_MAX: u32 = 16;
/// If so many groups wait, none is divided: so many keys do not fail by themselves.
const GROUPS_MAX: usize = 64;

/// Groups of keys of a partition, in the order in which they are tried. No key is in two of them.
///
/// A key belongs to groups by its hash without the part that chose the partition. Group 1 has all
/// keys, 2 and 3 have the keys whose last bit is 0 and 1, and so on. The bits after the highest one
/// of a group's number are the last bits of its keys.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Groups(Vec<u32>);

impl Groups {
    /// These groups.
    pub fn new(groups: impl Into<Vec<u32>>) -> Self {
        Self(groups.into())
    }

    /// The group of all keys.
    pub fn all() -> Self {
        Self(vec![1])
    }

    /// Number of groups.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether there is no group, and so no key.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The share of all keys that is in these groups.
    pub fn share(&self) -> f64 {
        self.0
            .iter()
            .map(|group| 1.0 / f64::from(bit(*group)))
            .sum()
    }

    /// Returns whether each key is in one of these groups.
    pub fn has_all_keys(&self) -> bool {
        self.share() >= 1.0
    }

    /// Returns whether the key with this hash is in one of these groups.
    pub fn has(&self, hash: u32) -> bool {
        let mut groups = self.0.iter();
        groups.any(|group| (hash & (bit(*group) - 1) | bit(*group)) == *group)
    }

    /// The groups that wait while the first one is tried.
    pub fn without_first(&self) -> Self {
        Self(self.0.iter().skip(1).copied().collect())
    }

    /// The groups after the first one was tried and failed: its halves come last.
    pub fn divided(&self) -> Self {
        let mut next = self.without_first();
        if let Some(tried) = self.0.first() {
            let bit = bit(*tried);
            if bit < 1 << BITS_MAX && self.len() < GROUPS_MAX {
                next.0.extend([tried + bit, tried + 2 * bit]);
            } else {
                next.0.push(*tried);
            }
        }
        next
    }
}

fn bit(group: u32) -> u32 {
    1 << group.checked_ilog2().unwrap_or(0)
}
