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
        // Many keys agree in their first bytes, and some end where others continue with zeros.
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
