#![allow(clippy::unwrap_used)]
use std::collections::BTreeMap;

use super::super::entries::ChangeWriter;
use super::super::entry_stream::written;
use super::*;
use proptest::prelude::*;

type Input = BTreeMap<Vec<u8>, Option<u16>>;

fn stream(input: &Input) -> EntryStream {
    let mut writer = ChangeWriter::default();
    for (key, value) in input {
        let bytes = value.map(u16::to_le_bytes);
        let change = bytes.as_ref().map_or(Change::Remove, |v| Change::Put(v));
        writer.push(&[], key, change);
    }
    written(writer)
}

/// Keys of every length around the length of the heads, many of which have equal heads.
fn key() -> impl Strategy<Value = Vec<u8>> {
    let zeros = prop::sample::select(vec![0usize, 7, 15, 16, 17]);
    let end = prop::collection::vec(0u8..3, 0..4);
    (zeros, end).prop_map(|(zeros, end)| [vec![0; zeros], end].concat())
}

proptest! {
    #[test]
    fn merging_equals_applying_in_order(
        inputs in prop::collection::vec(
            prop::collection::btree_map(key(), prop::option::of(any::<u16>()), 0..30), 0..9)
    ) {
        let mut model = BTreeMap::new();
        for input in &inputs {
            for (key, value) in input {
                model.insert(key.clone(), *value);
            }
        }
        let mut merge = Merge::new(inputs.iter().map(stream).collect()).unwrap();
        let mut found = Vec::new();
        while merge.step().unwrap() {
            let (key, change) = merge.current().unwrap();
            let value = change.value().map(|v| u16::from_le_bytes(v.try_into().unwrap()));
            found.push((key.to_vec(), value));
        }
        prop_assert_eq!(found, model.into_iter().collect::<Vec<_>>());
    }
}
