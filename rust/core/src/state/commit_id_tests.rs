#![allow(clippy::unwrap_used, clippy::indexing_slicing)]
use proptest::prelude::*;

use super::*;
use crate::ids::{FileId, Owner, Term};

/// Spark puts the ids of all partitions into every task.
const MOST: usize = 64;

fn ids() -> Vec<VersionId> {
    let owner = Owner::new("", "0", "17", "default").tag();
    let segment = SegmentRef {
        file: FileId {
            term: Term(0x1234_5678_9abc),
            seq: 7,
        },
        offset: 1 << 40,
        len: 99,
        digest: u128::from(u64::MAX - 5),
    };
    let never_written = CommitId {
        version: 1,
        floor: CheckpointId(1),
        deltas: DeltaMarks::NONE,
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
    for number in [1, 8] {
        // An age of up to 7 reads back exactly.
        let deltas = DeltaRuns::of((0..number).map(|run| CheckpointId(8 + run / 4))).unwrap();
        let floor = CheckpointId(8);
        let deltas = deltas.marks(floor);
        let [written, image] = [written, image].map(|id| CommitId {
            version: 11,
            floor,
            deltas,
            ..id
        });
        ids.extend([written, image]);
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
    for newer in ["hf3-AAAA", "hfv2-1:2:3"] {
        let error = newer.parse::<StoreId>().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Newer, "{error}");
    }
    for foreign in ["6f1c2b9e-uuid", "hf-AAAA", "hf0-AAAA"] {
        let error = foreign.parse::<VersionId>().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains("not written by Holdfast"));
    }
    for bad in [
        "hf1-",
        "hf1-!!",
        "hf1-AAAA",
        "hf1-AAAAAA",
        "hf2-",
        "hf2-AAAA",
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
    assert!(most.len() < 38_000, "{}", most.len());
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

/// Numbers of every size, so that all lengths of varints occur.
fn number(bits: u32) -> impl Strategy<Value = u64> {
    (0..=bits, any::<u64>()).prop_map(|(bits, number)| match bits {
        0 => 0,
        bits => number >> (64 - bits),
    })
}

fn reference(term: u32, seq: u32, place: u32) -> impl Strategy<Value = SegmentRef> {
    let digest = any::<u64>().prop_map(u128::from);
    let parts = (
        number(term),
        number(seq),
        number(place),
        number(place),
        digest,
    );
    parts.prop_map(|(term, seq, offset, len, digest)| SegmentRef {
        file: FileId {
            term: Term(term),
            seq: seq as u32,
        },
        offset,
        len,
        digest,
    })
}

/// Content of versions up to `2^version`, without a replaced segment. The runs are any.
fn state(
    version: u32,
    segment: impl Strategy<Value = SegmentRef>,
) -> impl Strategy<Value = CommitId> {
    let runs = prop::collection::vec(any::<prop::sample::Index>(), 0..=9);
    let parts = (
        number(version),
        runs,
        any::<u32>(),
        prop::option::of(segment),
    );
    parts.prop_map(|(version, runs, owner, segment)| {
        let most = usize::try_from(version).unwrap_or(usize::MAX);
        let ages = runs.iter().map(|age| age.index(most.max(1)) as u64);
        let mut created: Vec<_> = ages
            .map(|age| CheckpointId(version - age.min(version)))
            .collect();
        created.sort();
        let floor = created.first().copied().unwrap_or(CheckpointId(version));
        let deltas = DeltaRuns::of(created.into_iter().skip(1)).unwrap();
        CommitId {
            version,
            floor,
            deltas: deltas.marks(floor),
            owner: OwnerTag(owner),
            segment,
            replaced: None,
        }
    })
}

fn any_id() -> impl Strategy<Value = VersionId> {
    let refs = || reference(62, 32, 64);
    let replaced = prop::option::of(refs());
    let inputs = prop::collection::vec((number(63), refs()), 0..4);
    (state(64, refs()), replaced, inputs).prop_map(|(state, replaced, inputs)| {
        let replaced = replaced.filter(|_| state.segment.is_some());
        let mut pending: Vec<_> = inputs
            .into_iter()
            .map(|(age, segment)| Pending {
                version: state.version.saturating_sub(age),
                segment,
            })
            .collect();
        pending.sort_by_key(|pending| pending.version);
        pending.dedup_by_key(|pending| pending.version);
        if let Some(last) = pending.last_mut() {
            last.version = state.version;
        }
        VersionId {
            state: CommitId { replaced, ..state },
            pending,
        }
    })
}

proptest! {
    #[test]
    fn an_id_reads_back_with_runs_that_are_hardly_older(id in any_id()) {
        let read: VersionId = id.to_string().parse().unwrap();
        prop_assert_eq!(read.to_string(), id.to_string());
        let (was, is) = (&id.state, &read.state);
        for (was, is) in [(was.floor, is.floor), (was.deltas.newest, is.deltas.newest)] {
            let (age, kept) = (id.state.version - was.0, id.state.version - is.0);
            prop_assert!(id.state.deltas.is_empty() && was.0 == 0 || kept >= age);
            prop_assert!(kept / 4 <= age / 3 || is.0 == 0 && age >> 33 != 0, "{age}, {kept}");
        }
        let deltas = DeltaMarks { newest: is.deltas.newest, ..was.deltas };
        let state = CommitId { floor: is.floor, deltas, ..*was };
        prop_assert_eq!(read, VersionId { state, ..id });
    }

    #[test]
    fn an_id_without_pending_inputs_is_short(state in state(28, reference(56, 21, 28))) {
        let text = state.to_string();
        prop_assert!(text.len() <= MOST, "{}: {text}", text.len());
    }

    #[test]
    fn ids_of_different_content_have_different_texts(one in any_id(), other in any_id()) {
        prop_assert_eq!(one.to_string() == other.to_string(), one == other);
    }

    #[test]
    fn hostile_bytes_are_no_id_or_the_only_text_of_one(mut bytes in prop::collection::vec(any::<u8>(), 0..70)) {
        bytes.put_uint_le(checksum(&bytes), CHECKSUM_BYTES);
        let text = format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(bytes));
        if let Ok(id) = text.parse::<VersionId>() {
            prop_assert_eq!(id.to_string(), text);
        }
    }
}

#[test]
fn the_longest_id_within_the_bounds_has_64_characters() {
    let segment = SegmentRef {
        file: FileId {
            term: Term((1 << 56) - 1),
            seq: (1 << 21) - 1,
        },
        offset: (1 << 28) - 1,
        len: (1 << 28) - 1,
        digest: u128::from(u64::MAX),
    };
    let deltas = DeltaRuns::of((2..10).map(CheckpointId)).unwrap();
    let id = CommitId {
        version: (1 << 28) - 1,
        floor: CheckpointId(1),
        deltas: deltas.marks(CheckpointId(1)),
        owner: OwnerTag(u32::MAX),
        segment: Some(segment),
        replaced: None,
    };
    assert_eq!(id.to_string().len(), MOST);
    // Beyond them it is longer, and still right.
    let later = CommitId {
        version: 1 << 28,
        ..id
    };
    assert!(later.to_string().len() > MOST);
    assert_eq!(
        later
            .to_string()
            .parse::<VersionId>()
            .unwrap()
            .state
            .segment,
        Some(segment)
    );
}

#[test]
fn few_other_runs_have_the_mark_of_a_run() {
    let runs = DeltaRuns::of((1..9).map(|run| CheckpointId(100 * run))).unwrap();
    let marks = runs.marks(CheckpointId(10));
    assert!(
        runs.iter()
            .chain([CheckpointId(10)])
            .all(|run| marks.may_have(run))
    );
    let others = (0..900)
        .filter(|created| marks.may_have(CheckpointId(*created)))
        .count();
    assert!(others < 900 / 4, "{others}");
}

#[test]
fn ids_of_older_releases_read_as_they_were_written() {
    // A base image on which a store rests, after two versions.
    let image = "hf1-BQAAAAAAAAABAAAAAAAAAPk8Qs-RTjt3AwIAAAAAAAAAAwAAAAAAAAAEAAAAAAAAACoAAAAAAAAACAAAABg\
                 AAAAAAAAAlgEAAAAAAADUC6CXNqYxsGlwHGWSqYdMKgAAAAAAAAAHAAAAGAAAAAAAAAACAQAAAAAAAHiNJQD10\
                 JM_VAsm_QPlzRssijm9";
    let id: VersionId = image.parse().unwrap();
    let deltas = DeltaRuns::of((2..5).map(CheckpointId)).unwrap();
    let segment = id.state.segment.unwrap();
    assert_eq!(
        (segment.file.seq, segment.offset, segment.len),
        (8, 24, 406)
    );
    assert!(segment.digest >> 64 != 0, "the whole digest");
    assert_eq!(id.state.replaced.unwrap().file.seq, 7);
    let expected = CommitId {
        version: 5,
        floor: CheckpointId(1),
        deltas: deltas.marks(CheckpointId(1)),
        owner: Owner::new("", "0", "3", "default").tag(),
        ..id.state
    };
    assert_eq!(id, VersionId::from(expected));
    // The next version names the same segments in the new format.
    assert_eq!(id.to_string().parse::<VersionId>().unwrap(), id);
    for end in 0..image.len() {
        assert!(image[..end].parse::<VersionId>().is_err());
    }
}
