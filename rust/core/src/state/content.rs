//! The column families of one store.
//!
//! A plain store has one table and its keys go to files as they are. A store with column families
//! has a directory of names, one table per family, and a second one for families with several values
//! per key; on disk all of them share one space of keys, whose first two bytes name the table.

use std::sync::Arc;

use super::entries::{Change, ChangeWriter};
use super::entry_stream::EntryStream;
use super::family::{Family, FamilyOptions};
use super::run_stack::RunStack;
use super::table::Table;
use crate::error::{Error, Result};
use crate::segment::RunWriter;

/// Families are numbered from 1; two numbers on disk for each, below 2^16, and 0 for the directory.
const MAX_FAMILIES: u32 = (1 << 15) - 1;
const DIRECTORY: u16 = 0;

/// The family of a plain store, and the first of a store with column families.
pub const FIRST_FAMILY: u32 = 1;

/// How the keys of a store are laid out on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// One family without a name.
    Plain(FamilyOptions),
    /// Families by name, made while the store is in use.
    Columns,
}

impl Layout {
    /// Parts a key on disk into the prefix of its table, which is empty in a store without column
    /// families, and its key there.
    ///
    /// # Errors
    /// `Corrupt` for a key that no table can have.
    pub(super) fn split(self, key: &[u8]) -> Result<(&[u8], &[u8])> {
        match self {
            Self::Plain(_) => Ok((&[], key)),
            Self::Columns => {
                let (_, own) = split_key(key)?;
                Ok((key.strip_suffix(own).unwrap_or_default(), own))
            }
        }
    }
}

/// What a session changed.
#[derive(Debug)]
pub(super) struct SessionChanges {
    pub entries: ChangeWriter,
    /// How many of these are about families, not keys.
    of_directory: u64,
}

impl SessionChanges {
    /// Number of entries about keys.
    pub fn of_keys(&self) -> u64 {
        self.entries.entries() - self.of_directory
    }
}

/// All tables of one store.
#[derive(Debug)]
pub struct Families {
    layout: Layout,
    /// Name -> number and options. The only truth about which families there are.
    directory: Table,
    /// By number, from [`FIRST_FAMILY`]. May hold families that an abort took back: they are empty.
    families: Vec<Family>,
    /// What has the keys that are not in memory.
    runs: Option<Arc<RunStack>>,
    /// Reads of runs before this one.
    past_reads: u64,
    /// Versions that changed something since the store lies over a run, in ascending order, and the
    /// sessions that made them.
    marks: Vec<(u64, u32)>,
}

impl Families {
    pub(super) fn new(layout: Layout) -> Self {
        let families = match layout {
            Layout::Plain(options) => vec![Family::new(options, 0)],
            Layout::Columns => Vec::new(),
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

    pub(super) fn layout(&self) -> Layout {
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

    pub(super) fn family_mut(&mut self, number: u32) -> Result<&mut Family> {
        let found = self.families.get_mut(index_of(number));
        found.ok_or_else(|| no_family(number))
    }

    /// Number of the family `name`; `None` when there is none.
    ///
    /// # Errors
    /// `Corrupt` when the directory cannot be read.
    pub fn find(&self, name: &str) -> Result<Option<u32>> {
        let entry = self.directory.get(name.as_bytes());
        entry
            .map(|entry| decode_entry(name.as_bytes(), entry).map(|(number, _)| number))
            .transpose()
    }

    /// Names of all families.
    pub fn names(&self) -> Vec<String> {
        let keys = self.directory.records().map(|record| record.key);
        keys.map(|name| String::from_utf8_lossy(name).into_owned())
            .collect()
    }

    /// Number of the family `name`, which is made when it is not there. Options that are missing are
    /// added: a family that was made without scans may be scanned by a later program.
    pub(super) fn open(&mut self, name: &str, options: FamilyOptions) -> Result<u32> {
        if let Layout::Plain(_) = self.layout {
            return Err(Error::invalid_input(format!(
                "a store without column families cannot have one named {name:?}"
            )));
        }
        let found = self.directory.get(name.as_bytes());
        if let Some((number, known)) = found
            .map(|entry| decode_entry(name.as_bytes(), entry))
            .transpose()?
        {
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

    /// Drops a family and everything in it; false when it was not there.
    pub(super) fn drop_family(&mut self, name: &str) -> Result<bool> {
        let Some(number) = self.find(name)? else {
            return Ok(false);
        };
        self.family_mut(number)?.clear()?;
        Ok(self.directory.remove(name.as_bytes()))
    }

    /// Keys in families of users: Spark marks its own ones.
    pub fn keys(&self) -> u64 {
        let users = self
            .families
            .iter()
            .filter(|family| !family.options().internal);
        users.map(|family| family.len() as u64).sum()
    }

    /// Bytes taken from the allocator.
    pub fn memory_bytes(&self) -> usize {
        let tables: usize = self.tables().map(|(_, table)| table.memory_bytes()).sum();
        let begun: usize = self.families.iter().map(Family::begun_bytes).sum();
        tables + begun + self.runs.as_ref().map_or(0, |runs| runs.memory_bytes())
    }

    pub(super) fn begin(&mut self) {
        self.turn(Table::begin);
    }

    pub(super) fn commit(&mut self) {
        self.turn(Table::commit);
    }

    pub(super) fn abort(&mut self) {
        self.turn(Table::abort);
    }

    /// What the session changed; `None` when nothing did.
    pub(super) fn changes(&self) -> Option<SessionChanges> {
        let mut out = ChangeWriter::default();
        let directory = Prefix::new(DIRECTORY);
        self.directory
            .changes(directory.bytes(self.layout), false, &[], &mut out);
        let of_directory = out.entries();
        for (number, family) in (1u16..).zip(&self.families) {
            let [(of_heads, heads), (of_elements, elements)] = numbered(number, family);
            heads.changes(of_heads.bytes(self.layout), false, &[], &mut out);
            // A list that is set anew is written as a whole, what is as before in it included:
            // otherwise a reader could not tell it from values put behind those that were there.
            let prefix = of_elements.bytes(self.layout);
            elements.changes(prefix, true, &family.marks(), &mut out);
        }
        (out.entries() > 0).then_some(SessionChanges {
            entries: out,
            of_directory,
        })
    }

    /// Repeats what the open session of `other` changed in a session of this content, which is the one that
    /// session began with.
    ///
    /// # Errors
    /// `InvalidInput` for an entry above 4 GiB, which `other` could not have, either.
    pub(super) fn repeat(&mut self, other: &Self) -> Result<()> {
        self.directory.repeat(&other.directory)?;
        self.read_directory()?;
        for (number, family) in (FIRST_FAMILY..).zip(&other.families) {
            self.make_up_to(number);
            self.family_mut(number)?.repeat(family)?;
        }
        Ok(())
    }

    /// Writes the whole content to `out`.
    pub(super) fn snapshot(&self, out: &mut RunWriter<'_>) -> Result<()> {
        for (prefix, table) in self.tables() {
            table.snapshot(prefix.bytes(self.layout), out)?;
        }
        Ok(())
    }

    /// Applies the entries of a segment outside any session.
    ///
    /// # Errors
    /// `Corrupt` when they are not entries of this layout; those of reading. Some of them were applied
    /// then.
    pub(super) fn apply(&mut self, entries: &mut EntryStream) -> Result<()> {
        if self.tables().all(|(_, table)| table.is_fresh()) {
            self.expect(entries)?;
            let filled = self.fill(entries, Table::append);
            self.each(Table::index_appended);
            filled?;
        } else {
            self.fill(entries, Table::load)?;
        }
        self.read_directory()?;
        // Loaded content is committed content: there is nothing to go back to.
        self.begin();
        Ok(())
    }

    /// Gives every entry to its table, values by `put`. They come in ascending order, so every key is
    /// there once.
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

    /// Makes room for what the first segment brings, where that is known: the changes that come later
    /// are mostly of keys that are there.
    fn expect(&mut self, entries: &EntryStream) -> Result<()> {
        if let Layout::Plain(_) = self.layout {
            let heads = self.family_mut(FIRST_FAMILY)?.heads_mut();
            heads.reserve(entries.expected());
        }
        Ok(())
    }

    /// The table that an entry on disk belongs to, and its key there.
    fn route<'k>(&mut self, key: &'k [u8]) -> Result<(&mut Table, &'k [u8])> {
        if let Layout::Plain(_) = self.layout {
            return Ok((self.family_mut(FIRST_FAMILY)?.heads_mut(), key));
        }
        let (number, key) = split_key(key)?;
        if number == DIRECTORY {
            return Ok((&mut self.directory, key));
        }
        self.make_up_to(u32::from(number / 2));
        let family = self.family_mut(u32::from(number / 2))?;
        let table = if number % 2 == 0 {
            family.heads_mut()
        } else {
            family.elements_mut()
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
            family.each(&mut Table::keep_removed);
        }
        self.families.push(family);
    }

    /// Makes the families that the directory names be as it says.
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

    /// A session begins or ends.
    fn turn(&mut self, act: impl FnMut(&mut Table)) {
        self.families.iter_mut().for_each(Family::forget_begun);
        self.each(act);
    }

    fn each(&mut self, mut act: impl FnMut(&mut Table)) {
        act(&mut self.directory);
        for family in &mut self.families {
            family.each(&mut act);
        }
    }
}

/// The tables of a family: keys, then elements.
fn numbered(number: u16, family: &Family) -> [(Prefix, &Table); 2] {
    let (heads, elements) = family.tables();
    [
        (Prefix::new(number * 2), heads),
        (Prefix::new(number * 2 + 1), elements),
    ]
}

/// First bytes of a table's keys on disk. Big-endian, so that tables follow each other by number.
struct Prefix([u8; 2]);

impl Prefix {
    fn new(number: u16) -> Self {
        Self(number.to_be_bytes())
    }

    fn bytes(&self, layout: Layout) -> &[u8] {
        match layout {
            Layout::Plain(_) => &[],
            Layout::Columns => &self.0,
        }
    }
}

/// Parts a key on disk of a store with column families.
pub(super) fn split_key(key: &[u8]) -> Result<(u16, &[u8])> {
    let (number, key) = key.split_first_chunk::<2>().ok_or_else(|| {
        Error::corrupt("a key without the number of its column family".to_owned())
    })?;
    Ok((u16::from_be_bytes(*number), key))
}

fn encode_entry(number: u32, options: FamilyOptions) -> [u8; 5] {
    let [a, b, c, d] = number.to_le_bytes();
    [a, b, c, d, options.to_bits()]
}

fn decode_entry(name: &[u8], entry: &[u8]) -> Result<(u32, FamilyOptions)> {
    match entry {
        [a, b, c, d, bits] if number_in_bounds([*a, *b, *c, *d]) => Ok((
            u32::from_le_bytes([*a, *b, *c, *d]),
            FamilyOptions::from_bits(*bits),
        )),
        _ => Err(Error::corrupt(format!(
            "directory entry of column family {:?} is {entry:02x?}: expected a number from 1 to \
             {MAX_FAMILIES} and options, 5 bytes",
            String::from_utf8_lossy(name),
        ))),
    }
}

/// A number above the bound would make a load allocate families that no store has.
fn number_in_bounds(number: [u8; 4]) -> bool {
    (FIRST_FAMILY..=MAX_FAMILIES).contains(&u32::from_le_bytes(number))
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

#[path = "content_over_run.rs"]
mod over_run;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::super::order::KeyRange;
    use super::*;
    use crate::error::ErrorKind;
    use crate::format::{Segment, SegmentHead, SegmentKind};
    use crate::ids::{CheckpointId, Owner};

    fn segment(entries: &[(&str, Change<'_>)]) -> EntryStream {
        let mut out = ChangeWriter::default();
        for (key, change) in entries {
            out.push(&[], key.as_bytes(), *change);
        }
        let head = SegmentHead {
            owner: Owner::new("query", "0", "0", "default"),
            created: CheckpointId(1),
            kind: SegmentKind::Changelog,
            lineage: Vec::new(),
            replaced: None,
            journal: None,
            payload_bytes: 0,
            entries: out.entries(),
            tables: Vec::new(),
            runs: 0,
        };
        EntryStream::of_segment(Segment {
            head,
            payload: out.into_bytes(),
        })
    }

    fn plain() -> Families {
        Families::new(Layout::Plain(FamilyOptions::default()))
    }

    #[test]
    fn entries_out_of_order_are_reported() {
        let put = Change::Put(b"1");
        for keys in [["b", "a"], ["a", "a"]] {
            let error = plain().apply(&mut segment(&keys.map(|key| (key, put))));
            assert_eq!(error.unwrap_err().kind(), ErrorKind::Corrupt);
        }
    }

    #[test]
    fn every_key_of_a_large_segment_is_found_and_in_order() {
        let keys: Vec<String> = (0..30_000).map(|n| format!("{n:06}")).collect();
        let entries: Vec<_> = keys
            .iter()
            .map(|key| (key.as_str(), Change::Put(key.as_bytes())))
            .collect();
        let mut content = Families::new(Layout::Plain(FamilyOptions {
            ordered: true,
            ..FamilyOptions::default()
        }));
        content.apply(&mut segment(&entries)).unwrap();
        let family = content.family_mut(FIRST_FAMILY).unwrap();
        assert_eq!(family.len(), keys.len());
        for key in &keys {
            assert_eq!(family.get(key.as_bytes()), Some(key.as_bytes()));
            assert_eq!(family.get(&key.as_bytes()[1..]), None);
        }
        let range = KeyRange::Prefix(b"0123");
        let found = family.heads_mut().select(range).unwrap();
        let found: Vec<_> = found
            .iter()
            .map(|at| family.entry(*at, None).unwrap().0)
            .collect();
        let expected: Vec<_> = keys[12_300..12_400].iter().map(String::as_bytes).collect();
        assert_eq!(found, expected);
        // Every key is there once: what is removed is gone.
        for key in &keys {
            assert!(family.remove(key.as_bytes()).unwrap());
            assert_eq!(family.get(key.as_bytes()), None);
        }
        content.commit();
        content.begin();
        assert_eq!(content.keys(), 0);
    }

    #[test]
    fn a_key_that_was_removed_a_moment_ago_is_there_once_after_a_load() {
        let mut content = plain();
        content
            .apply(&mut segment(&[("a", Change::Put(b"1"))]))
            .unwrap();
        content.begin();
        let family = content.family_mut(FIRST_FAMILY).unwrap();
        family.remove(b"a").unwrap();
        content.commit();
        // The undo log still knows the key.
        content
            .apply(&mut segment(&[("a", Change::Put(b"2"))]))
            .unwrap();
        let family = content.family_mut(FIRST_FAMILY).unwrap();
        assert_eq!(family.get(b"a"), Some(b"2".as_slice()));
        assert!(family.remove(b"a").unwrap());
        assert_eq!(family.get(b"a"), None);
        assert!(family.is_empty());
    }
}
