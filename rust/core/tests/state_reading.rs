//! The state of an operator is read in all partitions, from memory and from runs, without a session.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use crate::common::faulty;
use holdfast_core::rows::spark::{KeyColumn, RowKeys, SparkType, partition_of, write_keys};
use holdfast_core::rows::{Column, ColumnType};
use holdfast_core::segment::{SegmentWriter, WriterOptions};
use holdfast_core::state::{
    FIRST_FAMILY, FamilyOptions, KeyLayout, MemoryBudget, OperatorState, RowsOf, SharedStore,
    StateStore, StoreFolder, VersionId, ViewId,
};
use holdfast_core::storage::Storage;
use holdfast_core::{ErrorKind, Owner, Term};
use holdfast_sim::FaultyStorage;

const PARTITIONS: u32 = 3;

fn keys(numbers: &[u64]) -> RowKeys {
    let values: Vec<u8> = numbers
        .iter()
        .flat_map(|number| number.to_le_bytes())
        .collect();
    let layout = ColumnType::Signed(8);
    let column = Column::new("k", layout, numbers.len(), 0, [None, None, Some(&values)]).unwrap();
    let column = KeyColumn {
        kind: SparkType::Integer(8),
        column,
        children: Vec::new(),
    };
    write_keys(&[column], numbers.len(), None, 1).unwrap()
}

struct World {
    _dir: tempfile::TempDir,
    storage: Arc<FaultyStorage>,
    ids: Vec<(u32, String)>,
    content: BTreeMap<u64, Vec<u8>>,
}

/// Versions of `rows`, then of a tenth of them, some of which are removed, with a merge between.
fn world(layout: KeyLayout, rows: u64, value_bytes: usize) -> World {
    let (dir, storage) = faulty();
    let writer = SegmentWriter::open(storage.clone(), Term(1), WriterOptions::default());
    let folder = StoreFolder::new(storage.clone(), Some(writer));
    let mut content = BTreeMap::new();
    let mut stores = Vec::new();
    for partition in 0..PARTITIONS {
        let owner = Owner::new("", "0", &partition.to_string(), "default");
        let store = StateStore::within(owner, layout, Arc::new(MemoryBudget::unlimited()));
        stores.push((SharedStore::new(folder.clone(), store), None));
    }
    for version in 0..3u64 {
        for (store, id) in &stores {
            store.open(version, id.as_ref()).unwrap();
            store.begin().unwrap();
        }
        let step = if version == 0 { 1 } else { 10 };
        for number in (0..rows).step_by(step) {
            let key = keys(&[number]);
            let (store, _) = &stores[partition_of(key.hashes[0], PARTITIONS) as usize];
            let value = [version, number].map(u64::to_le_bytes).concat();
            let value = value.repeat(value_bytes / value.len());
            let is_removed = version > 0 && number % 40 == 0;
            store
                .call(|state| {
                    let family = match layout {
                        KeyLayout::Columns => state.open_family("f", FamilyOptions::default())?,
                        KeyLayout::Plain(_) => FIRST_FAMILY,
                    };
                    match is_removed {
                        true => state.remove(family, key.key(0)).map(drop),
                        false => state.put(family, key.key(0), &value),
                    }
                })
                .unwrap();
            if is_removed {
                content.remove(&number);
            } else {
                content.insert(number, value);
            }
        }
        for (store, id) in &mut stores {
            *id = Some(store.commit().unwrap());
            if version < 2 {
                store.maintain(1, &HashSet::new()).unwrap();
            }
        }
    }
    let ids = stores
        .iter()
        .zip(0..)
        .map(|((_, id), partition)| (partition, VersionId::from(id.unwrap()).to_string()));
    World {
        _dir: dir,
        storage,
        ids: ids.collect(),
        content,
    }
}

fn check(state: &Arc<OperatorState>, content: &BTreeMap<u64, Vec<u8>>, rows: u64) {
    assert_eq!(state.keys().unwrap(), content.len() as u64);
    // Backwards, and some that are not there.
    let numbers: Vec<u64> = (0..rows + 9).rev().collect();
    let found = state.get(&keys(&numbers)).unwrap();
    for (number, value) in numbers.iter().zip(found.iter()) {
        assert_eq!(value, content.get(number).map(Vec::as_slice), "{number}");
    }
    let mut scan = state.scan();
    let mut scanned = BTreeMap::new();
    let mut entries = Vec::new();
    while scan.next(1 << 16, &mut entries).unwrap() > 0 {
        let mut rest = entries.as_slice();
        while let Some((lens, after)) = rest.split_first_chunk::<8>() {
            let [key, value] = [&lens[..4], &lens[4..]]
                .map(|len| u32::from_le_bytes(len.try_into().unwrap()) as usize);
            let number = u64::from_le_bytes(after[key - 8..key].try_into().unwrap());
            assert!(
                scanned
                    .insert(number, after[key..key + value].to_vec())
                    .is_none()
            );
            rest = &after[key + value..];
        }
        entries.clear();
    }
    assert_eq!(scanned, *content);
}

const PLAIN: KeyLayout = KeyLayout::Plain(FamilyOptions {
    ordered: false,
    several_values: false,
    internal: false,
});

fn opened(world: &World, rows: RowsOf) -> Arc<OperatorState> {
    let storage: Arc<dyn Storage> = world.storage.clone();
    Arc::new(OperatorState::find(storage, "0", "default", rows, &world.ids).unwrap())
}

#[test]
fn small_stores_are_read() {
    let world = world(PLAIN, 200, 16);
    check(&opened(&world, RowsOf::Store), &world.content, 200);
}

#[test]
fn stores_that_stay_in_runs_are_read() {
    // More than what is loaded at once, in each partition.
    let world = world(PLAIN, 30_000, 1024);
    check(&opened(&world, RowsOf::Store), &world.content, 30_000);
}

#[test]
fn a_family_is_read_alone() {
    let world = world(KeyLayout::Columns, 200, 16);
    let family = |name: &str| RowsOf::Family {
        name: name.to_owned(),
        several_values: false,
    };
    check(&opened(&world, family("f")), &world.content, 200);
    check(&opened(&world, family("none")), &BTreeMap::new(), 200);
}

#[test]
fn rows_that_wait_for_a_move_are_read_where_they_are() {
    let mut world = world(PLAIN, 200, 16);
    let view = ViewId {
        batch: 2,
        from: PARTITIONS,
        to: 5,
        store: "default".to_owned(),
        parents: world.ids.iter().cloned().collect(),
    };
    world.ids = (0..5)
        .map(|partition| (partition, view.to_string()))
        .collect();
    check(&opened(&world, RowsOf::Store), &world.content, 200);
}

#[test]
fn a_store_that_is_not_in_all_partitions_is_refused() {
    let world = world(PLAIN, 20, 16);
    for (store, ids) in [
        ("other", &world.ids[..]),
        ("default", &world.ids[1..]),
        ("default", &[]),
    ] {
        let storage: Arc<dyn Storage> = world.storage.clone();
        let error = OperatorState::find(storage, "0", store, RowsOf::Store, ids).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        assert!(error.to_string().contains(store), "{error}");
    }
}
