//! Tables of regions: state stores whose segments live by the rule of the manager.
//!
//! A table is opened for each attempt, at the version that the region begins with, and stays in
//! memory between attempts. Its segments are *held*, so that a merge of an attempt without a
//! checkpoint, for example, serves the next one. A checkpoint refers to them only by leases.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

use parking_lot::Mutex;

use super::table::{Merge, Place, Table, ended};
use super::table_work::TableWork;
use super::upkeep::Upkeep;
use crate::error::Result;
use crate::ids::{CheckpointId, Owner};
use crate::liveness::Ledger;
use crate::state::{FamilyOptions, KeyLayout, MemoryBudget, SharedStore, StateStore, StoreFolder};

/// Keys of tables are in order, for scans.
pub(super) const LAYOUT: KeyLayout = KeyLayout::Plain(FamilyOptions {
    ordered: true,
    several_values: false,
    internal: false,
});

#[derive(Debug)]
pub(super) struct Tables {
    folder: Arc<StoreFolder>,
    pub budget: Arc<MemoryBudget>,
    pub work: Arc<TableWork>,
    pub large_bytes: u64,
    pub opened: Mutex<Opened>,
}

#[derive(Debug, Default)]
pub(super) struct Opened {
    pub by_owner: HashMap<Owner, Arc<Table>>,
    pub by_session: HashMap<u64, Arc<Table>>,
    last_session: u64,
}

impl Tables {
    pub fn new(upkeep: Arc<Upkeep>, budget: Arc<MemoryBudget>, large_bytes: u64) -> Self {
        let (storage, writer) = (Arc::clone(&upkeep.storage), Arc::clone(&upkeep.writer));
        Self {
            folder: StoreFolder::sharing(storage, writer),
            budget,
            work: TableWork::new(upkeep),
            large_bytes,
            opened: Mutex::default(),
        }
    }

    /// The table of an owner, and a session for it. The last session of the table ends.
    pub fn begin(&self, owner: &Owner, attempt: CheckpointId, base: u64) -> (Arc<Table>, u64) {
        let mut opened = self.opened.lock();
        opened.last_session += 1;
        let session = opened.last_session;
        let table = opened.by_owner.entry(owner.clone()).or_insert_with(|| {
            let store = StateStore::within(owner.clone(), LAYOUT, Arc::clone(&self.budget));
            Arc::new(Table {
                owner: owner.clone(),
                store: SharedStore::new(Arc::clone(&self.folder), store),
                session: AtomicU64::new(0),
                hydrates: AtomicBool::new(false),
                place: Mutex::new(Place {
                    attempt,
                    base,
                    held: BTreeSet::new(),
                    merge: Merge::None,
                }),
            })
        });
        let table = Arc::clone(table);
        {
            let mut place = table.place.lock();
            place.attempt = attempt;
            place.base = base;
        }
        let sessions = &mut opened.by_session;
        sessions.retain(|_, other| !Arc::ptr_eq(other, &table));
        sessions.insert(session, Arc::clone(&table));
        (table, session)
    }

    pub fn find(&self, session: u64) -> Result<Arc<Table>> {
        let found = self.opened.lock().by_session.get(&session).cloned();
        found.ok_or_else(ended)
    }

    /// Forgets tables whose content no retained checkpoint has: their regions continued elsewhere.
    /// While memory is short, it also forgets tables that were not opened for the attempt that was
    /// `decided`, the longest unused first. They are loaded again when their regions have rows.
    pub fn prune(&self, decided: CheckpointId, ledger: &mut Ledger) {
        let mut opened = self.opened.lock();
        let mut resting = Vec::new();
        for table in opened.by_owner.values() {
            let place = table.place.lock();
            if !ledger.view().is_decided(place.attempt) {
                continue;
            }
            let live = ledger.view().live_set(&table.owner);
            let is_live = live.contains(&place.attempt) || live.contains(&CheckpointId(place.base));
            if !is_live || place.attempt < decided {
                resting.push((is_live, place.attempt, Arc::clone(table)));
            }
        }
        resting.sort_by_key(|(is_live, attempt, _)| (*is_live, *attempt));
        for (is_live, _, table) in resting {
            if is_live && !self.budget.is_short(0) {
                break;
            }
            opened.by_owner.remove(&table.owner);
            let sessions = &mut opened.by_session;
            sessions.retain(|_, other| !Arc::ptr_eq(other, &table));
            table.let_go(ledger);
        }
    }

    /// Drops merges, and holds nothing that no checkpoint has.
    pub fn end(&self, ledger: &mut Ledger) {
        let opened = self.opened.lock();
        let tables = opened.by_owner.values();
        tables.for_each(|table| table.let_go(ledger));
    }
}
