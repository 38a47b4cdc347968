//! Tables of regions: state stores whose segments live by the rule of the manager.
//!
//! A table is opened for each attempt, at the version that the region begins with, and stays in
//! memory between attempts. The segments that it is made of are *held*, so that those of an attempt
//! which ended without a checkpoint, such as a merge, serve the next one. A checkpoint refers to them
//! only by leases, as to all segments.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;

use super::snapshot_manager::SnapshotManager;
use super::table_work::{Merge, TableWork};
use super::upkeep::Upkeep;
use crate::error::{Error, ErrorKind, Result};
use crate::ids::{CheckpointId, FileId, Owner, SegmentRef};
use crate::liveness::{Ledger, Occasion};
use crate::state::{
    CommitId, FIRST_FAMILY, FamilyOptions, KeyLayout, KeyRange, LargeChanges, MemoryBudget,
    MergedRun, ScanOf, SharedStore, StateStore, StoreFolder,
};

/// Changelogs that are worth a merge. As many as Spark gathers before a snapshot.
const MIN_CHANGELOGS: usize = 10;

/// Keys of tables are in order, for scans.
pub(super) const LAYOUT: KeyLayout = KeyLayout::Plain(FamilyOptions {
    ordered: true,
    several_values: false,
    internal: false,
});

/// A commit of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableCommit {
    /// Its version, for [`SnapshotManager::open_table`].
    pub id: CommitId,
    /// All segments that it is made of, oldest first. The checkpoint names them.
    pub segments: Vec<SegmentRef>,
    /// Number of keys.
    pub keys: u64,
}

/// A call of an open table, see [`rows`](crate::rows) for the buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableCall<'a> {
    /// The values of packed keys.
    Get(&'a [u8]),
    /// A byte for each packed key: 1 if it is there.
    Contains(&'a [u8]),
    /// Sets the keys of packed entries.
    Put(&'a [u8]),
    /// Removes packed keys. The answer is that of `Contains` before.
    Remove(&'a [u8]),
    /// Starts a scan; the answer has its first entries.
    Scan {
        /// Its keys.
        range: KeyRange<'a>,
        /// Bound on the entries of an answer.
        max_bytes: usize,
    },
    /// The next entries of a scan.
    ScanOn {
        /// Its number.
        scan: u32,
        /// Bound on the entries of an answer.
        max_bytes: usize,
    },
    /// Ends a scan before its last entry.
    CloseScan(u32),
    /// The number of keys.
    Len,
}

/// The answer to a [`TableCall`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableAnswer {
    /// Values, flags or entries.
    pub bytes: Vec<u8>,
    /// Number of entries in `bytes`, or of keys.
    pub rows: u64,
    /// The scan that has entries left.
    pub scan: Option<u32>,
}

/// The open tables of a manager.
#[derive(Debug)]
pub(super) struct Tables {
    folder: Arc<StoreFolder>,
    budget: Arc<MemoryBudget>,
    pub work: Arc<TableWork>,
    /// See [`ManagerOptions::large_table_bytes`](super::ManagerOptions::large_table_bytes).
    large_bytes: u64,
    opened: Mutex<Opened>,
}

#[derive(Debug, Default)]
struct Opened {
    by_owner: HashMap<Owner, Arc<Table>>,
    by_session: HashMap<u64, Arc<Table>>,
    last_session: u64,
}

#[derive(Debug)]
pub(super) struct Table {
    owner: Owner,
    pub store: SharedStore,
    /// The session that may use it. Changes under the lock of the store only.
    session: AtomicU64,
    /// Its keys come into memory beside the attempts.
    pub hydrates: AtomicBool,
    pub place: Mutex<Place>,
}

/// The checkpoints that a table belongs to.
#[derive(Debug)]
pub(super) struct Place {
    attempt: CheckpointId,
    /// Version that it was opened at.
    base: u64,
    pub held: BTreeSet<SegmentRef>,
    pub merge: Merge,
}

impl Tables {
    pub fn new(upkeep: Arc<Upkeep>, budget: Arc<MemoryBudget>, large_bytes: u64) -> Self {
        let (storage, writer) = (Arc::clone(&upkeep.storage), Arc::clone(&upkeep.writer));
        Self {
            folder: StoreFolder::sharing(storage, writer),
            budget,
            work: TableWork::new(upkeep),
            large_bytes,
            opened: Mutex::default(),
        }
    }

    /// The table of an owner, and a session for it. The last session of the table ends.
    fn begin(&self, owner: &Owner, attempt: CheckpointId, base: u64) -> (Arc<Table>, u64) {
        let mut opened = self.opened.lock();
        opened.last_session += 1;
        let session = opened.last_session;
        let table = opened.by_owner.entry(owner.clone()).or_insert_with(|| {
            let store = StateStore::within(owner.clone(), LAYOUT, Arc::clone(&self.budget));
            Arc::new(Table {
                owner: owner.clone(),
                store: SharedStore::new(Arc::clone(&self.folder), store),
                session: AtomicU64::new(0),
                hydrates: AtomicBool::new(false),
                place: Mutex::new(Place {
                    attempt,
                    base,
                    held: BTreeSet::new(),
                    merge: Merge::None,
                }),
            })
        });
        let table = Arc::clone(table);
        {
            let mut place = table.place.lock();
            place.attempt = attempt;
            place.base = base;
        }
        opened
            .by_session
            .retain(|_, other| !Arc::ptr_eq(other, &table));
        opened.by_session.insert(session, Arc::clone(&table));
        (table, session)
    }

    fn find(&self, session: u64) -> Result<Arc<Table>> {
        let found = self.opened.lock().by_session.get(&session).cloned();
        found.ok_or_else(ended)
    }

    /// Forgets tables whose content no retained checkpoint has: their regions went on elsewhere. While
    /// memory is short, it also forgets those that were not opened for the attempt that was `decided`,
    /// the longest unused first. They are loaded again when their regions have rows.
    pub fn prune(&self, decided: CheckpointId, ledger: &mut Ledger) {
        let mut opened = self.opened.lock();
        let mut resting = Vec::new();
        for table in opened.by_owner.values() {
            let place = table.place.lock();
            if !ledger.view().is_decided(place.attempt) {
                continue;
            }
            let live = ledger.view().live_set(&table.owner);
            let is_live = live.contains(&place.attempt) || live.contains(&CheckpointId(place.base));
            if !is_live || place.attempt < decided {
                resting.push((is_live, place.attempt, Arc::clone(table)));
            }
        }
        resting.sort_by_key(|(is_live, attempt, _)| (*is_live, *attempt));
        for (is_live, _, table) in resting {
            if is_live && !self.budget.is_short(0) {
                break;
            }
            opened.forget(&table);
            table.let_go(ledger);
        }
    }

    /// Gives up merges, and holds nothing that no checkpoint has.
    pub fn end(&self, ledger: &mut Ledger) {
        let opened = self.opened.lock();
        opened
            .by_owner
            .values()
            .for_each(|table| table.let_go(ledger));
    }
}

impl Opened {
    fn forget(&mut self, table: &Arc<Table>) {
        self.by_owner.remove(&table.owner);
        self.by_session
            .retain(|_, other| !Arc::ptr_eq(other, table));
    }
}

impl SnapshotManager {
    /// Opens the table of `owner` for an attempt, with the content of a commit, or without content.
    /// Returns the number of a session for [`SnapshotManager::table`]. An older session of the
    /// same table ends, with its changes.
    ///
    /// Merges what is due. A large merge goes on beside this attempt and those after it. Segments that
    /// the attempt may not refer to are merged as well: those that the manager of another executor wrote,
    /// and those in wasteful files.
    ///
    /// # Errors
    /// `AttemptEnded` when the attempt was decided; `Fenced` when a newer manager took the folder
    /// over; errors of [`StateStore::open`] and of merging.
    pub fn open_table(
        &self,
        owner: &Owner,
        attempt: CheckpointId,
        id: Option<&CommitId>,
    ) -> Result<u64> {
        self.upkeep.check_ours()?;
        let check = |what| self.shared.registry.lock().check_open(what, owner, attempt);
        check("table")?;
        let (table, session) = self
            .tables
            .begin(owner, attempt, id.map_or(0, |id| id.version));
        let writer = self.upkeep.writer.as_ref();
        let mut state = table.store.lock();
        table.session.store(session, Ordering::Relaxed);
        state.abort();
        state.open_before(writer.storage(), attempt.0, id)?;
        let refused = self.refused(&table, state.segments());
        let large_bytes = self.tables.large_bytes;
        let is_slow_to_load = state.unready_bytes() >= large_bytes;
        let least = if is_slow_to_load { 1 } else { MIN_CHANGELOGS };
        let task = state.merge_task(writer, least, &refused);
        let mut is_beside = false;
        if let Some(task) = task {
            // Only a merge at once frees memory for this session.
            let may_wait = task.input_bytes() >= large_bytes && !state.is_starved();
            is_beside = may_wait && self.lease_again(&table, attempt, state.segments()).is_ok();
            if is_beside {
                self.tables.work.add_merge(&table, task);
            } else {
                let run = task.run(writer.storage(), writer)?;
                writer.sync_files(&[run.file()].into())?;
                state.accept(run);
            }
        }
        state.mend(writer)?;
        // A run that is not durable would come below changelogs whose heads do not name it.
        state.take_pending_run();
        self.hold(&table, &state);
        if !is_beside && !self.refused(&table, state.segments()).is_empty() {
            state.write_base_image(writer)?;
            self.hold(&table, &state);
        }
        check("table")?;
        state.begin()?;
        if state.is_hydrating() {
            self.tables.work.add_hydration(&table);
        }
        self.tables.budget.give_back();
        Ok(session)
    }

    /// Calls the table of a session. A damaged run is gone around if older segments have the same
    /// content.
    ///
    /// # Errors
    /// `AttemptEnded` for a session that ended; errors of the store.
    pub fn table(&self, session: u64, call: &TableCall<'_>) -> Result<TableAnswer> {
        let table = self.tables.find(session)?;
        table.store.call(|state| {
            table.check(session)?;
            call.run(state)
        })
    }

    /// Commits the changes of a session, for its attempt. The session ends.
    ///
    /// # Errors
    /// `AttemptEnded` for a session that ended, or when its attempt was decided; errors of
    /// [`StateStore::commit`]; `NotFound` for a segment that was lost meanwhile.
    pub fn commit_table(&self, session: u64) -> Result<TableCommit> {
        self.upkeep.check_ours()?;
        let table = self.tables.find(session)?;
        let attempt = table.place.lock().attempt;
        let registry = self.shared.registry.lock();
        registry.check_open("table", &table.owner, attempt)?;
        drop(registry);
        let mut state = table.store.lock();
        table.check(session)?;
        let mut merged = self.take_merged(&table, attempt);
        let large = LargeChanges {
            bytes: self.tables.large_bytes,
            merges: matches!(table.place.lock().merge, Merge::None),
        };
        let id = state.commit_above(&self.upkeep.writer, &mut merged, large)?;
        if let Some(run) = merged {
            // Without changes no changelog names it.
            table.place.lock().merge = Merge::Done(run);
        }
        self.tables.opened.lock().by_session.remove(&session);
        self.hold(&table, &state);
        let segments = state.segments().to_vec();
        self.lease_again(&table, attempt, &segments)?;
        Ok(TableCommit {
            id,
            segments,
            keys: state.families().keys(),
        })
    }

    /// Ends a session without a commit, if it has not ended yet.
    pub fn close_table(&self, session: u64) {
        let Ok(table) = self.tables.find(session) else {
            return;
        };
        let mut state = table.store.lock();
        if table.check(session).is_ok() {
            state.abort();
        }
        self.tables.opened.lock().by_session.remove(&session);
    }

    /// Leases segments to the attempt of a table; returns the files of those that it may not have.
    fn refused(&self, table: &Table, segments: &[SegmentRef]) -> HashSet<FileId> {
        let attempt = table.place.lock().attempt;
        let mut registry = self.shared.registry.lock();
        let refused = segments
            .iter()
            .filter(|segment| !registry.lease(&table.owner, attempt, segment));
        refused.map(|segment| segment.file).collect()
    }

    /// Leases segments to the attempt of a table that it needs even if their files waste too much.
    fn lease_again(
        &self,
        table: &Table,
        attempt: CheckpointId,
        segments: &[SegmentRef],
    ) -> Result<()> {
        let mut registry = self.shared.registry.lock();
        for segment in segments {
            if !registry.lease_again(&table.owner, attempt, segment) {
                return Err(Error::new(
                    ErrorKind::NotFound,
                    format!(
                        "segment {segment} of {} was lost: write it again",
                        table.owner
                    ),
                ));
            }
        }
        Ok(())
    }

    /// The run of a merge that has ended, for the attempt, if it is still there.
    fn take_merged(&self, table: &Table, attempt: CheckpointId) -> Option<MergedRun> {
        let mut registry = self.shared.registry.lock();
        let merge = &mut table.place.lock().merge;
        let Merge::Done(run) = merge else {
            return None;
        };
        let run = run.clone();
        *merge = Merge::None;
        let is_there = registry.lease_again(&table.owner, attempt, &run.reference);
        is_there.then_some(run)
    }

    /// Holds the segments that a table needs now, and no others.
    fn hold(&self, table: &Table, state: &StateStore) {
        let mut registry = self.shared.registry.lock();
        let mut place = table.place.lock();
        let mut needed: BTreeSet<_> = state.held_segments().collect();
        if let Merge::Done(run) = &place.merge {
            needed.insert(run.reference);
        }
        for segment in needed.difference(&place.held) {
            registry.ledger.hold(segment);
        }
        for segment in place.held.difference(&needed) {
            registry.ledger.let_go(segment);
        }
        place.held = needed;
        drop(registry);
        drop(place);
        self.upkeep.settle(Occasion::Between);
    }
}

impl TableCall<'_> {
    fn run(&self, state: &mut StateStore) -> Result<TableAnswer> {
        let mut answer = TableAnswer::default();
        let out = &mut answer.bytes;
        match *self {
            Self::Get(keys) => state.get_batch(FIRST_FAMILY, keys, out)?,
            Self::Contains(keys) => state.contains_batch(FIRST_FAMILY, keys, out)?,
            Self::Put(entries) => state.put_batch(FIRST_FAMILY, entries)?,
            Self::Remove(keys) => state.remove_batch(FIRST_FAMILY, keys, out)?,
            Self::Scan { range, max_bytes } => {
                let batch = state.scan(FIRST_FAMILY, ScanOf::Keys(range), max_bytes, out)?;
                (answer.rows, answer.scan) = (batch.entries.into(), batch.scan);
            }
            Self::ScanOn { scan, max_bytes } => {
                let batch = state.scan_on(scan, max_bytes, out)?;
                (answer.rows, answer.scan) = (batch.entries.into(), batch.scan);
            }
            Self::CloseScan(scan) => state.close_scan(scan),
            Self::Len => answer.rows = state.families().keys(),
        }
        Ok(answer)
    }
}

impl Table {
    fn check(&self, session: u64) -> Result<()> {
        if self.session.load(Ordering::Relaxed) == session {
            return Ok(());
        }
        Err(ended())
    }

    fn let_go(&self, ledger: &mut Ledger) {
        let mut place = self.place.lock();
        place.merge = Merge::None;
        let held = std::mem::take(&mut place.held);
        held.iter().for_each(|segment| ledger.let_go(segment));
    }
}

fn ended() -> Error {
    Error::new(
        ErrorKind::AttemptEnded,
        "this session of a table has ended: it was committed or closed, or a later attempt opened \
         the table",
    )
}
