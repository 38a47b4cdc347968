//! The calls for tables of regions, see [`tables`](super::tables).

use std::collections::{BTreeSet, HashSet};
use std::sync::atomic::Ordering;

use super::snapshot_manager::SnapshotManager;
use super::table::{Merge, Table};
use crate::error::{Error, ErrorKind, Result};
use crate::ids::{CheckpointId, FileId, Owner, SegmentRef};
use crate::liveness::Occasion;
use crate::state::{CommitId, FIRST_FAMILY, KeyRange, LargeChanges, MergedRun, ScanOf, StateStore};

/// Changelogs that are worth a merge. As many as Spark gathers before a snapshot.
const MIN_CHANGELOGS: usize = 10;

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
    /// Removes packed keys. Answers as `Contains` before.
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

impl SnapshotManager {
    /// Opens the table of `owner` for an attempt, with the content of a commit, or empty. Returns
    /// the number of a session for [`SnapshotManager::table`]. An older session of the same table
    /// ends, with its changes.
    ///
    /// Merges what is due. A large merge continues during this attempt and later ones. A merge also
    /// takes segments that the attempt may not refer to: those in wasteful files, and those that
    /// the manager of another executor wrote.
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
        // Later changelogs would not name a run below them that is not durable.
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

    /// Calls the table of a session. Older segments with the same content replace a damaged run.
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
    /// [`StateStore::commit`]; `NotFound` for a segment that was lost since.
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

    /// Leases segments to a table's attempt; returns the files of segments that it may not have.
    fn refused(&self, table: &Table, segments: &[SegmentRef]) -> HashSet<FileId> {
        let attempt = table.place.lock().attempt;
        let mut registry = self.shared.registry.lock();
        let refused = segments
            .iter()
            .filter(|segment| !registry.lease(&table.owner, attempt, segment));
        refused.map(|segment| segment.file).collect()
    }

    /// Leases segments that the attempt of a table needs, even if their files waste too much.
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

    /// The run of a finished merge, for the attempt, if it is still there.
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
