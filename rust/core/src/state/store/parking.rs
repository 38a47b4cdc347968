//! Parking: a version gets the content of the one before, and the input of its batch is stored as
//! *pending input* with it. This does not read the content, so a damaged store can be parked, too.
//! A commit may *keep* pending input unchanged, or store a part of it again.

use std::collections::{BTreeSet, VecDeque};
use std::ops::RangeInclusive;
use std::sync::Arc;

use super::position::Position;
use super::shared_store::{SharedStore, StoreFolder};
use crate::error::{Error, Result};
use crate::format::{NewSegment, SegmentHead, SegmentKind, read_head, read_segment};
use crate::ids::{CheckpointId, Owner, SegmentRef};
use crate::state::commit_id::{CommitId, MAX_PENDING, Pending, VersionId};
use crate::state::memory::{MemoryBudget, Work};

/// Bytes of input in one segment. Writer and reader hold them twice: raw and compressed.
const PIECE_BYTES: usize = 16 << 20;
/// One input is at most 4 GiB then.
const MAX_PIECES: usize = 256;

/// The input of a batch being written. Without [`Parking::finish`], reclaim takes its segments.
#[derive(Debug)]
pub struct Parking {
    folder: Arc<StoreFolder>,
    owner: Owner,
    budget: Arc<MemoryBudget>,
    base: VersionId,
    created: u64,
    piece_bytes: usize,
    pieces: Vec<SegmentRef>,
    gathered: Vec<u8>,
    work: Option<Work>,
}

impl SharedStore {
    /// Begins to park the version after `version` with this `id` (0: none), wherever the store is.
    ///
    /// # Errors
    /// `InvalidInput` if id and version disagree, for the id of another store, if the input of
    /// 1,024 batches is pending already, and in a folder that is only read.
    pub fn park(&self, version: u64, id: Option<&VersionId>) -> Result<Parking> {
        let folder = Arc::clone(&self.folder);
        folder.writer()?;
        let (owner, budget) = self.owner_and_budget();
        let wrong = |why: String| Error::invalid_input(format!("{owner}: {why}"));
        let empty = VersionId::from(Position::empty(owner.tag(), 0).id);
        let base = id.unwrap_or(&empty);
        if base.state.version != version {
            let found = base.state.version;
            return Err(wrong(format!(
                "version {version} was asked for with the id of version {found}"
            )));
        }
        if base.state.owner != owner.tag() {
            return Err(wrong(format!(
                "version {version} was asked for with the id of another store"
            )));
        }
        if base.pending.len() >= MAX_PENDING {
            return Err(wrong(format!(
                "the input of {MAX_PENDING} batches is pending, which is the most that one id holds"
            )));
        }
        Ok(Parking::new(folder, owner, budget, base.clone()))
    }

    /// Begins to store again a part of the input that made `version`, with a commit that makes
    /// `commit`. [`Parking::finish`] returns only the input's id, for [`VersionId::waiting_for`].
    ///
    /// # Errors
    /// `InvalidInput` if the commit is older than the input, and in a folder that is only read.
    pub fn keep(&self, version: u64, commit: u64) -> Result<Parking> {
        let folder = Arc::clone(&self.folder);
        folder.writer()?;
        let (owner, budget) = self.owner_and_budget();
        if version == 0 || version > commit {
            return Err(Error::invalid_input(format!(
                "{owner}: version {commit} cannot wait for the input of version {version}"
            )));
        }
        let base = VersionId::from(Position::empty(owner.tag(), version - 1).id);
        Ok(Parking {
            created: commit,
            ..Parking::new(folder, owner, budget, base)
        })
    }

    /// Opens the input of the batch that made `version`, which the version with this id waits for.
    ///
    /// # Errors
    /// `InvalidInput` if it is not pending; `NotFound`/`Corrupt` if its last piece is gone/damaged.
    pub fn pending_input(&self, id: &VersionId, version: u64) -> Result<PendingInput> {
        let (owner, budget) = self.owner_and_budget();
        let found = id.pending.iter().find(|pending| pending.version == version);
        let Some(pending) = found else {
            return Err(Error::invalid_input(format!(
                "{owner}: version {} does not wait for the input of version {version}",
                id.state.version
            )));
        };
        let mut input = PendingInput {
            folder: Arc::clone(&self.folder),
            owner,
            budget,
            versions: version..=id.state.version,
            rows: 0,
            pieces: VecDeque::new(),
            piece: Vec::new(),
            position: 0,
            work: None,
        };
        let last = pending.segment;
        let head = input.checked(read_head(input.folder.storage(), &last, &input.owner))?;
        input.rows = head.entries;
        input.pieces = head.lineage.into();
        input.pieces.push_back(last);
        Ok(input)
    }

    fn owner_and_budget(&self) -> (Owner, Arc<MemoryBudget>) {
        let state = self.lock();
        (state.owner().clone(), Arc::clone(state.memory.budget()))
    }
}

impl Parking {
    fn new(
        folder: Arc<StoreFolder>,
        owner: Owner,
        budget: Arc<MemoryBudget>,
        base: VersionId,
    ) -> Self {
        Self {
            created: base.state.version + 1,
            base,
            folder,
            owner,
            budget,
            piece_bytes: PIECE_BYTES,
            pieces: Vec::new(),
            gathered: Vec::new(),
            work: None,
        }
    }

    /// Adds input, which is written in pieces of 16 MiB.
    ///
    /// # Errors
    /// `InvalidInput` for more than 4 GiB; errors of `SegmentWriter::append`.
    pub fn append(&mut self, mut input: &[u8]) -> Result<()> {
        while !input.is_empty() {
            if self.gathered.len() == self.piece_bytes {
                self.write_piece()?;
            }
            let room = self.piece_bytes - self.gathered.len();
            let (now, rest) = input.split_at(input.len().min(room));
            let before = self.gathered.capacity();
            self.gathered.extend_from_slice(now);
            if self.gathered.capacity() != before {
                let bytes = 2 * self.gathered.capacity() as u64;
                self.work = Some(self.budget.begin_work(bytes));
            }
            input = rest;
        }
        Ok(())
    }

    /// Ends the input of so many rows. Returns the parked version's id, as durable as a commit's.
    ///
    /// # Errors
    /// Errors of [`Parking::append`], and of a sync if the pieces are in several files.
    pub fn finish(mut self, rows: u64) -> Result<VersionId> {
        let last = self.write(&self.pieces, rows)?;
        // The driver only knows the file of the last piece.
        let files = self.pieces.iter().map(|piece| piece.file);
        let others: BTreeSet<_> = files.filter(|file| *file != last.file).collect();
        self.folder.writer()?.sync_files(&others)?;
        let version = self.version();
        let state = CommitId {
            version,
            ..self.base.state
        };
        let mut pending = std::mem::take(&mut self.base.pending);
        pending.push(Pending {
            version,
            segment: last,
        });
        Ok(VersionId { state, pending })
    }

    fn write_piece(&mut self) -> Result<()> {
        if self.pieces.len() + 1 == MAX_PIECES {
            return Err(Error::invalid_input(format!(
                "{}: the input of version {} is larger than {MAX_PIECES} pieces of {} bytes, which is the \
                 most that can be parked",
                self.owner,
                self.version(),
                self.piece_bytes
            )));
        }
        let piece = self.write(&[], 0)?;
        self.pieces.push(piece);
        self.gathered.clear();
        Ok(())
    }

    fn write(&self, before: &[SegmentRef], rows: u64) -> Result<SegmentRef> {
        let created = CheckpointId(self.created);
        let new = NewSegment {
            lineage: before,
            entries: rows,
            ..NewSegment::of(&self.owner, created, SegmentKind::InFlight)
        };
        self.folder.writer()?.append(&new, &self.gathered)
    }

    fn version(&self) -> u64 {
        self.base.state.version + 1
    }
}

/// The pending input of one batch. One piece of it is in memory.
#[derive(Debug)]
pub struct PendingInput {
    folder: Arc<StoreFolder>,
    owner: Owner,
    budget: Arc<MemoryBudget>,
    /// Versions for which its segments may have been written; first the version of the batch.
    versions: RangeInclusive<u64>,
    rows: u64,
    /// The remaining pieces, the next one first.
    pieces: VecDeque<SegmentRef>,
    piece: Vec<u8>,
    position: usize,
    work: Option<Work>,
}

impl PendingInput {
    /// All rows of the input.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Bytes of the pieces that were not read yet, from their heads.
    ///
    /// # Errors
    /// `NotFound` or `Corrupt` for a piece that is gone or damaged.
    pub fn bytes(&self) -> Result<u64> {
        let heads = self.pieces.iter().map(|piece| {
            let head = read_head(self.folder.storage(), piece, &self.owner);
            Ok(self.checked(head)?.payload_bytes)
        });
        heads.sum()
    }

    /// The next bytes of a wholly verified piece, at most `max_bytes`; none at the end.
    pub fn read(&mut self, max_bytes: usize) -> Result<&[u8]> {
        while self.position == self.piece.len() && !self.pieces.is_empty() {
            self.read_piece()?;
        }
        let begin = self.position;
        self.position = self.piece.len().min(begin.saturating_add(max_bytes));
        Ok(self.piece.get(begin..self.position).unwrap_or_default())
    }

    fn read_piece(&mut self) -> Result<()> {
        let Some(piece) = self.pieces.front().copied() else {
            return Ok(());
        };
        // Frees the last piece before it reads the next one.
        (self.piece, self.position) = (Vec::new(), 0);
        self.work = None;
        let read = read_segment(self.folder.storage(), &piece, &self.owner);
        let segment = self.explained(read)?;
        self.checked(Ok(segment.head))?;
        self.piece = segment.payload;
        self.work = Some(self.budget.begin_work(self.piece.len() as u64));
        self.pieces.pop_front();
        Ok(())
    }

    fn checked(&self, head: Result<SegmentHead>) -> Result<SegmentHead> {
        self.explained(head.and_then(|head| {
            if head.kind == SegmentKind::InFlight && self.versions.contains(&head.created.0) {
                return Ok(head);
            }
            Err(Error::corrupt(format!(
                "pending input: expected {:?} of versions {:?}, found {:?} of {:?}",
                SegmentKind::InFlight,
                self.versions,
                head.kind,
                head.created
            )))
        }))
    }

    fn explained<T>(&self, read: Result<T>) -> Result<T> {
        read.map_err(|e| {
            if !e.is_damage() {
                return e;
            }
            let batch = self.versions.start().saturating_sub(1);
            Error::new(
                e.kind(),
                format!(
                    "{e}; this is input of batch {batch} that {} waits for, and it is stored nowhere \
                     else: put the file back from a copy, or go back to a batch before {batch}, from \
                     which on Spark reads the source again, or begin with a new checkpoint folder",
                    self.owner
                ),
            )
        })
    }
}

#[cfg(test)]
#[path = "parking_tests.rs"]
mod tests;
