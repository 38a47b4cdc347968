//! After a restart: learns the segments of retained checkpoints, and sweeps the rest.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::snapshot_manager::SnapshotManager;
use crate::error::{Error, ErrorKind, Result};
use crate::format::{list_files, read_any_head, read_sealed_index};
use crate::ids::{CheckpointId, FileId, Owner, SegmentRef};
use crate::liveness::{FileFacts, Occasion, PostponedCheckpoints, RestoredCheckpoint};

impl SnapshotManager {
    /// Like [`Self::restore`], for all retained checkpoints after a restart. Checks that their
    /// files are there. The manager learns their segments before it takes in the first message, so
    /// a restart takes no longer with more of them. Until then it needs all of these files.
    ///
    /// # Errors
    /// Errors of [`Self::restore`]. The first message may return `InvalidInput` for a segment of
    /// another owner, before it decides anything.
    pub fn restore_later(&self, checkpoints: PostponedCheckpoints) -> Result<()> {
        self.upkeep.check_ours()?;
        let sizes: BTreeMap<FileId, u64> = list_files(self.storage.as_ref())?.collect();
        let found = checkpoints.files.iter().map(|(file, bytes)| {
            let size = sizes.get(file).filter(|size| bytes <= *size)?;
            (file.term < self.term).then_some((*file, *size))
        });
        let Some(found) = found.collect::<Option<BTreeMap<_, _>>>() else {
            return self.restore(&checkpoints.restored()?);
        };
        let mut registry = self.shared.registry.lock();
        let known = registry.ledger.files();
        if registry.postponed.is_some() || found.keys().any(|file| known.contains_key(file)) {
            drop(registry);
            return self.restore(&checkpoints.restored()?);
        }
        registry.restored = true;
        registry.ledger.postpone(found, checkpoints.newest);
        registry.postponed = Some(Arc::new(checkpoints));
        Ok(())
    }

    /// Learns the segments of postponed checkpoints. Their files were there at the start: readers
    /// report segments that are missing.
    pub(super) fn learn(&self) -> Result<()> {
        let (postponed, sizes) = {
            let registry = self.shared.registry.lock();
            let Some(postponed) = registry.postponed.clone() else {
                return Ok(());
            };
            (postponed, registry.ledger.postponed().clone())
        };
        match self.restore_now(&postponed.restored()?, || Ok(sizes)) {
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(()),
            learned => learned,
        }
    }

    /// Learns the segments of retained checkpoints: of all after a restart, or of one when a region
    /// of a running manager is restored. Reads the owners of unknown segments from their files. May
    /// be called any number of times.
    ///
    /// # Errors
    /// `InvalidInput`, without any change, for a segment of another owner, an owner with two
    /// origins in one checkpoint, or an origin newer than the checkpoint. `Fenced` when a newer
    /// manager took the folder over. Errors of listing and reading indexes. `NotFound` when
    /// segments are missing; all others are known then, and no named file is deleted, damaged or
    /// not. After any other error `sweep` is refused until a restore succeeds.
    pub fn restore(&self, checkpoints: &[RestoredCheckpoint]) -> Result<()> {
        self.learn()?;
        let sizes = || Ok(list_files(self.storage.as_ref())?.collect());
        self.restore_now(checkpoints, sizes)
    }

    fn restore_now(
        &self,
        checkpoints: &[RestoredCheckpoint],
        sizes: impl FnOnce() -> Result<BTreeMap<FileId, u64>>,
    ) -> Result<()> {
        self.upkeep.check_ours()?;
        self.shared.registry.lock().restored = false;
        checkpoints.iter().try_for_each(RestoredCheckpoint::check)?;
        self.check_owners(checkpoints)?;
        let sizes = sizes()?;
        let present = {
            let mut registry = self.shared.registry.lock();
            registry.restored = true;
            let known = checkpoints.iter().map(|one| (one.id, one.fallbacks()));
            registry.ledger.restore_checkpoints(known);
            let ledger = &mut registry.ledger;
            // Most checkpoints share most of their segments.
            let mut seen: HashMap<(SegmentRef, CheckpointId), bool> = HashMap::new();
            let is_present = |owner: &Owner, origin, reference: &SegmentRef| {
                if let Some(present) = seen.get(&(*reference, origin)) {
                    return *present;
                }
                let size = sizes.get(&reference.file).copied();
                // A missing file may come back: an operator repairs the folder.
                if size.is_some() || reference.file.term < self.term {
                    let facts = FileFacts::found(size.unwrap_or(0));
                    ledger.add_file(reference.file, facts);
                }
                let is_known = ledger.restore(owner, origin, reference);
                let present = is_known && size.is_some_and(|size| reference.end() <= size);
                seen.insert((*reference, origin), present);
                present
            };
            let location = self.storage.location();
            let present = RestoredCheckpoint::require_present(&location, checkpoints, is_present);
            ledger.take_in_postponed();
            registry.postponed = None;
            present
        };
        self.upkeep.settle(Occasion::Message);
        present
    }

    /// Refuses segments of other owners, whose wrong live sets would decide about them.
    fn check_owners(&self, checkpoints: &[RestoredCheckpoint]) -> Result<()> {
        let mut claims: HashMap<&SegmentRef, &Owner> = HashMap::new();
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

    /// [`Self::check_owners`] by the file. Readers of its segments find other damage.
    fn check_owners_in(&self, file: FileId, claims: &[(&SegmentRef, &Owner)]) -> Result<()> {
        let index = match read_sealed_index(self.storage.as_ref(), file) {
            Err(e) if e.kind() == ErrorKind::Storage => return Err(e),
            index => index.ok().flatten(),
        };
        let listed: Option<BTreeMap<SegmentRef, Owner>> = index.map(|index| {
            let entries = index.segments.into_iter();
            entries.map(|e| (e.reference, e.owner)).collect()
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

    /// Deletes files of older terms that no restored checkpoint references, and returns their
    /// number. The next message tries failed deletes again.
    ///
    /// # Errors
    /// `InvalidInput` before a `restore` (an empty list will do), or after one that changed
    /// nothing: the needed segments are not known. `Fenced` when a newer manager took the folder
    /// over. Errors of listing.
    pub fn sweep(&self) -> Result<u64> {
        self.upkeep.check_ours()?;
        let files = list_files(self.storage.as_ref())?;
        let found = {
            let mut registry = self.shared.registry.lock();
            if !registry.restored {
                return Err(Error::invalid_input(
                    "sweep before restore succeeded would delete everything",
                ));
            }
            let found = files
                // Only the manager that takes the folder over deletes claims.
                .filter(|(file, _)| file.term < self.term && !file.is_claim())
                .filter(|(file, _)| !registry.ledger.files().contains_key(file))
                .filter(|(file, _)| !registry.ledger.postponed().contains_key(file))
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
