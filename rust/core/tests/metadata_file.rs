//! Bytes of metadata files: what was written is read, and nothing else is taken for it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use crate::common::frames::{
    COORDINATORS, HEADER, REGIONS, TRAILER, bytes_field, file, frame, number_field, positions,
    record, trailer,
};
use crate::common::metadata::{
    empty_region, facts, full_region, metadata, operator, pieces, reference, regions, state,
};
use holdfast_core::checkpoint::{
    CheckpointFacts, CheckpointKind, Metadata, RegionEntry, StateContent, StateKind, file_name,
    read, read_like, write,
};
use holdfast_core::storage::LocalStorage;
use holdfast_core::{CheckpointId, Error, ErrorKind};
use proptest::prelude::*;

const ID: CheckpointId = CheckpointId(42);

/// Reads bytes as the file of checkpoint 42.
fn read_bytes(bytes: &[u8]) -> Result<Metadata, Error> {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join(file_name(ID)), bytes).unwrap();
    let found = read(&LocalStorage::new(dir.path()), ID);
    assert_eq!(found.is_ok(), Metadata::from_bytes(bytes).is_ok());
    if let Err(error) = &found {
        let path = dir.path().join(file_name(ID)).display().to_string();
        assert!(error.to_string().contains(&path), "no path in {error}");
    }
    found
}

/// Bytes that do not compress.
fn noise(len: usize) -> Vec<u8> {
    let mut state = 1u64;
    std::iter::repeat_with(|| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 56) as u8
    })
    .take(len)
    .collect()
}

#[test]
fn what_was_written_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let storage = LocalStorage::new(dir.path().join("metadata"));
    let written = metadata(42);
    assert_eq!(write(&storage, &written).unwrap(), "000000000000002a.hfc");
    let found = read(&storage, ID).unwrap();
    assert_eq!(found, written);
    assert_eq!(found.to_bytes().unwrap(), written.to_bytes().unwrap());
    let names: Vec<_> = found
        .regions()
        .iter()
        .unwrap()
        .map(RegionEntry::region)
        .collect();
    assert_eq!(names, ["east", "west"]);
    let new = full_region("east", 42);
    let east = found.regions().get("east").unwrap().unwrap();
    assert_eq!(east.operators().unwrap(), new.operators);
    assert_eq!(east.in_flight().unwrap(), new.in_flight);
    assert_eq!(east.staged().unwrap(), new.staged);
    assert!(found.regions().get("north").unwrap().is_none());
}

#[test]
fn a_checkpoint_without_regions_is_one() {
    let empty = CheckpointFacts {
        batch_id: -1,
        coordinators: Default::default(),
        ..facts(42)
    };
    let empty = Metadata::new(empty, Vec::new()).unwrap();
    let bytes = empty.to_bytes().unwrap();
    let kinds: Vec<_> = positions(&bytes)
        .into_iter()
        .map(|(_, kind)| kind)
        .collect();
    assert_eq!(kinds, [HEADER, TRAILER]);
    assert_eq!(read_bytes(&bytes).unwrap(), empty);
}

#[test]
fn records_may_be_larger_than_a_frame() {
    let many: Vec<_> = (0..40_000).map(|i| reference(i, u64::from(i))).collect();
    let states = vec![state("sums", StateKind::Array, "<f8", pieces(&many))];
    let regions = (0..50)
        .map(|i| {
            let mut region = full_region(&format!("region-{i:03}"), 42);
            if i == 20 {
                region.operators.push(operator("large", states.clone()));
            }
            RegionEntry::new(region).unwrap()
        })
        .collect();
    let mut new = facts(42);
    new.coordinators.insert("sink".to_owned(), noise(3 << 20));
    let large = Metadata::new(new, regions).unwrap();
    let bytes = large.to_bytes().unwrap();
    let frames = |kind| positions(&bytes).iter().filter(|(_, k)| *k == kind).count();
    assert!(frames(REGIONS) > 2 && frames(COORDINATORS) > 2);
    assert_eq!(read_bytes(&bytes).unwrap(), large);
}

#[test]
fn truncation_at_every_byte_is_an_error_that_names_the_offset() {
    let bytes = metadata(42).to_bytes().unwrap();
    let starts = positions(&bytes);
    for len in 0..bytes.len() {
        let error = read_bytes(&bytes[..len]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
        let (cut, _) = starts.iter().rev().find(|(at, _)| *at <= len).unwrap();
        let text = error.to_string();
        assert!(text.contains(&format!("offset {cut}:")), "{len}: {text}");
    }
}

#[test]
fn a_flip_of_every_byte_is_an_error_that_names_the_offset() {
    let bytes = metadata(42).to_bytes().unwrap();
    let starts = positions(&bytes);
    for at in 0..bytes.len() {
        let (start, _) = starts.iter().rev().find(|(start, _)| *start <= at).unwrap();
        for mask in [0x01, 0x80, 0xff] {
            let mut damaged = bytes.clone();
            damaged[at] ^= mask;
            let error = read_bytes(&damaged).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
            let text = error.to_string();
            assert!(text.contains(&format!("offset {start}:")), "{at}: {text}");
        }
    }
}

#[test]
fn intact_frames_of_two_files_are_not_one_file() {
    let one = metadata(42).to_bytes().unwrap();
    let mut new = facts(42);
    new.created_ms += 1;
    let other = Metadata::new(new, regions(42)).unwrap().to_bytes().unwrap();
    assert_eq!(one.len(), other.len());
    for (at, _) in positions(&one).into_iter().skip(1) {
        let spliced = [&one[..at], &other[at..]].concat();
        let error = read_bytes(&spliced).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
        assert!(error.to_string().contains("digest"), "{error}");
    }
}

#[test]
fn a_missing_a_repeated_and_a_foreign_frame_are_noticed() {
    let bytes = metadata(42).to_bytes().unwrap();
    let starts = positions(&bytes);
    let mut ends: Vec<_> = starts.iter().skip(1).map(|(at, _)| *at).collect();
    ends.push(bytes.len());
    for ((start, _), end) in starts.iter().zip(ends) {
        let without = [&bytes[..*start], &bytes[end..]].concat();
        let twice = [&bytes[..end], &bytes[*start..]].concat();
        let foreign = [&bytes[..*start], &frame(1, 3, b"data"), &bytes[*start..]].concat();
        for damaged in [without, twice, foreign] {
            let error = read_bytes(&damaged).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
        }
    }
}

#[test]
fn a_copy_under_the_name_of_another_checkpoint_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let storage = LocalStorage::new(dir.path());
    let bytes = metadata(42).to_bytes().unwrap();
    std::fs::write(dir.path().join(file_name(CheckpointId(43))), &bytes).unwrap();
    std::fs::write(dir.path().join("copy of 42"), &bytes).unwrap();
    let error = read(&storage, CheckpointId(43)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    assert!(
        error
            .to_string()
            .contains("expected checkpoint 43, found 42")
    );
    assert_eq!(
        read_like(&storage, "copy of 42", None).unwrap(),
        metadata(42)
    );
}

// --- files made by hand from the text of FORMAT.md ------------------------------------------------

fn header_of(version: u8) -> Vec<u8> {
    [
        number_field(1, version),
        number_field(2, 42),
        // Zigzag: -1.
        number_field(3, 1),
        number_field(4, 2),
        number_field(5, 77),
        bytes_field(6, b"topology"),
        number_field(8, 1),
        bytes_field(9, b"filter"),
        bytes_field(
            10,
            &[bytes_field(1, b"key"), bytes_field(2, b"value")].concat(),
        ),
    ]
    .concat()
}

fn region_message(name: &str) -> Vec<u8> {
    let state = [
        bytes_field(1, b"sums"),
        number_field(2, 1),
        bytes_field(3, b"<f8"),
        bytes_field(4, &[3, 2]),
        bytes_field(6, b"12345678"),
    ]
    .concat();
    let operator = [bytes_field(1, b"op"), bytes_field(3, &state)].concat();
    [
        bytes_field(1, name.as_bytes()),
        number_field(2, 41),
        number_field(3, 1),
        number_field(5, 2),
        number_field(6, 9),
        bytes_field(7, b"cause"),
        bytes_field(9, &bytes_field(1, &operator)),
    ]
    .concat()
}

#[test]
fn a_file_made_by_hand_is_read() {
    let coordinator = [bytes_field(1, b"source"), bytes_field(2, b"splits")].concat();
    let bytes = file(
        &[
            (HEADER, &header_of(1)),
            (REGIONS, &record(&region_message("east"))),
            (COORDINATORS, &record(&coordinator)),
        ],
        1,
        1,
    );
    let found = read_bytes(&bytes).unwrap();
    let fields = found.facts();
    assert_eq!(
        (fields.id, fields.batch_id, fields.created_ms),
        (ID, -1, 77)
    );
    assert_eq!(fields.kind, CheckpointKind::Savepoint);
    assert_eq!(fields.topology, b"topology");
    assert_eq!(
        (fields.consecutive_regional, fields.force_global),
        (0, true)
    );
    assert_eq!(fields.finished_operators, ["filter"]);
    assert_eq!(fields.properties["key"], "value");
    assert_eq!(fields.coordinators["source"], b"splits");
    let east = found.regions().get("east").unwrap().unwrap();
    assert_eq!((east.origin(), east.failed()), (CheckpointId(41), true));
    assert_eq!((east.fallbacks(), east.stale_since_ms()), (2, Some(9)));
    assert_eq!((east.cause(), east.finished()), ("cause", false));
    let operators = east.operators().unwrap();
    let sums = &operators[0].states[0];
    assert_eq!((sums.name.as_str(), sums.dtype.as_str()), ("sums", "<f8"));
    assert_eq!(sums.shape, [3, 2]);
    assert_eq!(sums.content, StateContent::Inline(b"12345678".to_vec()));
}

#[test]
fn unknown_tags_are_ignored() {
    let unknown = [number_field(15, 7), bytes_field(15, b"of a later version")].concat();
    let header = [unknown.clone(), header_of(1), unknown.clone()].concat();
    let region = [unknown.clone(), region_message("r"), unknown].concat();
    let with = file(&[(HEADER, &header), (REGIONS, &record(&region))], 1, 0);
    let region = region_message("r");
    let without = file(
        &[(HEADER, &header_of(1)), (REGIONS, &record(&region))],
        1,
        0,
    );
    assert_eq!(read_bytes(&with).unwrap(), read_bytes(&without).unwrap());
}

#[test]
fn a_newer_version_is_unsupported_whatever_follows() {
    let newer = frame(1, HEADER, &header_of(2));
    let newer_frames = frame(2, HEADER, &header_of(1));
    for (bytes, text) in [
        (newer, "reads up to 1, found 2"),
        (newer_frames, "reads up to 1, found 2"),
    ] {
        let error = read_bytes(&bytes).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Newer, "{error}");
        assert!(error.to_string().contains(text), "{error}");
    }
}

#[test]
fn intact_frames_with_impossible_content_are_corrupt() {
    let east = record(&region_message("east"));
    let named = |name: &[u8]| record(&[bytes_field(1, name), bytes_field(2, b"x")].concat());
    let own_origin = record(
        &[
            bytes_field(1, b"r"),
            number_field(2, 42),
            number_field(3, 1),
        ]
        .concat(),
    );
    let later_origin = record(&[bytes_field(1, b"r"), number_field(2, 43)].concat());
    let header = header_of(1);
    let no_kind = [number_field(1, 1), number_field(2, 42)].concat();
    let cases: [(&str, Vec<u8>); 11] = [
        (
            "number of regions: expected 2, found 1",
            file(&[(HEADER, &header), (REGIONS, &east)], 2, 0),
        ),
        (
            "number of coordinators: expected 1, found 0",
            file(&[(HEADER, &header)], 0, 1),
        ),
        (
            "\"east\" occurs twice",
            file(
                &[
                    (HEADER, &header),
                    (REGIONS, &[east.clone(), east.clone()].concat()),
                ],
                2,
                0,
            ),
        ),
        (
            "\"c\" occurs twice",
            file(
                &[
                    (HEADER, &header),
                    (COORDINATORS, &[named(b"c"), named(b"c")].concat()),
                ],
                0,
                2,
            ),
        ),
        (
            "expected up to checkpoint 42, found 43",
            file(&[(HEADER, &header), (REGIONS, &later_origin)], 1, 0),
        ),
        (
            "expected before checkpoint 42, found 42",
            file(&[(HEADER, &header), (REGIONS, &own_origin)], 1, 0),
        ),
        (
            "a record of the regions: expected 100 bytes, found 1",
            file(&[(HEADER, &header), (REGIONS, &[100, 1])], 1, 0),
        ),
        (
            "length of a record",
            file(&[(HEADER, &header), (REGIONS, &[0xff; 12])], 1, 0),
        ),
        ("kind of a checkpoint", file(&[(HEADER, &no_kind)], 0, 0)),
        (
            "entry of a region cannot be decoded",
            file(&[(HEADER, &header), (REGIONS, &record(&[0x0a, 99]))], 1, 0),
        ),
        (
            "expected a CheckpointHeader frame",
            file(&[(REGIONS, &east)], 1, 0),
        ),
    ];
    for (expected, bytes) in cases {
        let error = read_bytes(&bytes).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
        assert!(
            error.to_string().contains(expected),
            "no {expected:?} in {error}"
        );
    }
}

#[test]
fn a_header_beyond_one_frame_is_refused_when_it_is_made() {
    let mut new = facts(42);
    new.topology = vec![7; 1 << 20];
    let error = Metadata::new(new, regions(42)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
}

/// Looks at everything that decodes late.
fn look_into(entry: &RegionEntry) {
    let _ = (
        entry.operators(),
        entry.in_flight(),
        entry.staged(),
        entry.references("p"),
    );
}

proptest! {
    #[test]
    fn bytes_of_anybody_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = Metadata::from_bytes(&bytes);
        if let Ok(entry) = RegionEntry::from_bytes(bytes) {
            look_into(&entry);
        }
    }

    /// Forged by an attacker: the checksums fit.
    #[test]
    fn damaged_records_in_intact_frames_never_panic(
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
    ) {
        let entry = RegionEntry::new(full_region("east", 42)).unwrap().to_bytes();
        let mut damaged = entry.clone();
        damaged[at.index(entry.len())] = byte;
        if let Ok(entry) = RegionEntry::from_bytes(damaged.clone()) {
            prop_assert_eq!(RegionEntry::from_bytes(entry.to_bytes()).unwrap(), entry);
        }
        let mut records = Vec::new();
        prost::encode_length_delimiter(damaged.len(), &mut records).unwrap();
        records.extend_from_slice(&damaged);
        let mut bytes = frame(1, HEADER, &header_of(1));
        bytes.extend_from_slice(&frame(1, REGIONS, &records));
        bytes.extend_from_slice(&trailer(&bytes, 1, 0));
        match read_bytes(&bytes) {
            Ok(metadata) => {
                metadata.regions().iter().unwrap().for_each(look_into);
                let _ = metadata.restored("pipeline");
            }
            Err(error) => prop_assert_eq!(error.kind(), ErrorKind::Corrupt),
        }
    }

    #[test]
    fn any_regions_read_back_sorted(
        names in proptest::collection::btree_set(".{0,20}", 0..20),
        origin in 0u64..42,
        failed in any::<bool>(),
    ) {
        let regions = names
            .iter()
            .rev()
            .map(|name| {
                let region = empty_region(name, origin);
                RegionEntry::new(holdfast_core::checkpoint::NewRegion { failed, ..region }).unwrap()
            })
            .collect();
        let metadata = Metadata::new(facts(42), regions).unwrap();
        let found = Metadata::from_bytes(&metadata.to_bytes().unwrap()).unwrap();
        prop_assert!(found.regions().iter().unwrap().map(RegionEntry::region).eq(names.iter()));
        prop_assert_eq!(found.is_global(), !failed || names.is_empty());
        prop_assert_eq!(found, metadata);
    }
}
