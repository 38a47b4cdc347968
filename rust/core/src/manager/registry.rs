//! What a manager remembers. Pure bookkeeping: decisions are made in `liveness`, storage is
//! touched in `snapshot_manager`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::Mutex;

use super::observer::{FileChange, Observer};
use crate::error::{Error, ErrorKind, Result};
use crate::format::IndexEntry;
use crate::ids::{CheckpointId, FileId, Owner, SegmentRef};
use crate::liveness::{Actions, Facts, FileFacts, SegmentFacts, Verdict, View, decide};

#[derive(Debug, Default)]
pub(super) struct Registry {
    pub view: View,
    pub files: BTreeMap<FileId, FileFacts>,
    pub wasteful: BTreeSet<FileId>,
    pub pinned: BTreeSet<FileId>,
    /// `restore` was called, so what is not known here is not needed.
    pub restored: bool,
    pub deletes: u64,
    pub delete_failures: u64,
    /// Names are shared: a manager has few owners and many segments.
    owners: BTreeSet<Arc<Owner>>,
}

impl Registry {
    /// Refuses work for an attempt that was decided.
    pub fn check_open(&self, what: &str, owner: &Owner, id: CheckpointId) -> Result<()> {
        if !self.view.is_decided(id) {
            return Ok(());
        }
        let decided = self.view.decided().unwrap_or(id);
        Err(Error::new(
            ErrorKind::AttemptEnded,
            format!(
                "{what} of {owner} for checkpoint {id}: checkpoint {decided} was decided already"
            ),
        ))
    }

    /// The facts of exactly this segment, of exactly this owner.
    pub fn find(&self, reference: &SegmentRef, owner: &Owner) -> Option<&SegmentFacts> {
        let segment = self
            .files
            .get(&reference.file)?
            .segments
            .get(&reference.offset)?;
        let same = segment.len == reference.len && segment.digest == reference.digest;
        (same && *segment.owner == *owner).then_some(segment)
    }

    /// Whose state this segment is, if it is known.
    pub fn owner_of(&self, reference: &SegmentRef) -> Option<&Owner> {
        let segment = self
            .files
            .get(&reference.file)?
            .segments
            .get(&reference.offset)?;
        let same = segment.len == reference.len && segment.digest == reference.digest;
        same.then_some(&*segment.owner)
    }

    /// Takes a lease when the segment may be reused.
    pub fn lease(&mut self, owner: &Owner, id: CheckpointId, reference: &SegmentRef) -> bool {
        let known = self.find(reference, owner).is_some();
        if !known || self.wasteful.contains(&reference.file) || self.is_lost(reference) {
            return false;
        }
        if let Some(segment) = self.segment_mut(reference) {
            segment.leases.insert(id);
        }
        true
    }

    /// Forgets a segment of a refused acknowledgement. Only what an open attempt wrote and nobody
    /// else leased can be meant: a refused acknowledgement may also cite reused segments.
    pub fn release(&mut self, owner: &Owner, reference: &SegmentRef) {
        let unneeded = self.find(reference, owner).is_some_and(|segment| {
            let elsewhere = segment
                .leases
                .iter()
                .any(|attempt| *attempt != segment.created);
            !self.view.is_decided(segment.created) && !elsewhere
        });
        if unneeded && let Some(file) = self.files.get_mut(&reference.file) {
            file.segments.remove(&reference.offset);
        }
    }

    /// Makes a restored segment known, or widens what is known about it. False when its file is
    /// gone, or holds another segment in its place.
    pub fn restore(&mut self, owner: &Owner, origin: CheckpointId, reference: &SegmentRef) -> bool {
        let owner = self.owner(owner);
        let Some(file) = self.files.get_mut(&reference.file) else {
            return false;
        };
        if file.deleting {
            return false;
        }
        let segment = file
            .segments
            .entry(reference.offset)
            .or_insert_with(|| SegmentFacts {
                owner: owner.clone(),
                len: reference.len,
                digest: reference.digest,
                created: origin,
                last_used: origin,
                leases: BTreeSet::new(),
            });
        file.used = true;
        segment.created = segment.created.min(origin);
        segment.last_used = segment.last_used.max(origin);
        (segment.len, segment.digest, &segment.owner) == (reference.len, reference.digest, &owner)
    }

    /// A file found in storage: closed, and as durable as it can be.
    pub fn found_file(&mut self, file: FileId, physical_bytes: u64) {
        self.files.entry(file).or_insert(FileFacts {
            open: false,
            only_for: None,
            physical_bytes,
            durable_bytes: u64::MAX,
            used: true,
            deleting: false,
            segments: BTreeMap::new(),
        });
    }

    /// Decides, and remembers what was decided. The actions on files are left to the caller.
    pub fn settle(&mut self, max_space_amplification: f64) -> Actions {
        let facts = Facts {
            view: &self.view,
            files: &self.files,
            max_space_amplification,
        };
        let actions = decide(&facts);
        for (file, offset, verdict) in &actions.segments {
            let Some(facts) = self.files.get_mut(file) else {
                continue;
            };
            match verdict {
                Verdict::Dead => {
                    facts.segments.remove(offset);
                }
                Verdict::Renewed { last_used, leases } => {
                    if let Some(segment) = facts.segments.get_mut(offset) {
                        segment.last_used = *last_used;
                        segment.leases.clone_from(leases);
                    }
                }
            }
        }
        self.wasteful.clone_from(&actions.wasteful);
        self.pinned.clone_from(&actions.pinned);
        self.check();
        actions
    }

    /// Some segment of the file is live.
    pub fn is_needed(&self, file: FileId) -> bool {
        self.files
            .get(&file)
            .is_some_and(|facts| !facts.segments.is_empty())
    }

    /// Names the first segment that the check finds not durable.
    pub fn check_durable(&self, wanted: impl Fn(&SegmentRef, &SegmentFacts) -> bool) -> Result<()> {
        match self.not_durable(wanted).first() {
            None => Ok(()),
            Some((reference, owner)) => Err(Error::new(
                ErrorKind::Poisoned,
                format!(
                    "segment {reference} of {owner} may not survive a machine crash: write it again"
                ),
            )),
        }
    }

    /// The segments `wanted` picks that are not durable.
    pub fn not_durable(
        &self,
        wanted: impl Fn(&SegmentRef, &SegmentFacts) -> bool,
    ) -> Vec<(SegmentRef, Arc<Owner>)> {
        let mut found = Vec::new();
        for (file, facts) in &self.files {
            let durable = facts.durable_bytes;
            for (offset, segment) in &facts.segments {
                let reference = segment_ref(*file, *offset, segment);
                if offset + segment.len > durable && wanted(&reference, segment) {
                    found.push((reference, segment.owner.clone()));
                }
            }
        }
        found
    }

    /// Its file takes no more appends and will never become durable.
    fn is_lost(&self, reference: &SegmentRef) -> bool {
        self.files
            .get(&reference.file)
            .is_some_and(|file| !file.open && reference.offset + reference.len > file.durable_bytes)
    }

    fn segment_mut(&mut self, reference: &SegmentRef) -> Option<&mut SegmentFacts> {
        self.files
            .get_mut(&reference.file)?
            .segments
            .get_mut(&reference.offset)
    }

    fn owner(&mut self, owner: &Owner) -> Arc<Owner> {
        if let Some(known) = self.owners.get(owner) {
            return known.clone();
        }
        let owner = Arc::new(owner.clone());
        self.owners.insert(owner.clone());
        owner
    }

    fn appended(&mut self, entry: &IndexEntry, physical_bytes: u64) {
        let IndexEntry {
            reference,
            owner,
            created,
            ..
        } = entry;
        let owner = self.owner(owner);
        let late = self.view.is_decided(*created);
        let Some(file) = self.files.get_mut(&reference.file) else {
            return;
        };
        file.used = true;
        file.physical_bytes = physical_bytes;
        // The attempt ended while its bytes were on the way: they are garbage.
        if late {
            return;
        }
        let facts = SegmentFacts {
            owner,
            len: reference.len,
            digest: reference.digest,
            created: *created,
            last_used: *created,
            leases: BTreeSet::new(),
        };
        file.segments.insert(reference.offset, facts);
    }

    /// What must hold whatever happened.
    fn check(&self) {
        for (id, file) in &self.files {
            debug_assert!(
                !file.deleting || file.segments.is_empty(),
                "{id} is being deleted with live segments"
            );
            debug_assert!(
                file.open || file.live_bytes() <= file.physical_bytes,
                "{id} has more live bytes than bytes"
            );
            for segment in file.segments.values() {
                debug_assert!(
                    segment.created <= segment.last_used,
                    "{id}: an interval is reversed"
                );
            }
        }
    }
}

pub(super) fn segment_ref(file: FileId, offset: u64, segment: &SegmentFacts) -> SegmentRef {
    SegmentRef {
        file,
        offset,
        len: segment.len,
        digest: segment.digest,
    }
}

/// The registry of a manager, as its writer sees it.
#[derive(Debug)]
pub(super) struct SharedRegistry {
    pub registry: Mutex<Registry>,
    pub across_checkpoints: bool,
}

impl Observer for SharedRegistry {
    fn created(&self, file: FileId, lane: u64, physical_bytes: u64) {
        let facts = FileFacts {
            open: true,
            only_for: (!self.across_checkpoints).then_some(CheckpointId(lane)),
            physical_bytes,
            durable_bytes: 0,
            used: false,
            deleting: false,
            segments: BTreeMap::new(),
        };
        self.registry.lock().files.insert(file, facts);
    }

    fn deleted(&self, file: FileId) {
        self.registry.lock().files.remove(&file);
    }

    fn appended(&self, entry: &IndexEntry, physical_bytes: u64) {
        self.registry.lock().appended(entry, physical_bytes);
    }

    fn changed(&self, change: &FileChange) {
        if let Some(file) = self.registry.lock().files.get_mut(&change.file) {
            file.open = change.open;
            file.physical_bytes = change.physical_bytes;
            file.durable_bytes = change.durable_bytes;
        }
    }
}
