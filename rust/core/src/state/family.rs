//! One column family: keys with one value each, or with a list of values each.
//!
//! A list is kept element by element, so appending to a long list writes one element, in memory and
//! in the changelog: the first table has the number of elements of every key, the second one the
//! elements, by key and position.
//!
//! A changelog says of a list that is new in it whether it was set or begun by appending, for readers
//! of changes: a removal of a position that no list has stands for the latter. It changes nothing
//! where the changelog is applied.

use std::collections::HashSet;

use super::arena::{Record, RecordAt};
use super::order::KeyRange;
use super::scan::Scan;
use super::table::Table;
use crate::error::{Error, Result};

/// What a family can do beyond looking up single keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FamilyOptions {
    /// Scans by prefix and range, in the order of the keys.
    pub ordered: bool,
    /// A list of values per key.
    pub several_values: bool,
    /// Belongs to Spark, not to a user: its keys are not counted.
    pub internal: bool,
}

impl FamilyOptions {
    pub(super) fn to_bits(self) -> u8 {
        u8::from(self.ordered) | u8::from(self.several_values) << 1 | u8::from(self.internal) << 2
    }

    /// Bits of later versions are ignored.
    pub fn from_bits(bits: u8) -> Self {
        Self {
            ordered: bits & 1 != 0,
            several_values: bits & 2 != 0,
            internal: bits & 4 != 0,
        }
    }
}

/// Position that a changelog removes of a list that the session began by appending, whose key was not
/// there before.
const BEGUN: u64 = u64::MAX;

/// As [`BEGUN`], where the key was there before and the session removed it first.
const BEGUN_ANEW: u64 = u64::MAX - 1;

/// How a list came to be that is new in a changelog.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Begun {
    /// By appending to a key that was not there.
    First,
    /// By removing the key and appending to it.
    Anew,
}

impl Begun {
    /// What the removal of an element's position stands for; `None` for a position that lists have.
    pub(super) fn of_position(position: u64) -> Option<Self> {
        match position {
            BEGUN => Some(Self::First),
            BEGUN_ANEW => Some(Self::Anew),
            _ => None,
        }
    }
}

/// The content of one column family.
#[derive(Debug)]
pub struct Family {
    options: FamilyOptions,
    /// Key -> value, or key -> number of elements (u64, little-endian).
    heads: Table,
    /// Key and position (u64, big-endian) -> element.
    elements: Table,
    /// Keys whose lists the open session began by appending.
    begun: HashSet<Vec<u8>>,
    begun_bytes: usize,
}

impl Family {
    /// An empty family whose tables count sessions from `session` on.
    pub(super) fn new(options: FamilyOptions, session: u32) -> Self {
        let mut heads = Table::from_session(session);
        if options.ordered {
            heads.keep_order();
        }
        Self {
            options,
            heads,
            elements: Table::from_session(session),
            begun: HashSet::new(),
            begun_bytes: 0,
        }
    }

    /// What it can do.
    pub fn options(&self) -> FamilyOptions {
        self.options
    }

    /// Changes what it can do. The order of the keys, once kept, is kept on.
    pub(super) fn set_options(&mut self, options: FamilyOptions) {
        if options.ordered {
            self.heads.keep_order();
        }
        self.options = options;
    }

    /// Repeats what the open session of `other` changed.
    ///
    /// # Errors
    /// As [`Table::put`].
    pub(super) fn repeat(&mut self, other: &Self) -> Result<()> {
        self.set_options(other.options);
        self.begun.clone_from(&other.begun);
        self.begun_bytes = other.begun_bytes;
        self.heads.repeat(&other.heads)?;
        self.elements.repeat(&other.elements)
    }

    /// Number of keys.
    pub fn len(&self) -> usize {
        self.heads.len()
    }

    /// True without keys.
    pub fn is_empty(&self) -> bool {
        self.heads.is_empty()
    }

    pub(super) fn page_bytes(&self) -> usize {
        self.heads.page_bytes() + self.elements.page_bytes()
    }

    /// Whether no key is in a run only.
    pub(super) fn is_in_memory(&self) -> bool {
        self.heads.is_in_memory() && self.elements.is_in_memory()
    }

    /// Reads what [`Family::get`] needs of `key` if that is in a run only.
    ///
    /// # Errors
    /// As [`Table::fault_in`].
    pub(super) fn fault_in(&mut self, key: &[u8]) -> Result<()> {
        self.heads.fault_in(key)?;
        if self.elements.is_over_run() && self.heads.get(key).is_some() {
            self.elements.fault_in(&element_key(key, 0))?;
        }
        Ok(())
    }

    /// The value of `key`, the first one of a list, if it is in memory; see
    /// [`StateStore::get`](super::StateStore::get).
    pub fn get(&self, key: &[u8]) -> Option<&[u8]> {
        if self.options.several_values {
            self.heads.get(key)?;
            return self.elements.get(&element_key(key, 0));
        }
        self.heads.get(key)
    }

    /// Sets `key` to one value.
    ///
    /// # Errors
    /// `InvalidInput` for an entry above 4 GiB.
    pub(super) fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        if self.options.several_values {
            return self.put_list(key, &[value]);
        }
        self.heads.fault_in(key)?;
        self.heads.put(key, value)
    }

    /// Sets `key` to a list; an empty one removes it.
    ///
    /// # Errors
    /// As [`Family::put`]; for a family with one value per key.
    pub(super) fn put_list(&mut self, key: &[u8], values: &[&[u8]]) -> Result<()> {
        self.need_lists()?;
        let before = self.fault_in_list(key)?;
        self.write_elements(key, 0, values)?;
        let after = values.len() as u64;
        for position in after..before {
            self.elements.remove(&element_key(key, position));
        }
        self.begun.remove(key);
        self.set_elements_of(key, after)
    }

    /// Appends to the list of `key`.
    ///
    /// # Errors
    /// As [`Family::put_list`].
    pub(super) fn append(&mut self, key: &[u8], values: &[&[u8]]) -> Result<()> {
        self.need_lists()?;
        self.heads.fault_in(key)?;
        let before = self.elements_of(key)?;
        self.write_elements(key, before, values)?;
        if before == 0 && !values.is_empty() && self.begun.insert(key.to_vec()) {
            self.begun_bytes += key.len() + size_of::<Vec<u8>>();
        }
        self.set_elements_of(key, before + values.len() as u64)
    }

    /// Removes a key with all its values; false when it was not there.
    ///
    /// # Errors
    /// `Corrupt` when the number of elements cannot be read; those of reading a key that is not in memory.
    pub(super) fn remove(&mut self, key: &[u8]) -> Result<bool> {
        if self.options.several_values {
            for position in 0..self.fault_in_list(key)? {
                self.elements.remove(&element_key(key, position));
            }
            self.begun.remove(key);
        }
        self.heads.fault_in(key)?;
        Ok(self.heads.remove(key))
    }

    /// All keys. Those that are in a run only are read into memory.
    ///
    /// # Errors
    /// Those of reading.
    pub(super) fn keys(&mut self) -> Result<Vec<Vec<u8>>> {
        for key in self.heads.cold_keys(KeyRange::All)? {
            self.heads.fault_in(&key)?;
        }
        let records = self.heads.records();
        Ok(records.map(|record| record.key.to_vec()).collect())
    }

    /// Removes everything.
    pub(super) fn clear(&mut self) -> Result<()> {
        self.forget_begun();
        for table in [&mut self.heads, &mut self.elements] {
            for key in table.cold_keys(KeyRange::All)? {
                table.fault_in(&key)?;
            }
            for at in table.select(KeyRange::All)? {
                if let Some(key) = table.record(at).map(|record| record.key.to_vec()) {
                    table.remove(&key);
                }
            }
        }
        Ok(())
    }

    /// A scan of the keys in `range`. `every_value` asks for an entry per value of a list, else there
    /// is one per key, with its first value. Lists that it hands out are read into memory.
    ///
    /// # Errors
    /// `InvalidInput` for a range of a family that is not ordered; those of reading.
    pub(super) fn scan(&mut self, range: KeyRange<'_>, every_value: bool) -> Result<Scan> {
        if !self.options.several_values {
            return Ok(match self.heads.pass(range)? {
                Some(pass) => Scan::of_pass(pass),
                None => Scan::of_keys(self.heads.select(range)?),
            });
        }
        for key in self.heads.cold_keys(range)? {
            self.heads.fault_in(&key)?;
        }
        let heads = self.heads.select(range)?;
        let most = if every_value { u64::MAX } else { 1 };
        if self.elements.is_over_run() {
            for head in &heads {
                if let Some(Record { key, value }) = self.heads.record(*head) {
                    let (key, count) = (key.to_vec(), decode_count(value)?);
                    self.fault_in_elements(&key, count.min(most))?;
                }
            }
        }
        self.elements.pin();
        let mut entries = Vec::with_capacity(heads.len());
        for head in heads {
            if let Some(Record { key, value }) = self.heads.record(head) {
                let count = decode_count(value)?;
                self.add_elements(head, key, count.min(most), &mut entries)?;
            }
        }
        Ok(Scan::of_elements(entries))
    }

    /// A scan of the values of one key.
    ///
    /// # Errors
    /// `InvalidInput` for a family with one value per key.
    pub(super) fn scan_values(&mut self, key: &[u8]) -> Result<Scan> {
        self.need_lists()?;
        self.fault_in_list(key)?;
        self.heads.pin();
        self.elements.pin();
        let mut entries = Vec::new();
        if let Some(head) = self.heads.find_record(key) {
            self.add_elements(head, key, self.elements_of(key)?, &mut entries)?;
        }
        Ok(Scan::of_elements(entries))
    }

    /// Key and value of an entry of a scan.
    pub(super) fn entry(
        &self,
        head: RecordAt,
        element: Option<RecordAt>,
    ) -> Option<(&[u8], &[u8])> {
        let head = self.heads.record(head)?;
        let value = match element {
            None => head.value,
            Some(element) => self.elements.record(element)?.value,
        };
        Some((head.key, value))
    }

    pub(super) fn heads(&self) -> &Table {
        &self.heads
    }

    pub(super) fn heads_mut(&mut self) -> &mut Table {
        &mut self.heads
    }

    pub(super) fn elements_mut(&mut self) -> &mut Table {
        &mut self.elements
    }

    pub(super) fn tables(&self) -> (&Table, &Table) {
        (&self.heads, &self.elements)
    }

    pub(super) fn tables_mut(&mut self) -> (&mut Table, &mut Table) {
        (&mut self.heads, &mut self.elements)
    }

    /// Element keys whose removal in a changelog says how lists of the session were begun.
    pub(super) fn marks(&self) -> Vec<Vec<u8>> {
        if self.begun.is_empty() {
            return Vec::new();
        }
        let begun = self
            .heads
            .touched()
            .filter(|(key, _)| self.begun.contains(*key));
        begun
            .map(|(key, was_there)| element_key(key, if was_there { BEGUN_ANEW } else { BEGUN }))
            .collect()
    }

    /// A session began or ended.
    pub(super) fn forget_begun(&mut self) {
        self.begun = HashSet::new();
        self.begun_bytes = 0;
    }

    /// Bytes taken for [`Family::marks`], about.
    pub(super) fn begun_bytes(&self) -> usize {
        self.begun_bytes
    }

    pub(super) fn each(&mut self, act: &mut impl FnMut(&mut Table)) {
        act(&mut self.heads);
        act(&mut self.elements);
    }

    fn need_lists(&self) -> Result<()> {
        if self.options.several_values {
            return Ok(());
        }
        Err(Error::invalid_input(
            "this column family has one value per key, not a list",
        ))
    }

    /// Reads a list if it is in a run only; returns its length.
    fn fault_in_list(&mut self, key: &[u8]) -> Result<u64> {
        self.heads.fault_in(key)?;
        let count = self.elements_of(key)?;
        if self.elements.is_over_run() {
            self.fault_in_elements(key, count)?;
        }
        Ok(count)
    }

    /// Reads the first elements of a list, as far as there are any, if they are in a run only.
    fn fault_in_elements(&mut self, key: &[u8], count: u64) -> Result<()> {
        for position in 0..count {
            let element = element_key(key, position);
            self.elements.fault_in(&element)?;
            if self.elements.find_record(&element).is_none() {
                break;
            }
        }
        Ok(())
    }

    fn elements_of(&self, key: &[u8]) -> Result<u64> {
        self.heads.get(key).map_or(Ok(0), decode_count)
    }

    fn set_elements_of(&mut self, key: &[u8], count: u64) -> Result<()> {
        if count == 0 {
            self.heads.remove(key);
            return Ok(());
        }
        self.heads.put(key, &count.to_le_bytes())
    }

    fn write_elements(&mut self, key: &[u8], from: u64, values: &[&[u8]]) -> Result<()> {
        for (position, value) in (from..).zip(values) {
            self.elements.put(&element_key(key, position), value)?;
        }
        Ok(())
    }

    fn add_elements(
        &self,
        head: RecordAt,
        key: &[u8],
        count: u64,
        entries: &mut Vec<(RecordAt, RecordAt)>,
    ) -> Result<()> {
        for position in 0..count {
            let element = self.elements.find_record(&element_key(key, position));
            let element = element.ok_or_else(|| {
                Error::corrupt(format!("value {position} of {count} of a key is missing"))
            })?;
            entries.push((head, element));
        }
        Ok(())
    }
}

fn element_key(key: &[u8], position: u64) -> Vec<u8> {
    [key, &position.to_be_bytes()].concat()
}

fn decode_count(value: &[u8]) -> Result<u64> {
    let bytes = <[u8; 8]>::try_from(value).map_err(|_| {
        Error::corrupt(format!(
            "the number of values of a key has {} bytes, expected 8",
            value.len()
        ))
    })?;
    Ok(u64::from_le_bytes(bytes))
}
