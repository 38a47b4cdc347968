//! The order of keys in a table that serves prefix and range scans.
//!
//! Slot numbers sorted by key, cut into blocks: an insertion moves at most one block, a range is
//! found by two binary searches and read from memory that lies together. Keys stay where they are,
//! in the records of the table. Beside each number lie the first bytes in which keys differ, so that
//! nearly all comparisons of a search are made without going there, and beside each block lies its
//! last entry, so that the search for a block reads no other.

use std::cmp::Ordering;

use crate::format::shared_bytes;

/// A block is split at this many entries: 8 KiB, what a `memmove` shifts in well under a
/// microsecond.
const MAX_BLOCK_ENTRIES: usize = 512;

/// Entries of the blocks that ordered input leaves behind: some room, for keys that come between.
const FULL_BLOCK_ENTRIES: usize = MAX_BLOCK_ENTRIES * 7 / 8;

/// Which keys a scan wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyRange<'a> {
    /// All of them.
    All,
    /// Keys that begin with these bytes.
    Prefix(&'a [u8]),
    /// Keys from `from` (inclusive) to `to` (exclusive); `None` is no bound.
    Between {
        /// Smallest key.
        from: Option<&'a [u8]>,
        /// First key that is too large.
        to: Option<&'a [u8]>,
    },
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    /// The bytes of the key behind what all keys have in common, see [`head_of`].
    head: u64,
    slot: u32,
}

/// Entries that follow each other, at least one.
#[derive(Debug)]
struct Block {
    entries: Vec<Entry>,
    /// The last of them: what a search for a block compares with, without a step into its memory.
    last: Entry,
}

/// Slot numbers in the order of their keys.
#[derive(Debug, Default)]
pub(super) struct Order {
    blocks: Vec<Block>,
    /// All keys begin with these bytes.
    common: Vec<u8>,
}

/// A key to compare with.
#[derive(Clone, Copy)]
struct Bound<'b> {
    key: &'b [u8],
    /// `None` for a key that does not begin as all others do: only whole keys compare with it.
    head: Option<u64>,
}

impl Order {
    /// The order of `slots`, which come sorted by their keys, no key twice.
    pub(super) fn of_sorted<'k>(
        mut slots: impl DoubleEndedIterator<Item = u32> + Clone,
        key_of: impl Fn(u32) -> &'k [u8],
    ) -> Self {
        let mut ends = slots.clone();
        let (Some(first), last) = (ends.next(), ends.next_back()) else {
            return Self::default();
        };
        // What the first and the last key share, those between them share, too.
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

    /// Adds `slot`, whose key is `key` and not in here yet.
    pub(super) fn insert<'k>(&mut self, slot: u32, key: &[u8], key_of: impl Fn(u32) -> &'k [u8]) {
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
        let at = self
            .blocks
            .partition_point(|block| below(&block.last))
            .min(end);
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
            // Filled from the end, a block keeps most of its entries, so that ordered input leaves
            // full blocks behind.
            let cut = if place + 1 == block.entries.len() {
                FULL_BLOCK_ENTRIES
            } else {
                MAX_BLOCK_ENTRIES / 2
            };
            let upper = block.split_off(cut);
            self.blocks.insert(at + 1, upper);
        }
    }

    /// Takes `slot` out, whose key is `key`.
    pub(super) fn remove<'k>(&mut self, slot: u32, key: &[u8], key_of: impl Fn(u32) -> &'k [u8]) {
        let (at, place) = self.first_not_below(key, &key_of);
        let Some(block) = self.blocks.get_mut(at) else {
            return;
        };
        if block
            .entries
            .get(place)
            .is_none_or(|entry| entry.slot != slot)
        {
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

    /// The slots whose keys are in `range`, smallest key first.
    pub(super) fn slots<'k>(
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

    /// Bytes taken from the allocator.
    pub(super) fn memory_bytes(&self) -> usize {
        let entries: usize = self
            .blocks
            .iter()
            .map(|block| block.entries.capacity())
            .sum();
        entries * size_of::<Entry>() + self.blocks.capacity() * size_of::<Block>()
    }

    /// Block and place of the first key that is not smaller than `key`.
    fn first_not_below<'k>(&self, key: &[u8], key_of: impl Fn(u32) -> &'k [u8]) -> (usize, usize) {
        let bound = self.bound(key);
        let below = |entry: &Entry| bound.compare(entry, &key_of) == Ordering::Less;
        let at = self.blocks.partition_point(|block| below(&block.last));
        let place = self
            .blocks
            .get(at)
            .map_or(0, |block| block.entries.partition_point(below));
        (at, place)
    }

    fn bound<'b>(&self, key: &'b [u8]) -> Bound<'b> {
        let usual = key.starts_with(&self.common);
        Bound {
            key,
            head: usual.then(|| head_of(key, self.common.len())),
        }
    }

    /// Which bits of a head `prefix` decides, and what they are. A key whose head differs there does
    /// not begin with `prefix`; one whose head agrees may still be too short.
    fn prefix_head(&self, prefix: &[u8]) -> (u64, u64) {
        let Some(decided) = prefix.strip_prefix(self.common.as_slice()) else {
            return (0, 0);
        };
        let free_bits = 64 - 8 * decided.len().min(8) as u32;
        let mask = u64::MAX.checked_shl(free_bits).unwrap_or(0);
        (mask, head_of(prefix, self.common.len()))
    }

    /// Cuts what all keys have in common down to what `key` has, too.
    fn make_common<'k>(&mut self, key: &[u8], key_of: impl Fn(u32) -> &'k [u8]) {
        if self.blocks.is_empty() {
            self.common = key.to_vec();
            return;
        }
        let shared = shared_bytes(&self.common, key);
        if shared == self.common.len() {
            return;
        }
        // A block rewrites its heads here. That happens at most once per byte of a key, and mostly while
        // the order holds few keys.
        self.common.truncate(shared);
        for block in &mut self.blocks {
            for entry in block.entries.iter_mut().chain([&mut block.last]) {
                entry.head = head_of(key_of(entry.slot), shared);
            }
        }
    }
}

impl Block {
    /// Keeps the first `keep` entries, at least one, and returns the others, at least one.
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
    /// Compares the key of `entry` with this one.
    fn compare<'k>(&self, entry: &Entry, key_of: impl Fn(u32) -> &'k [u8]) -> Ordering {
        match self.head {
            Some(head) if head != entry.head => entry.head.cmp(&head),
            _ => key_of(entry.slot).cmp(self.key),
        }
    }
}

/// At most so many keys are sorted by comparing whole ones.
const FEW_KEYS: usize = 24;

/// So are keys that agree in so many bytes: it bounds the depth of the calls.
const LONG_KEY_BYTES: usize = 512;

/// Sorts slots by their keys, which agree up to `skip`. Beside each slot lie eight bytes of its key,
/// so that most comparisons go nowhere else; slots whose keys agree in these are sorted by the next
/// bytes in which they differ.
pub(super) fn sort_by_key<'k>(
    slots: &mut [(u64, u32)],
    skip: usize,
    key_of: &impl Fn(u32) -> &'k [u8],
) {
    let first = slots.first().map_or(&[][..], |(_, slot)| key_of(*slot));
    // A key that ends is told from one that goes on with zeros by nothing but its length.
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

/// Eight bytes of `key` from `skip` on, big-endian; behind its end are zeros. Of two keys that agree
/// up to `skip` the one with the smaller head is the smaller one.
fn head_of(key: &[u8], skip: usize) -> u64 {
    let mut head = [0; 8];
    for (to, from) in head.iter_mut().zip(key.iter().skip(skip)) {
        *to = *from;
    }
    u64::from_be_bytes(head)
}

/// Number of entries at the start that are inside; all behind the first that is not are outside.
/// Few are found in few steps.
fn leading(entries: &[Entry], inside: impl Fn(&Entry) -> bool) -> usize {
    // A whole block is inside when its last entry is.
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
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use std::collections::BTreeMap;

    use super::*;
    use proptest::prelude::*;

    fn check(order: &Order, keys: &[Vec<u8>], model: &BTreeMap<Vec<u8>, u32>, bound: &[u8]) {
        let key_of = |slot: u32| keys[slot as usize].as_slice();
        let got = |range| order.slots(range, key_of);
        let expect = |inside: &dyn Fn(&[u8]) -> bool| {
            let inside = model.iter().filter(|(key, _)| inside(key));
            inside.map(|(_, slot)| *slot).collect::<Vec<_>>()
        };
        assert_eq!(got(KeyRange::All), expect(&|_| true));
        assert_eq!(
            got(KeyRange::Prefix(bound)),
            expect(&|key| key.starts_with(bound))
        );
        let from = KeyRange::Between {
            from: Some(bound),
            to: None,
        };
        assert_eq!(got(from), expect(&|key| key >= bound));
        let to = KeyRange::Between {
            from: None,
            to: Some(bound),
        };
        assert_eq!(got(to), expect(&|key| key < bound));
        let upper = [bound, &[1]].concat();
        let both = KeyRange::Between {
            from: Some(bound),
            to: Some(&upper),
        };
        assert_eq!(
            got(both),
            expect(&|key| key >= bound && key < upper.as_slice())
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn slots_are_sorted_by_whole_keys(
            keys in prop::collection::btree_set(
                (prop::sample::select(vec![0usize, 3, 8, 9, 16, 505, 600]), prop::collection::vec(0u8..2, 0..12)),
                0..400),
        ) {
            // Of many keys that agree in their first bytes, some end where others go on with zeros.
            let keys: Vec<_> = keys.into_iter().map(|(zeros, end)| [vec![0; zeros], end].concat()).collect();
            let key_of = |slot: u32| keys[slot as usize].as_slice();
            let mut slots: Vec<_> = (0..keys.len() as u32).rev().map(|slot| (7, slot)).collect();
            sort_by_key(&mut slots, 0, &key_of);
            let found: Vec<_> = slots.iter().map(|(_, slot)| key_of(*slot)).collect();
            let mut expected: Vec<_> = keys.iter().map(Vec::as_slice).collect();
            expected.sort_unstable();
            prop_assert_eq!(found, expected);
        }

        #[test]
        fn ranges_equal_those_of_a_sorted_map(
            keys in prop::collection::vec(prop::collection::vec(0u8..4, 0..7), 1..3_000),
            removals in prop::collection::vec(any::<prop::sample::Index>(), 0..2_000),
            bounds in prop::collection::vec(prop::collection::vec(0u8..4, 0..4), 4),
            common in prop::collection::vec(0u8..4, 0..12),
            sorted in 0usize..3_000,
        ) {
            // Bounds with and without what all keys begin with.
            let behind = |key: &Vec<u8>| [common.as_slice(), key].concat();
            let keys: Vec<_> = keys.iter().map(behind).collect();
            let bounds: Vec<_> = bounds.iter().map(behind).chain(bounds.clone()).collect();
            // Some are there at once, the others come one by one.
            let mut model: BTreeMap<_, _> = keys[..keys.len().min(sorted)].iter().cloned().zip(0..).collect();
            let key_of = |slot: u32| keys[slot as usize].as_slice();
            let slots: Vec<u32> = model.values().copied().collect();
            let mut order = Order::of_sorted(slots.into_iter(), key_of);
            for bound in &bounds {
                check(&order, &keys, &model, bound);
            }
            for (slot, key) in keys.iter().enumerate() {
                if model.contains_key(key) {
                    continue;
                }
                order.insert(slot as u32, key, key_of);
                model.insert(key.clone(), slot as u32);
            }
            for bound in &bounds {
                check(&order, &keys, &model, bound);
            }
            for index in removals {
                let key = index.get(&keys);
                if let Some(slot) = model.remove(key) {
                    order.remove(slot, key, key_of);
                }
            }
            for bound in &bounds {
                check(&order, &keys, &model, bound);
            }
        }
    }

    #[test]
    fn ordered_input_fills_blocks() {
        let keys: Vec<[u8; 4]> = (0..20_000u32).map(u32::to_be_bytes).collect();
        let mut order = Order::default();
        for (slot, key) in keys.iter().enumerate() {
            order.insert(slot as u32, key, |slot| keys[slot as usize].as_slice());
        }
        let full = 20_000 / FULL_BLOCK_ENTRIES + 1;
        assert!(order.blocks.len() <= full);
        let at_once = Order::of_sorted(0..20_000, |slot| keys[slot as usize].as_slice());
        assert_eq!(at_once.blocks.len(), full);
        assert_eq!(at_once.common, [0, 0]);
    }
}
