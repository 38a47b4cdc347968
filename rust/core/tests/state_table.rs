//! The table against a plain map: sessions, aborts, rewinds, scans, changelogs.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::collections::BTreeMap;

use holdfast_core::state::{Change, ChangeReader, Table};
use proptest::prelude::*;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

#[derive(Clone, Debug)]
enum Step {
    Put(u8, u8, u8),
    Remove(u8),
    Commit,
    Abort,
    /// Commit, then undo it, as a retried task does.
    CommitAndRewind,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (any::<u8>(), any::<u8>(), 0u8..40).prop_map(|(k, v, n)| Step::Put(k % 24, v, n)),
        4 => any::<u8>().prop_map(|k| Step::Remove(k % 24)),
        2 => Just(Step::Commit),
        1 => Just(Step::Abort),
        1 => Just(Step::CommitAndRewind),
    ]
}

fn scan_all(table: &Table, batch_bytes: usize) -> Model {
    let (mut from, end) = (0, table.scan_end());
    let mut found = Model::new();
    while from < end {
        let mut out = Vec::new();
        let mut batch = table.scan(from, end, batch_bytes, &mut out);
        if batch.needed_bytes > 0 {
            batch = table.scan(batch.next, end, batch.needed_bytes, &mut out);
        }
        from = batch.next;
        let mut rest = out.as_slice();
        for _ in 0..batch.entries {
            let key_len = u32::from_le_bytes(rest[..4].try_into().unwrap()) as usize;
            let value_len = u32::from_le_bytes(rest[4..8].try_into().unwrap()) as usize;
            let key = rest[8..8 + key_len].to_vec();
            let value = rest[8 + key_len..8 + key_len + value_len].to_vec();
            assert!(found.insert(key, value).is_none(), "a key was seen twice");
            rest = &rest[8 + key_len + value_len..];
        }
        assert!(rest.is_empty());
    }
    found
}

fn changes_between(before: &Model, after: &Model) -> BTreeMap<Vec<u8>, Option<Vec<u8>>> {
    let mut changes = BTreeMap::new();
    for key in before.keys().chain(after.keys()) {
        if before.get(key) != after.get(key) {
            changes.insert(key.clone(), after.get(key).cloned());
        }
    }
    changes
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn the_table_equals_a_map_through_sessions_aborts_and_rewinds(
        steps in prop::collection::vec(step(), 1..200), batch_bytes in 16usize..400
    ) {
        let mut table = Table::default();
        let mut now = Model::new();
        let mut committed = Model::new();
        table.begin();
        for step in steps {
            match step {
                Step::Put(k, v, n) => {
                    let (key, value) = (vec![k; 3], vec![v; n as usize]);
                    table.put(&key, &value).unwrap();
                    now.insert(key, value);
                }
                Step::Remove(k) => {
                    let key = vec![k; 3];
                    prop_assert_eq!(table.remove(&key), now.remove(&key).is_some());
                }
                Step::Commit => {
                    let expected = changes_between(&committed, &now);
                    let mut seen = BTreeMap::new();
                    if let Some(changes) = table.changes() {
                        let bytes = changes.into_bytes();
                        let mut reader = ChangeReader::new(&bytes);
                        let mut last: Option<Vec<u8>> = None;
                        while let Some((key, change)) = reader.next().unwrap() {
                            prop_assert!(last.as_deref() < Some(key), "changes are sorted");
                            last = Some(key.to_vec());
                            let value = match change {
                                Change::Put(value) => Some(value.to_vec()),
                                Change::Remove => None,
                            };
                            seen.insert(key.to_vec(), value);
                        }
                    }
                    prop_assert_eq!(seen, expected);
                    table.commit();
                    committed = now.clone();
                    prop_assert_eq!(scan_all(&table, batch_bytes), now.clone());
                    table.begin();
                }
                Step::Abort => {
                    table.abort();
                    now = committed.clone();
                    table.begin();
                }
                Step::CommitAndRewind => {
                    table.commit();
                    table.abort();
                    now = committed.clone();
                    table.begin();
                }
            }
            prop_assert_eq!(table.len(), now.len());
            for k in 0..24u8 {
                let key = vec![k; 3];
                prop_assert_eq!(table.get(&key), now.get(&key).map(Vec::as_slice));
            }
        }
        prop_assert_eq!(scan_all(&table, batch_bytes), now);
    }
}

#[test]
fn removing_while_scanning_visits_every_key_once() {
    let mut table = Table::default();
    table.begin();
    for i in 0..1_000u32 {
        table.put(&i.to_le_bytes(), b"value").unwrap();
    }
    table.commit();
    table.begin();
    let (mut from, end, mut visited) = (0, table.scan_end(), 0);
    while from < end {
        let mut out = Vec::new();
        let batch = table.scan(from, end, 300, &mut out);
        from = batch.next;
        for entry in out.chunks(8 + 4 + 5) {
            visited += 1;
            assert!(table.remove(&entry[8..12]));
        }
    }
    assert_eq!(visited, 1_000);
    assert!(table.is_empty());
    table.abort();
    assert_eq!(table.len(), 1_000);
}

#[test]
fn memory_stays_bounded_when_the_same_keys_are_rewritten() {
    let mut table = Table::default();
    for round in 0..500u32 {
        table.begin();
        for key in 0..200u32 {
            // Sizes vary, so that records cannot be overwritten in place.
            table
                .put(&key.to_le_bytes(), &vec![1; ((key + round) % 64) as usize])
                .unwrap();
        }
        table.commit();
    }
    assert!(
        table.memory_bytes() < 400 << 10,
        "{} bytes",
        table.memory_bytes()
    );
}
