#![allow(clippy::unwrap_used, clippy::indexing_slicing)]
use super::*;
use crate::ids::{FileId, Owner, Term};

fn ids(owner: Option<OwnerTag>) -> Vec<CommitId> {
    let segment = SegmentRef {
        file: FileId {
            term: Term(0x1234_5678_9abc),
            seq: 7,
        },
        offset: 1 << 40,
        len: 99,
        digest: u128::MAX - 5,
    };
    let never_written = CommitId {
        version: 1,
        floor: CheckpointId(1),
        deltas: DeltaRuns::NONE,
        owner,
        segment: None,
        replaced: None,
    };
    let written = CommitId {
        version: 3,
        segment: Some(segment),
        ..never_written
    };
    let image = CommitId {
        floor: CheckpointId(3),
        replaced: Some(SegmentRef { len: 5, ..segment }),
        ..written
    };
    let mut ids = vec![never_written, written, image];
    if owner.is_some() {
        for deltas in [1..2, 3..11] {
            let deltas = DeltaRuns::of(deltas.map(CheckpointId)).unwrap();
            ids.extend([CommitId { deltas, ..written }, CommitId { deltas, ..image }]);
        }
    }
    ids
}

#[test]
fn ids_read_back_and_foreign_ones_are_refused_by_name() {
    let owner = Owner::new("", "0", "17", "default").tag();
    for id in [ids(None), ids(Some(owner))].concat() {
        assert_eq!(id.to_string().parse::<CommitId>().unwrap(), id);
    }
    let newer = "hf4-AAAA".parse::<CommitId>().unwrap_err();
    assert_eq!(newer.kind(), ErrorKind::Newer, "{newer}");
    for foreign in ["6f1c2b9e-uuid", "hf-AAAA", "hf0-AAAA"] {
        let error = foreign.parse::<CommitId>().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains("not written by Holdfast"));
    }
    for bad in [
        "hf1-",
        "hf1-!!",
        "hf1-AAAA",
        "hf2-",
        "hf2-AAAAAA",
        "hf3-AAAAAA",
    ] {
        assert_eq!(
            bad.parse::<CommitId>().unwrap_err().kind(),
            ErrorKind::Corrupt,
            "{bad}"
        );
    }
}

#[test]
fn a_flip_of_any_bit_and_any_cut_is_reported() {
    let owner = Owner::new("", "0", "17", "default").tag();
    for id in ids(Some(owner)) {
        let text = id.to_string();
        for end in 0..text.len() {
            assert!(text[..end].parse::<CommitId>().is_err(), "{}", &text[..end]);
        }
        for bit in 0..text.len() * 8 {
            let mut bytes = text.clone().into_bytes();
            bytes[bit / 8] ^= 1 << (bit % 8);
            // Text that is no UTF-8 does not come out of a JSON file.
            if let Ok(flipped) = String::from_utf8(bytes) {
                assert!(flipped.parse::<CommitId>().is_err(), "{flipped}");
            }
        }
    }
}
