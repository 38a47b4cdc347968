//! A retained checkpoint, from its metadata.

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use super::facts::Fallbacks;
use crate::error::{Error, ErrorKind, Result};
use crate::ids::{CheckpointId, FileId, Owner, SegmentRef};

/// A retained checkpoint, from its metadata.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestoredCheckpoint {
    /// The checkpoint.
    pub id: CheckpointId,
    /// Every segment it needs: its owner, the origin of that owner's state, the reference.
    pub segments: Vec<(Owner, CheckpointId, SegmentRef)>,
}

impl RestoredCheckpoint {
    /// Refuses an impossible checkpoint.
    ///
    /// # Errors
    /// `InvalidInput` when an owner has two origins, or one newer than the checkpoint.
    pub fn check(&self) -> Result<()> {
        let id = self.id;
        let mut origins: HashMap<&Owner, CheckpointId> = HashMap::new();
        for (owner, origin, _) in &self.segments {
            let first = *origins.entry(owner).or_insert(*origin);
            if first != *origin || *origin > id {
                return Err(Error::invalid_input(format!(
                    "restored checkpoint {id} names {origin} as the origin of {owner}: expected one \
                     origin per owner, {id} or older, found {first} and {origin}"
                )));
            }
        }
        Ok(())
    }

    /// The owners that fell back in it.
    pub fn fallbacks(&self) -> Fallbacks {
        let segments = self.segments.iter();
        let older = segments.filter(|(_, origin, _)| *origin != self.id);
        let fallbacks = older.map(|(owner, origin, _)| (owner.clone(), *origin));
        fallbacks.collect()
    }

    /// Requires that every segment of these checkpoints is at `location`.
    pub(crate) fn require_present(
        location: &str,
        checkpoints: &[Self],
        mut is_present: impl FnMut(&Owner, CheckpointId, &SegmentRef) -> bool,
    ) -> Result<()> {
        let (mut missing, mut first) = (0_u64, None);
        for Self { id, segments } in checkpoints {
            for (owner, origin, reference) in segments {
                if !is_present(owner, *origin, reference) {
                    missing += 1;
                    first.get_or_insert_with(|| {
                        format!("{reference} of {owner} in checkpoint {id}")
                    });
                }
            }
        }
        match first {
            None => Ok(()),
            Some(first) => Err(Error::new(
                ErrorKind::NotFound,
                format!(
                    "{location}: {missing} segments of retained checkpoints are missing, first \
                     {first}"
                ),
            )),
        }
    }
}

/// Retained checkpoints: at first only their files are known.
pub struct PostponedCheckpoints {
    /// Least size in bytes of each file that they need, and maybe of others.
    pub files: BTreeMap<FileId, u64>,
    /// The newest one.
    pub newest: Option<CheckpointId>,
    restored: Box<dyn Fn() -> Result<Vec<RestoredCheckpoint>> + Send + Sync>,
}

impl PostponedCheckpoints {
    /// `restored` returns the checkpoints, with segments only in `files`.
    pub fn new(
        files: BTreeMap<FileId, u64>,
        newest: Option<CheckpointId>,
        restored: impl Fn() -> Result<Vec<RestoredCheckpoint>> + Send + Sync + 'static,
    ) -> Self {
        Self {
            files,
            newest,
            restored: Box::new(restored),
        }
    }

    pub(crate) fn restored(&self) -> Result<Vec<RestoredCheckpoint>> {
        (self.restored)()
    }
}

impl fmt::Debug for PostponedCheckpoints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("PostponedCheckpoints");
        shown.field("newest", &self.newest).finish_non_exhaustive()
    }
}
