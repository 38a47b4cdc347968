//! The differences of two versions are those of a model, however their segments were merged.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use crate::common::{faulty, options, plain};
use holdfast_core::format::Compression;
use holdfast_core::segment::SegmentWriter;
use holdfast_core::state::{
    CommitId, FIRST_FAMILY, FamilyOptions, KeyLayout, MemoryBudget, OperatorState, RowsOf,
    StateStore,
};
use holdfast_core::storage::Storage;
use holdfast_core::{Error, ErrorKind, Owner, Result, Term};
use holdfast_sim::FaultyStorage;
use proptest::prelude::*;

/// The values of each key, one of them unless it has a list.
type Content = BTreeMap<Vec<u8>, Vec<Vec<u8>>>;

/// Keys with their values before and after.
type Differences = BTreeMap<Vec<u8>, [Vec<Vec<u8>>; 2]>;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Form {
    Plain,
    Values,
    Lists,
}

struct World {
    storage: Arc<FaultyStorage>,
    writer: SegmentWriter,
    store: StateStore,
    form: Form,
    content: Content,
    versions: Vec<(Option<CommitId>, Content)>,
    _dir: tempfile::TempDir,
}

fn world(form: Form, evicts: bool) -> World {
    let (dir, storage) = faulty();
    let writer = SegmentWriter::open(
        storage.clone(),
        Term(1),
        options(1 << 20, Compression::None),
    );
    let budget = Arc::new(MemoryBudget::unlimited());
    budget.set_target_bytes(evicts.then_some(0));
    let layout = match form {
        Form::Plain => plain(),
        _ => KeyLayout::Columns,
    };
    let mut store = StateStore::within(Owner::new("", "0", "0", "default"), layout, budget);
    store.open(storage.as_ref(), 0, None).unwrap();
    World {
        storage,
        writer,
        store,
        form,
        content: Content::new(),
        versions: Vec::new(),
        _dir: dir,
    }
}

#[derive(Clone, Debug)]
enum Change {
    Put(u64, u8),
    Append(u64, u8),
    Remove(u64),
    Spill,
}

fn key(number: u64) -> Vec<u8> {
    number.to_be_bytes().to_vec()
}

fn value(seed: u8) -> Vec<u8> {
    (0..200)
        .map(|i| (i as u8).wrapping_mul(seed | 1).wrapping_add(seed))
        .collect()
}

impl World {
    fn commit(&mut self, changes: &[Change]) {
        self.store.mend(&self.writer).unwrap();
        self.store.begin().unwrap();
        let family = self.family();
        for change in changes {
            self.change(family, change);
        }
        let id = self.store.commit(&self.writer).unwrap();
        self.writer.sync().unwrap();
        self.versions.push((Some(id), self.content.clone()));
    }

    fn family(&mut self) -> u32 {
        let several_values = self.form == Form::Lists;
        if self.form == Form::Plain {
            return FIRST_FAMILY;
        }
        for other in ["a", "z"] {
            let other = self.store.open_family(other, FamilyOptions::default());
            self.store.put(other.unwrap(), b"other", b"").unwrap();
        }
        let options = FamilyOptions {
            several_values,
            ..FamilyOptions::default()
        };
        self.store.open_family("f", options).unwrap()
    }

    fn change(&mut self, family: u32, change: &Change) {
        match *change {
            Change::Put(number, seed) => {
                let values = match self.form {
                    Form::Lists => vec![value(seed); usize::from(seed % 3) + 1],
                    _ => vec![value(seed)],
                };
                let parts: Vec<&[u8]> = values.iter().map(Vec::as_slice).collect();
                match self.form {
                    Form::Lists => self.store.put_list(family, &key(number), &parts),
                    _ => self.store.put(family, &key(number), parts[0]),
                }
                .unwrap();
                self.content.insert(key(number), values);
            }
            Change::Append(number, seed) if self.form == Form::Lists => {
                self.store
                    .append(family, &key(number), &[&value(seed)])
                    .unwrap();
                self.content
                    .entry(key(number))
                    .or_default()
                    .push(value(seed));
            }
            Change::Append(number, seed) => self.change(family, &Change::Put(number, seed)),
            Change::Remove(number) => {
                self.store.remove(family, &key(number)).unwrap();
                self.content.remove(&key(number));
            }
            Change::Spill => self.store.spill(&self.writer).unwrap(),
        }
    }

    fn merge(&mut self) {
        let Some(task) = self.store.merge_task(&self.writer, 1, &HashSet::new()) else {
            return;
        };
        let run = task.run(self.storage.as_ref(), &self.writer).unwrap();
        self.store.accept(run);
        self.writer.sync().unwrap();
    }

    fn opened(&self, version: usize) -> Arc<OperatorState> {
        let rows = match self.form {
            Form::Plain => RowsOf::Store,
            form => RowsOf::Family {
                name: "f".to_owned(),
                several_values: form == Form::Lists,
            },
        };
        self.opened_as(version, rows)
    }

    fn opened_as(&self, version: usize, rows: RowsOf) -> Arc<OperatorState> {
        let storage: Arc<dyn Storage> = self.storage.clone();
        let ids = [(0, self.versions[version].0.unwrap().to_string())];
        Arc::new(OperatorState::find(storage, "0", "default", rows, &ids).unwrap())
    }

    fn found(&self, before: usize, after: usize, follows: bool) -> Result<Differences> {
        differences(&self.opened(before), &self.opened(after), follows)
    }

    fn expected(&self, before: usize, after: usize) -> Differences {
        let [before, after] = [before, after].map(|version| &self.versions[version].1);
        let keys = before.keys().chain(after.keys());
        let values = |of: &Content, key| of.get(key).cloned().unwrap_or_default();
        keys.map(|key| (key.clone(), [values(before, key), values(after, key)]))
            .filter(|(_, [before, after])| before != after)
            .collect()
    }

    fn check(&self) {
        for before in 0..self.versions.len() {
            for after in 0..self.versions.len() {
                let found = self.found(before, after, false).unwrap();
                assert_eq!(found, self.expected(before, after), "{before} and {after}");
            }
            let after = before + 1;
            if after < self.versions.len() {
                let now = |all: Differences| all.into_iter().map(|(key, [_, after])| (key, after));
                let found = self.found(before, after, true).unwrap();
                let expected = now(self.expected(before, after));
                assert!(now(found).eq(expected), "{before} and its successor");
            }
        }
    }
}

fn differences(
    before: &Arc<OperatorState>,
    after: &Arc<OperatorState>,
    follows: bool,
) -> Result<Differences> {
    let mut scan = before.differences(after, follows)?;
    let mut all = Differences::new();
    let mut last = Vec::new();
    loop {
        let found = scan.next(1000)?;
        if found.rows() == 0 {
            return Ok(all);
        }
        let keys: Vec<&[u8]> = found.keys().collect();
        for side in [0, 1] {
            let mut values = found.values(side).into_iter();
            for (count, key) in found.counts(side).zip(&keys) {
                let own: Vec<_> = values.by_ref().take(count.max(1)).collect();
                assert!(own.iter().all(|(of, _)| of == key));
                let own: Vec<_> = own.iter().filter_map(|(_, value)| *value).collect();
                assert_eq!(own.len(), count);
                let own = own.into_iter().map(<[u8]>::to_vec);
                all.entry(key.to_vec()).or_default()[side] = own.collect();
            }
            assert_eq!(values.next(), None);
        }
        for key in keys {
            assert!(last.as_slice() < key, "keys ascend");
            last = key.to_vec();
        }
    }
}

fn batch() -> impl Strategy<Value = (Vec<Change>, bool)> {
    let change = prop_oneof![
        4 => (0u64..320, any::<u8>()).prop_map(|(key, seed)| Change::Put(key, seed)),
        3 => (0u64..320, any::<u8>()).prop_map(|(key, seed)| Change::Append(key, seed)),
        3 => (0u64..320).prop_map(Change::Remove),
    ];
    let changes = prop_oneof![
        4 => prop::collection::vec(change.clone(), 0..4),
        1 => prop::collection::vec(change, 60..200),
    ];
    (changes, any::<bool>())
}

fn form() -> impl Strategy<Value = Form> {
    prop_oneof![Just(Form::Plain), Just(Form::Values), Just(Form::Lists)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn differences_are_those_of_the_contents(
        form in form(),
        batches in prop::collection::vec(batch(), 1..10),
        evicts in any::<bool>(),
    ) {
        let mut world = world(form, evicts);
        let all: Vec<Change> = (0..300).map(|number| Change::Put(number, 7)).collect();
        world.commit(&all);
        for (changes, merges) in &batches {
            if *merges {
                world.merge();
            }
            world.commit(changes);
        }
        world.check();
    }
}

#[test]
fn a_version_without_a_table_has_no_keys() {
    let mut world = world(Form::Lists, false);
    world.form = Form::Values;
    let family = |world: &World, name: &str, version| {
        let rows = RowsOf::Family {
            name: name.to_owned(),
            several_values: false,
        };
        world.opened_as(version, rows)
    };
    world.commit(&[]);
    world.store.begin().unwrap();
    let new = world.store.open_family("new", FamilyOptions::default());
    world.store.put(new.unwrap(), b"key", b"value").unwrap();
    let id = world.store.commit(&world.writer).unwrap();
    world.writer.sync().unwrap();
    world.versions.push((Some(id), Content::new()));
    let [before, after] = [0, 1].map(|version| family(&world, "new", version));
    let added = BTreeMap::from([(b"key".to_vec(), [vec![], vec![b"value".to_vec()]])]);
    for follows in [false, true] {
        assert_eq!(differences(&before, &after, follows).unwrap(), added);
    }
    let removed = differences(&after, &before, false).unwrap();
    assert_eq!(
        removed[b"key".as_slice()],
        [vec![b"value".to_vec()], vec![]]
    );
    let [before, after] = [0, 1].map(|version| family(&world, "none", version));
    assert_eq!(
        differences(&before, &after, false).unwrap(),
        BTreeMap::new()
    );
}

#[test]
fn a_session_that_spilled_is_followed() {
    let mut world = world(Form::Plain, true);
    let all: Vec<Change> = (0..300).map(|number| Change::Put(number, 7)).collect();
    world.commit(&all);
    world.commit(&[
        Change::Put(1, 1),
        Change::Remove(2),
        Change::Spill,
        Change::Put(2, 2),
        Change::Remove(3),
        Change::Spill,
        Change::Put(400, 4),
    ]);
    world.commit(&[]);
    world.check();
    assert_eq!(world.found(0, 1, true).unwrap().len(), 4);
}

#[test]
fn versions_that_cannot_be_compared_are_refused_by_name() {
    let mut world = world(Form::Values, false);
    world.commit(&[Change::Put(1, 1)]);
    world.store.begin().unwrap();
    world.store.remove_family("f").unwrap();
    world.commit_open();
    world.commit(&[Change::Put(1, 1)]);
    let refused = |result: Result<Differences>| -> Error {
        let error = result.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        error
    };
    let error = refused(world.found(0, 2, false));
    assert!(error.to_string().contains("made anew"), "{error}");
    let storage: Arc<dyn Storage> = world.storage.clone();
    let id = world.versions[0].0.unwrap();
    let second = Owner::new("", "0", "1", "default").tag();
    let ids = [
        (0, id.to_string()),
        (
            1,
            CommitId {
                owner: second,
                ..id
            }
            .to_string(),
        ),
    ];
    let two = OperatorState::find(storage, "0", "default", RowsOf::Store, &ids).unwrap();
    let error = refused(differences(&world.opened(0), &Arc::new(two), false));
    assert!(
        error
            .to_string()
            .contains("1 partitions, the state after has 2"),
        "{error}"
    );
}

impl World {
    fn commit_open(&mut self) {
        let id = self.store.commit(&self.writer).unwrap();
        self.writer.sync().unwrap();
        self.content.clear();
        self.versions.push((Some(id), Content::new()));
    }
}
