//! Checkpoints of every version ever written load; a damaged base image is rebuilt.
//!
//! `cargo test -p holdfast-core --test state_fixtures -- --ignored` writes them again, which is only
//! right for a new version in a new folder.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

mod common;

use std::collections::{BTreeMap, HashSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use common::{content, options, plain};
use holdfast_core::format::Compression;
use holdfast_core::manager::SegmentWriter;
use holdfast_core::state::{CommitId, FIRST_FAMILY, StateStore};
use holdfast_core::storage::{LocalStorage, Storage};
use holdfast_core::{Owner, Term};

const BATCHES: u64 = 6;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/state-v1")
}

fn owner() -> Owner {
    Owner::new("", "0", "3", "default")
}

/// What a batch puts; batch 5 changes nothing, so its id names the base image that batch 4 ended in.
fn change(batch: u64) -> Option<(String, String)> {
    (batch != 5).then(|| (format!("key-{}", batch % 4), format!("value-{batch}")))
}

fn expected(version: u64) -> BTreeMap<String, String> {
    (1..=version).filter_map(change).collect()
}

fn ids() -> Vec<CommitId> {
    let text = std::fs::read_to_string(folder().join("ids.txt")).unwrap();
    text.lines().map(|line| line.parse().unwrap()).collect()
}

fn opened(variant: &str, id: &CommitId) -> StateStore {
    let mut store = StateStore::new(owner(), plain());
    let storage = LocalStorage::new(folder().join(variant));
    store.open(&storage, id.version, Some(id)).unwrap();
    store
}

#[test]
fn every_version_loads() {
    for (version, id) in (1..).zip(ids()) {
        let mut store = opened("intact", &id);
        assert_eq!(content(&mut store), expected(version));
        assert_eq!(store.take_warning(), None);
    }
}

#[test]
fn a_damaged_base_image_is_rebuilt() {
    let rebuilt = (1..).zip(ids()).filter(|(version, id)| {
        let mut store = opened("corrupt-base-image", id);
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
    let _ = std::fs::remove_dir_all(folder());
    let intact = folder().join("intact");
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
            let image = store.base_image_task(&writer, 1, &HashSet::new()).unwrap();
            store.accept(image.run(storage.as_ref(), &writer).unwrap());
            writer.sync().unwrap();
        }
    }
    writer.seal().unwrap();
    std::fs::write(folder().join("ids.txt"), ids).unwrap();
    let name = storage.list().unwrap()[0].name.clone();
    let mut bytes = std::fs::read(intact.join(&name)).unwrap();
    bytes[image_start as usize + 30] ^= 0x10;
    std::fs::create_dir_all(folder().join("corrupt-base-image")).unwrap();
    std::fs::write(folder().join("corrupt-base-image").join(&name), bytes).unwrap();
}
