//! Metadata of version 1 is read; its corrupt twins are refused.
//!
//! `cargo test -p holdfast-core --test all metadata_fixtures -- --ignored` writes it again. After the
//! first release that is only right for a new version in a new folder.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::path::{Path, PathBuf};

use crate::common::frames::{HEADER, frame, number_field, positions};
use crate::common::metadata::{empty_region, metadata, operator, pieces, reference, state};
use crate::metadata_differences::{MANY, SECOND, name, next, with_one_finished, with_states};
use holdfast_core::checkpoint::{
    Metadata, NewRegion, RegionEntry, StateContent, StateEntry, StateKind, base_name, file_name,
    read, write,
};
use holdfast_core::storage::LocalStorage;
use holdfast_core::{CheckpointId, Error, ErrorKind};

const ID: CheckpointId = CheckpointId(42);

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/metadata-v1")
}

fn tables() -> PathBuf {
    folder().join("../metadata-tables-v1/region.bin")
}

fn fixture(variant: &str) -> Result<Metadata, Error> {
    read(&LocalStorage::new(folder().join(variant)), ID)
}

fn shared(variant: &str) -> LocalStorage {
    LocalStorage::new(folder().join(variant))
}

/// Checkpoints whose regions differ from those in another file, which has an outline or none.
fn differing() -> [(&'static str, Metadata); 2] {
    let outlined = with_states(2);
    [
        ("shared", next(&outlined, &[1, MANY], &[&name(3)])),
        ("shared-no-outline", next(&with_one_finished(), &[1], &[])),
    ]
}

#[test]
fn regions_in_a_file_of_their_own_read_back() {
    for (variant, expected) in differing() {
        let found = read(&shared(variant), SECOND).unwrap();
        let (known, told) = (found.regions(), expected.regions());
        assert_eq!(
            known.files_at_most().unwrap(),
            told.files_at_most().unwrap()
        );
        assert_eq!(
            known.outputs_at_most().unwrap(),
            told.outputs_at_most().unwrap()
        );
        assert_eq!(known.samples().unwrap(), told.samples().unwrap());
        assert_eq!(found, expected);
    }
    for variant in ["shared-corrupt-base", "shared-no-base"] {
        let error = read(&shared(variant), SECOND).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    }
}

#[test]
fn all_regions_in_one_file_read_back() {
    assert_eq!(fixture("intact").unwrap(), metadata(42));
}

/// A region with a table.
fn with_table() -> RegionEntry {
    let content = match pieces(&[reference(1, 64), reference(2, 64)]) {
        StateContent::Pieces(pieces) => StateContent::Table {
            pieces,
            description: b"{\"version\":1}".to_vec(),
        },
        other => other,
    };
    let table = StateEntry {
        shape: Vec::new(),
        ..state("totals", StateKind::Table, "", content)
    };
    RegionEntry::new(NewRegion {
        operators: vec![operator("stats", vec![table])],
        ..empty_region("east", 42)
    })
    .unwrap()
}

#[test]
fn a_region_with_a_table_reads_back() {
    let bytes = std::fs::read(tables()).unwrap();
    let region = RegionEntry::from_bytes(bytes).unwrap();
    assert_eq!(region, with_table());
    assert_eq!(region.references("sales").unwrap().len(), 2);
}

#[test]
fn kinds_of_states_of_later_versions_are_unsupported() {
    let mut bytes = with_table().to_bytes();
    let kind = bytes.windows(2).position(|pair| pair == [0x10, 6]).unwrap();
    bytes[kind + 1] = 7;
    let error = RegionEntry::from_bytes(bytes).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Newer, "{error}");
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
    std::fs::create_dir_all(tables().parent().unwrap()).unwrap();
    std::fs::write(tables(), with_table().to_bytes()).unwrap();
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
    for variant in [
        "shared",
        "shared-no-outline",
        "shared-corrupt-base",
        "shared-no-base",
    ] {
        // Each has its base in no file yet.
        let [(_, outlined), (other, without)] = differing();
        let metadata = if variant == other { without } else { outlined };
        write(&shared(variant), &metadata).unwrap();
        let base = base_name(metadata.regions().base_file().unwrap());
        let base = folder().join(variant).join(base);
        match variant {
            "shared-corrupt-base" => {
                let mut damaged = std::fs::read(&base).unwrap();
                damaged[100] ^= 0x10;
                std::fs::write(&base, damaged).unwrap();
            }
            "shared-no-base" => std::fs::remove_file(&base).unwrap(),
            _ => {}
        }
    }
    put("cut", &bytes[..bytes.len() - 10]);
    let header = [number_field(1, 99), number_field(2, 42)].concat();
    put("newer-version", &frame(1, HEADER, &header));
    put("newer-frames", &frame(2, HEADER, &header));
}
