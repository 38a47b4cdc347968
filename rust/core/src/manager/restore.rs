//! After a restart: making the segments of retained checkpoints known, sweeping the rest.

use std::collections::BTreeMap;

use super::snapshot_manager::SnapshotManager;
use crate::error::{Error, ErrorKind, Result};
use crate::format::{read_any_head, read_sealed_index};
use crate::ids::{FileId, Owner, SegmentRef};
use crate::liveness::{FileFacts, Occasion, RestoredCheckpoint};

impl SnapshotManager {
    /// Makes the segments of retained checkpoints known: after a restart with all of them, or in a
    /// running manager when a region is restored. Any number of times. Files tell whose the segments
    /// are that this manager did not know.
    ///
    /// # Errors
    /// `InvalidInput`, and nothing is changed, when a segment is named as the state of another owner
    /// than the one it was written for, or an owner has two origins in one checkpoint, or one newer
    /// than the checkpoint. `Fenced` when a newer manager took the folder over. Those of listing and
    /// of reading indexes; `NotFound` when segments are missing (everything else is known then
    /// nevertheless, so the states of other owners can be read and are not swept).
    pub fn restore(&self, checkpoints: &[RestoredCheckpoint]) -> Result<()> {
        self.check_ours()?;
        checkpoints.iter().try_for_each(RestoredCheckpoint::check)?;
        self.check_owners(checkpoints)?;
        let sizes: BTreeMap<FileId, u64> = self
            .storage
            .list()?
            .into_iter()
            .filter_map(|object| Some((FileId::parse(&object.name)?, object.len)))
            .collect();
        let present = {
            let mut registry = self.shared.registry.lock();
            registry.restored = true;
            for checkpoint in checkpoints {
                let fallbacks = checkpoint.fallbacks();
                registry.ledger.restore_checkpoint(checkpoint.id, fallbacks);
            }
            let location = self.storage.location();
            let ledger = &mut registry.ledger;
            RestoredCheckpoint::require_present(
                &location,
                checkpoints,
                |owner, origin, reference| {
                    let end = reference.offset.saturating_add(reference.len);
                    let size = sizes.get(&reference.file).copied();
                    if let Some(size) = size {
                        ledger.add_file(reference.file, FileFacts::found(size));
                    }
                    size.is_some_and(|size| end <= size) && ledger.restore(owner, origin, reference)
                },
            )
        };
        self.upkeep.settle(Occasion::Message);
        present
    }

    /// Refuses owners that name segments of others: the live sets of the wrong ones would decide
    /// about them.
    fn check_owners(&self, checkpoints: &[RestoredCheckpoint]) -> Result<()> {
        let mut claims: BTreeMap<&SegmentRef, &Owner> = BTreeMap::new();
        for (owner, _, reference) in checkpoints.iter().flat_map(|one| &one.segments) {
            let first = claims.insert(reference, owner);
            if let Some(first) = first.filter(|first| *first != owner) {
                return Err(not_of(reference, owner, first));
            }
        }
        let mut unknown: BTreeMap<FileId, Vec<(&SegmentRef, &Owner)>> = BTreeMap::new();
        {
            let registry = self.shared.registry.lock();
            for (reference, owner) in claims {
                let known = registry.ledger.segment(reference);
                match known.map(|segment| &*segment.owner) {
                    Some(known) if known == owner => {}
                    Some(known) => return Err(not_of(reference, owner, known)),
                    None => unknown
                        .entry(reference.file)
                        .or_default()
                        .push((reference, owner)),
                }
            }
        }
        for (file, claims) in unknown {
            self.check_owners_in(file, &claims)?;
        }
        Ok(())
    }

    /// As [`Self::check_owners`], by what the file says. One that cannot say it is left to those
    /// who read its segments.
    fn check_owners_in(&self, file: FileId, claims: &[(&SegmentRef, &Owner)]) -> Result<()> {
        let index = match read_sealed_index(self.storage.as_ref(), file) {
            Err(e) if e.kind() == ErrorKind::Storage => return Err(e),
            index => index.ok().flatten(),
        };
        let listed: Option<BTreeMap<SegmentRef, Owner>> = index.map(|index| {
            let entries = index.segments.into_iter();
            entries
                .map(|entry| (entry.reference, entry.owner))
                .collect()
        });
        for (reference, owner) in claims {
            let found = match &listed {
                Some(listed) => listed.get(reference).cloned(),
                None => match read_any_head(self.storage.as_ref(), reference) {
                    Err(e) if e.kind() == ErrorKind::Storage => return Err(e),
                    head => head.ok().map(|head| head.owner),
                },
            };
            if let Some(found) = found.filter(|found| found != *owner) {
                return Err(not_of(reference, owner, &found));
            }
        }
        Ok(())
    }

    /// Deletes the files of older terms that no restored checkpoint references. Returns how many
    /// were found; those that cannot be deleted now are tried again at the next message.
    ///
    /// # Errors
    /// `InvalidInput` before `restore` was called, if only with an empty list: nothing would be
    /// known to be needed. `Fenced` when a newer manager took the folder over. Else those of listing.
    pub fn sweep(&self) -> Result<u64> {
        self.check_ours()?;
        let objects = self.storage.list()?;
        let found = {
            let mut registry = self.shared.registry.lock();
            if !registry.restored {
                return Err(Error::invalid_input(
                    "sweep before restore would delete everything",
                ));
            }
            let found = objects
                .iter()
                .filter_map(|object| Some((FileId::parse(&object.name)?, object.len)))
                // A claim is deleted by the manager that takes the folder over, and by nothing else.
                .filter(|(file, _)| file.term < self.term && !file.is_claim())
                .filter(|(file, _)| !registry.ledger.files().contains_key(file))
                .collect::<Vec<_>>();
            for (file, bytes) in &found {
                registry.ledger.add_file(*file, FileFacts::found(*bytes));
            }
            found.len() as u64
        };
        self.upkeep.settle(Occasion::Message);
        self.upkeep.finish();
        Ok(found)
    }
}

fn not_of(reference: &SegmentRef, owner: &Owner, found: &Owner) -> Error {
    Error::invalid_input(format!(
        "segment {reference} is named as state of {owner}, but it is that of {found}"
    ))
}
