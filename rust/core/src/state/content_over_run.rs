//! The tables of a store over runs: what has no slot in its table is in one of them.
//!
//! The directory of column families stays in memory. Every other table has the keys of the runs that
//! begin with its prefix; a table of which no run has a key stands on its own.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{DIRECTORY, Families, Layout, Prefix, split_key};
use crate::error::{Error, Result};
use crate::format::{RunReader, TableKeys};
use crate::ids::{Owner, SegmentRef};
use crate::state::arena::Release;
use crate::state::below::Below;
use crate::state::eviction::Eviction;
use crate::state::hydration::{HydratedEntries, Hydration, loaded_bytes};
use crate::state::open_run::OpenRun;
use crate::state::order::KeyRange;
use crate::state::run_cursor::StackCursor;
use crate::state::run_stack::RunStack;
use crate::state::table::Table;
use crate::storage::Storage;

impl Families {
    /// Whether keys may stay in a run. In a store without column families a list of values has no
    /// table of its own on disk.
    pub(in crate::state) fn can_rest_on_run(&self) -> bool {
        match self.layout {
            Layout::Plain(options) => !options.several_values,
            Layout::Columns => true,
        }
    }

    /// The newest of the runs that have keys which are not in memory.
    pub(in crate::state) fn newest_run_below(&self) -> Option<SegmentRef> {
        self.runs.as_ref().and_then(|runs| runs.newest())
    }

    /// Opens the runs of a lineage, oldest first. Those that the store lies over are open already.
    ///
    /// # Errors
    /// As [`RunReader::open`]; `Corrupt` where one is no run that builds on those before it.
    pub(in crate::state) fn open_runs(
        &self,
        storage: &dyn Storage,
        owner: &Owner,
        references: &[SegmentRef],
    ) -> Result<Vec<Arc<OpenRun>>> {
        let known = self.runs.as_ref().map_or(&[][..], |runs| runs.runs());
        let mut opened: Vec<Arc<OpenRun>> = Vec::with_capacity(references.len());
        for reference in references {
            let run = match known.iter().find(|run| run.reference() == *reference) {
                Some(run) => Arc::clone(run),
                None => Arc::new(OpenRun::new(RunReader::open(storage, reference, owner)?)),
            };
            let below: Vec<_> = opened.iter().map(|run| run.reference()).collect();
            if run.reader().head().lineage != below {
                return Err(Error::corrupt(format!(
                    "{reference} of {owner}: expected a run that builds on the {} before it",
                    opened.len()
                )));
            }
            opened.push(run);
        }
        Ok(opened)
    }

    /// Blocks of entries that were read because their keys were not in memory.
    pub fn cold_reads(&self) -> u64 {
        self.past_reads + self.runs.as_ref().map_or(0, |runs| runs.reads())
    }

    /// Puts an empty store over runs, oldest first, instead of loading them; false where they cannot serve
    /// that. Over several, [`Families::count_unlinked`] is to say how many keys there are.
    ///
    /// # Errors
    /// `Corrupt` where one is damaged; those of storage. The content is that of no version then.
    pub(in crate::state) fn open_over(&mut self, runs: Vec<Arc<OpenRun>>) -> Result<bool> {
        let runs = Arc::new(RunStack::new(runs));
        if !self.knows_tables(&runs) {
            return Ok(false);
        }
        if let Layout::Columns = self.layout {
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
        self.put_over(&runs, |table, below| table.open_over(below));
        self.begin();
        Ok(true)
    }

    /// How many keys each table has that may lie over a run, for [`Families::count_unlinked`].
    pub(in crate::state) fn table_keys(&self) -> Vec<TableKeys> {
        let resting = self.tables().filter(|_| self.can_rest_on_run()).skip(1);
        let counted = resting.map(|(prefix, table)| TableKeys {
            prefix: prefix.bytes(self.layout).to_vec(),
            keys: table.len() as u64,
        });
        counted.filter(|table| table.keys > 0).collect()
    }

    /// From now on loading changes looks for no key in the run, until [`Families::count_unlinked`].
    pub(in crate::state) fn stop_counting(&mut self) {
        self.each(Table::stop_counting);
    }

    /// Takes over how many keys the tables have, from the head of the newest changelog.
    ///
    /// # Errors
    /// `Corrupt` where that cannot be.
    pub(in crate::state) fn count_unlinked(&mut self, counted: &[TableKeys]) -> Result<()> {
        let layout = self.layout;
        for (number, family) in (1u16..).zip(&mut self.families) {
            let (heads, elements) = family.tables_mut();
            for (number, table) in [(number * 2, heads), (number * 2 + 1, elements)] {
                let prefix = Prefix::new(number);
                let found = counted.iter().find(|t| t.prefix == prefix.bytes(layout));
                table
                    .count_unlinked(found.map_or(0, |table| table.keys))
                    .map_err(|e| e.context(format!("table {number}")))?;
            }
        }
        Ok(())
    }

    /// Says that this is the content of `version` now, for [`Families::rest_on`], which will not be
    /// asked for any version before `floor`. `changed` says whether the version before had another.
    /// Nothing happens in a store that lies over no run.
    pub(in crate::state) fn mark(&mut self, version: u64, floor: u64, changed: bool) {
        if self.runs.is_none() {
            return;
        }
        // The session that made it is over.
        let session = self.directory.session().saturating_sub(1);
        self.marks
            .retain(|(marked, made)| *marked < version && *made <= session);
        if changed {
            self.marks.push((version, session));
        }
        let needed = self.marks.partition_point(|(marked, _)| *marked <= floor);
        self.marks.drain(..needed.saturating_sub(1));
    }

    /// Moves a store that lies over runs to those that have the content of `version`. To be called
    /// between two sessions. Nothing happens where it is not known what was changed since, removed keys
    /// included: so a store that lies over none is to be opened over its first one.
    pub(in crate::state) fn rest_on(&mut self, runs: Vec<Arc<OpenRun>>, version: u64) {
        let runs = Arc::new(RunStack::new(runs));
        let since = self.marks.partition_point(|(marked, _)| *marked <= version);
        let mark = since.checked_sub(1).and_then(|last| self.marks.get(last));
        // Sessions are numbered anew after many.
        let mark = mark.filter(|(_, session)| *session <= self.directory.session());
        let Some((_, session)) = mark.copied() else {
            return;
        };
        if !self.knows_tables(&runs) {
            return;
        }
        self.past_reads = self.cold_reads();
        self.put_over(&runs, |table, below| table.rest_on(below, session));
    }

    /// Whether these are the runs that the store lies over.
    pub(in crate::state) fn lies_over(&self, hydration: &Hydration) -> bool {
        hydration.is_of(self.runs.as_ref())
    }

    /// What the runs have, to be brought into memory; `None` in a store that lies over none.
    pub(in crate::state) fn hydration(&self, everything: bool) -> Option<Hydration> {
        let runs = self.runs.as_ref()?;
        let directory = Prefix::new(DIRECTORY).0;
        let tables = match self.layout {
            Layout::Plain(_) => BTreeSet::from([&[][..]]),
            Layout::Columns => runs.prefixes().filter(|p| **p != directory).collect(),
        };
        Some(Hydration::of(runs, &tables, everything))
    }

    /// What all that the runs have would take in memory, at most.
    pub(in crate::state) fn unread_bytes(&self) -> u64 {
        let runs = self.runs.as_ref().map_or(&[][..], |runs| runs.runs());
        let bytes = runs.iter().map(|run| loaded_bytes(run.reader().head()));
        bytes.fold(0, u64::saturating_add)
    }

    /// Gives the entries of a table in the runs a slot, those that have none yet.
    ///
    /// # Errors
    /// `Corrupt` where there is no such table; as [`Table::put`].
    pub(in crate::state) fn hydrate(&mut self, entries: &HydratedEntries) -> Result<()> {
        let table = match self.layout {
            Layout::Plain(_) => self.family_mut(super::FIRST_FAMILY)?.heads_mut(),
            Layout::Columns => self.route(entries.prefix())?.0,
        };
        for (key, value) in entries.iter() {
            table.hydrate(key, value)?;
        }
        Ok(())
    }

    /// After all that the runs have was gone through: whether all keys are in memory.
    pub(in crate::state) fn end_hydration(&mut self) -> bool {
        let mut whole = true;
        self.each(|table| whole &= table.end_hydration());
        whole
    }

    /// Lets go of the runs, between two sessions, once [`Families::end_hydration`] said that all keys are in
    /// memory.
    pub(in crate::state) fn leave_runs(&mut self) {
        self.past_reads = self.cold_reads();
        self.each(Table::leave_runs);
        self.marks = Vec::new();
        self.runs = None;
    }

    /// Gives up to `bytes` of what the runs have as well and the last session did not touch, or a little more:
    /// what was not touched for longest goes first. `release` is called with memory that records had, before it
    /// is freed. To be called between two sessions.
    pub(in crate::state) fn evict(&mut self, bytes: usize, release: Release) {
        let garbage: usize = self.tables().map(|(_, table)| table.garbage_bytes()).sum();
        let mut ages = BTreeMap::new();
        self.each(|table| table.add_ages(&mut ages));
        let mut eviction = Eviction::of(bytes.saturating_sub(garbage), ages);
        self.each(|table| table.evict(&mut eviction, release));
    }

    /// Gives up the blocks of runs that were read last.
    pub(in crate::state) fn forget_blocks(&self) {
        if let Some(runs) = &self.runs {
            runs.forget_blocks();
        }
    }

    /// Gives up indexes and filters of runs that were not used since this was last called.
    pub(in crate::state) fn forget_unused_groups(&self) {
        if let Some(runs) = &self.runs {
            runs.forget_unused_groups();
        }
    }

    /// Bytes of what is in memory and that no run has with that value, so that only another run lets it leave.
    pub(in crate::state) fn dirty_bytes(&self) -> usize {
        self.tables().map(|(_, table)| table.dirty_bytes()).sum()
    }

    /// Whether the runs say how many keys each table has.
    fn knows_tables(&self, runs: &RunStack) -> bool {
        match self.layout {
            Layout::Plain(_) => true,
            Layout::Columns => runs.at_most_behind(&Prefix::new(DIRECTORY).0).is_some(),
        }
    }

    fn put_over(&mut self, runs: &Arc<RunStack>, act: impl Fn(&mut Table, Option<Below>)) {
        let layout = self.layout;
        for (number, family) in (1u16..).zip(&mut self.families) {
            let (heads, elements) = family.tables_mut();
            act(
                heads,
                Below::of(runs, Prefix::new(number * 2).bytes(layout)),
            );
            if let Layout::Columns = layout {
                let prefix = Prefix::new(number * 2 + 1);
                act(elements, Below::of(runs, prefix.bytes(layout)));
            }
        }
        self.runs = Some(Arc::clone(runs));
    }
}
