//! A driver's facts from the commit log and from leases.

use std::collections::HashMap;

use super::floors::Floors;
use super::rule::{Evidence, ListedKind};
use crate::error::Result;
use crate::ids::{CheckpointId, Owner, OwnerTag};
use crate::leases::Lease;
use crate::state::VersionId;

/// The versions of a lease. Its live set of a store is `[floor, version]`, so a lease keeps nothing
/// that was written later.
#[derive(Debug, Default)]
pub struct Leased {
    floors: Floors,
    versions: HashMap<OwnerTag, CheckpointId>,
}

impl Leased {
    /// The versions that a lease keeps.
    ///
    /// # Errors
    /// Errors of [`Lease::versions`].
    pub fn of(lease: &Lease) -> Result<Self> {
        let mut leased = Self::default();
        for (partition, id) in lease.versions()? {
            leased.add_version(&partition, &id);
        }
        Ok(leased)
    }

    /// Adds a store, see [`Floors::add_version`].
    pub fn add_version(&mut self, partition: &str, id: &VersionId) {
        self.floors.add_version(partition, id);
        let version = CheckpointId(id.state.version);
        let known = self.versions.entry(id.state.owner).or_insert(version);
        *known = version.max(*known);
    }

    fn needs(&self, owner: &Owner, created: CheckpointId, kind: ListedKind) -> bool {
        let version = self.versions.get(&owner.tag());
        version.is_some_and(|version| created <= *version)
            && needs(&self.floors, owner, created, kind)
    }
}

fn needs(floors: &Floors, owner: &Owner, created: CheckpointId, kind: ListedKind) -> bool {
    let decided = floors.decides(owner, created, kind);
    decided.unwrap_or_else(|| floors.is_needed(owner, created, created))
}

/// The oldest retained entry and all leases. A segment lives if one of them needs it.
///
/// ```
/// use holdfast_core::liveness::{Evidence, Floors, Leased, ListedKind, Needed};
/// use holdfast_core::state::{CommitId, DeltaMarks, VersionId};
/// use holdfast_core::{CheckpointId, Owner};
/// let owner = Owner::new("", "0", "7", "default");
/// let at = |version| VersionId::from(CommitId {
///     version,
///     floor: CheckpointId(version),
///     deltas: DeltaMarks::NONE,
///     owner: owner.tag(),
///     segment: None,
///     replaced: None,
/// });
/// let (mut oldest, mut lease) = (Floors::default(), Leased::default());
/// oldest.add_version("0/7", &at(9));
/// lease.add_version("0/7", &at(4));
/// let needed = Needed { oldest, leases: vec![lease] };
/// let kept = (3..=9).filter(|created| {
///     needed.decides(&owner, CheckpointId(*created), ListedKind::Other) == Some(true)
/// });
/// assert_eq!(kept.collect::<Vec<_>>(), [4, 9]);
/// ```
#[derive(Debug, Default)]
pub struct Needed {
    /// The oldest retained entry of the commit log.
    pub oldest: Floors,
    /// All leases.
    pub leases: Vec<Leased>,
}

impl Evidence for Needed {
    fn is_open(&self, attempt: CheckpointId) -> bool {
        self.oldest.is_open(attempt)
    }

    fn is_needed(&self, owner: &Owner, first: CheckpointId, last: CheckpointId) -> bool {
        self.oldest.is_needed(owner, first, last)
    }

    fn decides(&self, owner: &Owner, created: CheckpointId, kind: ListedKind) -> Option<bool> {
        let leased = self
            .leases
            .iter()
            .any(|lease| lease.needs(owner, created, kind));
        Some(leased || needs(&self.oldest, owner, created, kind))
    }
}
