//! The content of one store: a hash index over records, with an undo log.
//!
//! Changes go in place. The undo log holds the previous record of every key touched since the last
//! commit, so an abort costs what was changed, and a commit serializes exactly the keys in it. The
//! log of the last commit is kept until the next session begins: a retry of that commit rewinds
//! instead of loading.

use hashbrown::HashTable;
use xxhash_rust::xxh3::xxh3_64;

use super::arena::{Arena, RecordAt};
use super::entries::{Change, ChangeReader, ChangeWriter};
use crate::error::{Error, Result};

/// Garbage below this is never worth a compaction.
const COMPACT_MIN_BYTES: usize = 64 << 10;

#[derive(Clone, Copy, Debug)]
struct Slot {
    record: RecordAt,
    hash: u32,
    /// Session in which the slot was last touched; the slot is in the undo log iff it is the
    /// current one.
    session: u32,
    dead: bool,
}

#[derive(Clone, Copy, Debug)]
struct Undo {
    slot: u32,
    before: RecordAt,
}

/// Key-value content of one store. Keys and values are opaque bytes.
///
/// ```
/// # use holdfast_core::state::Table;
/// let mut table = Table::default();
/// table.begin();
/// table.put(b"k", b"1")?;
/// table.commit();
/// table.begin();
/// table.remove(b"k");
/// table.abort();
/// assert_eq!(table.get(b"k"), Some(b"1".as_slice()));
/// # Ok::<(), holdfast_core::Error>(())
/// ```
#[derive(Debug, Default)]
pub struct Table {
    index: HashTable<u32>,
    slots: Vec<Slot>,
    free: Vec<u32>,
    arena: Arena,
    undo: Vec<Undo>,
    session: u32,
    len: usize,
    live_bytes: usize,
}

/// Result of [`Table::scan`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScanBatch {
    /// Where the next scan continues; equal to the end when the scan is over.
    pub next: u32,
    /// Entries written.
    pub entries: u32,
    /// Bytes needed for the next entry when not even one did fit, else 0.
    pub needed_bytes: usize,
}

impl Table {
    /// Number of keys.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True when there are no keys.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes taken from the allocator.
    pub fn memory_bytes(&self) -> usize {
        self.arena.capacity_bytes()
            + self.slots.capacity() * size_of::<Slot>()
            + self.index.allocation_size()
            + self.undo.capacity() * size_of::<Undo>()
            + self.free.capacity() * size_of::<u32>()
    }

    /// Value of `key`.
    pub fn get(&self, key: &[u8]) -> Option<&[u8]> {
        let number = self.find(hash_of(key), key)?;
        let slot = self.slots.get(number as usize)?;
        if slot.dead {
            return None;
        }
        self.arena.get(slot.record).map(|record| record.value)
    }

    /// Starts a session. The undo log of the last commit is dropped: from here on [`Table::abort`]
    /// goes back to this point only.
    pub fn begin(&mut self) {
        for undo in std::mem::take(&mut self.undo) {
            if self
                .slots
                .get(undo.slot as usize)
                .is_some_and(|slot| slot.dead)
            {
                self.unlink(undo.slot);
            }
        }
        self.session = self.session.wrapping_add(1);
        if self.session == 0 {
            self.forget_sessions();
        }
        let garbage = self.arena.used_bytes().saturating_sub(self.live_bytes);
        if garbage > self.live_bytes + COMPACT_MIN_BYTES {
            self.compact();
        }
    }

    /// Sets `key` to `value`.
    ///
    /// # Errors
    /// `InvalidInput` when key and value together exceed 4 GiB.
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let hash = hash_of(key);
        let Some(number) = self.find(hash, key) else {
            let record = self.push_record(key, value)?;
            let number = self.link(hash, record);
            self.undo.push(Undo {
                slot: number,
                before: RecordAt::NONE,
            });
            return Ok(());
        };
        let Some(slot) = self.slots.get(number as usize).copied() else {
            return Ok(());
        };
        let before_bytes = self
            .arena
            .get(slot.record)
            .map_or(0, |record| record.stored_bytes());
        let touched = slot.session == self.session;
        // Only a record born in this session may be overwritten: older ones are the undo log's.
        let record = if touched && self.arena.overwrite(slot.record, value) {
            slot.record
        } else {
            self.push_record(key, value)?
        };
        if !touched {
            self.undo.push(Undo {
                slot: number,
                before: slot.record,
            });
        }
        if slot.dead {
            self.len += 1;
        } else {
            self.live_bytes -= before_bytes;
        }
        self.live_bytes += self
            .arena
            .get(record)
            .map_or(0, |record| record.stored_bytes());
        if let Some(slot) = self.slots.get_mut(number as usize) {
            *slot = Slot {
                record,
                session: self.session,
                dead: false,
                ..*slot
            };
        }
        Ok(())
    }

    /// Removes `key`; false when it was not there.
    pub fn remove(&mut self, key: &[u8]) -> bool {
        let Some(number) = self.find(hash_of(key), key) else {
            return false;
        };
        let Some(slot) = self
            .slots
            .get_mut(number as usize)
            .filter(|slot| !slot.dead)
        else {
            return false;
        };
        self.live_bytes -= self
            .arena
            .get(slot.record)
            .map_or(0, |record| record.stored_bytes());
        self.len -= 1;
        slot.dead = true;
        if slot.session != self.session {
            self.undo.push(Undo {
                slot: number,
                before: slot.record,
            });
            slot.session = self.session;
            // A record that carries only the key, so that "touched" always means "the record was
            // born in this session" and a later put may overwrite it.
            if let Some(tombstone) = self.arena.push(key, &[]) {
                slot.record = tombstone;
            }
        }
        true
    }

    /// What this session changed, sorted by key; `None` when nothing did.
    pub fn changes(&self) -> Option<ChangeWriter> {
        let mut changed: Vec<(&[u8], Change<'_>)> = Vec::with_capacity(self.undo.len());
        for undo in &self.undo {
            let Some(slot) = self.slots.get(undo.slot as usize) else {
                continue;
            };
            let Some(now) = self.arena.get(slot.record) else {
                continue;
            };
            match (slot.dead, self.arena.get(undo.before)) {
                (true, None) => {}
                (true, Some(_)) => changed.push((now.key, Change::Remove)),
                (false, Some(before)) if before.value == now.value => {}
                (false, _) => changed.push((now.key, Change::Put(now.value))),
            }
        }
        if changed.is_empty() {
            return None;
        }
        changed.sort_unstable_by_key(|(key, _)| *key);
        let mut writer = ChangeWriter::default();
        for (key, change) in changed {
            writer.push(key, change);
        }
        Some(writer)
    }

    /// The whole content, sorted by key.
    pub fn snapshot(&self) -> ChangeWriter {
        let live = self.slots.iter().filter(|slot| !slot.dead);
        let mut records: Vec<_> = live
            .filter_map(|slot| self.arena.get(slot.record))
            .collect();
        records.sort_unstable_by_key(|record| record.key);
        let mut writer = ChangeWriter::default();
        for record in records {
            writer.push(record.key, Change::Put(record.value));
        }
        writer
    }

    /// Ends the session and keeps its undo log for [`Table::abort`] until the next one begins.
    pub fn commit(&mut self) {
        self.session = self.session.wrapping_add(1);
        if self.session == 0 {
            self.forget_sessions();
        }
    }

    /// Takes back what is in the undo log: the open session, or the last commit when none is open.
    pub fn abort(&mut self) {
        for undo in std::mem::take(&mut self.undo) {
            let Some(slot) = self.slots.get(undo.slot as usize).copied() else {
                continue;
            };
            if !slot.dead {
                self.len -= 1;
                self.live_bytes -= self.arena.get(slot.record).map_or(0, |r| r.stored_bytes());
            }
            if undo.before.is_none() {
                self.unlink(undo.slot);
                continue;
            }
            self.len += 1;
            self.live_bytes += self.arena.get(undo.before).map_or(0, |r| r.stored_bytes());
            if let Some(slot) = self.slots.get_mut(undo.slot as usize) {
                slot.record = undo.before;
                slot.dead = false;
            }
        }
        self.session = self.session.wrapping_add(1);
        if self.session == 0 {
            self.forget_sessions();
        }
    }

    /// Applies a changelog or base image outside any session.
    ///
    /// # Errors
    /// `Corrupt` when the payload is not a run of entries.
    pub fn apply(&mut self, payload: &[u8]) -> Result<()> {
        let mut reader = ChangeReader::new(payload);
        while let Some((key, change)) = reader.next()? {
            match change {
                Change::Put(value) => self.put(key, value)?,
                Change::Remove => {
                    self.remove(key);
                }
            }
        }
        // Loaded content is committed content: there is nothing to go back to.
        self.begin();
        Ok(())
    }

    /// End position for a scan that shall not see keys added from now on.
    pub fn scan_end(&self) -> u32 {
        self.slots.len() as u32
    }

    /// Copies entries from position `from` up to `end` into `out` as
    /// `key_len u32, value_len u32, key, value` (little-endian), as many as fit `max_bytes`.
    ///
    /// Keys removed meanwhile are skipped. A key added meanwhile may or may not be seen, as with
    /// any weakly consistent iterator.
    pub fn scan(&self, from: u32, end: u32, max_bytes: usize, out: &mut Vec<u8>) -> ScanBatch {
        let mut batch = ScanBatch {
            next: from,
            entries: 0,
            needed_bytes: 0,
        };
        let start = out.len();
        let range = self
            .slots
            .get(from as usize..end as usize)
            .unwrap_or_default();
        for slot in range {
            if let Some(record) = self.arena.get(slot.record).filter(|_| !slot.dead) {
                let need = record.stored_bytes();
                if out.len() - start + need > max_bytes {
                    if batch.entries == 0 {
                        batch.needed_bytes = need;
                    }
                    return batch;
                }
                out.extend_from_slice(&(record.key.len() as u32).to_le_bytes());
                out.extend_from_slice(&(record.value.len() as u32).to_le_bytes());
                out.extend_from_slice(record.key);
                out.extend_from_slice(record.value);
                batch.entries += 1;
            }
            batch.next += 1;
        }
        batch.next = end;
        batch
    }

    fn find(&self, hash: u32, key: &[u8]) -> Option<u32> {
        self.index
            .find(spread(hash), |number| {
                self.slots.get(*number as usize).is_some_and(|slot| {
                    slot.hash == hash
                        && self
                            .arena
                            .get(slot.record)
                            .is_some_and(|record| record.key == key)
                })
            })
            .copied()
    }

    fn push_record(&mut self, key: &[u8], value: &[u8]) -> Result<RecordAt> {
        self.arena.push(key, value).ok_or_else(|| {
            Error::invalid_input(format!(
                "a state entry may have at most 4 GiB, this one has a key of {} bytes and a \
                 value of {} bytes",
                key.len(),
                value.len()
            ))
        })
    }

    fn link(&mut self, hash: u32, record: RecordAt) -> u32 {
        let slot = Slot {
            record,
            hash,
            session: self.session,
            dead: false,
        };
        let number = match self.free.pop() {
            Some(number) => {
                if let Some(place) = self.slots.get_mut(number as usize) {
                    *place = slot;
                }
                number
            }
            None => {
                self.slots.push(slot);
                (self.slots.len() - 1) as u32
            }
        };
        let slots = &self.slots;
        self.index.insert_unique(spread(hash), number, |number| {
            slots
                .get(*number as usize)
                .map_or(0, |slot| spread(slot.hash))
        });
        self.len += 1;
        self.live_bytes += self
            .arena
            .get(record)
            .map_or(0, |record| record.stored_bytes());
        number
    }

    /// Drops a slot that holds no live record.
    fn unlink(&mut self, number: u32) {
        let Some(slot) = self.slots.get_mut(number as usize) else {
            return;
        };
        let hash = spread(slot.hash);
        slot.dead = true;
        slot.record = RecordAt::NONE;
        if let Ok(entry) = self
            .index
            .find_entry(hash, |candidate| *candidate == number)
        {
            entry.remove();
        }
        self.free.push(number);
    }

    /// Session numbers wrapped round: no slot may look touched by the session that starts now.
    fn forget_sessions(&mut self) {
        self.session = 1;
        for slot in &mut self.slots {
            slot.session = 0;
        }
    }

    /// Copies live records into a new arena. Only called with an empty undo log.
    fn compact(&mut self) {
        let mut arena = Arena::default();
        for slot in self.slots.iter_mut().filter(|slot| !slot.dead) {
            let moved = self
                .arena
                .get(slot.record)
                .and_then(|record| arena.push(record.key, record.value));
            if let Some(moved) = moved {
                slot.record = moved;
            }
        }
        self.arena = arena;
    }
}

fn hash_of(key: &[u8]) -> u32 {
    xxh3_64(key) as u32
}

/// Slots keep 32 bits of hash; the index wants its high bits to vary too.
fn spread(hash: u32) -> u64 {
    u64::from(hash).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}
