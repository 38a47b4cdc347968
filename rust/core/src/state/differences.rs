//! The keys whose values differ between two versions of an operator's stores.
//!
//! The segments with which both lineages begin say the same about every key. So a key can differ
//! only if a later segment names it. All later segments are read. Values that they do not name are
//! looked up below, block by block where that reads less than the whole segment.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use super::content::changes::{runs_of_session, split_element};
use super::content::families::{DIRECTORY, decode_entry};
use super::found_differences::FoundDifferences;
use super::reading::{OperatorState, RowsOf};
use super::runs::cursor::BLOCK_BYTES;
use super::runs::entries::Change;
use super::runs::entry_stream::EntryStream;
use super::runs::merge::Merge;
use super::runs::stack::{OpenRun, RunStack};
use crate::error::{Error, ErrorKind, Result};
use crate::format::{RunReader, SegmentHead, SegmentKind};
use crate::ids::SegmentRef;

/// The differences between two versions, partition by partition.
pub struct StateDifferences {
    before: Arc<OperatorState>,
    after: Arc<OperatorState>,
    follows: bool,
    rest: Range<usize>,
    current: Option<(usize, PartitionDifferences)>,
}

impl OperatorState {
    /// Compares with another version of the same stores. If the other version `follows` directly,
    /// reads little more than the changes of its commit. Values before are then not looked up, except
    /// those of lists.
    ///
    /// # Errors
    /// `Unsupported` for versions with different numbers of partitions.
    pub fn differences(
        self: &Arc<Self>,
        after: &Arc<Self>,
        follows: bool,
    ) -> Result<StateDifferences> {
        let [before, partitions] = [self, after].map(|state| state.versions.len());
        if before != partitions {
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!(
                    "the state before has {before} partitions, the state after has {partitions}: \
                     the query was repartitioned between them, so compare all their rows"
                ),
            ));
        }
        Ok(StateDifferences {
            before: Arc::clone(self),
            after: Arc::clone(after),
            follows,
            rest: 0..partitions,
            current: None,
        })
    }

    /// The place of the first segment that the commit of the version wrote; `None` if not known, or
    /// if it wrote all.
    fn own_changes(
        &self,
        number: usize,
        segments: usize,
        head: Option<&SegmentHead>,
    ) -> Result<Option<usize>> {
        let version = self.version(number)?.1.version;
        let Some(newest) = head.filter(|head| head.created.0 == version) else {
            return Ok(Some(segments).filter(|segments| *segments > 0));
        };
        if newest.kind == SegmentKind::Run {
            return Ok(None);
        }
        // All of a version is in runs before its session spills more.
        let spilled = runs_of_session(self.storage.as_ref(), newest)?;
        let place = newest.lineage.len().checked_sub(spilled.len());
        Ok(place.filter(|place| *place > 0))
    }

    /// Opens segments: the oldest of the first `runs` to look `keys` up in, where that reads less.
    fn below(
        &self,
        number: usize,
        segments: &[SegmentRef],
        runs: usize,
        keys: u64,
    ) -> Result<(Vec<Arc<OpenRun>>, Vec<EntryStream>)> {
        let (owner, _) = self.version(number)?;
        let mut opened = Vec::new();
        for segment in segments.iter().take(runs) {
            if segment.len <= keys.saturating_mul(BLOCK_BYTES) {
                break;
            }
            // A stream reports the damage.
            let Ok(run) = RunReader::open(self.storage.as_ref(), segment, owner) else {
                break;
            };
            opened.push(Arc::new(OpenRun::new(run)));
        }
        let others = segments.get(opened.len()..).unwrap_or_default();
        Ok((opened, self.streams(number, others)?))
    }
}

impl StateDifferences {
    /// The next keys that differ, until there are `max_bytes` or a partition ends; none at the end.
    ///
    /// # Errors
    /// Errors of [`OperatorState::keys`]; `Unsupported` for a column family that was made anew.
    pub fn next(&mut self, max_bytes: usize) -> Result<FoundDifferences> {
        let mut found = FoundDifferences::default();
        while found.rows() == 0 {
            let current = self.current.take().map(Ok);
            let Some(current) = current.or_else(|| self.rest.next().map(|next| self.open(next)))
            else {
                break;
            };
            let (number, mut current) = current?;
            let (owner, _) = self.after.version(number)?;
            while current.step(&mut found).map_err(|e| e.context(owner))? {
                if found.bytes() >= max_bytes {
                    self.current = Some((number, current));
                    break;
                }
            }
        }
        Ok(found)
    }

    fn open(&self, number: usize) -> Result<(usize, PartitionDifferences)> {
        let opened = PartitionDifferences::open(&self.before, &self.after, number, self.follows)?;
        Ok((number, opened))
    }
}

struct PartitionDifferences {
    /// The segments of one version alone.
    before: Merge,
    after: Merge,
    /// Those below: runs to look keys up in, and others above, in the order of the keys.
    runs: RunStack,
    shared: Merge,
    looks_up: bool,
    is_list: bool,
    /// First bytes of the keys of the table; `None` without such a table.
    table: Option<Vec<u8>>,
}

impl PartitionDifferences {
    fn open(
        before: &OperatorState,
        after: &OperatorState,
        number: usize,
        follows: bool,
    ) -> Result<Self> {
        let (new, head) = after.segments(number)?;
        let own = match follows {
            true => after.own_changes(number, new.len(), head.as_ref())?,
            false => None,
        };
        let mut old = match own {
            Some(_) => Vec::new(),
            None => before.segments(number)?.0,
        };
        let shared = own.unwrap_or_else(|| {
            let pairs = old.iter().zip(&new);
            pairs.take_while(|(old, new)| old == new).count()
        });
        old.drain(..shared.min(old.len()));
        let (shared, new) = new.split_at(shared);
        let (old, new) = (before.streams(number, &old)?, after.streams(number, new)?);
        let is_list = after.rows.has_several_values();
        let looks_up = own.is_none() || is_list;
        let is_needed = looks_up || after.rows != RowsOf::Store;
        let (runs, shared) = match is_needed && !(old.is_empty() && new.is_empty()) {
            true => {
                let runs = head.map_or(0, |head| head.most_runs());
                let keys = old.iter().chain(&new).map(|one| one.head().entries).sum();
                after.below(number, shared, runs, keys)?
            }
            false => (Vec::new(), Vec::new()),
        };
        let mut opened = Self {
            before: Merge::new(old)?,
            after: Merge::new(new)?,
            runs: RunStack::new(runs),
            shared: Merge::new(shared)?,
            looks_up: true,
            is_list,
            table: Some(Vec::new()),
        };
        if let RowsOf::Family { name, .. } = &after.rows {
            opened.find_table(name)?;
        }
        opened.looks_up = looks_up;
        Ok(opened)
    }

    fn find_table(&mut self, name: &str) -> Result<()> {
        let entry = [&DIRECTORY.to_be_bytes(), name.as_bytes()].concat();
        let number = |entry: &[u8]| Ok(decode_entry(name.as_bytes(), entry)?.0);
        let [before, after] = self.values(&entry, |entries| {
            entries.map(|entry| entry.map(number).transpose())
        })?;
        let (before, after) = (before?, after?);
        if before.is_some_and(|before| after.is_some_and(|after| before != after)) {
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!(
                    "column family {name:?} was removed and made anew between the two versions: \
                     compare all its rows"
                ),
            ));
        }
        let number = after.or(before);
        let table = number.map(|number| number * 2 + u32::from(self.is_list));
        let table = table.and_then(|table| u16::try_from(table).ok());
        self.table = table.map(|table| table.to_be_bytes().to_vec());
        for merge in [&mut self.before, &mut self.after] {
            seek(merge, self.table.as_deref().unwrap_or_default())?;
        }
        Ok(())
    }

    /// Moves to the next key that differs; false at the end.
    fn step(&mut self, found: &mut FoundDifferences) -> Result<bool> {
        loop {
            let merges = [&self.before, &self.after].into_iter();
            let keys = merges.filter_map(|merge| Some(merge.current()?.0));
            let named = keys.min().zip(self.table.as_deref());
            let Some((named, table)) = named.filter(|(named, table)| named.starts_with(table))
            else {
                return Ok(false);
            };
            let (named, table_bytes) = (named.to_vec(), table.len());
            let key = match self.is_list {
                true => split_element(&named)?.0,
                false => named.as_slice(),
            };
            found.begin(key.get(table_bytes..).unwrap_or_default());
            if self.is_list {
                self.push_list(key, found)?;
            } else {
                self.values(key, |values| found.push(values))?;
            }
            for merge in [&mut self.before, &mut self.after] {
                // No key begins with another one, so these are the values and marks of one list.
                while merge
                    .current()
                    .is_some_and(|(other, _)| match self.is_list {
                        true => other.starts_with(key),
                        false => other == key,
                    })
                {
                    merge.step()?;
                }
            }
            if !self.looks_up || found.end() {
                return Ok(true);
            }
        }
    }

    fn push_list(&mut self, key: &[u8], found: &mut FoundDifferences) -> Result<()> {
        for position in 0u64.. {
            let element = [key, &position.to_be_bytes()].concat();
            let values = |values: [Option<&[u8]>; 2]| {
                found.push(values);
                values == [None; 2]
            };
            if self.values(&element, values)? {
                break;
            }
        }
        Ok(())
    }

    /// The values of a key before and after. Keys ascend from call to call.
    fn values<T>(&mut self, key: &[u8], act: impl FnOnce([Option<&[u8]>; 2]) -> T) -> Result<T> {
        let named = [seek(&mut self.before, key)?, seek(&mut self.after, key)?];
        let below = match named {
            [Some(_), Some(_)] => None,
            _ if !self.looks_up => None,
            _ => match seek(&mut self.shared, key)? {
                Some(change) => change.value().map(Cow::Borrowed),
                None => self.runs.find(key)?.map(Cow::Owned),
            },
        };
        let values = named.map(|change| change.map_or(below.as_deref(), Change::value));
        Ok(act(values))
    }
}

/// Moves to the first key that is not smaller, and returns its change if it is equal.
fn seek<'a>(merge: &'a mut Merge, key: &[u8]) -> Result<Option<Change<'a>>> {
    while merge.current().is_some_and(|(other, _)| other < key) {
        merge.step()?;
    }
    let found = merge.current().filter(|(other, _)| *other == key);
    Ok(found.map(|(_, change)| change))
}
