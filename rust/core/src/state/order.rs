//! The order of keys in a table that serves prefix and range scans.
//!
//! Slot numbers sorted by key, cut into blocks: an insertion moves at most one block, a range is
//! found by two binary searches and read from memory that lies together. Keys stay where they are,
//! in the records of the table.

use std::ops::Range;

/// A block is split at this many slots: 2 KiB, what a `memmove` shifts in well under a microsecond.
const MAX_BLOCK_SLOTS: usize = 512;

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

/// Slot numbers in the order of their keys.
#[derive(Debug, Default)]
pub(super) struct Order {
    /// No block is empty.
    blocks: Vec<Vec<u32>>,
}

impl Order {
    /// Adds `slot`, whose key is `key` and not in here yet.
    pub(super) fn insert<'k>(&mut self, slot: u32, key: &[u8], key_of: impl Fn(u32) -> &'k [u8]) {
        let below = |number: &u32| key_of(*number) < key;
        let at = self
            .blocks
            .partition_point(|block| block.first().is_some_and(below))
            .saturating_sub(1);
        let Some(block) = self.blocks.get_mut(at) else {
            self.blocks.push(vec![slot]);
            return;
        };
        // Loads and timers arrive in order: the end of a block is the likely place.
        let place = if block.last().is_some_and(below) {
            block.len()
        } else {
            block.partition_point(below)
        };
        block.insert(place, slot);
        if block.len() >= MAX_BLOCK_SLOTS {
            // Filled from the end, a block keeps most of its slots, so that ordered input leaves
            // full blocks behind.
            let cut = if place + 1 == block.len() {
                MAX_BLOCK_SLOTS * 7 / 8
            } else {
                MAX_BLOCK_SLOTS / 2
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
        if block.get(place) != Some(&slot) {
            return;
        }
        block.remove(place);
        if block.is_empty() {
            self.blocks.remove(at);
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
        let inside = move |key: &[u8]| match range {
            KeyRange::All | KeyRange::Between { to: None, .. } => true,
            KeyRange::Prefix(prefix) => key.starts_with(prefix),
            KeyRange::Between { to: Some(to), .. } => key < to,
        };
        let mut found = Vec::new();
        for (number, block) in self.blocks.iter().enumerate().skip(start.0) {
            let from = if number == start.0 { start.1 } else { 0 };
            // A whole block is inside when its last key is.
            let end = match block.last() {
                Some(last) if inside(key_of(*last)) => block.len(),
                _ => {
                    from + block
                        .get(from..)
                        .unwrap_or_default()
                        .partition_point(|s| inside(key_of(*s)))
                }
            };
            found.extend_from_slice(block.get(Range { start: from, end }).unwrap_or_default());
            if end < block.len() {
                break;
            }
        }
        found
    }

    /// Bytes taken from the allocator.
    pub(super) fn memory_bytes(&self) -> usize {
        let slots: usize = self.blocks.iter().map(Vec::capacity).sum();
        slots * size_of::<u32>() + self.blocks.capacity() * size_of::<Vec<u32>>()
    }

    /// Block and place of the first key that is not smaller than `key`.
    fn first_not_below<'k>(&self, key: &[u8], key_of: impl Fn(u32) -> &'k [u8]) -> (usize, usize) {
        let at = self
            .blocks
            .partition_point(|block| block.last().is_some_and(|last| key_of(*last) < key));
        let place = self
            .blocks
            .get(at)
            .map_or(0, |block| block.partition_point(|slot| key_of(*slot) < key));
        (at, place)
    }
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
        fn ranges_equal_those_of_a_sorted_map(
            keys in prop::collection::vec(prop::collection::vec(0u8..4, 0..7), 1..3_000),
            removals in prop::collection::vec(any::<prop::sample::Index>(), 0..2_000),
            bounds in prop::collection::vec(prop::collection::vec(0u8..4, 0..4), 4),
        ) {
            let mut order = Order::default();
            let mut model = BTreeMap::new();
            for (slot, key) in keys.iter().enumerate() {
                if model.contains_key(key) {
                    continue;
                }
                order.insert(slot as u32, key, |slot| keys[slot as usize].as_slice());
                model.insert(key.clone(), slot as u32);
            }
            for bound in &bounds {
                check(&order, &keys, &model, bound);
            }
            for index in removals {
                let key = index.get(&keys);
                if let Some(slot) = model.remove(key) {
                    order.remove(slot, key, |slot| keys[slot as usize].as_slice());
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
        assert!(order.blocks.len() <= 20_000 / (MAX_BLOCK_SLOTS * 7 / 8) + 1);
    }
}
