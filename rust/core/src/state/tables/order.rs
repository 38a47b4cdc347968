//! The order of keys in a table that serves prefix and range scans: blocks of slot numbers, sorted
//! by key. An insertion moves at most one block. Two binary searches find a range, which is
//! contiguous in memory. Keys remain in the records of the table. Each number has the first bytes
//! in which keys differ next to it, so that nearly all comparisons read no record. Each block
//! repeats its last entry, so that the search for a block reads no other. Inserted keys are new.

use std::cmp::Ordering;

use crate::format::shared_bytes;
use crate::state::runs::key_range::KeyRange;

/// A block splits at this many entries: 8 KiB, which shift in well under a microsecond.
const MAX_BLOCK_ENTRIES: usize = 512;
/// Entries of the blocks that ordered input fills, with some room for keys in between.
const FULL_BLOCK_ENTRIES: usize = MAX_BLOCK_ENTRIES * 7 / 8;

#[derive(Clone, Copy, Debug)]
struct Entry {
    /// The bytes of the key after the common prefix of all keys, see [`head_of`].
    head: u64,
    slot: u32,
}

#[derive(Debug)]
struct Block {
    entries: Vec<Entry>,
    last: Entry,
}

#[derive(Debug, Default)]
pub(crate) struct Order {
    blocks: Vec<Block>,
    common: Vec<u8>,
}

#[derive(Clone, Copy)]
struct Bound<'b> {
    key: &'b [u8],
    /// `None` for a key without the common prefix, which compares as a whole key.
    head: Option<u64>,
}

impl Order {
    /// `slots` are sorted by key, and no key is twice in them.
    pub(crate) fn of_sorted<'k>(
        mut slots: impl DoubleEndedIterator<Item = u32> + Clone,
        key_of: impl Fn(u32) -> &'k [u8],
    ) -> Self {
        let mut ends = slots.clone();
        let (Some(first), last) = (ends.next(), ends.next_back()) else {
            return Self::default();
        };
        // The keys between the first and the last one share the prefix of these two.
        let first = key_of(first);
        let shared = last.map_or(first.len(), |last| shared_bytes(first, key_of(last)));
        let entry_of = |slot| Entry {
            head: head_of(key_of(slot), shared),
            slot,
        };
        let mut blocks = Vec::new();
        loop {
            let mut entries = Vec::with_capacity(MAX_BLOCK_ENTRIES);
            entries.extend(slots.by_ref().take(FULL_BLOCK_ENTRIES).map(entry_of));
            let Some(last) = entries.last().copied() else {
                break;
            };
            blocks.push(Block { entries, last });
        }
        Self {
            blocks,
            common: first.iter().take(shared).copied().collect(),
        }
    }

    pub(crate) fn insert<'k>(&mut self, slot: u32, key: &[u8], key_of: impl Fn(u32) -> &'k [u8]) {
        self.make_common(key, &key_of);
        let bound = self.bound(key);
        let entry = Entry {
            head: head_of(key, self.common.len()),
            slot,
        };
        let below = |entry: &Entry| bound.compare(entry, &key_of) == Ordering::Less;
        let Some(end) = self.blocks.len().checked_sub(1) else {
            self.blocks.push(Block {
                entries: vec![entry],
                last: entry,
            });
            return;
        };
        // Loads and timers arrive in order: the end is the likely place.
        let at = self.blocks.partition_point(|block| below(&block.last));
        let at = at.min(end);
        let Some(block) = self.blocks.get_mut(at) else {
            return;
        };
        let place = if below(&block.last) {
            block.last = entry;
            block.entries.len()
        } else {
            block.entries.partition_point(below)
        };
        block.entries.insert(place, entry);
        if block.entries.len() >= MAX_BLOCK_ENTRIES {
            // Filled at its end, a block keeps most entries: ordered input leaves full blocks.
            let cut = if place + 1 == block.entries.len() {
                FULL_BLOCK_ENTRIES
            } else {
                MAX_BLOCK_ENTRIES / 2
            };
            let upper = block.split_off(cut);
            self.blocks.insert(at + 1, upper);
        }
    }

    pub(crate) fn remove<'k>(&mut self, slot: u32, key: &[u8], key_of: impl Fn(u32) -> &'k [u8]) {
        let (at, place) = self.first_not_below(key, &key_of);
        let Some(block) = self.blocks.get_mut(at) else {
            return;
        };
        let found = block.entries.get(place);
        if found.is_none_or(|entry| entry.slot != slot) {
            return;
        }
        block.entries.remove(place);
        match block.entries.last() {
            Some(last) => block.last = *last,
            None => {
                self.blocks.remove(at);
            }
        }
    }

    pub(crate) fn slots<'k>(
        &self,
        range: KeyRange<'_>,
        key_of: impl Fn(u32) -> &'k [u8],
    ) -> Vec<u32> {
        let start = match range {
            KeyRange::All | KeyRange::Between { from: None, .. } => (0, 0),
            KeyRange::Prefix(from)
            | KeyRange::Between {
                from: Some(from), ..
            } => self.first_not_below(from, &key_of),
        };
        let to = match range {
            KeyRange::Between { to: Some(to), .. } => Some(self.bound(to)),
            _ => None,
        };
        let (mask, head) = match range {
            KeyRange::Prefix(prefix) => self.prefix_head(prefix),
            _ => (0, 0),
        };
        let inside = |entry: &Entry| match (range, to) {
            (KeyRange::Prefix(prefix), _) => {
                entry.head & mask == head && key_of(entry.slot).starts_with(prefix)
            }
            (_, Some(to)) => to.compare(entry, &key_of) == Ordering::Less,
            (_, None) => true,
        };
        let mut found = Vec::new();
        for (number, block) in self.blocks.iter().enumerate().skip(start.0) {
            let from = if number == start.0 { start.1 } else { 0 };
            let rest = block.entries.get(from..).unwrap_or_default();
            let taken = leading(rest, inside);
            found.extend(rest.iter().take(taken).map(|entry| entry.slot));
            if taken < rest.len() {
                break;
            }
        }
        found
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        let entries = self.blocks.iter().map(|block| block.entries.capacity());
        let entries: usize = entries.sum();
        entries * size_of::<Entry>() + self.blocks.capacity() * size_of::<Block>()
    }

    fn first_not_below<'k>(&self, key: &[u8], key_of: impl Fn(u32) -> &'k [u8]) -> (usize, usize) {
        let bound = self.bound(key);
        let below = |entry: &Entry| bound.compare(entry, &key_of) == Ordering::Less;
        let at = self.blocks.partition_point(|block| below(&block.last));
        let block = self.blocks.get(at);
        let place = block.map_or(0, |block| block.entries.partition_point(below));
        (at, place)
    }

    fn bound<'b>(&self, key: &'b [u8]) -> Bound<'b> {
        let usual = key.starts_with(&self.common);
        Bound {
            key,
            head: usual.then(|| head_of(key, self.common.len())),
        }
    }

    /// Mask and value of the bits of a head that `prefix` decides. A head that differs there
    /// excludes `prefix`. A key whose head agrees may still be too short.
    fn prefix_head(&self, prefix: &[u8]) -> (u64, u64) {
        let Some(decided) = prefix.strip_prefix(self.common.as_slice()) else {
            return (0, 0);
        };
        let free_bits = 64 - 8 * decided.len().min(8) as u32;
        let mask = u64::MAX.checked_shl(free_bits).unwrap_or(0);
        (mask, head_of(prefix, self.common.len()))
    }

    fn make_common<'k>(&mut self, key: &[u8], key_of: impl Fn(u32) -> &'k [u8]) {
        if self.blocks.is_empty() {
            self.common = key.to_vec();
            return;
        }
        let shared = shared_bytes(&self.common, key);
        if shared == self.common.len() {
            return;
        }
        // Rewrites all heads, at most once per byte of a key, and mostly while there are few keys.
        self.common.truncate(shared);
        for block in &mut self.blocks {
            for entry in block.entries.iter_mut().chain([&mut block.last]) {
                entry.head = head_of(key_of(entry.slot), shared);
            }
        }
    }
}

impl Block {
    fn split_off(&mut self, keep: usize) -> Self {
        let upper = Self {
            entries: self.entries.split_off(keep),
            last: self.last,
        };
        if let Some(last) = self.entries.last() {
            self.last = *last;
        }
        upper
    }
}

impl Bound<'_> {
    fn compare<'k>(&self, entry: &Entry, key_of: impl Fn(u32) -> &'k [u8]) -> Ordering {
        match self.head {
            Some(head) if head != entry.head => entry.head.cmp(&head),
            _ => key_of(entry.slot).cmp(self.key),
        }
    }
}

/// At most so many keys are sorted by whole keys.
const FEW_KEYS: usize = 24;
/// Keys that agree in so many bytes are also sorted by whole keys, which bounds the recursion.
const LONG_KEY_BYTES: usize = 512;

/// Sorts slots by keys that agree up to `skip`. Next to each slot are eight bytes of its key, so
/// that most comparisons read no more. Keys that agree in these are sorted by the next bytes.
pub(crate) fn sort_by_key<'k>(
    slots: &mut [(u64, u32)],
    skip: usize,
    key_of: &impl Fn(u32) -> &'k [u8],
) {
    let first = slots.first().map_or(&[][..], |(_, slot)| key_of(*slot));
    // Only its length tells a key that ends from one that continues with zeros.
    if slots.len() <= FEW_KEYS || first.len().min(LONG_KEY_BYTES) <= skip {
        slots.sort_unstable_by_key(|(_, slot)| key_of(*slot));
        return;
    }
    let shared = |(_, slot): &(u64, u32)| shared_bytes(first, key_of(*slot));
    let common = slots.iter().map(shared).min().unwrap_or(0).max(skip);
    for (head, slot) in &mut *slots {
        *head = head_of(key_of(*slot), common);
    }
    slots.sort_unstable_by_key(|(head, _)| *head);
    for equal in slots.chunk_by_mut(|(a, _), (b, _)| a == b) {
        if equal.len() > 1 {
            sort_by_key(equal, common + size_of::<u64>(), key_of);
        }
    }
}

/// Eight bytes from `skip` on, big-endian, zero-padded. They order keys that agree up to `skip`.
fn head_of(key: &[u8], skip: usize) -> u64 {
    let mut head = [0; 8];
    for (to, from) in head.iter_mut().zip(key.iter().skip(skip)) {
        *to = *from;
    }
    u64::from_be_bytes(head)
}

/// Number of entries inside, all of which are at the start. Finds few in few steps.
fn leading(entries: &[Entry], inside: impl Fn(&Entry) -> bool) -> usize {
    if entries.last().is_some_and(&inside) {
        return entries.len();
    }
    let mut below = 0;
    let mut step = 1;
    while entries.get(below + step - 1).is_some_and(&inside) {
        below += step;
        step *= 2;
    }
    let rest = entries.get(below..).unwrap_or_default();
    let near = rest.get(..step).unwrap_or(rest);
    below + near.partition_point(inside)
}

#[cfg(test)]
#[path = "order_tests.rs"]
mod tests;
