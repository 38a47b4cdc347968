#![allow(clippy::unwrap_used, clippy::indexing_slicing)]
use super::*;
use crate::ids::{FileId, Owner, Term};

fn ids(owner: Option<OwnerTag>) -> Vec<VersionId> {
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
    let parked = |batches| ids.iter().map(move |id| parked(*id, segment, batches));
    let mut all: Vec<_> = ids.iter().map(|id| VersionId::from(*id)).collect();
    if owner.is_some() {
        all.extend(parked(1).chain(parked(2)));
    }
    all
}

/// A version that is parked since `base`, for so many batches.
fn parked(base: CommitId, segment: SegmentRef, batches: u64) -> VersionId {
    let since = base.version + 1;
    let version = since + batches - 1;
    VersionId {
        state: CommitId { version, ..base },
        pending: (since..=version)
            .map(|version| Pending { version, segment })
            .collect(),
    }
}

#[test]
fn ids_read_back_and_foreign_ones_are_refused_by_name() {
    let owner = Owner::new("", "0", "17", "default").tag();
    for id in [ids(None), ids(Some(owner))].concat() {
        assert_eq!(id.to_string().parse::<VersionId>().unwrap(), id);
    }
    let newer = "hf5-AAAA".parse::<VersionId>().unwrap_err();
    assert_eq!(newer.kind(), ErrorKind::Newer, "{newer}");
    for foreign in ["6f1c2b9e-uuid", "hf-AAAA", "hf0-AAAA"] {
        let error = foreign.parse::<VersionId>().unwrap_err();
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
        "hf4-AAAAAA",
    ] {
        assert_eq!(
            bad.parse::<VersionId>().unwrap_err().kind(),
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
            assert!(
                text[..end].parse::<VersionId>().is_err(),
                "{}",
                &text[..end]
            );
        }
        for bit in 0..text.len() * 8 {
            let mut bytes = text.clone().into_bytes();
            bytes[bit / 8] ^= 1 << (bit % 8);
            // Text that is no UTF-8 does not come out of a JSON file.
            if let Ok(flipped) = String::from_utf8(bytes) {
                assert!(flipped.parse::<VersionId>().is_err(), "{flipped}");
            }
        }
    }
}

#[test]
fn pending_input_that_is_not_in_order_is_no_id() {
    let owner = Owner::new("", "0", "17", "default").tag();
    let whole = ids(Some(owner)).pop().unwrap();
    assert_eq!(whole.pending.len(), 2);
    let changed = |change: fn(&mut VersionId)| {
        let mut id = whole.clone();
        change(&mut id);
        id.to_string().parse::<VersionId>().map_err(|e| e.kind())
    };
    assert_eq!(changed(|_| {}), Ok(whole.clone()));
    for change in [
        |id: &mut VersionId| id.pending.reverse(),
        |id| id.pending[0] = id.pending[1],
        |id| id.state.version += 1,
        |id| id.pending.truncate(1),
    ] as [fn(&mut VersionId); 4]
    {
        assert_eq!(changed(change), Err(ErrorKind::Corrupt));
    }
}

#[test]
fn an_id_has_at_most_so_many_pending_inputs() {
    let owner = Owner::new("", "0", "17", "default").tag();
    let base = ids(Some(owner))[1].state;
    let parked = |batches| parked(base, base.segment.unwrap(), batches).to_string();
    let most = parked(MAX_PENDING as u64);
    assert_eq!(
        most.parse::<VersionId>().unwrap().pending.len(),
        MAX_PENDING
    );
    assert!(most.len() < 73_000, "{}", most.len());
    let error = parked(MAX_PENDING as u64 + 1).parse::<VersionId>();
    assert_eq!(error.unwrap_err().kind(), ErrorKind::Corrupt);
}
