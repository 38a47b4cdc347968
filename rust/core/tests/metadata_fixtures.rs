//! Metadata of every version ever written stays readable; its corrupt twins are refused.
//!
//! `cargo test -p holdfast-core --test all metadata_fixtures -- --ignored` writes it again, which is
//! only right for a new version in a new folder.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::path::{Path, PathBuf};

use crate::common::frames::{HEADER, frame, number_field, positions};
use crate::common::metadata::metadata;
use holdfast_core::checkpoint::{Metadata, file_name, read};
use holdfast_core::storage::LocalStorage;
use holdfast_core::{CheckpointId, Error, ErrorKind};

const ID: CheckpointId = CheckpointId(42);

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/metadata-v1")
}

fn fixture(variant: &str) -> Result<Metadata, Error> {
    read(&LocalStorage::new(folder().join(variant)), ID)
}

#[test]
fn version_1_reads_back() {
    assert_eq!(fixture("intact").unwrap(), metadata(42));
}

#[test]
fn corrupt_twins_are_refused_with_their_offset() {
    let bytes = std::fs::read(folder().join("intact").join(file_name(ID))).unwrap();
    let starts = positions(&bytes);
    let variants = [
        "corrupt-header",
        "corrupt-regions",
        "corrupt-coordinators",
        "corrupt-trailer",
    ];
    assert_eq!(starts.len(), variants.len());
    for ((start, _), variant) in starts.iter().zip(variants) {
        let error = fixture(variant).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
        let text = error.to_string();
        assert!(text.contains(variant), "{text}");
        assert!(text.contains(&format!("offset {start}:")), "{text}");
    }
    assert_eq!(fixture("cut").unwrap_err().kind(), ErrorKind::Corrupt);
}

#[test]
fn a_newer_version_is_unsupported() {
    for variant in ["newer-version", "newer-frames"] {
        let error = fixture(variant).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Newer, "{error}");
    }
}

#[test]
#[ignore = "writes the fixtures"]
fn regenerate() {
    let _ = std::fs::remove_dir_all(folder());
    let put = |variant: &str, bytes: &[u8]| {
        std::fs::create_dir_all(folder().join(variant)).unwrap();
        std::fs::write(folder().join(variant).join(file_name(ID)), bytes).unwrap();
    };
    let bytes = metadata(42).to_bytes().unwrap();
    put("intact", &bytes);
    let names = ["header", "regions", "coordinators", "trailer"];
    for ((start, _), name) in positions(&bytes).into_iter().zip(names) {
        let mut damaged = bytes.clone();
        damaged[start + 25] ^= 0x10;
        put(&format!("corrupt-{name}"), &damaged);
    }
    put("cut", &bytes[..bytes.len() - 10]);
    let header = [number_field(1, 2), number_field(2, 42)].concat();
    put("newer-version", &frame(1, HEADER, &header));
    put("newer-frames", &frame(2, HEADER, &header));
}
