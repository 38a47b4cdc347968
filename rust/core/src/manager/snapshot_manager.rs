//! The manager of one executor: the thin layer around what `liveness` decides.

use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::Mutex;

use super::registry::{Registry, SharedRegistry};
use super::status::{self, FileStatus, ManagerStats, SegmentStatus};
use super::writer::{SegmentWriter, WriterOptions};
use crate::error::{Error, ErrorKind, Result};
use crate::format::{NewSegment, Segment, read_segment};
use crate::ids::{CheckpointId, FileId, Owner, SegmentRef, Term};
use crate::liveness::SegmentFacts;
use crate::storage::Storage;

/// How a manager works.
#[derive(Clone, Debug)]
pub struct ManagerOptions {
    /// How files are written.
    pub writer: WriterOptions,
    /// Files span checkpoints. `None` leaves it to the storage: yes where appends are durable.
    pub across_checkpoints: Option<bool>,
    /// Bound on physical bytes divided by live bytes: beyond it the segments of the most wasteful
    /// files are not offered for reuse. Below 1 there is no bound.
    pub max_space_amplification: f64,
}

impl Default for ManagerOptions {
    fn default() -> Self {
        Self {
            writer: WriterOptions::default(),
            across_checkpoints: None,
            max_space_amplification: 2.0,
        }
    }
}

/// Packs the segments of one executor into files and deletes every file as soon as no retained
/// checkpoint and no open attempt needs it.
///
/// Messages (`started` to `subsumed`) may be lost, repeated and reordered: each carries the whole
/// truth of its moment. The directory of `storage` belongs to this manager alone.
///
/// ```
/// use std::sync::Arc;
/// use holdfast_core::format::{NewSegment, SegmentKind};
/// use holdfast_core::manager::{ManagerOptions, Retained, SnapshotManager};
/// use holdfast_core::storage::LocalStorage;
/// use holdfast_core::{CheckpointId, Owner};
/// # fn main() -> holdfast_core::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// let storage = Arc::new(LocalStorage::new(dir.path().join("executor-1")));
/// let manager = SnapshotManager::open_next_term(storage, ManagerOptions::default(), 1)?;
/// let owner = Owner::new("", "0", "7", "default");
/// let id = CheckpointId(1);
/// let new = NewSegment {
///     owner: &owner,
///     created: id,
///     kind: SegmentKind::Snapshot,
///     lineage: &[],
///     replaced: None,
///     entries: 1,
/// };
/// manager.started(id);
/// let reference = manager.append(&new, b"state")?;
/// manager.persist(id)?;
/// // ... the acknowledgement travels to the coordinator, which completes the checkpoint ...
/// let retained = Retained { decided: id, checkpoints: [(id, Default::default())].into() };
/// manager.completed(id, &retained)?;
/// assert_eq!(manager.read(&reference, &owner)?.payload, b"state");
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct SnapshotManager {
    pub(super) storage: Arc<dyn Storage>,
    pub(super) term: Term,
    pub(super) max_space_amplification: f64,
    pub(super) shared: Arc<SharedRegistry>,
    pub(super) writer: SegmentWriter,
}

impl SnapshotManager {
    /// A manager that writes the files of `term`, which no other incarnation may have used.
    ///
    /// # Errors
    /// `InvalidInput` for an amplification bound that is not a number.
    pub fn open(storage: Arc<dyn Storage>, term: Term, options: ManagerOptions) -> Result<Self> {
        let ManagerOptions {
            writer,
            across_checkpoints,
            max_space_amplification,
        } = options;
        if max_space_amplification.is_nan() {
            return Err(Error::invalid_input(
                "max_space_amplification is not a number",
            ));
        }
        let across_checkpoints =
            across_checkpoints.unwrap_or(storage.capabilities().durable_append);
        let registry = Mutex::new(Registry::default());
        let shared = Arc::new(SharedRegistry {
            registry,
            across_checkpoints,
        });
        let writer = SegmentWriter::observed(storage.clone(), term, writer, shared.clone());
        Ok(Self {
            storage,
            term,
            max_space_amplification,
            shared,
            writer,
        })
    }

    /// A manager with a term newer than that of every file in `storage`, and at least `not_before`.
    ///
    /// # Errors
    /// Those of listing.
    pub fn open_next_term(
        storage: Arc<dyn Storage>,
        options: ManagerOptions,
        not_before: u64,
    ) -> Result<Self> {
        let objects = storage.list()?;
        let newest = objects
            .iter()
            .filter_map(|o| FileId::parse(&o.name))
            .map(|id| id.term.0)
            .max();
        let next = match newest {
            None => 0,
            Some(newest) => newest.checked_add(1).ok_or_else(|| {
                Error::invalid_input(format!("{} has no terms left", storage.location()))
            })?,
        };
        Self::open(storage, Term(next.max(not_before)), options)
    }

    /// The term of this incarnation.
    pub fn term(&self) -> Term {
        self.term
    }

    /// Files span checkpoints.
    pub fn across_checkpoints(&self) -> bool {
        self.shared.across_checkpoints
    }

    /// Appends a segment for the attempt `new.created`.
    ///
    /// # Errors
    /// `AttemptEnded` when that attempt was decided; else as [`SegmentWriter::append`].
    pub fn append(&self, new: &NewSegment<'_>, payload: &[u8]) -> Result<SegmentRef> {
        let check = || {
            self.shared
                .registry
                .lock()
                .check_open("segment", new.owner, new.created)
        };
        check()?;
        let lane = if self.shared.across_checkpoints {
            0
        } else {
            new.created.0
        };
        let appended = self.writer.append_in(lane, new, payload);
        let late = check();
        if late.is_err() || appended.is_err() {
            // Garbage was left, maybe in a file of its own that no later message would look at.
            self.settle();
        }
        late.and(appended)
    }

    /// Reads and verifies a segment.
    ///
    /// # Errors
    /// As [`read_segment`].
    pub fn read(&self, reference: &SegmentRef, owner: &Owner) -> Result<Segment> {
        read_segment(self.storage.as_ref(), reference, owner)
    }

    /// Makes everything the attempt wrote or leased survive a machine crash: to be called before
    /// the acknowledgement. It never waits for an owner that is still writing: what that owner
    /// appends later is persisted by its own call.
    ///
    /// A segment that was lost by a failed sync makes this fail, for every owner, until the segment
    /// is released and written again. [`SnapshotManager::persist_segments`] looks at the segments
    /// of one acknowledgement only.
    ///
    /// # Errors
    /// `AttemptEnded` when the attempt was decided; `Poisoned` for a lost segment; else those of
    /// storage.
    pub fn persist(&self, id: CheckpointId) -> Result<()> {
        self.persist_where(id, |_, segment| {
            segment.created == id || segment.leases.contains(&id)
        })
    }

    /// Like [`SnapshotManager::persist`], for exactly these segments.
    ///
    /// # Errors
    /// As [`SnapshotManager::persist`]; `NotFound` for a segment that is not live any more.
    pub fn persist_segments(
        &self,
        id: CheckpointId,
        owner: &Owner,
        refs: &[SegmentRef],
    ) -> Result<()> {
        let wanted: BTreeSet<_> = refs.iter().copied().collect();
        self.persist_where(id, |reference, _| wanted.contains(reference))?;
        let registry = self.shared.registry.lock();
        match refs
            .iter()
            .find(|reference| registry.find(reference, owner).is_none())
        {
            None => Ok(()),
            Some(reference) => Err(Error::new(
                ErrorKind::NotFound,
                format!("segment {reference} of {owner} is not live any more: write it again"),
            )),
        }
    }

    /// The attempt `id` of `owner` wants to reuse these segments. Those with `true` are kept until
    /// the attempt is decided, and longer if its checkpoint contains them; the others must be
    /// written again: they are unknown, another owner's, dead, lost, or in a file that is too
    /// wasteful.
    ///
    /// # Errors
    /// `AttemptEnded` when the attempt was decided.
    pub fn lease(&self, owner: &Owner, id: CheckpointId, refs: &[SegmentRef]) -> Result<Vec<bool>> {
        let mut registry = self.shared.registry.lock();
        registry.check_open("lease", owner, id)?;
        Ok(refs
            .iter()
            .map(|reference| registry.lease(owner, id, reference))
            .collect())
    }

    /// The acknowledgement with these segments was refused: what was written for it dies at once.
    /// Segments it only reused are left alone. Any number of times.
    pub fn release(&self, owner: &Owner, refs: &[SegmentRef]) {
        {
            let mut registry = self.shared.registry.lock();
            for reference in refs {
                registry.release(owner, reference);
            }
        }
        self.settle();
    }

    /// Seals every open file, for a clean end. Work may go on afterwards, in new files.
    ///
    /// # Errors
    /// Those of storage; the files are closed nevertheless.
    pub fn seal(&self) -> Result<()> {
        self.writer.seal()
    }

    /// As [`SegmentWriter::take_warnings`].
    pub fn take_warnings(&self) -> Vec<String> {
        self.writer.take_warnings()
    }

    /// Counts and sizes.
    pub fn stats(&self) -> ManagerStats {
        status::stats(&self.shared.registry.lock(), self.writer.stats())
    }

    /// All physical files, by name.
    pub fn files(&self) -> Vec<FileStatus> {
        status::files(&self.shared.registry.lock())
    }

    /// All live segments, by file and offset.
    pub fn segments(&self) -> Vec<SegmentStatus> {
        status::segments(&self.shared.registry.lock())
    }

    fn persist_where(
        &self,
        id: CheckpointId,
        wanted: impl Fn(&SegmentRef, &SegmentFacts) -> bool,
    ) -> Result<()> {
        let files: BTreeSet<FileId> = {
            let registry = self.shared.registry.lock();
            if registry.view.is_decided(id) {
                return Err(Error::new(
                    ErrorKind::AttemptEnded,
                    format!("persist of checkpoint {id}: it was decided already"),
                ));
            }
            let waiting = registry.not_durable(&wanted);
            waiting
                .into_iter()
                .map(|(reference, _)| reference.file)
                .collect()
        };
        let done = if self.shared.across_checkpoints {
            self.writer.sync_files(&files)
        } else {
            self.writer.seal_files(&files)
        };
        // Segments appended meanwhile belong to owners that will persist them themselves.
        let registry = self.shared.registry.lock();
        match done {
            Ok(()) => Ok(()),
            Err(e) => registry
                .check_durable(|reference, segment| {
                    files.contains(&reference.file) && wanted(reference, segment)
                })
                .map_err(|lost| lost.context(e)),
        }
    }
}
