//! Files of version 1 are read; their corrupt twins are refused.
//!
//! `cargo test -p holdfast-core --test all format_fixtures -- --ignored` writes them again. After the
//! first release that is only right for a new version in a new folder.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::common::{append, options, owner, payload};
use holdfast_core::format::{Compression, FileIndex, read_head, read_index, read_segment};
use holdfast_core::segment::SegmentWriter;
use holdfast_core::storage::LocalStorage;
use holdfast_core::{Error, ErrorKind, SegmentRef, Term};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/format-v1")
}

fn storage(variant: &str) -> LocalStorage {
    LocalStorage::new(folder().join(variant))
}

/// Region and payload of the segments in every fixture.
fn contents() -> Vec<(&'static str, Vec<u8>)> {
    vec![
        ("a", payload(1, 3000)),
        ("b", Vec::new()),
        ("c", b"incompressible: \x01\x7f\xff".to_vec()),
    ]
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

fn references() -> Vec<SegmentRef> {
    std::fs::read_to_string(folder().join("references.txt"))
        .unwrap()
        .lines()
        .map(|line| {
            let bytes: Vec<u8> = (0..line.len() / 2)
                .map(|i| u8::from_str_radix(&line[2 * i..2 * i + 2], 16).unwrap())
                .collect();
            SegmentRef::from_bytes(&bytes).unwrap()
        })
        .collect()
}

fn read(variant: &str, number: usize) -> Result<Vec<u8>, Error> {
    let (region, _) = contents()[number];
    read_segment(&storage(variant), &references()[number], &owner(region)).map(|s| s.payload)
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
        for (number, (region, bytes)) in contents().into_iter().enumerate() {
            assert_eq!(read(variant, number).unwrap(), bytes);
            let head = read_head(&storage(variant), &references()[number], &owner(region)).unwrap();
            assert_eq!(
                (head.created.0, head.payload_bytes),
                (7, bytes.len() as u64)
            );
        }
    }
}

#[test]
fn a_cut_file_keeps_its_segments() {
    let index = index("cut").unwrap();
    assert_eq!(
        (index.sealed, index.torn_bytes, index.segments.len()),
        (false, 20, 2)
    );
    assert_eq!(read("cut", 0).unwrap(), contents()[0].1);
    assert_eq!(read("cut", 2).unwrap_err().kind(), ErrorKind::Corrupt);
}

#[test]
fn corrupt_twins_are_refused() {
    assert_eq!(
        read("corrupt-payload", 0).unwrap_err().kind(),
        ErrorKind::Corrupt
    );
    assert_eq!(read("corrupt-payload", 2).unwrap(), contents()[2].1);
    assert_eq!(
        read("corrupt-head", 0).unwrap_err().kind(),
        ErrorKind::Corrupt
    );

    let without_footer = index("corrupt-footer").unwrap();
    assert!(!without_footer.sealed);
    assert!(
        without_footer
            .segments
            .iter()
            .map(|e| e.reference)
            .eq(references())
    );

    assert_eq!(
        index("corrupt-header").unwrap_err().kind(),
        ErrorKind::Corrupt
    );
    assert_eq!(read("corrupt-header", 0).unwrap(), contents()[0].1);
}

#[test]
fn a_newer_version_is_unsupported() {
    assert_eq!(index("newer-version").unwrap_err().kind(), ErrorKind::Newer);
}

#[test]
#[ignore = "writes the fixtures"]
fn regenerate() {
    let sealed = folder().join("sealed");
    let _ = std::fs::remove_dir_all(folder());
    let local = Arc::new(LocalStorage::new(&sealed));
    let writer = SegmentWriter::open(local, Term(42), options(1 << 20, Compression::Lz4));
    let refs: Vec<_> = contents()
        .into_iter()
        .map(|(region, bytes)| append(&writer, &owner(region), 7, &bytes).unwrap())
        .collect();
    let name = refs[0].file.file_name();
    let unsealed = std::fs::read(sealed.join(&name)).unwrap();
    writer.seal().unwrap();
    let bytes = std::fs::read(sealed.join(&name)).unwrap();
    let lines: Vec<_> = refs.iter().map(|r| hex(&r.to_bytes())).collect();
    std::fs::write(folder().join("references.txt"), lines.join("\n") + "\n").unwrap();

    let put = |variant: &str, bytes: &[u8]| {
        std::fs::create_dir_all(folder().join(variant)).unwrap();
        std::fs::write(folder().join(variant).join(&name), bytes).unwrap();
    };
    let flipped = |at: u64| {
        let mut bytes = bytes.clone();
        bytes[at as usize] ^= 0x10;
        bytes
    };
    put("unsealed", &unsealed);
    put("cut", &unsealed[..refs[2].offset as usize + 20]);
    put(
        "corrupt-payload",
        &flipped(refs[0].offset + refs[0].len - 5),
    );
    put("corrupt-head", &flipped(refs[0].offset + 30));
    put("corrupt-footer", &flipped(bytes.len() as u64 - 60));
    // A sealed file would still be indexed by its footer.
    let mut headless = unsealed.clone();
    headless[22] ^= 0x10;
    put("corrupt-header", &headless);
    // The version of the file header, with a checksum that fits.
    let mut newer = unsealed.clone();
    newer[4] = 2;
    let header_len = refs[0].offset as usize;
    let crc = crc32c::crc32c_append(crc32c::crc32c(&newer[..16]), &newer[20..header_len]);
    newer[16..20].copy_from_slice(&crc.to_le_bytes());
    put("newer-version", &newer);
}
