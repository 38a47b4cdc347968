//! Fills a table from a segment, outside any session.

use super::Table;
use crate::error::Result;
use crate::state::tables::arena::Record;
use crate::state::tables::order::Order;
use crate::state::tables::slot::{Slot, Stamp, by_part, hash_of, key_in, spread, spread_of};

impl Table {
    /// Keys of a fresh table ascend, and none is found before [`Table::index_appended`].
    pub(crate) fn append(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let record = self.push_record(key, value)?;
        self.slots.push(Slot {
            record,
            hash: hash_of(key),
            stamp: Stamp::live(self.session),
        });
        self.len += 1;
        self.live_bytes += Record { key, value }.stored_bytes();
        Ok(())
    }

    pub(crate) fn index_appended(&mut self) {
        self.index_slots();
        if let Some(order) = &mut self.order {
            let slots = &self.slots;
            let key_of = |number| key_in(slots, &self.arena, number);
            *order = Order::of_sorted(0..slots.len() as u32, key_of);
        }
    }

    pub(crate) fn index_slots(&mut self) {
        let slots = &self.slots;
        let hash_of_slot = |number: &u32| spread_of(slots, *number);
        self.index.reserve(slots.len(), hash_of_slot);
        for part in by_part(slots, self.index.num_buckets()) {
            for (hash, number) in part {
                self.index.insert_unique(spread(hash), number, hash_of_slot);
            }
        }
    }

    pub(crate) fn load(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let hash = hash_of(key);
        let Some(number) = self.find(hash, key) else {
            let record = self.push_record(key, value)?;
            self.leave_run(key)?;
            self.link(hash, record, Stamp::live(self.session));
            return Ok(());
        };
        let known = self.slots.get(number as usize);
        let live = known.filter(|slot| !slot.is_dead() && !slot.stamp.is_clean() && !self.pinned);
        if live.is_some_and(|slot| self.arena.overwrite(slot.record, value)) {
            return Ok(());
        }
        let undone = self.undo.len();
        self.put(key, value)?;
        self.undo.truncate(undone);
        Ok(())
    }

    pub(crate) fn reserve(&mut self, keys: usize) {
        self.slots.reserve(keys);
    }
}
