//! Metadata for tests.

use std::collections::BTreeMap;

use holdfast_core::checkpoint::{
    CheckpointFacts, CheckpointKind, InFlight, InFlightPlace, Metadata, NewRegion, OperatorEntry,
    Piece, RegionEntry, Staged, StateContent, StateEntry, StateKind,
};
use holdfast_core::{CheckpointId, FileId, SegmentRef, Term};

pub fn reference(seq: u32, offset: u64) -> SegmentRef {
    SegmentRef {
        file: FileId { term: Term(3), seq },
        offset,
        len: 100 + offset,
        digest: u128::from(offset) << 64 | u128::from(seq),
    }
}

pub fn pieces(references: &[SegmentRef]) -> StateContent {
    let piece = |(i, reference): (usize, &SegmentRef)| Piece {
        reference: *reference,
        payload_offset: 8 * i as u64,
        length: 80,
    };
    StateContent::Pieces(references.iter().enumerate().map(piece).collect())
}

pub fn state(name: &str, kind: StateKind, dtype: &str, content: StateContent) -> StateEntry {
    StateEntry {
        name: name.to_owned(),
        kind,
        dtype: dtype.to_owned(),
        shape: vec![10, 2],
        content,
    }
}

pub fn operator(name: &str, states: Vec<StateEntry>) -> OperatorEntry {
    OperatorEntry {
        name: name.to_owned(),
        states,
        finished: false,
    }
}

pub fn in_flight(created: u64, bytes: u64, place: InFlightPlace) -> InFlight {
    InFlight {
        created: CheckpointId(created),
        channel: "input".to_owned(),
        rows: 5,
        bytes,
        place,
    }
}

/// A region without anything.
pub fn empty_region(name: &str, origin: u64) -> NewRegion {
    NewRegion {
        region: name.to_owned(),
        origin: CheckpointId(origin),
        operators: Vec::new(),
        in_flight: Vec::new(),
        staged: Vec::new(),
        finished: false,
        failed: false,
        fallbacks: 0,
        stale_since_ms: None,
        cause: String::new(),
    }
}

/// A region with some of everything.
pub fn full_region(name: &str, origin: u64) -> NewRegion {
    let states = vec![
        state(
            "sums",
            StateKind::Array,
            "<f8",
            pieces(&[reference(1, 64), reference(2, 64), reference(1, 64)]),
        ),
        state(
            "seen",
            StateKind::Value,
            "",
            StateContent::Inline(vec![1, 2]),
        ),
        state("parts", StateKind::List, "|V16", pieces(&[])),
    ];
    NewRegion {
        operators: vec![operator("stats", states), operator("filter", Vec::new())],
        in_flight: vec![in_flight(
            origin,
            70,
            InFlightPlace::Segment(reference(2, 1 << 33)),
        )],
        staged: vec![Staged {
            path: "out/_staged/1".to_owned(),
            target: "out/part-1".to_owned(),
            rows: 3,
            bytes: 900,
            output: String::new(),
        }],
        finished: true,
        ..empty_region(name, origin)
    }
}

/// Two regions, one of which failed.
pub fn regions(id: u64) -> Vec<RegionEntry> {
    let failed = RegionEntry::new(full_region("west", id - 2)).unwrap();
    let owed = in_flight(id, 9, InFlightPlace::Inline(b"rows".to_vec()));
    let failed = failed.fell_back("disk full", 1_700_000_000_000, &[owed]);
    vec![
        failed.unwrap(),
        RegionEntry::new(full_region("east", id)).unwrap(),
    ]
}

pub fn facts(id: u64) -> CheckpointFacts {
    CheckpointFacts {
        id: CheckpointId(id),
        batch_id: 12,
        kind: CheckpointKind::Checkpoint,
        created_ms: 1_700_000_000_123,
        topology: b"filter > stats".to_vec(),
        coordinators: BTreeMap::from([("source".to_owned(), b"splits 1 2 3".to_vec())]),
        consecutive_regional: 1,
        force_global: true,
        finished_operators: vec!["filter".to_owned()],
        properties: BTreeMap::from([("pipeline".to_owned(), "sales".to_owned())]),
    }
}

pub fn metadata(id: u64) -> Metadata {
    Metadata::new(facts(id), regions(id)).unwrap()
}
