//! The delta runs of a version, and as much of them as a commit id tells.

use std::fmt;

use crate::error::{Error, Result};
use crate::ids::CheckpointId;

/// Each costs another filter for a key in no run.
pub(crate) const MAX_DELTA_RUNS: usize = 8;

/// `created` of each delta run of a version, oldest first.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct DeltaRuns {
    len: u8,
    /// Zeros after the last one.
    created: [u64; MAX_DELTA_RUNS],
}

impl DeltaRuns {
    /// No delta runs.
    pub const NONE: Self = Self {
        len: 0,
        created: [0; MAX_DELTA_RUNS],
    };

    /// Delta runs that were made for these versions, oldest first.
    ///
    /// # Errors
    /// `Corrupt` for more than 8, or if one is older than the one before.
    pub fn of(created: impl IntoIterator<Item = CheckpointId>) -> Result<Self> {
        created.into_iter().try_fold(Self::NONE, Self::and)
    }

    pub(crate) fn and(mut self, CheckpointId(created): CheckpointId) -> Result<Self> {
        if self.newest().is_some_and(|newest| created < newest.0) {
            return Err(Error::corrupt(
                "delta runs: one is older than the one below",
            ));
        }
        let place = self.created.get_mut(usize::from(self.len)).ok_or_else(|| {
            Error::corrupt(format!("delta runs: expected at most {MAX_DELTA_RUNS}"))
        })?;
        *place = created;
        self.len += 1;
        Ok(self)
    }

    pub(crate) fn oldest(self, len: usize) -> Self {
        Self::of(self.iter().take(len)).unwrap_or(Self::NONE)
    }

    /// Number of runs.
    pub fn len(&self) -> usize {
        usize::from(self.len)
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The last one.
    pub fn newest(&self) -> Option<CheckpointId> {
        self.iter().last()
    }

    /// Their marks, above the base image that was made for `floor`.
    pub fn marks(&self, floor: CheckpointId) -> DeltaMarks {
        let Some(newest) = self.newest() else {
            return DeltaMarks::NONE;
        };
        let marks = self.iter().chain([floor]).map(mark);
        DeltaMarks {
            len: self.len,
            newest,
            marks: marks.fold(0, |all, one| all | one),
        }
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = CheckpointId> {
        let created = self.created.iter().take(self.len());
        created.map(|created| CheckpointId(*created))
    }
}

/// Says which segments were merged into the runs of a version, in fewer bytes than a list of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DeltaMarks {
    pub(super) len: u8,
    pub(super) newest: CheckpointId,
    /// A bit for each run. Of other runs, a fifth at most have the bit of one.
    pub(super) marks: u64,
}

/// Bits of [`DeltaMarks`].
pub(super) const MARKS: u32 = 40;

impl DeltaMarks {
    /// Without delta runs.
    pub const NONE: Self = Self {
        len: 0,
        newest: CheckpointId(0),
        marks: 0,
    };

    /// Number of delta runs.
    pub fn len(&self) -> usize {
        usize::from(self.len)
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Older segments were merged, except the runs of the version. The newest delta run may be
    /// newer. 0 without delta runs.
    pub fn newest(&self) -> CheckpointId {
        self.newest
    }

    /// Returns true for `created` of each run of the version, also of the base image.
    pub fn may_have(&self, created: CheckpointId) -> bool {
        self.marks & mark(created) != 0
    }
}

/// Versions that are close get different bits: a multiplicative hash by the golden ratio.
fn mark(CheckpointId(created): CheckpointId) -> u64 {
    let hash = created.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    1 << ((u128::from(hash) * u128::from(MARKS)) >> 64)
}

impl fmt::Debug for DeltaRuns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}
