//! The slot of a key in a table: the place of its record, its state, and its hash.

use hashbrown::HashTable;
use xxhash_rust::xxh3::xxh3_64;

use super::arena::{Arena, RecordAt};

/// Buckets to fill together: 40 KiB of the index.
const PART_BUCKETS: usize = 8 << 10;
/// Bound on the numbers of sessions; the bits above mark a slot as clean or dead.
pub(crate) const SESSIONS: u32 = 1 << 30;
const CLEAN: u32 = 1 << 30;
const DEAD: u32 = 1 << 31;

/// 16 bytes: there is one per key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slot {
    pub record: RecordAt,
    pub hash: u32,
    pub stamp: Stamp,
}

/// Last session and state of a slot. The undo log has exactly the slots of the current session.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stamp(u32);

impl Stamp {
    pub fn live(session: u32) -> Self {
        Self(session % SESSIONS)
    }

    pub fn dead(session: u32) -> Self {
        Self((session % SESSIONS) | DEAD)
    }

    /// The runs below the table have the same value.
    pub fn clean(session: u32) -> Self {
        Self((session % SESSIONS) | CLEAN)
    }

    pub fn session(self) -> u32 {
        self.0 % SESSIONS
    }

    pub fn is_dead(self) -> bool {
        self.0 & DEAD != 0
    }

    pub fn is_clean(self) -> bool {
        self.0 & CLEAN != 0
    }

    pub fn in_session(self, session: u32) -> Self {
        Self((self.0 & (DEAD | CLEAN)) | (session % SESSIONS))
    }
}

impl Slot {
    pub fn is_dead(&self) -> bool {
        self.stamp.is_dead()
    }
}

#[inline]
pub(crate) fn find_in(
    index: &HashTable<u32>,
    slots: &[Slot],
    arena: &Arena,
    hash: u32,
    key: &[u8],
) -> Option<u32> {
    let is_it = |number: &u32| {
        let slot = slots.get(*number as usize);
        let record = slot.filter(|slot| slot.hash == hash);
        let record = record.and_then(|slot| arena.get(slot.record));
        record.is_some_and(|record| record.key == key)
    };
    index.find(spread(hash), is_it).copied()
}

pub(crate) fn key_in<'a>(slots: &[Slot], arena: &'a Arena, number: u32) -> &'a [u8] {
    let slot = slots.get(number as usize);
    let record = slot.and_then(|slot| arena.get(slot.record));
    record.map_or(&[], |record| record.key)
}

pub(crate) fn spread_of(slots: &[Slot], number: u32) -> u64 {
    let slot = slots.get(number as usize);
    slot.map_or(0, |slot| spread(slot.hash))
}

/// Hashes and numbers of slots, by neighbouring buckets: an index that is filled in this order
/// remains in the cache. The index may choose other buckets, which only costs time.
pub(crate) fn by_part(slots: &[Slot], buckets: usize) -> Vec<Vec<(u32, u32)>> {
    let parts = buckets.div_ceil(PART_BUCKETS);
    // Hashes are spread nearly evenly over the parts.
    let room = slots.len() / parts;
    let mut found = vec![Vec::with_capacity(room + room / 8); parts];
    for (slot, number) in slots.iter().zip(0u32..) {
        let bucket = spread(slot.hash) as usize & (buckets - 1);
        if let Some(part) = found.get_mut(bucket / PART_BUCKETS) {
            part.push((slot.hash, number));
        }
    }
    found
}

pub(crate) fn hash_of(key: &[u8]) -> u32 {
    xxh3_64(key) as u32
}

/// Spreads the 32 bits of a hash, because the index needs high bits that vary.
pub(crate) fn spread(hash: u32) -> u64 {
    u64::from(hash).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}
