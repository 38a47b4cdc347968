//! When the delta runs of a version were made, as small as a commit id needs it.

use std::fmt;

use crate::error::{Error, Result};
use crate::ids::CheckpointId;

/// The most that a version has above its base image. Every one is a filter more for a key that is in
/// none, and 8 bytes in every commit id.
pub(super) const MAX_DELTA_RUNS: usize = 8;

/// `created` of each delta run of a version, oldest first.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct DeltaRuns {
    len: u8,
    /// Those behind the last one are 0.
    created: [u64; MAX_DELTA_RUNS],
}

impl DeltaRuns {
    /// Of a version that has none.
    pub const NONE: Self = Self {
        len: 0,
        created: [0; MAX_DELTA_RUNS],
    };

    /// Those made for these versions, oldest first.
    ///
    /// # Errors
    /// `Corrupt` for more than there may be, or where one is older than the one before.
    pub fn of(created: impl IntoIterator<Item = CheckpointId>) -> Result<Self> {
        created.into_iter().try_fold(Self::NONE, Self::and)
    }

    /// These, and one above them.
    ///
    /// # Errors
    /// As [`DeltaRuns::of`].
    pub(super) fn and(mut self, CheckpointId(created): CheckpointId) -> Result<Self> {
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

    /// The oldest `len` of them.
    pub(super) fn oldest(self, len: usize) -> Self {
        let mut left = Self::NONE;
        for (to, from) in left.created.iter_mut().zip(self.iter()).take(len) {
            *to = from.0;
            left.len += 1;
        }
        left
    }

    /// Number of runs.
    pub fn len(&self) -> usize {
        usize::from(self.len)
    }

    /// There are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The last one.
    pub fn newest(&self) -> Option<CheckpointId> {
        self.iter().last()
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = CheckpointId> {
        let created = self.created.iter().take(self.len());
        created.map(|created| CheckpointId(*created))
    }
}

impl fmt::Debug for DeltaRuns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}
