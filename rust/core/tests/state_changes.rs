//! Changes of single commits, and versions rebuilt from an older one.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::collections::HashSet;
use std::sync::Arc;

use holdfast_core::format::Segment;
use holdfast_core::segment::{SegmentWriter, WriterOptions};
use holdfast_core::state::{
    ChangeKind, Changes, CommitId, FIRST_FAMILY, FamilyOfInterest, FamilyOptions, KeyLayout,
    StateStore, find_own, for_each_change, read_changes,
};
use holdfast_core::storage::{LocalStorage, Storage};
use holdfast_core::{ErrorKind, Owner, Term};

const PLAIN: KeyLayout = KeyLayout::Plain(FamilyOptions {
    ordered: false,
    several_values: false,
    internal: false,
});

struct World {
    _dir: tempfile::TempDir,
    storage: Arc<dyn Storage>,
    writer: SegmentWriter,
}

fn world() -> World {
    let dir = tempfile::tempdir().unwrap();
    let storage: Arc<dyn Storage> = Arc::new(LocalStorage::new(dir.path()));
    let writer = SegmentWriter::open(Arc::clone(&storage), Term(1), WriterOptions::default());
    World {
        _dir: dir,
        storage,
        writer,
    }
}

fn store(world: &World, name: &str, layout: KeyLayout) -> StateStore {
    let mut store = StateStore::new(Owner::new("", "0", "7", name), layout);
    store.open(world.storage.as_ref(), 0, None).unwrap();
    store
}

fn commit(store: &mut StateStore, world: &World, puts: &[(&str, &str)]) -> CommitId {
    store.begin().unwrap();
    for (key, value) in puts {
        let (key, value) = (key.as_bytes(), value.as_bytes());
        store.put(FIRST_FAMILY, key, value).unwrap();
    }
    store.commit(&world.writer).unwrap()
}

fn value(store: &StateStore, key: &str) -> Option<String> {
    let family = store.families().family(FIRST_FAMILY).unwrap();
    let value = family.get(key.as_bytes())?;
    Some(String::from_utf8(value.to_vec()).unwrap())
}

/// The changelog of a commit that wrote nothing else.
fn changelog(changes: Option<Changes>) -> Segment {
    match changes {
        Some(Changes::OfKeys(mut segments)) if segments.len() == 1 => segments.pop().unwrap(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_changelog_is_found_among_the_ids_of_all_stores_of_the_partition() {
    let world = world();
    let (mut left, mut right) = (store(&world, "left", PLAIN), store(&world, "right", PLAIN));
    let ids = [
        commit(&mut right, &world, &[("r", "1")]),
        commit(&mut left, &world, &[("l", "1")]),
    ];
    let read = |store: &StateStore, version, ids: &[CommitId]| {
        read_changes(world.storage.as_ref(), store.owner(), version, ids).unwrap()
    };
    let found = changelog(read(&left, 1, &ids));
    assert_eq!(found.head.owner, *left.owner());
    let unchanged = [
        commit(&mut right, &world, &[]),
        commit(&mut left, &world, &[("l", "2")]),
    ];
    assert!(
        read(&right, 2, &unchanged).is_none(),
        "the id names an older segment"
    );
    assert!(read(&left, 2, &ids).is_none(), "no id of that version");
}

#[test]
fn the_id_of_a_store_is_found_among_those_of_all_stores_of_the_partition() {
    let world = world();
    let (mut left, mut right) = (store(&world, "left", PLAIN), store(&world, "right", PLAIN));
    let empty = commit(&mut left, &world, &[]);
    let written = commit(&mut right, &world, &[("r", "1")]);
    let find =
        |store: &StateStore, version, ids: &[CommitId]| find_own(store.owner(), version, ids);
    let ids = [written, empty];
    assert_eq!(find(&left, 1, &ids), Some(empty));
    assert_eq!(find(&right, 1, &ids), Some(written));
    assert_eq!(find(&right, 2, &ids), None, "no id of that version");
    assert_eq!(find(&left, 1, &[written]), None, "another store's");
}

#[test]
fn changes_of_values_and_of_lists_are_told_apart() {
    let world = world();
    let mut store = store(&world, "default", KeyLayout::Columns);
    store.begin().unwrap();
    let options = |several_values| FamilyOptions {
        several_values,
        ..FamilyOptions::default()
    };
    let single = store.open_family("single", options(false)).unwrap();
    let lists = store.open_family("lists", options(true)).unwrap();
    store.put(single, b"a", b"1").unwrap();
    store.put(single, b"b", b"1").unwrap();
    store.append(lists, b"a", &[b"x", b"y"]).unwrap();
    store.append(lists, b"b", &[b"z"]).unwrap();
    store.commit(&world.writer).unwrap();
    store.begin().unwrap();
    store.put(single, b"a", b"2").unwrap();
    store.remove(single, b"b").unwrap();
    store.append(lists, b"a", &[b"w"]).unwrap();
    store.remove(lists, b"b").unwrap();
    let id = store.commit(&world.writer).unwrap();
    let changes = read_changes(world.storage.as_ref(), store.owner(), 2, &[id]);
    let payload = changelog(changes.unwrap()).payload;
    let of = |number, several_values| {
        let mut seen = Vec::new();
        let interest = FamilyOfInterest {
            number,
            several_values,
        };
        for_each_change(
            &payload,
            KeyLayout::Columns,
            interest,
            |kind, key, value| {
                seen.push((kind, key.to_vec(), value.to_vec()));
            },
        )
        .unwrap();
        seen
    };
    let put = (ChangeKind::Put, b"a".to_vec(), b"2".to_vec());
    let gone = (ChangeKind::Remove, b"b".to_vec(), Vec::new());
    let appended = (ChangeKind::Append, b"a".to_vec(), b"w".to_vec());
    assert_eq!(of(single, false), [put, gone.clone()]);
    assert_eq!(of(lists, true), [gone, appended]);
}

#[test]
fn the_changes_of_a_commit_are_what_it_did_to_each_key_in_the_end() {
    let world = world();
    let mut store = store(&world, "default", PLAIN);
    commit(
        &mut store,
        &world,
        &[("kept", "1"), ("gone", "1"), ("back", "1")],
    );
    store.begin().unwrap();
    for (key, value) in [("new", "1"), ("new", "2"), ("kept", "2"), ("kept", "1")] {
        let (key, value) = (key.as_bytes(), value.as_bytes());
        store.put(FIRST_FAMILY, key, value).unwrap();
    }
    store.put(FIRST_FAMILY, b"short", b"1").unwrap();
    for key in [b"short".as_slice(), b"gone", b"back", b"never"] {
        store.remove(FIRST_FAMILY, key).unwrap();
    }
    store.put(FIRST_FAMILY, b"back", b"2").unwrap();
    let id = store.commit(&world.writer).unwrap();
    let changes = read_changes(world.storage.as_ref(), store.owner(), 2, &[id]);
    let interest = FamilyOfInterest {
        number: FIRST_FAMILY,
        several_values: false,
    };
    let mut seen = Vec::new();
    let payload = changelog(changes.unwrap()).payload;
    for_each_change(&payload, PLAIN, interest, |kind, key, value| {
        seen.push((kind, key.to_vec(), value.to_vec()));
    })
    .unwrap();
    assert_eq!(
        seen,
        [
            (ChangeKind::Put, b"back".to_vec(), b"2".to_vec()),
            (ChangeKind::Remove, b"gone".to_vec(), Vec::new()),
            (ChangeKind::Put, b"new".to_vec(), b"2".to_vec()),
        ]
    );
}

#[test]
fn the_changes_of_a_list_say_whether_it_was_set_or_begun_by_appending() {
    let world = world();
    let mut store = store(&world, "default", KeyLayout::Columns);
    store.begin().unwrap();
    let several_values = FamilyOptions {
        several_values: true,
        ..FamilyOptions::default()
    };
    let lists = store.open_family("lists", several_values).unwrap();
    let all: &[&[u8]] = &[b"x", b"y", b"z"];
    for key in [b"again", b"longr", b"other", b"resto", b"short"] {
        store.put_list(lists, key, all).unwrap();
    }
    store.commit(&world.writer).unwrap();
    // Nothing of an aborted session is left over.
    store.begin().unwrap();
    store.append(lists, b"setin", &[b"x"]).unwrap();
    store.abort();
    store.begin().unwrap();
    store.remove(lists, b"again").unwrap();
    store.append(lists, b"again", all).unwrap();
    store.append(lists, b"longr", &[b"w"]).unwrap();
    store.put_list(lists, b"other", &[b"x", b"w"]).unwrap();
    store.remove(lists, b"resto").unwrap();
    store.append(lists, b"resto", &[b"v"]).unwrap();
    store.put_list(lists, b"resto", &[b"x"]).unwrap();
    store.put_list(lists, b"short", &[b"x"]).unwrap();
    store.append(lists, b"begun", &[b"x"]).unwrap();
    store.append(lists, b"begun", &[b"y"]).unwrap();
    store.append(lists, b"gone", &[b"x"]).unwrap();
    store.remove(lists, b"gone").unwrap();
    store.put_list(lists, b"setin", &[b"x"]).unwrap();
    store.append(lists, b"setin", &[b"y"]).unwrap();
    let id = store.commit(&world.writer).unwrap();
    let changes = read_changes(world.storage.as_ref(), store.owner(), 2, &[id]);
    let interest = FamilyOfInterest {
        number: lists,
        several_values: true,
    };
    let mut seen = Vec::new();
    let payload = changelog(changes.unwrap()).payload;
    for_each_change(
        &payload,
        KeyLayout::Columns,
        interest,
        |kind, key, value| {
            let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
            seen.push((kind, text(key), text(value)));
        },
    )
    .unwrap();
    let change = |kind, key: &str, value: &str| (kind, key.to_owned(), value.to_owned());
    assert_eq!(
        seen,
        [
            change(ChangeKind::Remove, "again", ""),
            change(ChangeKind::Append, "again", "x"),
            change(ChangeKind::Append, "again", "y"),
            change(ChangeKind::Append, "again", "z"),
            change(ChangeKind::Append, "begun", "x"),
            change(ChangeKind::Append, "begun", "y"),
            change(ChangeKind::Append, "longr", "w"),
            change(ChangeKind::Put, "other", "x"),
            change(ChangeKind::Append, "other", "w"),
            change(ChangeKind::Put, "resto", "x"),
            change(ChangeKind::Put, "setin", "x"),
            change(ChangeKind::Append, "setin", "y"),
            change(ChangeKind::Put, "short", "x"),
        ]
    );
    // Marks are no values: the state that is loaded is the one that was committed.
    let mut loaded = StateStore::new(store.owner().clone(), KeyLayout::Columns);
    loaded.open(world.storage.as_ref(), 2, Some(&id)).unwrap();
    assert_eq!(content(loaded.families()), content(store.families()),);
}

/// Every key of the first family with its first value.
fn content(families: &holdfast_core::state::Families) -> Vec<(String, Option<Vec<u8>>)> {
    let family = families.family(FIRST_FAMILY).unwrap();
    let keys = [
        "again", "begun", "gone", "longr", "other", "resto", "setin", "short",
    ];
    keys.iter()
        .map(|key| {
            let value = family.get(key.as_bytes()).map(<[u8]>::to_vec);
            ((*key).to_owned(), value)
        })
        .collect()
}

#[test]
fn a_version_is_reached_from_an_older_one_by_what_later_commits_changed() {
    let world = world();
    let mut store = store(&world, "default", PLAIN);
    let mut ids = Vec::new();
    for i in 0..5 {
        let (counter, fresh) = (i.to_string(), format!("k{i}"));
        ids.push(commit(
            &mut store,
            &world,
            &[("k", &counter), (&fresh, "x")],
        ));
    }
    // From here on the lineage is a base image: replay goes round it.
    world.writer.sync().unwrap();
    let image = store.merge_task(&world.writer, 2, &HashSet::new()).unwrap();
    store.accept(image.run(world.storage.as_ref(), &world.writer).unwrap());
    world.writer.sync().unwrap();
    ids.push(commit(&mut store, &world, &[("k", "5")]));
    ids.push(commit(&mut store, &world, &[]));
    let last = *ids.last().unwrap();
    let mut reader = StateStore::new(store.owner().clone(), PLAIN);
    let from = (3, Some(&ids[2]));
    reader
        .replay(world.storage.as_ref(), from, &last.into(), &ids)
        .unwrap();
    let expected = [
        ("k", Some("5")),
        ("k0", Some("x")),
        ("k4", Some("x")),
        ("k9", None),
    ];
    for (key, expected) in expected {
        assert_eq!(value(&reader, key).as_deref(), expected, "{key}");
    }
    // Nothing builds on a lineage that may have been gone round for a reason.
    assert!(reader.begin().is_err());
    reader.mend(&world.writer).unwrap();
    let next = commit(&mut reader, &world, &[("k", "6")]);
    assert_eq!(next.floor.0, 7, "a new base image, written at version 7");
    let error = reader
        .replay(
            world.storage.as_ref(),
            (7, Some(&last)),
            &ids[2].into(),
            &ids,
        )
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
}
