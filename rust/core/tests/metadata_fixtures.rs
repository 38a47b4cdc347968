//! Metadata of every version ever written stays readable; its corrupt twins are refused.
//!
//! `cargo test -p holdfast-core --test all metadata_fixtures -- --ignored` writes it again, which is
//! only right for a new version in a new folder.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::path::{Path, PathBuf};

use crate::common::frames::{HEADER, frame, number_field, positions};
use crate::common::metadata::{empty_region, metadata, operator, pieces, reference, state};
use crate::metadata_differences::{MANY, SECOND, name, next, whole, with_states};
use holdfast_core::checkpoint::{
    BaseFile, Metadata, NewRegion, RegionEntry, StateContent, StateEntry, StateKind, base_name,
    file_name, read, write,
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

fn shared(version: u32) -> PathBuf {
    folder().join(format!("../metadata-v{version}"))
}

/// A checkpoint whose regions differ from those in another file.
fn differing(version: u32) -> Metadata {
    let before = if version == 2 {
        whole(MANY)
    } else {
        with_states(2)
    };
    next(&before, &[1, MANY], &[&name(3)])
}

#[test]
fn versions_2_and_3_read_back() {
    for version in [2, 3] {
        let read = |variant: &str| read(&LocalStorage::new(shared(version).join(variant)), SECOND);
        let (found, expected) = (read("intact").unwrap(), differing(version));
        assert_eq!(
            found.files_at_most().unwrap(),
            expected.files_at_most().unwrap()
        );
        assert_eq!(
            found.outputs_at_most().unwrap(),
            expected.outputs_at_most().unwrap()
        );
        assert_eq!(found.samples().unwrap(), expected.samples().unwrap());
        assert_eq!(found, expected);
        for variant in ["corrupt-base", "no-base"] {
            let error = read(variant).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
        }
    }
}

#[test]
fn version_1_reads_back() {
    assert_eq!(fixture("intact").unwrap(), metadata(42));
}

/// A region with a table, which builds that know no tables refuse.
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

fn differing_base(folder: &Path) -> BaseFile {
    let written = read(&LocalStorage::new(folder), SECOND).unwrap();
    written.base_file().unwrap()
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
    // Only older builds write version 2.
    let _ = std::fs::remove_dir_all(shared(3));
    for variant in ["intact", "corrupt-base", "no-base"] {
        let folder = shared(3).join(variant);
        write(&LocalStorage::new(&folder), &differing(3)).unwrap();
        let base = folder.join(base_name(differing_base(&folder)));
        match variant {
            "corrupt-base" => {
                let mut damaged = std::fs::read(&base).unwrap();
                damaged[100] ^= 0x10;
                std::fs::write(&base, damaged).unwrap();
            }
            "no-base" => std::fs::remove_file(&base).unwrap(),
            _ => {}
        }
    }
    put("cut", &bytes[..bytes.len() - 10]);
    let header = [number_field(1, 99), number_field(2, 42)].concat();
    put("newer-version", &frame(1, HEADER, &header));
    put("newer-frames", &frame(2, HEADER, &header));
}
