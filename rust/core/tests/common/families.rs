//! A store with column families of every kind, and maps that say what it has to hold.

use std::collections::BTreeMap;

use holdfast_core::Result;
use holdfast_core::state::{FamilyOptions, KeyRange, ScanOf, StateStore};
use proptest::prelude::*;

use super::{Entries, parse};

/// Key -> its values, by family.
pub type Model = BTreeMap<&'static str, BTreeMap<Vec<u8>, Vec<Vec<u8>>>>;
type Inside = Box<dyn Fn(&[u8]) -> bool>;

pub const FAMILIES: [(&str, FamilyOptions); 4] = [
    ("values", options(false, false)),
    ("ordered", options(true, false)),
    ("lists", options(false, true)),
    ("ordered lists", options(true, true)),
];

const KEYS: u8 = 24;

pub const fn options(ordered: bool, several_values: bool) -> FamilyOptions {
    FamilyOptions {
        ordered,
        several_values,
        internal: false,
    }
}

/// An action of a session on a key, or on a whole family.
#[derive(Clone, Debug)]
pub enum Change {
    Put(usize, u8, Vec<u8>),
    PutList(usize, u8, Vec<Vec<u8>>),
    Append(usize, u8, Vec<Vec<u8>>),
    Remove(usize, u8),
    RemoveFamily(usize),
}

pub fn value() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..30)
}

pub fn values() -> impl Strategy<Value = Vec<Vec<u8>>> {
    prop::collection::vec(value(), 0..4)
}

/// Most changes put, some append or remove, few remove a family.
pub fn change() -> impl Strategy<Value = Change> {
    let (family, key) = (0usize..4, 0u8..KEYS);
    prop_oneof![
        8 => (family.clone(), key.clone(), value()).prop_map(|(f, k, v)| Change::Put(f, k, v)),
        3 => (2usize..4, key.clone(), values()).prop_map(|(f, k, v)| Change::PutList(f, k, v)),
        4 => (2usize..4, key.clone(), values()).prop_map(|(f, k, v)| Change::Append(f, k, v)),
        5 => (family.clone(), key).prop_map(|(f, k)| Change::Remove(f, k)),
        1 => family.prop_map(Change::RemoveFamily),
    ]
}

/// Every family with every key.
pub fn every_key() -> impl Iterator<Item = Change> {
    let values = |k: u8| vec![vec![k; 40], Vec::new(), vec![k; 5]];
    let fill = move |family: usize, k: u8| match family {
        0 | 1 => Change::Put(family, k, vec![k; 30]),
        _ => Change::PutList(family, k, values(k)),
    };
    (0..4).flat_map(move |family| (0..KEYS).map(move |k| fill(family, k)))
}

/// All entries of a scan, read in batches of `max_bytes`.
pub fn scan(store: &mut StateStore, family: u32, what: ScanOf<'_>, max_bytes: usize) -> Entries {
    let (mut entries, mut bytes) = (Entries::new(), Vec::new());
    let mut batch = store.scan(family, what, max_bytes, &mut bytes).unwrap();
    loop {
        let before = entries.len();
        parse(&bytes, &mut entries);
        assert_eq!(entries.len() - before, batch.entries as usize);
        let Some(more) = batch.scan else {
            return entries;
        };
        bytes.clear();
        batch = store.scan_on(more, max_bytes, &mut bytes).unwrap();
        assert!(batch.entries > 0);
    }
}

pub fn key_of(k: u8) -> Vec<u8> {
    // Keys that are prefixes of others, and shared beginnings.
    vec![k / 6; usize::from(k % 6) + 1]
}

pub fn number(store: &StateStore, family: usize) -> Option<u32> {
    store.families().find(FAMILIES[family].0).unwrap()
}

pub fn open(store: &mut StateStore, family: usize) -> u32 {
    let (name, options) = FAMILIES[family];
    store.open_family(name, options).unwrap()
}

pub fn sorted(mut entries: Entries, ordered: bool) -> Entries {
    if !ordered {
        // Stable: values of one key keep their order.
        entries.sort_by(|a, b| a.0.cmp(&b.0));
    }
    entries
}

pub fn check(store: &mut StateStore, model: &Model, max_bytes: usize) {
    let keys: usize = model.values().map(BTreeMap::len).sum();
    assert_eq!(store.families().keys(), keys as u64);
    for (family, (name, options)) in FAMILIES.iter().enumerate() {
        let Some(number) = number(store, family) else {
            assert!(model.get(name).is_none_or(BTreeMap::is_empty));
            continue;
        };
        let empty = BTreeMap::new();
        let content = model.get(name).unwrap_or(&empty);
        for k in 0..KEYS {
            let key = key_of(k);
            let expected = content.get(&key);
            let got = store.get(number, &key).unwrap();
            assert_eq!(got, expected.map(|values| values[0].as_slice()));
            if options.several_values {
                let values = scan(store, number, ScanOf::ValuesOfKey(&key), max_bytes);
                let values: Vec<_> = values.into_iter().map(|(_, value)| value).collect();
                assert_eq!(values, expected.cloned().unwrap_or_default());
            }
        }
        let expect = |inside: &dyn Fn(&[u8]) -> bool, every_value: bool| {
            let inside = content.iter().filter(|(key, _)| inside(key));
            let entries = inside.flat_map(|(key, values)| {
                let count = if every_value { values.len() } else { 1 };
                values[..count]
                    .iter()
                    .map(|value| (key.clone(), value.clone()))
            });
            entries.collect::<Entries>()
        };
        let mut ranges: Vec<(KeyRange<'_>, Inside)> = vec![(KeyRange::All, Box::new(|_| true))];
        let (low, high) = ([1u8, 1], [2u8, 2, 2]);
        if options.ordered {
            ranges.push((
                KeyRange::Prefix(&low),
                Box::new(move |key| key.starts_with(&low)),
            ));
            let between = KeyRange::Between {
                from: Some(&low),
                to: Some(&high),
            };
            let inside = move |key: &[u8]| key >= low.as_slice() && key < high.as_slice();
            ranges.push((between, Box::new(inside)));
        }
        for (range, inside) in ranges {
            for every_value in [false, true] {
                let what = if every_value {
                    ScanOf::Values(range)
                } else {
                    ScanOf::Keys(range)
                };
                let got = scan(store, number, what, max_bytes);
                let got = sorted(got, options.ordered);
                assert_eq!(got, expect(&*inside, every_value), "{name} {range:?}");
            }
        }
    }
}

pub fn apply(store: &mut StateStore, model: &mut Model, change: &Change) {
    match change {
        Change::Put(family, k, value) => {
            let number = open(store, *family);
            store.put(number, &key_of(*k), value).unwrap();
            let content = model.entry(FAMILIES[*family].0).or_default();
            content.insert(key_of(*k), vec![value.clone()]);
        }
        Change::PutList(family, k, values) | Change::Append(family, k, values) => {
            let number = open(store, *family);
            let slices: Vec<&[u8]> = values.iter().map(Vec::as_slice).collect();
            let content = model.entry(FAMILIES[*family].0).or_default();
            let list = content.entry(key_of(*k)).or_default();
            if matches!(change, Change::PutList(..)) {
                store.put_list(number, &key_of(*k), &slices).unwrap();
                list.clear();
            } else {
                store.append(number, &key_of(*k), &slices).unwrap();
            }
            list.extend(values.iter().cloned());
            if list.is_empty() {
                content.remove(&key_of(*k));
            }
        }
        Change::Remove(family, k) => {
            let number = open(store, *family);
            let content = model.entry(FAMILIES[*family].0).or_default();
            let there = content.remove(&key_of(*k)).is_some();
            assert_eq!(store.remove(number, &key_of(*k)).unwrap(), there);
        }
        Change::RemoveFamily(family) => {
            let name = FAMILIES[*family].0;
            let there = store.families().find(name).unwrap().is_some();
            assert_eq!(store.remove_family(name).unwrap(), there);
            model.remove(name);
        }
    }
}

/// Reads one key, and leaves all others where they are.
///
/// # Errors
/// Errors of the store.
pub fn look_at(store: &mut StateStore, model: &Model, family: usize, k: u8) -> Result<()> {
    let key = key_of(k);
    let expected = model
        .get(FAMILIES[family].0)
        .and_then(|keys| keys.get(&key));
    let Some(number) = number(store, family) else {
        assert!(expected.is_none());
        return Ok(());
    };
    let found = store.get(number, &key)?;
    assert_eq!(found, expected.map(|values| values[0].as_slice()));
    Ok(())
}
