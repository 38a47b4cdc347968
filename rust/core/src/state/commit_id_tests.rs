#![allow(clippy::unwrap_used, clippy::indexing_slicing)]
use super::*;
use crate::ids::{FileId, Owner, Term};

fn ids() -> Vec<VersionId> {
    let owner = Owner::new("", "0", "17", "default").tag();
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
    for deltas in [1..2, 3..11] {
        let deltas = DeltaRuns::of(deltas.map(CheckpointId)).unwrap();
        ids.extend([CommitId { deltas, ..written }, CommitId { deltas, ..image }]);
    }
    let parked = |batches| ids.iter().map(move |id| parked(*id, segment, batches));
    let mut all: Vec<_> = ids.iter().map(|id| VersionId::from(*id)).collect();
    all.extend(parked(1).chain(parked(2)));
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
    for id in ids() {
        assert_eq!(id.to_string().parse::<VersionId>().unwrap(), id);
    }
    for newer in ["hf2-AAAA", "hfv2-1:2:3"] {
        let error = newer.parse::<StoreId>().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Newer, "{error}");
    }
    for foreign in ["6f1c2b9e-uuid", "hf-AAAA", "hf0-AAAA"] {
        let error = foreign.parse::<VersionId>().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains("not written by Holdfast"));
    }
    for bad in ["hf1-", "hf1-!!", "hf1-AAAA", "hf1-AAAAAA"] {
        assert_eq!(
            bad.parse::<VersionId>().unwrap_err().kind(),
            ErrorKind::Corrupt,
            "{bad}"
        );
    }
}

#[test]
fn a_flip_of_any_bit_and_any_cut_is_reported() {
    for id in ids() {
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
    let whole = ids().pop().unwrap();
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
    let base = ids()[1].state;
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

#[test]
fn a_view_reads_back_needs_the_stores_that_it_names_and_every_flip_of_it_is_reported() {
    let parents = (0..3).map(|partition| (partition, ids()[1].to_string()));
    let view = ViewId {
        batch: 7,
        from: 6,
        to: 2,
        store: "left-keyToNumValues".to_owned(),
        parents: parents.collect(),
    };
    let text = view.to_string();
    assert!(text.starts_with(StoreId::VIEW_PREFIX));
    assert_eq!(text.parse::<StoreId>().unwrap(), StoreId::View(view));
    let needed = StoreId::needed(1, &text).unwrap();
    let partitions: Vec<_> = needed.iter().map(|(partition, _)| *partition).collect();
    assert_eq!(partitions, [0, 1, 2]);
    assert!(needed.iter().all(|(_, id)| *id == ids()[1]));
    let own = StoreId::needed(1, &ids()[1].to_string()).unwrap();
    assert_eq!(own, [(1, ids()[1].clone())]);
    for end in 0..text.len() {
        assert!(text[..end].parse::<StoreId>().is_err(), "{}", &text[..end]);
    }
    for bit in 0..text.len() * 8 {
        let mut bytes = text.clone().into_bytes();
        bytes[bit / 8] ^= 1 << (bit % 8);
        if let Ok(flipped) = String::from_utf8(bytes) {
            // Another partition of a store is another id, and its checksum does not fit.
            assert!(flipped.parse::<StoreId>().is_err(), "{flipped}");
        }
    }
}
