//! Shared by the integration tests.
#![allow(dead_code, clippy::unwrap_used, clippy::indexing_slicing)]

pub mod families;
pub mod forgery;
pub mod frames;
pub mod memory;
pub mod metadata;
pub mod open_files;

use std::collections::BTreeMap;
use std::sync::Arc;

use holdfast_core::format::{Compression, NewSegment, SegmentKind};
use holdfast_core::segment::{SegmentWriter, WriterOptions};
use holdfast_core::state::{FIRST_FAMILY, FamilyOptions, KeyLayout, KeyRange, ScanOf, StateStore};
use holdfast_core::storage::LocalStorage;
use holdfast_core::{CheckpointId, Error, ErrorKind, Owner, Result, SegmentRef, Term};
use holdfast_sim::FaultyStorage;

pub fn owner(region: &str) -> Owner {
    Owner::new("query", "op-1", region, "default")
}

/// A temporary directory and a storage in it whose failures can be scripted.
pub fn faulty() -> (tempfile::TempDir, Arc<FaultyStorage>) {
    let dir = tempfile::tempdir().unwrap();
    let local = Arc::new(LocalStorage::new(dir.path().join("root")));
    (dir, Arc::new(FaultyStorage::new(local)))
}

pub fn options(max_file_bytes: u64, compression: Compression) -> WriterOptions {
    WriterOptions {
        max_file_bytes,
        compression,
        copies: false,
        tells: false,
    }
}

pub fn writer(storage: &Arc<FaultyStorage>) -> SegmentWriter {
    SegmentWriter::open(storage.clone(), Term(1), WriterOptions::default())
}

pub fn append(
    writer: &SegmentWriter,
    owner: &Owner,
    created: u64,
    payload: &[u8],
) -> Result<SegmentRef> {
    let new = NewSegment {
        owner,
        created: CheckpointId(created),
        kind: SegmentKind::Snapshot,
        lineage: &[],
        replaced: None,
        entries: 1,
        tables: &[],
        runs: 0,
    };
    writer.append(&new, payload)
}

/// Bytes that compress, and differ for every seed.
pub fn payload(seed: u64, len: usize) -> Vec<u8> {
    (0..len)
        .map(|i| ((i as u64 / 7).wrapping_mul(seed + 3) % 251) as u8)
        .collect()
}

/// A store without column families.
pub fn plain() -> KeyLayout {
    KeyLayout::Plain(FamilyOptions::default())
}

/// Everything a store holds, as text.
pub fn content(store: &mut StateStore) -> BTreeMap<String, String> {
    let mut out = Vec::new();
    let all = ScanOf::Keys(KeyRange::All);
    store.scan(FIRST_FAMILY, all, usize::MAX, &mut out).unwrap();
    let mut entries = Entries::new();
    parse(&out, &mut entries);
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let entries = entries.into_iter();
    entries
        .map(|(key, value)| (text(key), text(value)))
        .collect()
}

/// Keys and values of a scan.
pub type Entries = Vec<(Vec<u8>, Vec<u8>)>;

/// Appends what a scan has copied out.
pub fn parse(bytes: &[u8], into: &mut Entries) {
    let mut rest = bytes;
    while !rest.is_empty() {
        let key_len = u32::from_le_bytes(rest[..4].try_into().unwrap()) as usize;
        let value_len = u32::from_le_bytes(rest[4..8].try_into().unwrap()) as usize;
        let (key, value) = rest[8..8 + key_len + value_len].split_at(key_len);
        into.push((key.to_vec(), value.to_vec()));
        rest = &rest[8 + key_len + value_len..];
    }
}

/// An error about damage names all of this.
pub fn assert_damage(error: &Error, parts: &[&str]) {
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    let text = error.to_string();
    for part in parts {
        assert!(text.contains(part), "{part:?} is missing in {text:?}");
    }
}
