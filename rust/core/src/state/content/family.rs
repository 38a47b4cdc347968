//! One column family: keys with one value each, or with a list of values each. The
//! first table of lists has the number of elements of every key, the second one the elements, by
//! key and position. So appending to a long list writes one element, in memory and in the
//! changelog. For readers of changes, a changelog marks new lists that were begun by appending. The
//! mark removes a position that no list has, which changes nothing when it is applied.

use std::collections::HashSet;

use crate::error::{Error, Result};
use crate::state::runs::key_range::KeyRange;
use crate::state::tables::arena::{Record, RecordAt};
use crate::state::tables::table::Table;

/// Abilities of a family beyond lookups of single keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FamilyOptions {
    /// Scans by prefix and range, in the order of the keys.
    pub ordered: bool,
    /// A list of values per key.
    pub several_values: bool,
    /// It belongs to Spark, not to a user: its keys do not count.
    pub internal: bool,
}

impl FamilyOptions {
    pub(crate) fn to_bits(self) -> u8 {
        u8::from(self.ordered) | u8::from(self.several_values) << 1 | u8::from(self.internal) << 2
    }

    /// Ignores bits of later versions.
    pub fn from_bits(bits: u8) -> Self {
        Self {
            ordered: bits & 1 != 0,
            several_values: bits & 2 != 0,
            internal: bits & 4 != 0,
        }
    }
}

/// Mark of a list that the session began by appending to a new key.
const BEGUN: u64 = u64::MAX;
/// [`BEGUN`] for a key that the session removed first.
const BEGUN_ANEW: u64 = u64::MAX - 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Begun {
    First,
    Anew,
}

impl Begun {
    pub(crate) fn of_position(position: u64) -> Option<Self> {
        match position {
            BEGUN => Some(Self::First),
            BEGUN_ANEW => Some(Self::Anew),
            _ => None,
        }
    }

    /// The element key whose removal says how the list of `key` was begun.
    pub(crate) fn mark(self, key: &[u8]) -> Vec<u8> {
        let position = match self {
            Self::First => BEGUN,
            Self::Anew => BEGUN_ANEW,
        };
        element_key(key, position)
    }
}

/// The content of one column family.
#[derive(Debug)]
pub struct Family {
    options: FamilyOptions,
    /// Key -> value, or key -> number of elements (u64, little-endian).
    pub(crate) heads: Table,
    /// Key and position (u64, big-endian) -> element.
    pub(super) elements: Table,
    /// Keys whose lists the open session began by appending.
    begun: HashSet<Vec<u8>>,
    begun_bytes: usize,
}

impl Family {
    pub(crate) fn new(options: FamilyOptions, session: u32) -> Self {
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

    /// Its abilities.
    pub fn options(&self) -> FamilyOptions {
        self.options
    }

    /// Changes the abilities. An order of the keys remains.
    pub(crate) fn set_options(&mut self, options: FamilyOptions) {
        if options.ordered {
            self.heads.keep_order();
        }
        self.options = options;
    }

    pub(crate) fn repeat(&mut self, other: &Self) -> Result<()> {
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
        self.heads.len() == 0
    }

    pub(crate) fn page_bytes(&self) -> usize {
        self.heads.page_bytes() + self.elements.page_bytes()
    }

    pub(crate) fn is_in_memory(&self) -> bool {
        self.heads.is_in_memory() && self.elements.is_in_memory()
    }

    pub(crate) fn fault_in(&mut self, key: &[u8]) -> Result<()> {
        self.heads.fault_in(key)?;
        if self.elements.is_over_run() && self.heads.get(key).is_some() {
            self.elements.fault_in(&element_key(key, 0))?;
        }
        Ok(())
    }

    /// The value of `key`, or the first one of its list, if in memory, see `StateStore::get`.
    pub fn get(&self, key: &[u8]) -> Option<&[u8]> {
        if self.options.several_values {
            self.heads.get(key)?;
            return self.elements.get(&element_key(key, 0));
        }
        self.heads.get(key)
    }

    pub(crate) fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        if self.options.several_values {
            return self.put_list(key, &[value]);
        }
        self.heads.fault_in(key)?;
        self.heads.put(key, value)
    }

    pub(crate) fn put_list(&mut self, key: &[u8], values: &[&[u8]]) -> Result<()> {
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

    pub(crate) fn append(&mut self, key: &[u8], values: &[&[u8]]) -> Result<()> {
        self.need_lists()?;
        self.heads.fault_in(key)?;
        let before = self.elements_of(key)?;
        self.write_elements(key, before, values)?;
        if before == 0 && !values.is_empty() && self.begun.insert(key.to_vec()) {
            self.begun_bytes += key.len() + size_of::<Vec<u8>>();
        }
        self.set_elements_of(key, before + values.len() as u64)
    }

    pub(crate) fn remove(&mut self, key: &[u8]) -> Result<bool> {
        if self.options.several_values {
            for position in 0..self.fault_in_list(key)? {
                self.elements.remove(&element_key(key, position));
            }
            self.begun.remove(key);
        }
        self.heads.fault_in(key)?;
        Ok(self.heads.remove(key))
    }

    pub(crate) fn keys(&mut self) -> Result<Vec<Vec<u8>>> {
        for key in self.heads.cold_keys(KeyRange::All)? {
            self.heads.fault_in(&key)?;
        }
        let records = self.heads.records();
        Ok(records.map(|record| record.key.to_vec()).collect())
    }

    pub(crate) fn clear(&mut self) -> Result<()> {
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

    /// Every element, or the first one of each key in `range`. Reads the lists into memory.
    pub(crate) fn lists_in(
        &mut self,
        range: KeyRange<'_>,
        every_value: bool,
    ) -> Result<Vec<(RecordAt, RecordAt)>> {
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
        Ok(entries)
    }

    pub(crate) fn list_of(&mut self, key: &[u8]) -> Result<Vec<(RecordAt, RecordAt)>> {
        self.need_lists()?;
        self.fault_in_list(key)?;
        self.heads.pin();
        self.elements.pin();
        let mut entries = Vec::new();
        if let Some(head) = self.heads.find_record(key) {
            self.add_elements(head, key, self.elements_of(key)?, &mut entries)?;
        }
        Ok(entries)
    }

    pub(crate) fn entry(
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

    pub(crate) fn tables_mut(&mut self) -> [&mut Table; 2] {
        [&mut self.heads, &mut self.elements]
    }

    pub(crate) fn marks(&self) -> Vec<Vec<u8>> {
        if self.begun.is_empty() {
            return Vec::new();
        }
        let touched = self.heads.touched();
        let begun = touched.filter(|(key, _)| self.begun.contains(*key));
        let how = |was_there| if was_there { Begun::Anew } else { Begun::First };
        begun
            .map(|(key, was_there)| how(was_there).mark(key))
            .collect()
    }

    pub(crate) fn forget_begun(&mut self) {
        self.begun = HashSet::new();
        self.begun_bytes = 0;
    }

    pub(crate) fn begun_bytes(&self) -> usize {
        self.begun_bytes
    }

    fn need_lists(&self) -> Result<()> {
        if self.options.several_values {
            return Ok(());
        }
        Err(Error::invalid_input(
            "this column family has one value per key, not a list",
        ))
    }

    fn fault_in_list(&mut self, key: &[u8]) -> Result<u64> {
        self.heads.fault_in(key)?;
        let count = self.elements_of(key)?;
        if self.elements.is_over_run() {
            self.fault_in_elements(key, count)?;
        }
        Ok(count)
    }

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
