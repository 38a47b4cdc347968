//! The tables of a store over runs, which have the keys without a slot. The directory of
//! families remains in memory. Other tables lie over the keys with their prefix, or over no run.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{DIRECTORY, Families, KeyLayout, Prefix, split_key};
use crate::error::{Error, Result};
use crate::format::{RunReader, TableKeys};
use crate::ids::{Owner, SegmentRef};
use crate::state::content::hydration::{HydratedEntries, Hydration};
use crate::state::memory::{Release, loaded_bytes};
use crate::state::runs::cursor::StackCursor;
use crate::state::runs::key_range::KeyRange;
use crate::state::runs::stack::{OpenRun, RunStack};
use crate::state::tables::eviction::Eviction;
use crate::state::tables::table::{Below, Table};
use crate::storage::Storage;

impl Families {
    /// Returns false for a plain store of lists, which has no table of its own on disk.
    pub(crate) fn can_lie_over_runs(&self) -> bool {
        match self.layout {
            KeyLayout::Plain(options) => !options.several_values,
            KeyLayout::Columns => true,
        }
    }

    pub(crate) fn runs(&self) -> Option<&RunStack> {
        self.runs.as_deref()
    }

    /// Opens the runs of a lineage, oldest first. Reuses the runs that the store lies over.
    pub(crate) fn open_runs(
        &self,
        storage: &dyn Storage,
        owner: &Owner,
        references: &[SegmentRef],
    ) -> Result<Vec<Arc<OpenRun>>> {
        let known = self.runs.as_ref().map_or(&[][..], |runs| &runs.runs);
        let mut opened: Vec<Arc<OpenRun>> = Vec::with_capacity(references.len());
        for reference in references {
            let run = match known.iter().find(|run| run.reader.reference == *reference) {
                Some(run) => Arc::clone(run),
                None => Arc::new(OpenRun::new(RunReader::open(storage, reference, owner)?)),
            };
            let below: Vec<_> = opened.iter().map(|run| run.reader.reference).collect();
            if run.reader.head.lineage != below {
                return Err(Error::corrupt(format!(
                    "{reference} of {owner}: expected a run that builds on the {} before it",
                    opened.len()
                )));
            }
            opened.push(run);
        }
        Ok(opened)
    }

    /// Number of blocks that were read because their keys were not in memory.
    pub fn cold_reads(&self) -> u64 {
        self.past_reads + self.runs.as_ref().map_or(0, |runs| runs.reads())
    }

    /// Puts an empty store over runs, oldest first, instead of loading them. Over several runs,
    /// [`Families::count_unlinked`] must follow. After an error the content is of no version.
    pub(crate) fn open_over(&mut self, runs: Vec<Arc<OpenRun>>) -> Result<()> {
        let runs = Arc::new(RunStack::new(runs));
        if let KeyLayout::Columns = self.layout {
            let directory = Prefix::new(DIRECTORY);
            let mut entries = StackCursor::new(&runs, &directory.0, KeyRange::All)?;
            while let Some((name, entry)) = entries.entry() {
                self.directory.append(name, entry)?;
                entries.advance()?;
            }
            self.directory.index_appended();
            self.read_directory()?;
            for prefix in runs.prefixes() {
                self.make_up_to(u32::from(split_key(prefix)?.0 / 2));
            }
        }
        self.put_over(&runs, |table, below| table.open_over(below))?;
        self.begin();
        Ok(())
    }

    pub(crate) fn table_keys(&self) -> Vec<TableKeys> {
        let resting = self.tables().filter(|_| self.can_lie_over_runs()).skip(1);
        let counted = resting.map(|(prefix, table)| TableKeys {
            prefix: prefix.bytes(self.layout).to_vec(),
            keys: table.len() as u64,
        });
        counted.filter(|table| table.keys > 0).collect()
    }

    /// Until [`Families::count_unlinked`], loads look for no key in the runs.
    pub(crate) fn stop_counting(&mut self) {
        self.each(Table::stop_counting);
    }

    /// Sets the number of keys of each table, from the head of the newest changelog.
    pub(crate) fn count_unlinked(&mut self, counted: &[TableKeys]) -> Result<()> {
        let layout = self.layout;
        for (number, table) in self.family_tables() {
            let prefix = Prefix::new(number);
            let found = counted.iter().find(|t| t.prefix == prefix.bytes(layout));
            table
                .count_unlinked(found.map_or(0, |table| table.keys))
                .map_err(|e| e.context(format!("table {number}")))?;
        }
        Ok(())
    }

    /// For [`Families::move_over`]: this is the content of `version`, which may have `changed` from
    /// the one before. No version before `floor` will be needed.
    pub(crate) fn mark(&mut self, version: u64, floor: u64, changed: bool) {
        if self.runs.is_none() {
            return;
        }
        // The session that made it has ended.
        let session = self.directory.session().saturating_sub(1);
        self.marks
            .retain(|(marked, made)| *marked < version && *made <= session);
        if changed {
            self.marks.push((version, session));
        }
        let needed = self.marks.partition_point(|(marked, _)| *marked <= floor);
        self.marks.drain(..needed.saturating_sub(1));
    }

    /// Moves a store to runs with the content of `version`, between two sessions, if the changes
    /// since (also removals) are known. So a store over no run is loaded again over its first one.
    pub(crate) fn move_over(&mut self, runs: Vec<Arc<OpenRun>>, version: u64) {
        let runs = Arc::new(RunStack::new(runs));
        let since = self.marks.partition_point(|(marked, _)| *marked <= version);
        let mark = since.checked_sub(1).and_then(|last| self.marks.get(last));
        // The numbers of sessions start again after many.
        let mark = mark.filter(|(_, session)| *session <= self.directory.session());
        let Some((_, session)) = mark.copied() else {
            return;
        };
        let reads = self.cold_reads();
        let moved = self.put_over(&runs, |table, below| table.move_over(below, session));
        if moved.is_ok() {
            self.past_reads = reads;
        }
    }

    pub(crate) fn lies_over(&self, hydration: &Hydration) -> bool {
        let runs = self.runs.as_ref();
        runs.is_some_and(|runs| Arc::ptr_eq(runs, &hydration.runs))
    }

    /// The hydration of all runs, or only of the delta runs; `None` in a store that lies over none.
    pub(crate) fn hydration(&self, everything: bool) -> Option<Hydration> {
        let runs = self.runs.as_ref()?;
        let directory = Prefix::new(DIRECTORY).0;
        let tables = match self.layout {
            KeyLayout::Plain(_) => BTreeSet::from([&[][..]]),
            KeyLayout::Columns => runs.prefixes().filter(|p| **p != directory).collect(),
        };
        Some(Hydration::of(runs, &tables, everything))
    }

    /// Bound on the memory of all keys in the runs.
    pub(crate) fn unread_bytes(&self) -> u64 {
        let runs = self.runs.as_ref().map_or(&[][..], |runs| &runs.runs);
        let bytes = runs.iter().map(|run| loaded_bytes(&run.reader.head));
        bytes.fold(0, u64::saturating_add)
    }

    pub(crate) fn hydrate(&mut self, entries: &HydratedEntries) -> Result<()> {
        let table = match self.layout {
            KeyLayout::Plain(_) => &mut self.family_mut(super::FIRST_FAMILY)?.heads,
            KeyLayout::Columns => self.route(&entries.prefix)?.0,
        };
        for (key, value) in entries.iter() {
            table.hydrate(key, value)?;
        }
        Ok(())
    }

    pub(crate) fn end_hydration(&mut self) -> bool {
        let mut whole = true;
        self.each(|table| whole &= table.end_hydration());
        whole
    }

    /// Leaves the runs between two sessions, after [`Families::end_hydration`] returned true.
    pub(crate) fn leave_runs(&mut self) {
        self.past_reads = self.cold_reads();
        self.each(Table::leave_runs);
        self.marks = Vec::new();
        self.runs = None;
    }

    /// Between sessions: evicts about `bytes` in runs, oldest first, none of the last session.
    pub(crate) fn evict(&mut self, bytes: usize, release: Release) {
        let garbage: usize = self.tables().map(|(_, table)| table.garbage_bytes()).sum();
        let mut ages = BTreeMap::new();
        self.each(|table| table.add_ages(&mut ages));
        let mut eviction = Eviction::of(bytes.saturating_sub(garbage), ages);
        self.each(|table| table.evict(&mut eviction, release));
    }

    /// Bytes of keys in memory whose value is in no run, so that they can leave only after a merge.
    pub(crate) fn dirty_bytes(&self) -> usize {
        self.tables().map(|(_, table)| table.dirty_bytes()).sum()
    }

    fn put_over(
        &mut self,
        runs: &Arc<RunStack>,
        act: impl Fn(&mut Table, Option<Below>),
    ) -> Result<()> {
        let layout = self.layout;
        let mut readers = runs.runs.iter().map(|run| &run.reader);
        if layout == KeyLayout::Columns
            && let Some(run) = readers.find(|run| !run.has_tables())
        {
            let run = run.reference;
            return Err(Error::corrupt(format!(
                "{run} does not say which tables it has"
            )));
        }
        for (number, table) in self.family_tables() {
            // The elements of a plain store have no prefix of their own.
            if number % 2 == 0 || layout == KeyLayout::Columns {
                act(table, Below::of(runs, Prefix::new(number).bytes(layout)));
            }
        }
        self.runs = Some(Arc::clone(runs));
        Ok(())
    }
}
