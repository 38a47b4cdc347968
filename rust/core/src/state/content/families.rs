//! The column families of one store. A plain store has one table, whose keys go to files unchanged.
//! A store with column families has a directory of names, a table for each family, and a second one
//! for each family with several values per key. On disk they share one space of keys, whose first
//! two bytes name the table.

use std::sync::Arc;

use super::family::{Family, FamilyOptions};
use crate::error::{Error, Result};
use crate::segment::RunWriter;
use crate::state::runs::entries::{Change, ChangeWriter};
use crate::state::runs::entry_stream::EntryStream;
use crate::state::runs::stack::RunStack;
use crate::state::tables::table::Table;

/// Families have two numbers on disk each, below 2^16. The directory has number 0.
const MAX_FAMILIES: u32 = (1 << 15) - 1;
pub(crate) const DIRECTORY: u16 = 0;
/// The family of a plain store, and the first of a store with column families.
pub const FIRST_FAMILY: u32 = 1;

/// Layout of a store's keys on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyLayout {
    /// One family without a name.
    Plain(FamilyOptions),
    /// Families by name, made while the store is in use.
    Columns,
}

impl KeyLayout {
    pub(crate) fn split(self, key: &[u8]) -> Result<(&[u8], &[u8])> {
        match self {
            Self::Plain(_) => Ok((&[], key)),
            Self::Columns => {
                let (_, own) = split_key(key)?;
                Ok((key.strip_suffix(own).unwrap_or_default(), own))
            }
        }
    }
}

#[derive(Debug)]
pub(crate) struct SessionChanges {
    pub entries: ChangeWriter,
    of_directory: u64,
}

impl SessionChanges {
    pub fn of_keys(&self) -> u64 {
        self.entries.entries() - self.of_directory
    }
}

/// All tables of one store.
#[derive(Debug)]
pub struct Families {
    layout: KeyLayout,
    /// Name -> number and options. Only the directory says which families exist.
    directory: Table,
    /// By number, from [`FIRST_FAMILY`]. Families that an abort took back are empty.
    families: Vec<Family>,
    runs: Option<Arc<RunStack>>,
    past_reads: u64,
    /// Versions with changes since it lies over runs, ascending, with the sessions that made them.
    marks: Vec<(u64, u32)>,
}

impl Families {
    pub(crate) fn new(layout: KeyLayout) -> Self {
        let families = match layout {
            KeyLayout::Plain(options) => vec![Family::new(options, 0)],
            KeyLayout::Columns => Vec::new(),
        };
        Self {
            layout,
            directory: Table::default(),
            families,
            runs: None,
            past_reads: 0,
            marks: Vec::new(),
        }
    }

    pub(crate) fn layout(&self) -> KeyLayout {
        self.layout
    }

    /// The family with this number.
    ///
    /// # Errors
    /// `InvalidInput` when there is none.
    pub fn family(&self, number: u32) -> Result<&Family> {
        let found = self.families.get(index_of(number));
        found.ok_or_else(|| no_family(number))
    }

    pub(crate) fn family_mut(&mut self, number: u32) -> Result<&mut Family> {
        let found = self.families.get_mut(index_of(number));
        found.ok_or_else(|| no_family(number))
    }

    /// Number of the family `name`.
    ///
    /// # Errors
    /// `Corrupt` when the directory cannot be read.
    pub fn find(&self, name: &str) -> Result<Option<u32>> {
        Ok(self.find_entry(name)?.map(|(number, _)| number))
    }

    fn find_entry(&self, name: &str) -> Result<Option<(u32, FamilyOptions)>> {
        let entry = self.directory.get(name.as_bytes());
        let entry = entry.map(|entry| decode_entry(name.as_bytes(), entry));
        entry.transpose()
    }

    /// Names of all families.
    pub fn names(&self) -> Vec<String> {
        let keys = self.directory.records().map(|record| record.key);
        keys.map(|name| String::from_utf8_lossy(name).into_owned())
            .collect()
    }

    /// Number of the family, made if needed. Adds options: a later program may first need scans.
    pub(crate) fn open(&mut self, name: &str, options: FamilyOptions) -> Result<u32> {
        if let KeyLayout::Plain(_) = self.layout {
            return Err(Error::invalid_input(format!(
                "a store without column families cannot have one named {name:?}"
            )));
        }
        if let Some((number, known)) = self.find_entry(name)? {
            if known.several_values != options.several_values {
                return Err(Error::invalid_input(format!(
                    "column family {name:?} was made with {} per key and cannot be opened with {}",
                    values(known),
                    values(options)
                )));
            }
            let more = FamilyOptions {
                ordered: known.ordered || options.ordered,
                ..options
            };
            self.family_mut(number)?.set_options(more);
            return Ok(number);
        }
        let number = self.families.len() as u32 + FIRST_FAMILY;
        if number > MAX_FAMILIES {
            return Err(Error::invalid_input(format!(
                "column family {name:?} is one too many: a store can make {MAX_FAMILIES}"
            )));
        }
        self.push_family(options);
        self.directory
            .put(name.as_bytes(), &encode_entry(number, options))?;
        Ok(number)
    }

    pub(crate) fn drop_family(&mut self, name: &str) -> Result<bool> {
        let Some(number) = self.find(name)? else {
            return Ok(false);
        };
        self.family_mut(number)?.clear()?;
        Ok(self.directory.remove(name.as_bytes()))
    }

    /// Number of keys in families of users, without Spark's own ones.
    pub fn keys(&self) -> u64 {
        let families = self.families.iter();
        let users = families.filter(|family| !family.options().internal);
        users.map(|family| family.len() as u64).sum()
    }

    /// Bytes taken from the allocator.
    pub fn memory_bytes(&self) -> usize {
        let tables: usize = self.tables().map(|(_, table)| table.memory_bytes()).sum();
        let begun: usize = self.families.iter().map(Family::begun_bytes).sum();
        tables + begun + self.runs.as_ref().map_or(0, |runs| runs.memory_bytes())
    }

    pub(crate) fn begin(&mut self) {
        self.turn(Table::begin);
    }

    pub(crate) fn commit(&mut self) {
        self.turn(Table::commit);
    }

    pub(crate) fn abort(&mut self) {
        self.turn(Table::abort);
    }

    pub(crate) fn changes(&self) -> Option<SessionChanges> {
        let mut entries = ChangeWriter::default();
        let mut of_directory = 0;
        // Pushing to memory does not fail.
        let _ = self.each_change(|prefix, key, change| {
            entries.push(prefix, key, change);
            of_directory += u64::from(prefix == Prefix::new(DIRECTORY).0);
            Ok(())
        });
        (entries.entries() > 0).then_some(SessionChanges {
            entries,
            of_directory,
        })
    }

    /// Returns the number of entries. Omits removals if no runs are below (`is_first`).
    pub(crate) fn write_changes(&self, is_first: bool, out: &mut RunWriter<'_>) -> Result<u64> {
        let mut written = 0;
        self.each_change(|prefix, key, change| {
            if change == Change::Remove && is_first {
                return Ok(());
            }
            written += 1;
            out.push(prefix, key, change.value())
        })?;
        Ok(written)
    }

    /// Calls `act` in the order on disk, with the prefix of each key's table.
    fn each_change(
        &self,
        mut act: impl FnMut(&[u8], &[u8], Change<'_>) -> Result<()>,
    ) -> Result<()> {
        let directory = Prefix::new(DIRECTORY);
        let prefix = directory.bytes(self.layout);
        self.directory
            .each_change(false, &[], |key, change| act(prefix, key, change))?;
        for (number, family) in (1u16..).zip(&self.families) {
            let [(of_heads, heads), (of_elements, elements)] = numbered(number, family);
            let prefix = of_heads.bytes(self.layout);
            heads.each_change(false, &[], |key, change| act(prefix, key, change))?;
            // All values of a list that was set again: readers would take some for appended ones.
            let prefix = of_elements.bytes(self.layout);
            elements.each_change(true, &family.marks(), |key, change| {
                act(prefix, key, change)
            })?;
        }
        Ok(())
    }

    /// Repeats the changes of the open session of `other`, which began with this content.
    pub(crate) fn repeat(&mut self, other: &Self) -> Result<()> {
        self.directory.repeat(&other.directory)?;
        self.read_directory()?;
        for (number, family) in (FIRST_FAMILY..).zip(&other.families) {
            self.make_up_to(number);
            self.family_mut(number)?.repeat(family)?;
        }
        Ok(())
    }

    pub(crate) fn snapshot(&self, out: &mut RunWriter<'_>) -> Result<()> {
        for (prefix, table) in self.tables() {
            table.snapshot(prefix.bytes(self.layout), out)?;
        }
        Ok(())
    }

    /// Applies the entries of a segment outside any session: some of them if it fails.
    pub(crate) fn apply(&mut self, entries: &mut EntryStream) -> Result<()> {
        if self.tables().all(|(_, table)| table.is_fresh()) {
            self.expect(entries)?;
            let filled = self.fill(entries, Table::append);
            self.each(Table::index_appended);
            filled?;
        } else {
            self.fill(entries, Table::load)?;
        }
        self.read_directory()?;
        // Loaded content is committed content, without undo.
        self.begin();
        Ok(())
    }

    /// Each key appears once, because keys ascend.
    fn fill(
        &mut self,
        entries: &mut EntryStream,
        put: impl Fn(&mut Table, &[u8], &[u8]) -> Result<()>,
    ) -> Result<()> {
        entries.for_each(|key, change| {
            let (table, key) = self.route(key)?;
            match change {
                Change::Put(value) => put(table, key, value),
                Change::Remove => table.load_removal(key),
            }
        })
    }

    /// Makes room, if the table is known. Later changes mostly have the same keys.
    fn expect(&mut self, entries: &EntryStream) -> Result<()> {
        if let KeyLayout::Plain(_) = self.layout {
            let heads = &mut self.family_mut(FIRST_FAMILY)?.heads;
            heads.reserve(entries.expected());
        }
        Ok(())
    }

    fn route<'k>(&mut self, key: &'k [u8]) -> Result<(&mut Table, &'k [u8])> {
        if let KeyLayout::Plain(_) = self.layout {
            return Ok((&mut self.family_mut(FIRST_FAMILY)?.heads, key));
        }
        let (number, key) = split_key(key)?;
        if number == DIRECTORY {
            return Ok((&mut self.directory, key));
        }
        self.make_up_to(u32::from(number / 2));
        let family = self.family_mut(u32::from(number / 2))?;
        let table = if number % 2 == 0 {
            &mut family.heads
        } else {
            &mut family.elements
        };
        Ok((table, key))
    }

    fn make_up_to(&mut self, number: u32) {
        while self.families.len() < number as usize {
            self.push_family(FamilyOptions::default());
        }
    }

    fn push_family(&mut self, options: FamilyOptions) {
        let mut family = Family::new(options, self.directory.session());
        if self.runs.is_some() {
            let tables = family.tables_mut().into_iter();
            tables.for_each(Table::keep_removed);
        }
        self.families.push(family);
    }

    fn read_directory(&mut self) -> Result<()> {
        let entries = self.directory.records();
        let known: Vec<_> = entries
            .map(|entry| decode_entry(entry.key, entry.value))
            .collect::<Result<_>>()?;
        for (number, options) in known {
            self.make_up_to(number);
            self.family_mut(number)?.set_options(options);
        }
        Ok(())
    }

    fn tables(&self) -> impl Iterator<Item = (Prefix, &Table)> {
        let directory = std::iter::once((Prefix::new(DIRECTORY), &self.directory));
        let families = (1u16..).zip(&self.families);
        directory.chain(families.flat_map(|(number, family)| numbered(number, family)))
    }

    fn turn(&mut self, act: impl FnMut(&mut Table)) {
        self.families.iter_mut().for_each(Family::forget_begun);
        self.each(act);
    }

    fn each(&mut self, mut act: impl FnMut(&mut Table)) {
        act(&mut self.directory);
        self.family_tables().for_each(|(_, table)| act(table));
    }

    fn family_tables(&mut self) -> impl Iterator<Item = (u16, &mut Table)> {
        let families = (1u16..).zip(&mut self.families);
        families.flat_map(|(number, family)| {
            let [heads, elements] = family.tables_mut();
            [(number * 2, heads), (number * 2 + 1, elements)]
        })
    }
}

fn numbered(number: u16, family: &Family) -> [(Prefix, &Table); 2] {
    [
        (Prefix::new(number * 2), &family.heads),
        (Prefix::new(number * 2 + 1), &family.elements),
    ]
}

/// Big-endian, so that the keys of tables on disk are in the order of the tables' numbers.
struct Prefix([u8; 2]);

impl Prefix {
    fn new(number: u16) -> Self {
        Self(number.to_be_bytes())
    }

    fn bytes(&self, layout: KeyLayout) -> &[u8] {
        match layout {
            KeyLayout::Plain(_) => &[],
            KeyLayout::Columns => &self.0,
        }
    }
}

pub(crate) fn split_key(key: &[u8]) -> Result<(u16, &[u8])> {
    let (number, key) = key.split_first_chunk::<2>().ok_or_else(|| {
        Error::corrupt("a key without the number of its column family".to_owned())
    })?;
    Ok((u16::from_be_bytes(*number), key))
}

fn encode_entry(number: u32, options: FamilyOptions) -> [u8; 5] {
    let [a, b, c, d] = number.to_le_bytes();
    [a, b, c, d, options.to_bits()]
}

pub(crate) fn decode_entry(name: &[u8], entry: &[u8]) -> Result<(u32, FamilyOptions)> {
    if let [a, b, c, d, bits] = entry {
        let number = u32::from_le_bytes([*a, *b, *c, *d]);
        // A number above the bound would make a load allocate families that no store has.
        if (FIRST_FAMILY..=MAX_FAMILIES).contains(&number) {
            return Ok((number, FamilyOptions::from_bits(*bits)));
        }
    }
    Err(Error::corrupt(format!(
        "directory entry of column family {:?} is {entry:02x?}: expected a number from 1 to \
         {MAX_FAMILIES} and options, 5 bytes",
        String::from_utf8_lossy(name),
    )))
}

fn index_of(number: u32) -> usize {
    number.wrapping_sub(FIRST_FAMILY) as usize
}

fn values(options: FamilyOptions) -> &'static str {
    if options.several_values {
        "several values"
    } else {
        "one value"
    }
}

fn no_family(number: u32) -> Error {
    Error::invalid_input(format!("there is no column family number {number}"))
}

mod over_runs;

#[cfg(test)]
#[path = "families_tests.rs"]
mod tests;
