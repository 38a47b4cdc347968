//! The delta runs of a version, as small as a commit id needs them.

use std::fmt;

use crate::error::{Error, Result};
use crate::ids::CheckpointId;

/// Each costs another filter for a key in no run, and 8 bytes in every commit id.
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
