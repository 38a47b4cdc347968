//! What a table has in memory for each key: where the record is, what it stands for, and how it is found
//! by the hash of the key.

use hashbrown::HashTable;
use xxhash_rust::xxh3::xxh3_64;

use super::arena::{Arena, RecordAt};

/// Buckets that are filled together: 40 KiB of the index.
const PART_BUCKETS: usize = 8 << 10;

/// Sessions are numbered below this; the bits above say that a slot is clean or dead.
pub(super) const SESSIONS: u32 = 1 << 30;
const CLEAN: u32 = 1 << 30;
const DEAD: u32 = 1 << 31;

/// 16 bytes: there is one per key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    pub record: RecordAt,
    pub hash: u32,
    pub stamp: Stamp,
}

/// Session in which a slot was last touched, and what it stands for. The slot is in the undo log iff
/// the session is the current one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stamp(u32);

impl Stamp {
    pub fn live(session: u32) -> Self {
        Self(session % SESSIONS)
    }

    pub fn dead(session: u32) -> Self {
        Self((session % SESSIONS) | DEAD)
    }

    /// The run below the table has the same value.
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

    /// What it stands for, in another session.
    pub fn in_session(self, session: u32) -> Self {
        Self((self.0 & (DEAD | CLEAN)) | (session % SESSIONS))
    }
}

impl Slot {
    pub fn is_dead(&self) -> bool {
        self.stamp.is_dead()
    }
}

/// The slot of a key.
#[inline]
pub(super) fn find_in(
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

/// The key in a slot; empty for a slot that is not linked.
pub(super) fn key_in<'a>(slots: &[Slot], arena: &'a Arena, number: u32) -> &'a [u8] {
    let slot = slots.get(number as usize);
    let record = slot.and_then(|slot| arena.get(slot.record));
    record.map_or(&[], |record| record.key)
}

/// What the index places a slot by.
pub(super) fn spread_of(slots: &[Slot], number: u32) -> u64 {
    let slot = slots.get(number as usize);
    slot.map_or(0, |slot| spread(slot.hash))
}

/// Hashes and numbers of slots, those of neighbouring buckets together: an index that is filled in
/// this order stays in the cache, in any other nearly every key waits for memory. Which bucket is
/// meant is up to the index; if it were another one, this would cost time and nothing else.
pub(super) fn by_part(slots: &[Slot], buckets: usize) -> Vec<Vec<(u32, u32)>> {
    let parts = buckets.div_ceil(PART_BUCKETS);
    // Hashes fall into the parts evenly, but for a few.
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

pub(super) fn hash_of(key: &[u8]) -> u32 {
    xxh3_64(key) as u32
}

/// Slots keep 32 bits of hash; the index wants its high bits to vary too.
pub(super) fn spread(hash: u32) -> u64 {
    u64::from(hash).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}
