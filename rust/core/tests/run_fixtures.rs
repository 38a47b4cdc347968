//! Runs of version 1 are read; their corrupt twins are refused.
//!
//! `cargo test -p holdfast-core --test all run_fixtures -- --ignored` writes them again. After the first
//! release that is only right for a new version in a new folder.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::common::frames::positions;
use crate::common::{options, owner};
use holdfast_core::format::{
    Compression, FileIndex, NewSegment, SegmentKind, read_head, read_index, read_segment,
};
use holdfast_core::segment::SegmentWriter;
use holdfast_core::state::{Change, ChangeReader};
use holdfast_core::storage::LocalStorage;
use holdfast_core::{CheckpointId, Error, ErrorKind, SegmentRef, Term};
use xxhash_rust::xxh3::xxh3_128;

const ENTRIES: u8 = 10;
const GROUP: u8 = 11;
const DIRECTORY: u8 = 12;
const TRAILER: u8 = 13;

type Entry = (Vec<u8>, Option<Vec<u8>>);

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/runs-v1")
}

fn storage(variant: &str) -> LocalStorage {
    LocalStorage::new(folder().join(variant))
}

/// Entries of the three runs in every fixture: with a value that takes two frames, with a removal on
/// top of that, and none.
fn contents() -> [Vec<Entry>; 3] {
    let base = (0..400u32).map(|number| {
        let len = if number == 300 { 1 << 20 } else { 60 };
        let value = (0..len).map(|at| (number as usize * 7 + at / 40) as u8);
        (number.to_be_bytes().to_vec(), Some(value.collect()))
    });
    let changes = [
        (b"\0\0\0\x07".to_vec(), None),
        (b"\0\0\x01\x00".to_vec(), Some(b"new".to_vec())),
    ];
    [base.collect(), changes.to_vec(), Vec::new()]
}

fn references() -> Vec<SegmentRef> {
    let bytes = std::fs::read(folder().join("references.bin")).unwrap();
    let references = bytes.chunks(44).map(SegmentRef::from_bytes);
    references.map(Result::unwrap).collect()
}

fn read(variant: &str, number: usize) -> Result<Vec<Entry>, Error> {
    let reference = references()[number];
    let segment = read_segment(&storage(variant), &reference, &owner("a"))?;
    let mut reader = ChangeReader::new(&segment.payload);
    let mut entries = Vec::new();
    while let Some((key, change)) = reader.next().unwrap() {
        let value = match change {
            Change::Put(value) => Some(value.to_vec()),
            Change::Remove => None,
        };
        entries.push((key.to_vec(), value));
    }
    assert_eq!(segment.head.entries, entries.len() as u64);
    Ok(entries)
}

fn index(variant: &str) -> Result<FileIndex, Error> {
    read_index(&storage(variant), references()[0].file)
}

#[test]
fn sealed_and_unsealed_files_read_back() {
    for (variant, sealed) in [("sealed", true), ("unsealed", false)] {
        let index = index(variant).unwrap();
        assert_eq!(
            (index.sealed, index.torn_bytes, index.damaged_bytes),
            (sealed, 0, 0)
        );
        assert!(index.segments.iter().map(|e| e.reference).eq(references()));
        for (number, entries) in contents().into_iter().enumerate() {
            assert!(read(variant, number).unwrap() == entries);
            let head = read_head(&storage(variant), &references()[number], &owner("a")).unwrap();
            assert_eq!((head.created.0, head.kind), (7, SegmentKind::Run));
            assert_eq!(head.lineage.len(), usize::from(number == 1));
        }
    }
}

#[test]
fn a_cut_file_keeps_its_runs() {
    let index = index("cut").unwrap();
    assert_eq!((index.sealed, index.segments.len()), (false, 1));
    assert!(index.torn_bytes > 0);
    assert!(read("cut", 0).unwrap() == contents()[0]);
    assert_eq!(read("cut", 1).unwrap_err().kind(), ErrorKind::Corrupt);
}

#[test]
fn corrupt_twins_are_refused() {
    for variant in [
        "corrupt-head",
        "corrupt-entries",
        "corrupt-group",
        "corrupt-directory",
        "corrupt-trailer",
    ] {
        let error = read(variant, 0).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{variant}: {error}");
        assert!(read(variant, 1).unwrap() == contents()[1]);
        // The footer lists what is damaged; it is not found by scanning.
        assert_eq!(index(variant).unwrap().segments.len(), 3);
    }
}

#[test]
fn a_newer_version_is_unsupported() {
    // A newer version, too, has the digest of its own bytes in the reference.
    let known = references()[1];
    let name = known.file.file_name();
    let bytes = std::fs::read(folder().join("newer-version").join(name)).unwrap();
    let range = known.offset as usize..(known.offset + known.len) as usize;
    let newer = SegmentRef {
        digest: xxh3_128(&bytes[range]),
        ..known
    };
    let error = read_segment(&storage("newer-version"), &newer, &owner("a")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Newer);
    assert!(
        error.to_string().contains("a newer Holdfast wrote it"),
        "{error}"
    );
    assert_eq!(index("newer-version").unwrap_err().kind(), ErrorKind::Newer);
    assert!(read("newer-version", 0).unwrap() == contents()[0]);
}

#[test]
#[ignore = "writes the fixtures"]
fn regenerate() {
    let sealed = folder().join("sealed");
    let _ = std::fs::remove_dir_all(folder());
    let local = Arc::new(LocalStorage::new(&sealed));
    let writer = SegmentWriter::open(local, Term(42), options(1 << 30, Compression::Lz4));
    let mut references: Vec<SegmentRef> = Vec::new();
    let owner = owner("a");
    for (number, entries) in contents().into_iter().enumerate() {
        let lineage = if number == 1 { &references[..1] } else { &[] };
        let new = NewSegment {
            owner: &owner,
            created: CheckpointId(7),
            kind: SegmentKind::Run,
            lineage,
            replaced: None,
            entries: 0,
            tables: &[],
            runs: 0,
        };
        let mut run = writer.begin_run(&new).unwrap();
        for (key, value) in entries {
            run.push(b"", &key, value.as_deref()).unwrap();
        }
        references.push(run.finish().unwrap());
    }
    let name = references[0].file.file_name();
    let unsealed = std::fs::read(sealed.join(&name)).unwrap();
    writer.seal().unwrap();
    let bytes = std::fs::read(sealed.join(&name)).unwrap();
    let encoded: Vec<u8> = references.iter().flat_map(SegmentRef::to_bytes).collect();
    std::fs::write(folder().join("references.bin"), encoded).unwrap();

    let put = |variant: &str, bytes: &[u8]| {
        std::fs::create_dir_all(folder().join(variant)).unwrap();
        std::fs::write(folder().join(variant).join(&name), bytes).unwrap();
    };
    put("unsealed", &unsealed);
    put("cut", &unsealed[..references[1].offset as usize + 90]);
    for (variant, kind) in [
        ("corrupt-head", 2),
        ("corrupt-entries", ENTRIES),
        ("corrupt-group", GROUP),
        ("corrupt-directory", DIRECTORY),
        ("corrupt-trailer", TRAILER),
    ] {
        let (at, _) = *positions(&bytes).iter().find(|(_, k)| *k == kind).unwrap();
        let mut damaged = bytes.clone();
        damaged[at + 25] ^= 0x10;
        put(variant, &damaged);
    }
    // The version of the second head, with a checksum that fits.
    let at = references[1].offset as usize;
    let mut newer = unsealed.clone();
    newer[at + 4] = 2;
    let len = u32::from_le_bytes(newer[at + 8..at + 12].try_into().unwrap()) as usize;
    let crc = crc32c::crc32c(&newer[at..at + 16]);
    let crc = crc32c::crc32c_append(crc, &newer[at + 20..at + 20 + len]);
    newer[at + 16..at + 20].copy_from_slice(&crc.to_le_bytes());
    put("newer-version", &newer);
}
