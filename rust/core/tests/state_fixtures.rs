//! Checkpoints of version 1 load; a damaged run is rebuilt.
//!
//! `cargo test -p holdfast-core --test all state_fixtures -- --ignored` writes them again. After the
//! first release that is only right for a new version in a new folder.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::collections::{BTreeMap, HashSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::common::{content, options, plain};
use holdfast_core::format::{Compression, NewSegment, SegmentKind, read_head};
use holdfast_core::segment::SegmentWriter;
use holdfast_core::state::{
    CommitId, FIRST_FAMILY, SharedStore, StateStore, StoreFolder, VersionId,
};
use holdfast_core::storage::{LocalStorage, Storage};
use holdfast_core::{CheckpointId, ErrorKind, Owner, SegmentRef, Term};

const BATCHES: u64 = 6;

/// Its base image is a run.
const BASE_IMAGE: &str = "state-v1";

/// With delta runs, which ids and heads name.
const DELTA_RUNS: &str = "delta-runs-v1";

/// With parked versions.
const PARKED: &str = "parked-v1";

fn folder(version: &str) -> PathBuf {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures");
    fixtures.join(version)
}

fn owner() -> Owner {
    Owner::new("", "0", "3", "default")
}

/// The entry that a batch puts; batch 5 changes nothing, so its id names the base image that batch 4 ended in.
fn change(batch: u64) -> Option<(String, String)> {
    (batch != 5).then(|| (format!("key-{}", batch % 4), format!("value-{batch}")))
}

fn expected(version: u64) -> BTreeMap<String, String> {
    (1..=version).filter_map(change).collect()
}

fn ids(version: &str) -> Vec<CommitId> {
    let text = std::fs::read_to_string(folder(version).join("ids.txt")).unwrap();
    let ids = text.lines().map(|line| line.parse::<VersionId>().unwrap());
    ids.map(|id| id.state).collect()
}

fn opened(folder: &Path, id: &CommitId) -> StateStore {
    let mut store = StateStore::new(owner(), plain());
    let storage = LocalStorage::new(folder);
    store.open(&storage, id.version, Some(id)).unwrap();
    store
}

#[test]
fn every_version_loads() {
    for (version, id) in (1..).zip(ids(BASE_IMAGE)) {
        let mut store = opened(&folder(BASE_IMAGE).join("intact"), &id);
        assert_eq!(content(&mut store), expected(version));
        assert_eq!(store.take_warning(), None);
    }
}

#[test]
fn a_damaged_base_image_is_rebuilt() {
    let rebuilt = (1..).zip(ids(BASE_IMAGE)).filter(|(version, id)| {
        let mut store = opened(&folder(BASE_IMAGE).join("corrupt-base-image"), id);
        assert_eq!(content(&mut store), expected(*version));
        store.take_warning().is_some()
    });
    let rebuilt: Vec<_> = rebuilt.map(|(version, _)| version).collect();
    assert_eq!(
        rebuilt,
        [5, 6],
        "versions whose lineage starts with the image"
    );
}

#[test]
#[ignore = "writes the fixtures"]
fn regenerate() {
    let newest = folder(BASE_IMAGE);
    let _ = std::fs::remove_dir_all(&newest);
    let intact = newest.join("intact");
    let storage: Arc<dyn Storage> = Arc::new(LocalStorage::new(&intact));
    let options = options(1 << 20, Compression::Lz4);
    let writer = SegmentWriter::open(Arc::clone(&storage), Term(42), options);
    let mut store = StateStore::new(owner(), plain());
    store.open(storage.as_ref(), 0, None).unwrap();
    let mut ids = String::new();
    let mut image_start = 0;
    for batch in 1..=BATCHES {
        store.begin().unwrap();
        if let Some((key, value)) = change(batch) {
            store
                .put(FIRST_FAMILY, key.as_bytes(), value.as_bytes())
                .unwrap();
        }
        writeln!(ids, "{}", store.commit(&writer).unwrap()).unwrap();
        if batch == 4 {
            image_start = storage.list().unwrap()[0].len;
            writer.sync().unwrap();
            let image = store.merge_task(&writer, 1, &HashSet::new()).unwrap();
            store.accept(image.run(storage.as_ref(), &writer).unwrap());
            writer.sync().unwrap();
        }
    }
    writer.seal().unwrap();
    std::fs::write(newest.join("ids.txt"), ids).unwrap();
    let name = storage.list().unwrap()[0].name.clone();
    let mut bytes = std::fs::read(intact.join(&name)).unwrap();
    bytes[image_start as usize + 30] ^= 0x10;
    let corrupt = newest.join("corrupt-base-image");
    std::fs::create_dir_all(&corrupt).unwrap();
    std::fs::write(corrupt.join(&name), bytes).unwrap();
}

/// The key that a batch puts and the size of its value, so that each run is larger than the runs
/// above it; the key that it removes. The last batch changes nothing: its id names a delta run.
const CHANGES: [Option<(&str, usize, &str)>; 5] = [
    Some(("a", 2_500, "b")),
    Some(("b", 400, "a")),
    Some(("c", 1, "b")),
    Some(("d", 1, "c")),
    None,
];

/// Bytes that do not compress.
fn noise(size: usize) -> String {
    let mut state = size as u64;
    let digits = (0..size).map(|_| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        char::from(b'!' + (state >> 33) as u8 % 90)
    });
    digits.collect()
}

fn expected_over_delta_runs(version: usize) -> BTreeMap<String, String> {
    let mut content = BTreeMap::new();
    for (put, size, gone) in CHANGES.into_iter().take(version).flatten() {
        content.insert(put.to_owned(), noise(size));
        content.remove(gone);
    }
    content
}

#[test]
fn delta_runs_load_and_a_damaged_one_is_rebuilt() {
    for (twin, rebuilt) in [("intact", &[][..]), ("corrupt-delta-run", &[3, 4, 5])] {
        let mut found = Vec::new();
        for (version, id) in (1..).zip(ids(DELTA_RUNS)) {
            let mut store = opened(&folder(DELTA_RUNS).join(twin), &id);
            assert_eq!(content(&mut store), expected_over_delta_runs(version));
            assert_eq!(id.deltas.len(), [0, 0, 1, 2, 3][version - 1]);
            if store.take_warning().is_some() {
                found.push(version);
            }
        }
        assert_eq!(found, rebuilt, "{twin}");
    }
}

#[test]
#[ignore = "writes the fixture"]
fn regenerate_delta_runs() {
    let folder = folder(DELTA_RUNS);
    let _ = std::fs::remove_dir_all(&folder);
    let intact = folder.join("intact");
    let storage: Arc<dyn Storage> = Arc::new(LocalStorage::new(&intact));
    // Every segment has a file of its own.
    let options = options(1, Compression::Lz4);
    let writer = SegmentWriter::open(Arc::clone(&storage), Term(42), options);
    let mut store = StateStore::new(owner(), plain());
    store.open(storage.as_ref(), 0, None).unwrap();
    let mut ids = Vec::new();
    for change in CHANGES {
        store.begin().unwrap();
        if let Some((put, size, gone)) = change {
            let value = noise(size);
            store
                .put(FIRST_FAMILY, put.as_bytes(), value.as_bytes())
                .unwrap();
            store.remove(FIRST_FAMILY, gone.as_bytes()).unwrap();
        }
        let id = store.commit(&writer).unwrap();
        ids.push(id);
        writer.sync().unwrap();
        let wasteful = HashSet::from([id.segment.unwrap().file]);
        if let Some(task) = store.merge_task(&writer, 1, &wasteful) {
            store.accept(task.run(storage.as_ref(), &writer).unwrap());
            writer.sync().unwrap();
        }
    }
    writer.seal().unwrap();
    let lines: String = ids.iter().map(|id| format!("{id}\n")).collect();
    std::fs::write(folder.join("ids.txt"), lines).unwrap();
    let head = read_head(storage.as_ref(), &ids[2].segment.unwrap(), &owner()).unwrap();
    let delta = head.lineage[1];
    let corrupt = folder.join("corrupt-delta-run");
    std::fs::create_dir_all(&corrupt).unwrap();
    for object in storage.list().unwrap() {
        let mut bytes = std::fs::read(intact.join(&object.name)).unwrap();
        if object.name == delta.file.file_name() {
            bytes[delta.offset as usize + 30] ^= 0x10;
        }
        std::fs::write(corrupt.join(&object.name), bytes).unwrap();
    }
}

/// The versions change a key, or park this input in these pieces. The last changes one after
/// the replay.
const PARKS: [Option<&[&[u8]]>; 5] = [
    None,
    Some(&[b"input of batch 1"]),
    Some(&[b""]),
    Some(&[b"three ", b"pieces", b"!"]),
    None,
];

/// The ids of an older release, each with its text in the format of today.
fn parked_ids() -> Vec<(String, VersionId)> {
    let read = |name| std::fs::read_to_string(folder(PARKED).join(name)).unwrap();
    let (older, newer) = (read("ids.txt"), read("ids-2.txt"));
    let ids = older.lines().map(|line| line.parse().unwrap());
    newer.lines().map(str::to_owned).zip(ids).collect()
}

#[test]
fn parked_versions_load_and_their_input_is_read() {
    let read = |twin: &str| {
        let storage = Arc::new(LocalStorage::new(folder(PARKED).join(twin)));
        let store = SharedStore::new(
            StoreFolder::new(storage, None),
            StateStore::new(owner(), plain()),
        );
        let mut found = Vec::new();
        for (version, (text, id)) in (1..).zip(parked_ids()) {
            assert_eq!(id.to_string(), text);
            assert_eq!(text.parse::<VersionId>().unwrap(), id);
            store.open_version(version, Some(&id)).unwrap();
            let keys = content(&mut store.lock()).into_keys();
            let last = if version < 5 {
                &["key-1"][..]
            } else {
                &["key-1", "key-5"]
            };
            assert_eq!(keys.collect::<Vec<_>>(), last);
            for pending in &id.pending {
                let mut input = store.pending_input(&id, pending.version).unwrap();
                let mut pieces = Vec::new();
                loop {
                    let piece = input.read(usize::MAX).map(<[u8]>::to_vec);
                    pieces.push(piece.map_err(|e| e.kind()));
                    match pieces.last() {
                        Some(Ok(piece)) if !piece.is_empty() => {}
                        _ => break,
                    }
                }
                found.push((version, pending.version, pieces));
            }
        }
        found
    };
    let whole = |version: u64| {
        let pieces = PARKS[version as usize - 1].unwrap().iter();
        let end: &[u8] = b"";
        let pieces = pieces.filter(|piece| !piece.is_empty()).chain([&end]);
        pieces.map(|piece| Ok(piece.to_vec())).collect::<Vec<_>>()
    };
    let places = [(2, 2), (3, 2), (3, 3), (4, 2), (4, 3), (4, 4)];
    let expected = places.map(|(version, of)| (version, of, whole(of)));
    assert_eq!(read("intact"), expected);
    let damaged = expected.map(|(version, of, mut pieces)| {
        if of == 4 {
            pieces.truncate(1);
            pieces.push(Err(ErrorKind::Corrupt));
        }
        (version, of, pieces)
    });
    assert_eq!(read("corrupt-input"), damaged);
}

#[test]
#[ignore = "writes the fixture"]
fn regenerate_parked() {
    let folder = folder(PARKED);
    let _ = std::fs::remove_dir_all(&folder);
    let intact = folder.join("intact");
    let storage: Arc<dyn Storage> = Arc::new(LocalStorage::new(&intact));
    let writer = SegmentWriter::open(
        Arc::clone(&storage),
        Term(42),
        options(1 << 20, Compression::Lz4),
    );
    let store = SharedStore::new(
        StoreFolder::new(Arc::clone(&storage), Some(writer)),
        StateStore::new(owner(), plain()),
    );
    let writer = store.folder().writer().unwrap();
    let mut ids: Vec<VersionId> = Vec::new();
    let mut second_piece: Option<SegmentRef> = None;
    for (version, parks) in (1..).zip(PARKS) {
        let base = ids.last();
        let Some(pieces) = parks else {
            store.open_version(version - 1, base).unwrap();
            store.begin().unwrap();
            let key = format!("key-{version}");
            store
                .lock()
                .put(FIRST_FAMILY, key.as_bytes(), b"value")
                .unwrap();
            store.lock().mark_replayed().unwrap();
            ids.push(store.commit().unwrap().into());
            continue;
        };
        let mut parking = store.park(version - 1, base).unwrap();
        parking.append(pieces[0]).unwrap();
        let rows = u64::from(pieces.len() == 1 && !pieces[0].is_empty());
        let mut id = parking.finish(rows).unwrap();
        if pieces.len() > 1 {
            // Pieces have 16 MiB otherwise.
            let owner = owner();
            let new = NewSegment::of(&owner, CheckpointId(version), SegmentKind::InFlight);
            let first = id.pending.last().unwrap().segment;
            let lineage = [first, writer.append(&new, pieces[1]).unwrap()];
            second_piece = Some(lineage[1]);
            let lineage = &lineage;
            let last = NewSegment {
                lineage,
                entries: 3,
                ..new
            };
            id.pending.last_mut().unwrap().segment = writer.append(&last, pieces[2]).unwrap();
        }
        ids.push(id);
    }
    writer.seal().unwrap();
    let lines: String = ids.iter().map(|id| format!("{id}\n")).collect();
    std::fs::write(folder.join("ids.txt"), lines).unwrap();
    let name = storage.list().unwrap()[0].name.clone();
    let mut bytes = std::fs::read(intact.join(&name)).unwrap();
    bytes[second_piece.unwrap().end() as usize - 1] ^= 0x10;
    let corrupt = folder.join("corrupt-input");
    std::fs::create_dir_all(&corrupt).unwrap();
    std::fs::write(corrupt.join(&name), bytes).unwrap();
}
