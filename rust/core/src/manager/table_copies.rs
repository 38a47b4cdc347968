//! Tables of another folder as tables here, in bounded memory: copied, or several divided again.

use super::snapshot_manager::SnapshotManager;
use super::table_calls::TableCommit;
use super::tables::LAYOUT;
use crate::error::{Error, Result};
use crate::format::{NewSegment, SegmentKind};
use crate::ids::{CheckpointId, Owner, SegmentRef};
use crate::rows::Packed;
use crate::state::{
    CommitId, DeltaMarks, FIRST_FAMILY, KeyRange, MemoryBudget, ScanOf, StateStore,
};
use crate::storage::Storage;

const READ_BYTES: usize = 1 << 20;

/// Keys come from runs page by page.
const ALL: ScanOf<'_> = ScanOf::Keys(KeyRange::Between {
    from: None,
    to: None,
});

/// Chooses rows of a table: gets its place among the tables and packed entries, and returns a byte for
/// each entry, 0 to leave it out.
pub type ChooseRows<'a> = dyn FnMut(usize, u64, &[u8]) -> Result<Vec<u8>> + 'a;

impl SnapshotManager {
    /// Writes the table of `before`, in `source`, as the table of `owner` for a checkpoint: one
    /// base image, page by page.
    ///
    /// # Errors
    /// Errors of [`StateStore::open`] and of storage.
    pub fn copy_table(
        &self,
        source: &dyn Storage,
        before: (&Owner, &CommitId),
        owner: &Owner,
        checkpoint: CheckpointId,
    ) -> Result<TableCommit> {
        self.upkeep.check_ours()?;
        let state = opened(source, before)?;
        let keys = state.families().keys();
        let mut segment = None;
        if keys > 0 {
            let new = NewSegment::of(owner, checkpoint, SegmentKind::Run);
            let mut run = self.upkeep.writer.begin_run(&new)?;
            state.families().snapshot(&mut run)?;
            segment = Some(run.finish_durable()?);
        }
        let version = before.1.version;
        Ok(commit_of(owner, checkpoint, version, segment, keys))
    }

    /// Writes chosen rows of the tables of `before`, in `source`, as one table of `owner` for a
    /// checkpoint. No key is chosen in two tables.
    ///
    /// # Errors
    /// Errors of [`Self::copy_table`] and `choose`; `InvalidInput` for a key that is chosen twice.
    pub fn divide_tables(
        &self,
        source: &dyn Storage,
        before: &[(Owner, CommitId)],
        owner: &Owner,
        checkpoint: CheckpointId,
        choose: &mut ChooseRows<'_>,
    ) -> Result<TableCommit> {
        self.upkeep.check_ours()?;
        let mut tables = Vec::with_capacity(before.len());
        for (number, (owner, id)) in before.iter().enumerate() {
            let mut table = Chosen {
                number,
                state: opened(source, (owner, id))?,
                scan: Scan::Begin,
                entries: Vec::new(),
                next: None,
                at: 0,
                chosen: Vec::new().into_iter(),
            };
            table.advance(choose)?;
            tables.push(table);
        }
        let new = NewSegment::of(owner, checkpoint, SegmentKind::Run);
        let mut run = self.upkeep.writer.begin_run(&new)?;
        let mut keys = 0;
        while let Some(table) = least(&mut tables) {
            if let Some((key, value)) = table.entry()? {
                run.push(&[], key, Some(value))?;
                keys += 1;
            }
            table.advance(choose)?;
        }
        let version = before.iter().map(|(_, id)| id.version).max();
        let mut segment = None;
        if keys > 0 {
            segment = Some(run.finish_durable()?);
        }
        let version = version.unwrap_or(0);
        Ok(commit_of(owner, checkpoint, version, segment, keys))
    }
}

/// All entries of a table in `source`, as [`rows`](crate::rows) packs them.
///
/// # Errors
/// Errors of [`StateStore::open`] and of storage.
pub fn read_table(source: &dyn Storage, owner: &Owner, id: &CommitId) -> Result<Vec<u8>> {
    let mut state = opened(source, (owner, id))?;
    let mut entries = Vec::new();
    let mut batch = state.scan(FIRST_FAMILY, ALL, READ_BYTES, &mut entries)?;
    while let Some(scan) = batch.scan {
        batch = state.scan_on(scan, READ_BYTES, &mut entries)?;
    }
    Ok(entries)
}

/// A table to read. Keys of runs are not loaded.
fn opened(source: &dyn Storage, (owner, id): (&Owner, &CommitId)) -> Result<StateStore> {
    let budget = MemoryBudget::unlimited();
    budget.set_target_bytes(Some(0));
    budget.set_load_bytes(0);
    let mut state = StateStore::within(owner.clone(), LAYOUT, budget.into());
    state.open(source, id.version, Some(id))?;
    Ok(state)
}

/// The commit of a table that is one base image, or empty.
fn commit_of(
    owner: &Owner,
    floor: CheckpointId,
    version: u64,
    segment: Option<SegmentRef>,
    keys: u64,
) -> TableCommit {
    TableCommit {
        id: CommitId {
            version,
            floor,
            deltas: DeltaMarks::NONE,
            owner: owner.tag(),
            segment,
            replaced: None,
        },
        segments: segment.into_iter().collect(),
        keys,
    }
}

#[derive(Clone, Copy)]
enum Scan {
    Begin,
    On(u32),
    End,
}

/// The chosen rows of a table, in the order of keys.
struct Chosen {
    number: usize,
    state: StateStore,
    scan: Scan,
    /// The entries that were read last.
    entries: Vec<u8>,
    /// Offset of the next chosen entry.
    next: Option<usize>,
    /// Offset of the entry after it.
    at: usize,
    chosen: std::vec::IntoIter<u8>,
}

impl Chosen {
    fn entry(&self) -> Result<Option<(&[u8], &[u8])>> {
        let rest = self.next.and_then(|at| self.entries.get(at..));
        rest.map_or(Ok(None), |rest| Packed::of(rest).entry())
    }

    fn key(&self) -> Option<&[u8]> {
        self.entry().ok().flatten().map(|(key, _)| key)
    }

    fn advance(&mut self, choose: &mut ChooseRows<'_>) -> Result<()> {
        self.next = None;
        loop {
            for chosen in self.chosen.by_ref() {
                let start = self.at;
                let mut rest = Packed::of(self.entries.get(start..).unwrap_or_default());
                let Some((key, value)) = rest.entry()? else {
                    break;
                };
                self.at = start + 8 + key.len() + value.len();
                if chosen != 0 {
                    self.next = Some(start);
                    return Ok(());
                }
            }
            self.entries.clear();
            let out = &mut self.entries;
            let batch = match self.scan {
                Scan::Begin => self.state.scan(FIRST_FAMILY, ALL, READ_BYTES, out)?,
                Scan::On(scan) => self.state.scan_on(scan, READ_BYTES, out)?,
                Scan::End => return Ok(()),
            };
            self.scan = batch.scan.map_or(Scan::End, Scan::On);
            let rows = u64::from(batch.entries);
            let chosen = choose(self.number, rows, &self.entries)?;
            if chosen.len() as u64 != rows {
                return Err(Error::invalid_input(format!(
                    "expected a choice for each of {rows} rows, found {}",
                    chosen.len()
                )));
            }
            self.chosen = chosen.into_iter();
            self.at = 0;
        }
    }
}

fn least(tables: &mut [Chosen]) -> Option<&mut Chosen> {
    let left = tables.iter_mut().filter(|table| table.next.is_some());
    left.min_by(|one, other| one.key().cmp(&other.key()))
}
