//! Written segments are read back, for any owner, payload and lineage.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use crate::common::{faulty, options};
use holdfast_core::format::{
    Compression, NewSegment, SegmentHead, SegmentKind, TableKeys, read_head, read_index,
    read_segment,
};
use holdfast_core::segment::SegmentWriter;
use holdfast_core::{CheckpointId, FileId, Owner, SegmentRef, Term};
use proptest::prelude::*;

fn any_head() -> impl Strategy<Value = SegmentHead> {
    let owner = ("\\PC{0,20}", "\\PC{0,20}", "\\PC{0,20}", "\\PC{0,20}");
    let reference = (any::<(u64, u32, u64, u64)>(), any::<u128>()).prop_map(|(ids, digest)| {
        let (term, seq, offset, len) = ids;
        SegmentRef {
            file: FileId {
                term: Term(term),
                seq,
            },
            offset,
            len,
            digest,
        }
    });
    let lineage = prop::collection::vec(reference.clone(), 0..40);
    let replaced = prop::option::of(reference);
    let table = (prop::collection::vec(any::<u8>(), 0..3), any::<u64>());
    let table = table.prop_map(|(prefix, keys)| TableKeys { prefix, keys });
    let kind = prop::sample::select(vec![1u8, 3, 4]);
    let counts = (
        any::<u64>(),
        prop::collection::vec(table, 0..4),
        any::<u32>(),
    );
    (owner, any::<u64>(), kind, lineage, replaced, counts).prop_map(
        |((pipeline, operator, region, store), created, kind, lineage, replaced, counts)| {
            let (entries, tables, runs) = counts;
            SegmentHead {
                owner: Owner {
                    pipeline,
                    operator,
                    region,
                    store,
                },
                created: CheckpointId(created),
                kind: SegmentKind::from_tag(kind).unwrap(),
                lineage,
                replaced,
                journal: None,
                payload_bytes: 0,
                entries,
                tables,
                runs,
            }
        },
    )
}

/// Noise, repetitive bytes, and sizes around the bound of a frame.
fn any_payload() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        8 => prop::collection::vec(any::<u8>(), 0..3000),
        4 => (any::<u8>(), 0..100_000usize).prop_map(|(byte, len)| vec![byte; len]),
        1 => (any::<u64>(), (1usize << 20) - 2..(1 << 20) + 3)
            .prop_map(|(seed, len)| crate::common::payload(seed % 1000, len)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 64, ..Default::default() })]

    #[test]
    fn segments_read_back(
        segments in prop::collection::vec((any_head(), any_payload()), 1..6),
        lz4 in any::<bool>(),
        max_file_bytes in 1..200_000u64,
    ) {
        let (_dir, storage) = faulty();
        let compression = if lz4 { Compression::Lz4 } else { Compression::None };
        let writer = SegmentWriter::open(storage.clone(), Term(3), options(max_file_bytes, compression));
        let mut written = Vec::new();
        for (head, payload) in segments {
            let head = SegmentHead { payload_bytes: payload.len() as u64, ..head };
            let new = NewSegment {
                owner: &head.owner,
                created: head.created,
                kind: head.kind,
                lineage: &head.lineage,
                replaced: head.replaced,
                entries: head.entries,
                tables: &head.tables,
                runs: head.runs,
            };
            let reference = writer.append(&new, &payload).unwrap();
            written.push((reference, head, payload));
        }
        for sealed in [false, true] {
            if sealed {
                writer.seal().unwrap();
            }
            for (reference, head, payload) in &written {
                let segment = read_segment(storage.as_ref(), reference, &head.owner).unwrap();
                prop_assert_eq!(&segment.head, head);
                prop_assert!(segment.payload == *payload);
                prop_assert_eq!(&read_head(storage.as_ref(), reference, &head.owner).unwrap(), head);
                let index = read_index(storage.as_ref(), reference.file).unwrap();
                let entry = index.segments.iter().find(|e| e.reference == *reference).unwrap();
                prop_assert_eq!(&entry.owner, &head.owner);
                prop_assert_eq!((entry.created, entry.kind), (head.created, head.kind));
            }
        }
    }
}

#[test]
fn a_footer_of_many_segments_spans_frames() {
    let (_dir, storage) = faulty();
    let writer = SegmentWriter::open(
        storage.clone(),
        Term(3),
        options(1 << 30, Compression::None),
    );
    // 12,000 entries of about 60 bytes are more than one footer frame.
    let refs: Vec<_> = (0..12_000u64)
        .map(|i| crate::common::append(&writer, &crate::common::owner("r"), i, b"x").unwrap())
        .collect();
    writer.seal().unwrap();
    let index = read_index(storage.as_ref(), refs[0].file).unwrap();
    assert!(index.sealed);
    assert_eq!(index.segments.len(), refs.len());
    assert!(index.segments.iter().map(|e| e.reference).eq(refs));
}
