//! Journals: every operation of a commit, for readers of changes.
//!
//! `cargo test -p holdfast-core --test all state_journal -- --ignored` writes the fixtures again. After
//! the first release that is only right for a new version in a new folder.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::common::{append, content, faulty, options, owner, plain, writer};
use holdfast_core::format::{Compression, SegmentKind, read_head, read_index, read_segment};
use holdfast_core::segment::SegmentWriter;
use holdfast_core::state::{
    ChangeKind, Changes, CommitId, FIRST_FAMILY, FamilyOfInterest, FamilyOptions, KeyLayout,
    MemoryBudget, StateStore, VersionId, inspect_segment, read_changes,
};
use holdfast_core::storage::{LocalStorage, Storage};
use holdfast_core::{ErrorKind, Owner, Term};
use proptest::prelude::*;

/// An operation as a reader of changes is told of it.
type Told = (ChangeKind, Vec<u8>, Vec<u8>);

fn told(kind: ChangeKind, key: &str, value: &str) -> Told {
    (kind, key.as_bytes().to_vec(), value.as_bytes().to_vec())
}

fn feed(changes: &Changes, layout: KeyLayout, number: u32, several_values: bool) -> Vec<Told> {
    let mut seen = Vec::new();
    let interest = FamilyOfInterest {
        number,
        several_values,
    };
    changes
        .for_each(layout, interest, |kind, key, value| {
            seen.push((kind, key.to_vec(), value.to_vec()));
        })
        .unwrap();
    seen
}

/// Operations of the commit of `id` in a store without column families.
fn feed_of(storage: &dyn Storage, owner: &Owner, id: CommitId) -> Vec<Told> {
    let changes = read_changes(storage, owner, id.version, &[id]).unwrap();
    changes.map_or_else(Vec::new, |changes| {
        feed(&changes, plain(), FIRST_FAMILY, false)
    })
}

fn opened(storage: &dyn Storage, records: bool) -> StateStore {
    let mut store = StateStore::new(owner("7"), plain());
    store.record_operations(records);
    store.open(storage, 0, None).unwrap();
    store
}

fn put(store: &mut StateStore, key: &str, value: &str) {
    store
        .put(FIRST_FAMILY, key.as_bytes(), value.as_bytes())
        .unwrap();
}

#[test]
fn every_operation_of_a_commit_is_told_in_its_order() {
    let (_dir, storage) = faulty();
    let writer = writer(&storage);
    let mut store = opened(storage.as_ref(), true);
    store.begin().unwrap();
    put(&mut store, "b", "1");
    put(&mut store, "a", "1");
    put(&mut store, "b", "2");
    store.remove(FIRST_FAMILY, b"a").unwrap();
    store.remove(FIRST_FAMILY, b"never").unwrap();
    let first = store.commit(&writer).unwrap();
    store.begin().unwrap();
    put(&mut store, "b", "2");
    let second = store.commit(&writer).unwrap();
    let expected = [
        told(ChangeKind::Put, "b", "1"),
        told(ChangeKind::Put, "a", "1"),
        told(ChangeKind::Put, "b", "2"),
        told(ChangeKind::Remove, "a", ""),
        told(ChangeKind::Remove, "never", ""),
    ];
    assert_eq!(feed_of(storage.as_ref(), store.owner(), first), expected);
    // It changed nothing, and is told.
    let repeated = [told(ChangeKind::Put, "b", "2")];
    assert_eq!(feed_of(storage.as_ref(), store.owner(), second), repeated);
    let mut again = StateStore::new(owner("7"), plain());
    again.open(storage.as_ref(), 2, Some(&second)).unwrap();
    assert_eq!(
        content(&mut again),
        BTreeMap::from([("b".into(), "2".into())])
    );
}

#[test]
fn operations_on_lists_are_told_value_by_value() {
    let (_dir, storage) = faulty();
    let writer = writer(&storage);
    let mut store = StateStore::new(owner("7"), KeyLayout::Columns);
    store.record_operations(true);
    store.open(storage.as_ref(), 0, None).unwrap();
    store.begin().unwrap();
    let lists = FamilyOptions {
        several_values: true,
        ..FamilyOptions::default()
    };
    let lists = store.open_family("lists", lists).unwrap();
    let single = store
        .open_family("single", FamilyOptions::default())
        .unwrap();
    store.append(lists, b"k", &[b"1", b"2"]).unwrap();
    store.put(single, b"k", b"x").unwrap();
    store.put_list(lists, b"k", &[b"3", b"4"]).unwrap();
    store.put(lists, b"k", b"5").unwrap();
    store.put_list(lists, b"k", &[]).unwrap();
    store.append(lists, b"k", &[b"6"]).unwrap();
    store.append(lists, b"other", &[]).unwrap();
    let id = store.commit(&writer).unwrap();
    let changes = read_changes(storage.as_ref(), store.owner(), 1, &[id]);
    let changes = changes.unwrap().unwrap();
    let expected = [
        told(ChangeKind::Append, "k", "1"),
        told(ChangeKind::Append, "k", "2"),
        told(ChangeKind::Put, "k", "3"),
        told(ChangeKind::Append, "k", "4"),
        told(ChangeKind::Put, "k", "5"),
        told(ChangeKind::Remove, "k", ""),
        told(ChangeKind::Append, "k", "6"),
    ];
    assert_eq!(feed(&changes, KeyLayout::Columns, lists, true), expected);
    let expected = [told(ChangeKind::Put, "k", "x")];
    assert_eq!(feed(&changes, KeyLayout::Columns, single, false), expected);
    // A family that goes takes its keys along, also keys of this session.
    store.begin().unwrap();
    store.put(single, b"new", b"y").unwrap();
    store.remove_family("single").unwrap();
    let id = store.commit(&writer).unwrap();
    let changes = read_changes(storage.as_ref(), store.owner(), 2, &[id]);
    let found = feed(
        &changes.unwrap().unwrap(),
        KeyLayout::Columns,
        single,
        false,
    );
    assert_eq!(found[0], told(ChangeKind::Put, "new", "y"));
    let mut removed = found[1..].to_vec();
    removed.sort_by(|a, b| a.1.cmp(&b.1));
    assert_eq!(
        removed,
        ["k", "new"].map(|key| told(ChangeKind::Remove, key, ""))
    );
}

#[test]
fn without_the_option_and_where_it_would_tell_nothing_more_nothing_is_written() {
    let mut stored = Vec::new();
    for records in [false, true] {
        let (_dir, storage) = faulty();
        let writer = writer(&storage);
        let mut store = opened(storage.as_ref(), records);
        let mut ids = Vec::new();
        for batch in 0..3 {
            store.begin().unwrap();
            for key in 0..50 {
                put(&mut store, &format!("{key}"), &format!("{batch}"));
            }
            ids.push(store.commit(&writer).unwrap().to_string());
        }
        let name = storage.list().unwrap()[0].name.clone();
        let file = storage.open(&name).unwrap();
        stored.push((ids, file.read(0, file.size_bytes()).unwrap()));
    }
    assert!(stored[0] == stored[1], "every key changed once");
}

#[test]
fn the_changelog_is_the_same_but_for_its_journal() {
    let changelogs = [false, true].map(|records| {
        let (_dir, storage) = faulty();
        let writer = writer(&storage);
        let mut store = opened(storage.as_ref(), records);
        store.begin().unwrap();
        for value in ["1", "2"] {
            put(&mut store, "a", value);
        }
        let reference = store.commit(&writer).unwrap().segment.unwrap();
        let changelog = read_segment(storage.as_ref(), &reference, store.owner()).unwrap();
        let journal = changelog
            .head
            .journal
            .map(|j| j.before(&reference).unwrap());
        assert_eq!(journal.is_some(), records);
        if let Some(journal) = journal {
            assert_eq!(journal.offset + journal.len, reference.offset);
            let head = read_head(storage.as_ref(), &journal, store.owner()).unwrap();
            assert_eq!((head.kind, head.entries), (SegmentKind::Changelog, 2));
            assert_eq!(head.created, changelog.head.created);
            assert!(head.lineage.is_empty());
        }
        changelog.payload
    });
    assert_eq!(changelogs[0], changelogs[1]);
}

#[test]
fn what_was_taken_back_is_never_told() {
    let (_dir, storage) = faulty();
    let writer = writer(&storage);
    let mut store = opened(storage.as_ref(), true);
    store.begin().unwrap();
    put(&mut store, "aborted", "1");
    store.abort();
    store.begin().unwrap();
    store.remove(FIRST_FAMILY, b"first").unwrap();
    let first = store.commit(&writer).unwrap();
    store.begin().unwrap();
    put(&mut store, "rewound", "1");
    put(&mut store, "rewound", "2");
    store.commit(&writer).unwrap();
    // The task is tried again.
    store.open(storage.as_ref(), 1, Some(&first)).unwrap();
    store.begin().unwrap();
    store.remove(FIRST_FAMILY, b"second").unwrap();
    let second = store.commit(&writer).unwrap();
    for (id, key) in [(first, "first"), (second, "second")] {
        let expected = [told(ChangeKind::Remove, key, "")];
        assert_eq!(feed_of(storage.as_ref(), store.owner(), id), expected);
    }
}

#[test]
fn a_commit_that_failed_is_told_once() {
    let (_dir, storage) = faulty();
    let writer = writer(&storage);
    let mut store = opened(storage.as_ref(), true);
    store.begin().unwrap();
    put(&mut store, "a", "1");
    put(&mut store, "a", "2");
    // After the header of the file, in the middle of the journal.
    storage.short_append_nth(2, 30);
    store.commit(&writer).unwrap_err();
    let id = store.commit(&writer).unwrap();
    let expected = ["1", "2"].map(|value| told(ChangeKind::Put, "a", value));
    assert_eq!(feed_of(storage.as_ref(), store.owner(), id), expected);
}

#[test]
fn the_same_operations_make_the_same_version_wherever_they_are_written() {
    let (_dir, storage) = faulty();
    let writer = writer(&storage);
    let ids = [(); 2].map(|()| {
        let mut store = opened(storage.as_ref(), true);
        store.begin().unwrap();
        put(&mut store, "a", "1");
        put(&mut store, "a", "2");
        (store.commit(&writer).unwrap(), store)
    });
    let [(first, _), (second, mut store)] = ids;
    assert_ne!(first.segment, second.segment, "another place");
    // Spark keeps the id of the first run of a batch that ran twice.
    let loads = store.stats().loads;
    store.open(storage.as_ref(), 1, Some(&first)).unwrap();
    assert_eq!(store.stats().loads, loads);
}

#[test]
fn what_a_session_records_counts_as_memory_of_the_store_until_it_commits() {
    let (_dir, storage) = faulty();
    let writer = writer(&storage);
    let used = [false, true].map(|records| {
        let budget = Arc::new(MemoryBudget::unlimited());
        let mut store = StateStore::within(owner("7"), plain(), Arc::clone(&budget));
        store.record_operations(records);
        store.open(storage.as_ref(), 0, None).unwrap();
        store.begin().unwrap();
        for round in 0..2000 {
            put(&mut store, "key", &format!("{round:0100}"));
        }
        let open = budget.used_bytes();
        store.commit(&writer).unwrap();
        (open, budget.used_bytes())
    });
    let [without, with] = used;
    assert!(with.0 >= without.0 + 2000 * 100, "{used:?}");
    assert_eq!(with.1, without.1);
    let budget = Arc::new(MemoryBudget::unlimited());
    budget.set_limit_bytes(4 << 20);
    let mut store = StateStore::within(owner("7"), plain(), budget);
    store.record_operations(true);
    store.open(storage.as_ref(), 0, None).unwrap();
    store.begin().unwrap();
    let value = [0; 1 << 20];
    let mut puts = (0..20).map(|_| store.put(FIRST_FAMILY, b"key", &value));
    let error = puts.find_map(Result::err).expect("the limit is noticed");
    assert_eq!(error.kind(), ErrorKind::LimitExceeded);
}

#[test]
fn a_file_that_has_room_for_one_more_segment_takes_no_changelog_with_a_journal() {
    const MAX_SEGMENTS: u64 = 65_536;
    let (_dir, storage) = faulty();
    let writer = SegmentWriter::open(
        storage.clone(),
        Term(1),
        options(1 << 40, Compression::None),
    );
    for n in 1..MAX_SEGMENTS {
        append(&writer, &owner("other"), n, b"").unwrap();
    }
    let mut store = opened(storage.as_ref(), true);
    store.begin().unwrap();
    put(&mut store, "a", "1");
    put(&mut store, "a", "2");
    let id = store.commit(&writer).unwrap();
    writer.seal().unwrap();
    let segments = [1, 2].map(|seq| {
        let mut file = id.segment.unwrap().file;
        file.seq = seq;
        let index = read_index(storage.as_ref(), file).unwrap();
        assert!(index.sealed);
        index.segments.len() as u64
    });
    assert_eq!(segments, [MAX_SEGMENTS - 1, 2]);
    assert_eq!(feed_of(storage.as_ref(), store.owner(), id).len(), 2);
}

#[test]
fn a_journal_that_does_not_fit_a_file_is_read_from_its_own() {
    let (_dir, storage) = faulty();
    let writer = SegmentWriter::open(storage.clone(), Term(1), options(4096, Compression::None));
    let mut store = opened(storage.as_ref(), true);
    for batch in 0..4 {
        store.begin().unwrap();
        for round in 0..20 {
            put(&mut store, "key", &format!("{batch}-{round:0300}"));
        }
        let id = store.commit(&writer).unwrap();
        assert_eq!(feed_of(storage.as_ref(), store.owner(), id).len(), 20);
    }
    assert_eq!(writer.stats().segments, 8);
}

#[derive(Clone, Debug)]
enum Operation {
    Put(u8, u8),
    Remove(u8),
    PutList(u8, Vec<u8>),
    Append(u8, Vec<u8>),
    RemoveList(u8),
    /// The session writes what it did so far, and continues.
    Spill,
}

fn operation() -> impl Strategy<Value = Operation> {
    let values = || prop::collection::vec(any::<u8>(), 0..3);
    prop_oneof![
        4 => (0..6u8, any::<u8>()).prop_map(|(key, value)| Operation::Put(key, value)),
        2 => (0..6u8).prop_map(Operation::Remove),
        2 => (0..6u8, values()).prop_map(|(key, values)| Operation::PutList(key, values)),
        2 => (0..6u8, values()).prop_map(|(key, values)| Operation::Append(key, values)),
        1 => (0..6u8).prop_map(Operation::RemoveList),
        2 => Just(Operation::Spill),
    ]
}

/// A batch: whether it records, what was tried and taken back before, and what it did.
#[derive(Clone, Debug)]
struct Batch {
    records: bool,
    aborted: Vec<Operation>,
    rewound: Option<Vec<Operation>>,
    done: Vec<Operation>,
}

fn batch() -> impl Strategy<Value = Batch> {
    let operations = || prop::collection::vec(operation(), 0..30);
    let rewound = prop::option::of(operations());
    (any::<bool>(), operations(), rewound, operations()).prop_map(
        |(records, aborted, rewound, done)| Batch {
            records,
            aborted,
            rewound,
            done,
        },
    )
}

fn with_lists() -> FamilyOptions {
    FamilyOptions {
        several_values: true,
        ..FamilyOptions::default()
    }
}

/// Numbers of both families, which are made when they are not there.
fn numbers(store: &mut StateStore) -> [u32; 2] {
    let single = store.open_family("single", FamilyOptions::default());
    let lists = store.open_family("lists", with_lists());
    [single.unwrap(), lists.unwrap()]
}

/// Does this; returns the journal's content by family.
fn act(store: &mut StateStore, writer: &SegmentWriter, operations: &[Operation]) -> [Vec<Told>; 2] {
    let [single, lists] = numbers(store);
    let mut all = [Vec::new(), Vec::new()];
    for operation in operations {
        let (of_lists, key, kind, values) = match operation {
            Operation::Put(key, value) => {
                store.put(single, &[*key], &[*value]).unwrap();
                (0, *key, ChangeKind::Put, vec![*value])
            }
            Operation::Remove(key) => {
                store.remove(single, &[*key]).unwrap();
                (0, *key, ChangeKind::Remove, Vec::new())
            }
            Operation::PutList(key, values) => {
                let parts: Vec<_> = values.chunks(1).collect();
                store.put_list(lists, &[*key], &parts).unwrap();
                let kind = match values.is_empty() {
                    true => ChangeKind::Remove,
                    false => ChangeKind::Put,
                };
                (1, *key, kind, values.clone())
            }
            Operation::Append(key, values) => {
                let parts: Vec<_> = values.chunks(1).collect();
                store.append(lists, &[*key], &parts).unwrap();
                (1, *key, ChangeKind::Append, values.clone())
            }
            Operation::RemoveList(key) => {
                store.remove(lists, &[*key]).unwrap();
                (1, *key, ChangeKind::Remove, Vec::new())
            }
            Operation::Spill => {
                store.spill(writer).unwrap();
                continue;
            }
        };
        let told: &mut Vec<Told> = &mut all[of_lists];
        if kind == ChangeKind::Remove {
            told.push((kind, vec![key], Vec::new()));
        }
        for (n, value) in values.into_iter().enumerate() {
            let kind = if n == 0 { kind } else { ChangeKind::Append };
            told.push((kind, vec![key], vec![value]));
        }
    }
    all
}

/// Applies such changes to the values of each key.
fn apply(state: &mut BTreeMap<Vec<u8>, Vec<Vec<u8>>>, told: &[Told]) {
    for (kind, key, value) in told {
        let values = state.entry(key.clone()).or_default();
        match kind {
            ChangeKind::Put => *values = vec![value.clone()],
            ChangeKind::Append => values.push(value.clone()),
            ChangeKind::Remove => values.clear(),
        }
    }
    state.retain(|_, values| !values.is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 128, ..Default::default() })]

    #[test]
    fn a_feed_is_what_was_done_or_leads_to_the_same(
        batches in prop::collection::vec(batch(), 1..8),
        max_file_bytes in 500..20_000u64,
    ) {
        let (_dir, storage) = faulty();
        let options = options(max_file_bytes, Compression::Lz4);
        let writer = SegmentWriter::open(storage.clone(), Term(1), options);
        let mut store = StateStore::new(owner("7"), KeyLayout::Columns);
        store.open(storage.as_ref(), 0, None).unwrap();
        let mut at: Option<CommitId> = None;
        let mut done = Vec::new();
        for (batch, version) in batches.iter().zip(0u64..) {
            store.record_operations(batch.records);
            store.begin().unwrap();
            act(&mut store, &writer, &batch.aborted);
            store.abort();
            store.open(storage.as_ref(), version, at.as_ref()).unwrap();
            if let Some(rewound) = &batch.rewound {
                store.begin().unwrap();
                act(&mut store, &writer, rewound);
                store.commit(&writer).unwrap();
                store.open(storage.as_ref(), version, at.as_ref()).unwrap();
            }
            store.begin().unwrap();
            let numbers = numbers(&mut store);
            let told = act(&mut store, &writer, &batch.done);
            let id = store.commit(&writer).unwrap();
            at = Some(id);
            done.push((batch.records, numbers, told, id));
        }
        let mut states = [BTreeMap::new(), BTreeMap::new()];
        let mut from_feed = states.clone();
        for (records, numbers, told, id) in done {
            let changes = read_changes(storage.as_ref(), store.owner(), id.version, &[id]).unwrap();
            prop_assert!(records || !matches!(changes, Some(Changes::Operations(_))));
            for of_lists in 0..2 {
                let found = changes.as_ref().map_or_else(Vec::new, |changes| {
                    feed(changes, KeyLayout::Columns, numbers[of_lists], of_lists == 1)
                });
                if records {
                    let mut expected = told[of_lists].clone();
                    if !matches!(changes, Some(Changes::Operations(_))) {
                        // Each key once: in the order of the keys. (A journal lists spilled changes.)
                        expected.sort_by(|a, b| a.1.cmp(&b.1));
                    }
                    prop_assert_eq!(&found, &expected);
                }
                apply(&mut states[of_lists], &told[of_lists]);
                apply(&mut from_feed[of_lists], &found);
                prop_assert_eq!(&from_feed[of_lists], &states[of_lists]);
            }
            let report = inspect_segment(storage.as_ref(), &id.segment.unwrap());
            prop_assert!(report.is_ok());
        }
        // Loads do not see it.
        let mut loaded = StateStore::new(owner("7"), KeyLayout::Columns);
        let id = at.unwrap();
        loaded.open(storage.as_ref(), id.version, Some(&id)).unwrap();
        loaded.begin().unwrap();
        let [single, lists] = numbers(&mut loaded);
        for key in 0..6u8 {
            let value = loaded.get(single, &[key]).unwrap().map(<[u8]>::to_vec);
            prop_assert_eq!(value.as_ref(), states[0].get(&vec![key]).map(|values| &values[0]));
            let first = loaded.get(lists, &[key]).unwrap().map(<[u8]>::to_vec);
            prop_assert_eq!(first.as_ref(), states[1].get(&vec![key]).map(|values| &values[0]));
        }
    }
}

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/journal-v1")
}

fn fixture_ids() -> Vec<CommitId> {
    let text = std::fs::read_to_string(fixtures().join("ids.txt")).unwrap();
    let ids = text.lines().map(|line| line.parse::<VersionId>().unwrap());
    ids.map(|id| id.state).collect()
}

/// Operations of the batches of the fixtures.
fn of_batch(batch: u64) -> Vec<Told> {
    match batch {
        1 => vec![
            told(ChangeKind::Put, "a", "1"),
            told(ChangeKind::Put, "b", "1"),
            told(ChangeKind::Put, "a", "2"),
        ],
        2 => vec![told(ChangeKind::Remove, "never", "")],
        _ => vec![
            told(ChangeKind::Put, "c", "3"),
            told(ChangeKind::Remove, "b", ""),
            told(ChangeKind::Remove, "c", ""),
        ],
    }
}

#[test]
fn a_journal_of_version_1_is_read() {
    let storage = LocalStorage::new(fixtures().join("intact"));
    for (batch, id) in (1..).zip(fixture_ids()) {
        assert_eq!(feed_of(&storage, &owner("7"), id), of_batch(batch));
        let mut store = StateStore::new(owner("7"), plain());
        store.open(&storage, batch, Some(&id)).unwrap();
        let b = (batch < 3).then(|| ("b".to_owned(), "1".to_owned()));
        let expected = b.into_iter().chain([("a".to_owned(), "2".to_owned())]);
        assert_eq!(content(&mut store), expected.collect());
        inspect_segment(&storage, &id.segment.unwrap()).unwrap();
    }
}

#[test]
fn damage_in_a_journal_is_named_and_does_not_touch_the_state() {
    let storage = LocalStorage::new(fixtures().join("corrupt-journal"));
    let id = fixture_ids()[0];
    let errors = [
        read_changes(&storage, &owner("7"), 1, &[id]).unwrap_err(),
        inspect_segment(&storage, &id.segment.unwrap()).unwrap_err(),
    ];
    for error in errors {
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        let text = error.to_string();
        assert!(
            text.contains("at offset") && text.contains("digest"),
            "{text}"
        );
    }
    let mut store = StateStore::new(owner("7"), plain());
    store.open(&storage, 1, Some(&id)).unwrap();
    assert_eq!(content(&mut store).len(), 2);
}

#[test]
fn every_byte_of_a_journal_and_its_changelog_counts() {
    let intact = LocalStorage::new(fixtures().join("intact"));
    let name = intact.list().unwrap()[0].name.clone();
    let file = intact.open(&name).unwrap();
    let whole = file.read(0, file.size_bytes()).unwrap();
    let id = fixture_ids()[0];
    let changelog = id.segment.unwrap();
    let head = read_head(&intact, &changelog, &owner("7")).unwrap();
    let journal = head.journal.unwrap().before(&changelog).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let storage = LocalStorage::new(dir.path());
    for at in journal.offset..changelog.offset + changelog.len {
        for bit in [0x01, 0x80] {
            let mut bytes = whole.clone();
            bytes[at as usize] ^= bit;
            std::fs::write(dir.path().join(&name), &bytes).unwrap();
            let error = read_changes(&storage, &owner("7"), 1, &[id]).unwrap_err();
            let known = [ErrorKind::Corrupt, ErrorKind::Unsupported];
            assert!(known.contains(&error.kind()), "byte {at}: {error}");
        }
    }
    for cut in journal.offset..changelog.offset + changelog.len {
        std::fs::write(dir.path().join(&name), &whole[..cut as usize]).unwrap();
        let error = read_changes(&storage, &owner("7"), 1, &[id]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "cut at {cut}: {error}");
    }
}

#[test]
#[ignore = "writes the fixtures"]
fn regenerate() {
    let _ = std::fs::remove_dir_all(fixtures());
    let intact = fixtures().join("intact");
    let storage: Arc<dyn Storage> = Arc::new(LocalStorage::new(&intact));
    let options = options(1 << 20, Compression::Lz4);
    let writer = SegmentWriter::open(Arc::clone(&storage), Term(42), options);
    let mut store = opened(storage.as_ref(), true);
    let (mut ids, mut first) = (String::new(), None);
    for batch in 1..=3 {
        store.begin().unwrap();
        for (kind, key, value) in of_batch(batch) {
            match kind {
                ChangeKind::Remove => drop(store.remove(FIRST_FAMILY, &key).unwrap()),
                _ => store.put(FIRST_FAMILY, &key, &value).unwrap(),
            }
        }
        let id = store.commit(&writer).unwrap();
        first = first.or(id.segment);
        writeln!(ids, "{id}").unwrap();
    }
    writer.seal().unwrap();
    std::fs::write(fixtures().join("ids.txt"), ids).unwrap();
    let name = storage.list().unwrap()[0].name.clone();
    let mut bytes = std::fs::read(intact.join(&name)).unwrap();
    // A byte of the journal, which ends where the changelog begins.
    bytes[first.unwrap().offset as usize - 3] ^= 0x10;
    let corrupt = fixtures().join("corrupt-journal");
    std::fs::create_dir_all(&corrupt).unwrap();
    std::fs::write(corrupt.join(&name), bytes).unwrap();
}
