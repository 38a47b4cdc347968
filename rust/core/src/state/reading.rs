//! Reads the state of an operator in all its partitions while the query runs: takes no term, opens
//! no session, and changes no file.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Range;
use std::sync::Arc;

use parking_lot::Mutex;

use super::commit_id::{CommitId, StoreId};
use super::content::changes::split_element;
use super::content::families::{DIRECTORY, FIRST_FAMILY, KeyLayout, decode_entry, split_key};
use super::content::family::FamilyOptions;
use super::content::merge_task::READ_AHEAD_BYTES;
use super::content::scan::put_entry;
use super::memory::MemoryBudget;
use super::runs::entries::Change;
use super::runs::entry_stream::EntryStream;
use super::runs::key_range::KeyRange;
use super::runs::merge::Merge;
use super::store::open_scans::ScanOf;
use super::store::state_store::StateStore;
use crate::error::{Error, ErrorKind, Result};
use crate::format::{SegmentHead, SegmentReader, read_head};
use crate::ids::{Owner, SegmentRef};
use crate::rows::spark::{RowKeys, partition_of};
use crate::storage::Storage;

/// Stores stay in runs, and are read block by block, if they would need more memory together.
const TARGET_BYTES: u64 = 64 << 20;

/// The rows to read of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RowsOf {
    /// All rows of a store without column families, in the order of the keys.
    Store,
    /// Those of a column family.
    Family {
        /// Its name.
        name: String,
        /// It has a list of values per key: a row for each value.
        several_values: bool,
    },
}

impl RowsOf {
    fn layout(&self) -> KeyLayout {
        match self {
            Self::Store => KeyLayout::Plain(FamilyOptions {
                ordered: true,
                ..FamilyOptions::default()
            }),
            Self::Family { .. } => KeyLayout::Columns,
        }
    }

    pub(super) fn has_several_values(&self) -> bool {
        matches!(self, Self::Family { several_values, .. } if *several_values)
    }

    /// The number of the family; `None` in a store where it has no entry yet.
    fn number(&self, store: &StateStore) -> Result<Option<u32>> {
        match self {
            Self::Store => Ok(Some(FIRST_FAMILY)),
            Self::Family { name, .. } => store.families().find(name),
        }
    }
}

/// The stores of an operator with one name, at one version.
#[derive(Debug)]
pub struct OperatorState {
    pub(super) storage: Arc<dyn Storage>,
    budget: Arc<MemoryBudget>,
    pub(super) rows: RowsOf,
    /// By partition.
    pub(super) versions: Vec<(Owner, CommitId)>,
    /// Stores that lookups have opened.
    opened: Mutex<BTreeMap<usize, StateStore>>,
}

/// Values of keys, in the order of the keys.
#[derive(Debug)]
pub struct FoundRows {
    bytes: Vec<u8>,
    places: Vec<Option<Range<usize>>>,
}

impl FoundRows {
    /// The values; `None` without such a key.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Option<&[u8]>> {
        let places = self.places.iter();
        places.map(|place| self.bytes.get(place.clone()?))
    }
}

impl OperatorState {
    /// Finds the stores among the ids of an operator, each with its partition, as the commit log has
    /// them. Rows that wait for a move are in the stores of the older number of partitions.
    ///
    /// # Errors
    /// `NotFound` if a partition has no such store; errors of [`StoreId::needed`].
    pub fn find(
        storage: Arc<dyn Storage>,
        operator: &str,
        store: &str,
        rows: RowsOf,
        ids: &[(u32, String)],
    ) -> Result<Self> {
        let mut found = BTreeMap::new();
        for (partition, text) in ids {
            for (partition, id) in StoreId::needed(*partition, text)? {
                let owner = Owner::new("", operator, &partition.to_string(), store);
                if id.state.owner == owner.tag() {
                    found.insert(partition, (owner, id.state));
                }
            }
        }
        if found.is_empty() || !found.keys().copied().eq(0..found.len() as u32) {
            return Err(Error::new(
                ErrorKind::NotFound,
                format!(
                    "operator {operator}, store {store}: expected an id of each partition in the \
                     commit log, found those of {:?}",
                    found.keys()
                ),
            ));
        }
        let budget = MemoryBudget::unlimited();
        budget.limit(None, Some(TARGET_BYTES));
        Ok(Self {
            storage,
            budget: Arc::new(budget),
            rows,
            versions: found.into_values().collect(),
            opened: Mutex::default(),
        })
    }

    /// Number of keys. Reads all segments.
    ///
    /// # Errors
    /// `NotFound` and `Corrupt`, with file, offset and owner, for a segment that is gone or damaged.
    pub fn keys(&self) -> Result<u64> {
        let mut keys = 0;
        for number in 0..self.versions.len() {
            let mut rows = self.merged(number, false)?;
            while rows.step()? {
                keys += 1;
            }
        }
        Ok(keys)
    }

    /// The values of keys. Reads only the blocks that may have them, each once for keys that are near
    /// each other.
    ///
    /// # Errors
    /// Errors of [`OperatorState::keys`].
    pub fn get(&self, keys: &RowKeys) -> Result<FoundRows> {
        let partitions = self.versions.len() as u32;
        let hashes = keys.hashes.iter();
        let partition = hashes.map(|hash| partition_of(*hash, partitions) as usize);
        let mut rows: Vec<(usize, usize)> = partition.zip(0..).collect();
        rows.sort_by(|(a, i), (b, j)| a.cmp(b).then_with(|| keys.key(*i).cmp(keys.key(*j))));
        let mut found = FoundRows {
            bytes: Vec::new(),
            places: vec![None; rows.len()],
        };
        let mut opened = self.opened.lock();
        for rows in rows.chunk_by(|(a, _), (b, _)| a == b) {
            let number = rows.first().map_or(0, |(number, _)| *number);
            let store = match opened.entry(number) {
                Entry::Occupied(store) => store.into_mut(),
                Entry::Vacant(place) => place.insert(self.open(number)?),
            };
            let Some(family) = self.rows.number(store)? else {
                continue;
            };
            for (_, row) in rows {
                let Some(value) = store.look_up(family, keys.key(*row))? else {
                    continue;
                };
                let start = found.bytes.len();
                found.bytes.extend_from_slice(&value);
                if let Some(place) = found.places.get_mut(*row) {
                    *place = Some(start..found.bytes.len());
                }
            }
            store.count_memory()?;
            if self.budget.used_bytes() > TARGET_BYTES {
                opened.clear();
            }
        }
        Ok(found)
    }

    /// A scan of all rows, partition by partition. Its memory does not follow the size of the state.
    pub fn scan(self: &Arc<Self>) -> OperatorScan {
        OperatorScan {
            state: Arc::clone(self),
            rest: 0..self.versions.len(),
            current: None,
        }
    }

    /// Copies the entries whose keys begin with `prefix` to `out`, as [`StateStore::scan`] does, and
    /// returns their number. They are in the partition that the hash says. Reads only the blocks that
    /// may have them.
    ///
    /// # Errors
    /// Errors of [`OperatorState::keys`]; `InvalidInput` for a family without order.
    pub fn with_prefix(&self, prefix: &[u8], hash: u32, out: &mut Vec<u8>) -> Result<u32> {
        let number = partition_of(hash, self.versions.len() as u32);
        let mut store = self.open(number as usize)?;
        let Some(family) = self.rows.number(&store)? else {
            return Ok(0);
        };
        let keys = ScanOf::Keys(KeyRange::Prefix(prefix));
        Ok(store.scan(family, keys, usize::MAX, out)?.entries)
    }

    fn open(&self, number: usize) -> Result<StateStore> {
        let (owner, id) = self.version(number)?;
        let layout = self.rows.layout();
        let mut store = StateStore::within(owner.clone(), layout, Arc::clone(&self.budget));
        store.open(self.storage.as_ref(), id.version, Some(id))?;
        Ok(store)
    }

    fn merged(&self, number: usize, elements: bool) -> Result<MergedRows> {
        let (owner, _) = self.version(number)?;
        let streams = self.streams(number, &self.segments(number)?.0)?;
        Ok(MergedRows {
            owner: owner.clone(),
            merge: Merge::new(streams).map_err(|e| e.context(owner))?,
            rows: self.rows.clone(),
            elements,
            table: None,
        })
    }

    /// The segments of a store, oldest first, and the head of the newest.
    pub(super) fn segments(&self, number: usize) -> Result<(Vec<SegmentRef>, Option<SegmentHead>)> {
        let (owner, id) = self.version(number)?;
        let Some(newest) = id.segment else {
            return Ok((Vec::new(), None));
        };
        let head = read_head(self.storage.as_ref(), &newest, owner)?;
        let segments = head.lineage.iter().copied().chain([newest]);
        Ok((segments.collect(), Some(head)))
    }

    pub(super) fn streams(
        &self,
        number: usize,
        segments: &[SegmentRef],
    ) -> Result<Vec<EntryStream>> {
        let (owner, _) = self.version(number)?;
        let mut reader = SegmentReader::new(self.storage.as_ref());
        let streams = segments.iter();
        streams
            .map(|segment| {
                Ok(EntryStream::new(reader.stream(
                    segment,
                    owner,
                    READ_AHEAD_BYTES,
                )?))
            })
            .collect()
    }

    pub(super) fn version(&self, number: usize) -> Result<&(Owner, CommitId)> {
        let version = self.versions.get(number);
        version.ok_or_else(|| Error::invalid_input(format!("there is no partition {number}")))
    }
}

/// The rows of one store, merged from its segments in the order of their keys.
struct MergedRows {
    owner: Owner,
    merge: Merge,
    rows: RowsOf,
    /// Rows are the values of lists, and not their keys.
    elements: bool,
    /// The table of the family, once the directory was read, which comes first.
    table: Option<u16>,
}

impl MergedRows {
    /// Moves to the next row; false at the end.
    fn step(&mut self) -> Result<bool> {
        while self.merge.step().map_err(|e| e.context(&self.owner))? {
            let Some((key, Change::Put(value))) = self.merge.current() else {
                continue;
            };
            let RowsOf::Family { name, .. } = &self.rows else {
                return Ok(true);
            };
            let (table, own) = split_key(key)?;
            if table == DIRECTORY && own == name.as_bytes() {
                let (number, _) = decode_entry(own, value)?;
                self.table = u16::try_from(number * 2 + u32::from(self.elements)).ok();
            } else if Some(table) == self.table {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Key and value of the row.
    fn row(&self) -> Result<(&[u8], &[u8])> {
        let (key, change) = self.merge.current().unwrap_or((&[], Change::Remove));
        let (_, key) = self.rows.layout().split(key)?;
        let key = match self.elements {
            true => split_element(key)?.0,
            false => key,
        };
        Ok((key, change.value().unwrap_or_default()))
    }
}

/// A scan of all rows, partition by partition.
pub struct OperatorScan {
    state: Arc<OperatorState>,
    rest: Range<usize>,
    current: Option<MergedRows>,
}

impl OperatorScan {
    /// Copies the next rows to `out` as entries like those of [`StateStore::scan`]: until there are
    /// `max_bytes`, or a partition ends. Returns their number, which is 0 at the end only. Segments
    /// are verified page by page, and as a whole at their end.
    ///
    /// # Errors
    /// Errors of [`OperatorState::keys`].
    pub fn next(&mut self, max_bytes: usize, out: &mut Vec<u8>) -> Result<u32> {
        let elements = self.state.rows.has_several_values();
        let mut rows = 0;
        while rows == 0 {
            let mut current = match self.current.take() {
                Some(current) => current,
                None => match self.rest.next() {
                    Some(number) => self.state.merged(number, elements)?,
                    None => return Ok(0),
                },
            };
            while current.step()? {
                let (key, value) = current.row()?;
                put_entry(out, key, value);
                rows += 1;
                if out.len() >= max_bytes {
                    self.current = Some(current);
                    break;
                }
            }
        }
        Ok(rows)
    }
}
