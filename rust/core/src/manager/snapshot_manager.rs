//! The manager of one executor, a thin layer around `liveness`, which decides.

use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

use super::claim::Claim;
use super::recent::RecentSegments;
use super::registry::{ACROSS_CHECKPOINTS, EarlierManagers, Registry, SharedRegistry};
use super::status::{self, FileStatus, ManagerStats, SegmentStatus};
use super::tables::Tables;
use super::upkeep::Upkeep;
use crate::error::{Error, ErrorKind, Result};
use crate::format::{NewSegment, OpenedFiles, Segment, decode_segment, read_segment};
use crate::ids::{CheckpointId, FileId, Owner, SegmentRef, Term};
use crate::liveness::Occasion;
use crate::segment::{SegmentWriter, WriterOptions};
use crate::state::MemoryBudget;
use crate::storage::Storage;

/// Bound on open files: each may hold a connection.
const MAX_OPEN: usize = 8;

const LARGE_TABLE_BYTES: u64 = 8 << 20;

/// Options of a manager.
#[derive(Clone, Debug)]
pub struct ManagerOptions {
    /// Options of its writer.
    pub writer: WriterOptions,
    /// Files span checkpoints. `None` leaves it to the storage: yes if appends are durable.
    pub across_checkpoints: Option<bool>,
    /// Bound on physical bytes divided by live bytes; below 1 there is none. Beyond it, segments of
    /// the most wasteful files are not offered for reuse. A message also seals an open file, early
    /// enough for its live part to be written again before it goes. 64 KiB of dead bytes in an open
    /// file and the index of a sealed one do not count, so a tiny state may have a larger ratio.
    pub max_space_amplification: f64,
    /// A thread of the manager deletes and seals files, so that messages do not wait for storage.
    /// Without it [`SnapshotManager::wait_for_deletes`] does so, on the caller's thread.
    pub background: bool,
    /// Bytes of the newest segments that stay in memory, for storage where each opening is a round
    /// trip. Beyond 0, a few files that were read also stay open until a checkpoint is decided,
    /// each with up to 1 MiB in memory. 0 keeps nothing.
    pub recent_bytes: u64,
    /// Memory of tables, which may share it with state stores.
    pub tables: Arc<MemoryBudget>,
    /// Changes of a table with at least so many bytes (8 MiB) become a run at once, which need not
    /// be loaded at a start. Merges of at least so many stored bytes continue during attempts.
    pub large_table_bytes: u64,
    /// Earlier managers, if a driver deletes files of those that ended. `None` leaves this to
    /// [`SnapshotManager::restore`] and [`SnapshotManager::sweep`].
    pub earlier: Option<EarlierManagers>,
}

impl Default for ManagerOptions {
    fn default() -> Self {
        Self {
            writer: WriterOptions::default(),
            across_checkpoints: None,
            max_space_amplification: 2.0,
            background: true,
            recent_bytes: 0,
            tables: Arc::default(),
            large_table_bytes: LARGE_TABLE_BYTES,
            earlier: None,
        }
    }
}

/// Packs the segments of one executor into files, and deletes each file as soon as no retained
/// checkpoint and no open attempt needs it.
///
/// Messages (`started` to `subsumed`) may be lost, repeated and reordered: each carries all facts
/// of its moment. Only this manager uses the directory of `storage`.
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
/// let new = NewSegment::of(&owner, id, SegmentKind::Snapshot);
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
    pub(super) shared: Arc<SharedRegistry>,
    pub(super) upkeep: Arc<Upkeep>,
    across_checkpoints: Option<bool>,
    recent: RecentSegments,
    /// Files that were read during an attempt; `None` if opening one costs little.
    pub(super) opened: Option<OpenedFiles>,
    /// The newest attempt, and the files that were present when its segments were persisted.
    present: Mutex<(CheckpointId, BTreeSet<FileId>)>,
    pub(super) tables: Tables,
}

impl Drop for SnapshotManager {
    fn drop(&mut self) {
        self.tables.work.stop();
        self.upkeep.stop();
        if let Some(claim) = &self.upkeep.claim {
            claim.release();
        }
    }
}

impl SnapshotManager {
    /// A manager that writes the files of `term`. No other incarnation may have used that term.
    ///
    /// # Errors
    /// `InvalidInput` for an amplification bound that is not a number.
    pub fn open(storage: Arc<dyn Storage>, term: Term, options: ManagerOptions) -> Result<Self> {
        Self::with_claim(storage, term, options, None)
    }

    fn with_claim(
        storage: Arc<dyn Storage>,
        term: Term,
        options: ManagerOptions,
        claim: Option<Claim>,
    ) -> Result<Self> {
        if options.max_space_amplification.is_nan() {
            return Err(Error::invalid_input(
                "max_space_amplification is not a number",
            ));
        }
        let shared = Arc::<SharedRegistry>::default();
        shared.registry.lock().earlier = options.earlier.map(|earlier| (term, earlier));
        let writer = SegmentWriter::observed(
            storage.clone(),
            term,
            options.writer,
            shared.clone(),
            ACROSS_CHECKPOINTS,
        );
        let writer = Arc::new(writer);
        let upkeep = Arc::new(Upkeep {
            storage: storage.clone(),
            writer,
            shared: shared.clone(),
            claim,
            max_space_amplification: options.max_space_amplification,
            background: options.background,
        });
        let (budget, large_bytes) = (options.tables, options.large_table_bytes);
        let tables = Tables::new(Arc::clone(&upkeep), budget, large_bytes);
        Ok(Self {
            storage,
            term,
            shared,
            upkeep,
            across_checkpoints: options.across_checkpoints,
            recent: RecentSegments::new(options.recent_bytes),
            opened: (options.recent_bytes > 0).then(|| OpenedFiles::new(MAX_OPEN)),
            present: Mutex::new((CheckpointId(0), BTreeSet::new())),
            tables,
        })
    }

    /// A manager with a term newer than every file in `storage`, and at least `not_before`. Ignores
    /// files of terms that no manager can have. No other manager gets that term, even if several
    /// are opened at the same time. Its first change takes the folder over: the next change of an
    /// older manager fails as `Fenced`. In a folder that cannot be written to, it can still read.
    pub fn open_next_term(
        storage: Arc<dyn Storage>,
        options: ManagerOptions,
        not_before: u64,
    ) -> Result<Self> {
        let claim = Claim::next(Arc::clone(&storage), not_before)?;
        Self::with_claim(storage, claim.term, options, Some(claim))
    }

    /// The term of this incarnation.
    pub fn term(&self) -> Term {
        self.term
    }

    /// Returns whether files span checkpoints. Storage that learns from its first file whether its
    /// appends are durable may change this once: then the first checkpoint has files of its own.
    pub fn across_checkpoints(&self) -> bool {
        self.across_checkpoints
            .unwrap_or_else(|| self.storage.capabilities().durable_append)
    }

    /// Appends a segment for the attempt `new.created`.
    ///
    /// # Errors
    /// `AttemptEnded` when it was decided; `Fenced` when a newer manager took the folder over; else
    /// errors of [`SegmentWriter::append`].
    pub fn append(&self, new: &NewSegment<'_>, payload: &[u8]) -> Result<SegmentRef> {
        self.upkeep.check_ours()?;
        let check = || {
            let registry = self.shared.registry.lock();
            registry.check_open("segment", new.owner, new.created)
        };
        check()?;
        let lane = if self.across_checkpoints() {
            ACROSS_CHECKPOINTS
        } else {
            new.created.0
        };
        let appended = self.upkeep.writer.append_in(lane, new, payload);
        let late = check();
        if late.is_err() || appended.is_err() {
            // It left garbage, maybe in a file that no later message would touch.
            self.upkeep.settle(Occasion::Between);
        }
        late?;
        let (reference, bytes) = appended?;
        self.recent.keep(reference, bytes);
        Ok(reference)
    }

    /// Reads and verifies a segment.
    pub fn read(&self, reference: &SegmentRef, owner: &Owner) -> Result<Segment> {
        self.read_known(reference, owner, 0)
    }

    /// [`Self::read`] from a file of at least `known_bytes`, without a request for its length.
    pub fn read_known(
        &self,
        reference: &SegmentRef,
        owner: &Owner,
        known_bytes: u64,
    ) -> Result<Segment> {
        let storage = self.storage.as_ref();
        match (self.recent.find(reference), &self.opened) {
            (Some(bytes), _) => decode_segment(storage, &bytes, reference, owner),
            (None, Some(opened)) => opened.read(storage, reference, owner, known_bytes),
            (None, None) => read_segment(storage, reference, owner),
        }
    }

    /// Makes all segments that the attempt wrote or leased survive a machine crash. Call it before
    /// the acknowledgement. It never waits for owners that still write: they call it themselves.
    ///
    /// With durable appends this syncs, and the file takes more segments: owners that acknowledge
    /// one after another share it. Other storage keeps bytes once their object is finished, so this
    /// seals the file, and the next owner begins another.
    ///
    /// After a failed sync this fails for every owner, until the lost segment is released and
    /// written again. [`SnapshotManager::persist_segments`] looks at one acknowledgement only.
    ///
    /// # Errors
    /// `AttemptEnded` when the attempt was decided; `Poisoned` for a lost segment; `Fenced` when a
    /// newer manager took the folder over; errors of storage.
    pub fn persist(&self, id: CheckpointId) -> Result<()> {
        self.upkeep.check_ours()?;
        let waiting = {
            let registry = self.shared.registry.lock();
            check_undecided(&registry, id)?;
            registry.ledger.not_durable(id)
        };
        let done = self.upkeep.writer.sync_files(&waiting);
        if done.is_err() {
            // Other owners persist the segments that they append during the sync.
            let registry = self.shared.registry.lock();
            let mut segments = registry.ledger.of_attempt(id);
            let lost = segments.find(|(reference, _)| {
                waiting.contains(&reference.file) && !registry.is_durable(reference)
            });
            return lost.map_or(Ok(()), |(reference, segment)| {
                done.map_err(|e| lost_segment(&reference, &segment.owner).context(e))
            });
        }
        done
    }

    /// Like [`SnapshotManager::persist`], for exactly these segments.
    ///
    /// # Errors
    /// Errors of [`Self::persist`]; `NotFound` if a segment is not live, or its file is gone.
    pub fn persist_segments(
        &self,
        id: CheckpointId,
        owner: &Owner,
        refs: &[SegmentRef],
    ) -> Result<()> {
        self.upkeep.check_ours()?;
        let waiting = {
            let registry = self.shared.registry.lock();
            check_undecided(&registry, id)?;
            let waiting = refs.iter().filter(|one| !registry.is_durable(one));
            waiting.map(|one| one.file).collect()
        };
        let done = self.upkeep.writer.sync_files(&waiting);
        let registry = self.shared.registry.lock();
        for reference in refs {
            if !registry.has(reference, owner) {
                return Err(Error::new(
                    ErrorKind::NotFound,
                    format!("segment {reference} of {owner} is not live any more: write it again"),
                ));
            }
            if !registry.is_durable(reference) {
                let lost = lost_segment(reference, owner);
                return Err(match done {
                    Ok(()) => lost,
                    Err(e) => lost.context(e),
                });
            }
        }
        drop(registry);
        self.check_present(id, refs.iter().map(|reference| reference.file).collect())
    }

    /// Checks that files exist, each once in an attempt: a check is a request, and all owners of a
    /// checkpoint have the same few files. Calls at the same time wait for each other.
    fn check_present(&self, id: CheckpointId, mut files: BTreeSet<FileId>) -> Result<()> {
        let mut present = self.present.lock();
        if present.0 != id {
            *present = (id, BTreeSet::new());
        }
        files.retain(|file| !present.1.contains(file));
        self.upkeep.writer.check_present(&files)?;
        present.1.append(&mut files);
        Ok(())
    }

    /// Asks to reuse these segments in the attempt `id` of `owner`. Segments with `true` are kept
    /// until the attempt is decided, and longer if its checkpoint contains them. Write the others
    /// again: they are unknown, dead, lost, of another owner, or in a file that is too wasteful.
    ///
    /// # Errors
    /// `AttemptEnded` when it was decided; `Fenced` when a newer manager took the folder over.
    pub fn lease(&self, owner: &Owner, id: CheckpointId, refs: &[SegmentRef]) -> Result<Vec<bool>> {
        self.upkeep.check_ours()?;
        let mut registry = self.shared.registry.lock();
        registry.check_open("lease", owner, id)?;
        let leased = refs.iter().map(|one| registry.lease(owner, id, one));
        Ok(leased.collect())
    }

    /// Releases the segments of a refused acknowledgement. Segments that were written for it die at
    /// once, reused ones remain. May be called any number of times.
    pub fn release(&self, owner: &Owner, refs: &[SegmentRef]) {
        {
            let mut registry = self.shared.registry.lock();
            for reference in refs {
                registry.release(owner, reference);
            }
        }
        self.upkeep.settle(Occasion::Between);
    }

    /// Does the work on files that messages left, and waits for the manager's thread. A failed
    /// delete is due again at the next message. A manager without threads also merges large tables.
    pub fn wait_for_deletes(&self) {
        self.tables.work.finish();
        self.upkeep.finish();
    }

    /// Returns whether this is a child of the process that opened the manager: it may only read.
    pub fn is_inherited(&self) -> bool {
        self.upkeep.writer.check_process().is_err()
    }

    /// Seals all open files and deletes what is due, for a clean end. Later work goes to new files.
    ///
    /// # Errors
    /// Errors of storage; the files are closed nevertheless.
    pub fn seal(&self) -> Result<()> {
        self.tables.work.stop();
        let sealed = self.upkeep.writer.seal();
        self.tables.end(&mut self.shared.registry.lock().ledger);
        self.upkeep.settle(Occasion::Message);
        self.upkeep.finish();
        sealed
    }

    /// Like [`SegmentWriter::take_warnings`].
    pub fn take_warnings(&self) -> Vec<String> {
        self.upkeep.writer.take_warnings()
    }

    /// Counts and sizes.
    pub fn stats(&self) -> ManagerStats {
        status::stats(&self.informed(), self.upkeep.writer.stats())
    }

    /// All physical files, by name.
    pub fn files(&self) -> Vec<FileStatus> {
        status::files(&self.informed())
    }

    /// All live segments, by file and offset.
    pub fn segments(&self) -> Vec<SegmentStatus> {
        status::segments(&self.informed())
    }

    /// The registry with all segments; if some cannot be learned, the next message reports why.
    fn informed(&self) -> MutexGuard<'_, Registry> {
        let _ = self.learn();
        self.shared.registry.lock()
    }
}

fn check_undecided(registry: &Registry, id: CheckpointId) -> Result<()> {
    if !registry.ledger.view().is_decided(id) {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::AttemptEnded,
        format!("persist of checkpoint {id}: it was decided already"),
    ))
}

fn lost_segment(reference: &SegmentRef, owner: &Owner) -> Error {
    Error::new(
        ErrorKind::Poisoned,
        format!("segment {reference} of {owner} may not survive a machine crash: write it again"),
    )
}
