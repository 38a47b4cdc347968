//! Entries of regions: what they refuse, how they fall back, which segments they need.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use crate::common::metadata::{
    empty_region, facts, full_region, in_flight, metadata, operator, pieces, reference, regions,
    state,
};
use holdfast_core::checkpoint::{
    CheckpointFacts, InFlightPlace, MAX_CAUSE_BYTES, MAX_NAME_BYTES, Metadata, NewRegion,
    RegionEntry, Staged, StateContent, StateKind,
};
use holdfast_core::{CheckpointId, ErrorKind, Owner};

fn refused(new: NewRegion) -> String {
    let error = RegionEntry::new(new).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    error.to_string()
}

fn with_dtype(kind: StateKind, dtype: &str) -> NewRegion {
    let states = vec![state("s", kind, dtype, pieces(&[]))];
    NewRegion {
        operators: vec![operator("op", states)],
        ..empty_region("r", 1)
    }
}

#[test]
fn an_entry_survives_its_bytes() {
    let entry = RegionEntry::new(full_region("east", 7)).unwrap();
    assert_eq!(RegionEntry::from_bytes(entry.to_bytes()).unwrap(), entry);
    assert_eq!(entry.in_flight_bytes(), 70);
}

#[test]
fn a_staged_file_keeps_the_name_of_its_side_output() {
    let staged = vec![Staged {
        path: "a".to_owned(),
        target: "b".to_owned(),
        rows: 1,
        bytes: 2,
        output: "late".to_owned(),
    }];
    let entry = RegionEntry::new(NewRegion {
        staged: staged.clone(),
        ..empty_region("east", 7)
    })
    .unwrap();
    let found = RegionEntry::from_bytes(entry.to_bytes()).unwrap();
    assert_eq!(found.staged().unwrap(), staged);
}

#[test]
fn names_have_a_bound_and_are_not_empty() {
    let long = "x".repeat(MAX_NAME_BYTES + 1);
    let fits = "x".repeat(MAX_NAME_BYTES);
    assert!(RegionEntry::new(empty_region(&fits, 1)).is_ok());
    assert!(
        RegionEntry::new(empty_region("", 1)).is_ok(),
        "a column may hold an empty text"
    );
    assert!(refused(empty_region(&long, 1)).contains("found 1025"));
    for name in [long.as_str(), "", "in-flight"] {
        let with_operator = NewRegion {
            operators: vec![operator(name, Vec::new())],
            ..empty_region("r", 1)
        };
        refused(with_operator);
    }
    for name in [long.as_str(), ""] {
        let states = vec![state(name, StateKind::Value, "", pieces(&[]))];
        let with_state = NewRegion {
            operators: vec![operator("op", states)],
            ..empty_region("r", 1)
        };
        assert!(refused(with_state).contains("op"));
    }
    let mut owed = in_flight(1, 1, InFlightPlace::Inline(Vec::new()));
    owed.channel = long;
    refused(NewRegion {
        in_flight: vec![owed],
        ..empty_region("r", 1)
    });
}

#[test]
fn names_that_occur_twice_are_refused() {
    let one = || state("sums", StateKind::Value, "", pieces(&[]));
    let operators = vec![operator("op", Vec::new()), operator("op", Vec::new())];
    let states = vec![operator("op", vec![one(), one()])];
    for operators in [operators, states] {
        let text = refused(NewRegion {
            operators,
            ..empty_region("r", 1)
        });
        assert!(text.contains("occurs twice"), "{text}");
    }
}

#[test]
fn types_are_those_of_numpy_s_array_interface() {
    for dtype in [
        "<f8", ">i4", "|b1", "|u1", "<c16", "<M8[ns]", "<m8[25s]", "<M8", "|S12", "<U3", "|V16",
    ] {
        RegionEntry::new(with_dtype(StateKind::Array, dtype)).unwrap();
    }
    for dtype in [
        "",
        "f8",
        "float64",
        "<f",
        "<8",
        "=f8",
        "|O",
        "|O8",
        "<f8 ",
        "<f8[ns]",
        "<M8[ns",
        "<M8[]",
        "<M8[n]s]",
        "<f-8",
        "<f12345678901",
        "<é8",
    ] {
        let text = refused(with_dtype(StateKind::Array, dtype));
        assert!(text.contains("dtype of state"), "{dtype:?}: {text}");
    }
    for kind in StateKind::ALL {
        let untyped = RegionEntry::new(with_dtype(kind, ""));
        // A table has a description in addition to its segments.
        let typed = [StateKind::Array, StateKind::Table];
        assert_eq!(untyped.is_ok(), !typed.contains(&kind));
        assert_eq!(StateKind::from_tag(kind.tag()), Some(kind));
    }
}

#[test]
fn staged_files_have_two_paths() {
    for (path, target) in [("", "b"), ("a", ""), (&"x".repeat(4097), "b")] {
        refused(NewRegion {
            staged: vec![Staged {
                path: path.to_owned(),
                target: target.to_owned(),
                rows: 0,
                bytes: 0,
                output: String::new(),
            }],
            ..empty_region("r", 1)
        });
    }
}

#[test]
fn a_fallback_keeps_state_and_origin_and_adds_what_it_owes() {
    // R16, R30, R22.
    let before = RegionEntry::new(full_region("east", 7)).unwrap();
    let first = in_flight(8, 30, InFlightPlace::Segment(reference(4, 0)));
    let second = in_flight(9, 5, InFlightPlace::Inline(b"rows".to_vec()));
    let once = before
        .fell_back("slow disk", 1000, std::slice::from_ref(&first))
        .unwrap();
    let twice = once
        .fell_back("no disk", 2000, std::slice::from_ref(&second))
        .unwrap();

    assert!(once.failed() && twice.failed() && !before.failed());
    assert_eq!((once.fallbacks(), twice.fallbacks()), (1, 2));
    assert_eq!(
        (once.stale_since_ms(), twice.stale_since_ms()),
        (Some(1000), Some(1000))
    );
    assert_eq!((once.cause(), twice.cause()), ("slow disk", "no disk"));
    assert_eq!(twice.origin(), CheckpointId(7));
    assert_eq!(twice.operators().unwrap(), before.operators().unwrap());
    assert_eq!(twice.staged().unwrap(), []);
    assert!(twice.finished());
    let old = before.in_flight().unwrap()[0].clone();
    assert_eq!(twice.in_flight().unwrap(), [old, first, second]);
    assert_eq!(twice.in_flight_bytes(), 105);

    // However it came about, the same content is the same entry.
    let made = RegionEntry::new(NewRegion {
        in_flight: twice.in_flight().unwrap(),
        staged: Vec::new(),
        failed: true,
        fallbacks: 2,
        stale_since_ms: Some(1000),
        cause: "no disk".to_owned(),
        ..full_region("east", 7)
    });
    assert_eq!(made.unwrap(), twice);
    assert_eq!(RegionEntry::from_bytes(twice.to_bytes()).unwrap(), twice);
}

#[test]
fn a_fallback_without_rows_owes_nothing_more() {
    let before = RegionEntry::new(empty_region("east", 7)).unwrap();
    let after = before.fell_back("", 1000, &[]).unwrap();
    assert_eq!(
        (after.in_flight_bytes(), after.in_flight().unwrap()),
        (0, vec![])
    );
}

#[test]
fn sizes_that_add_up_to_too_much_are_refused() {
    let huge = in_flight(1, u64::MAX, InFlightPlace::Inline(Vec::new()));
    let entry = RegionEntry::new(NewRegion {
        in_flight: vec![huge.clone()],
        ..empty_region("r", 1)
    })
    .unwrap();
    let one = in_flight(2, 1, InFlightPlace::Inline(Vec::new()));
    assert!(entry.fell_back("", 1, &[one]).is_err());
    refused(NewRegion {
        in_flight: vec![huge.clone(), huge],
        ..empty_region("r", 1)
    });
}

#[test]
fn a_long_cause_is_cut_between_characters() {
    let entry = RegionEntry::new(empty_region("r", 1)).unwrap();
    let long = "é".repeat(MAX_CAUSE_BYTES);
    let cut = entry.fell_back(&format!("!{long}"), 1, &[]).unwrap();
    assert_eq!(cut.cause().len(), MAX_CAUSE_BYTES - 1);
    assert!(cut.cause().ends_with('é'));
    let made = RegionEntry::new(NewRegion {
        cause: long,
        ..empty_region("r", 1)
    });
    assert_eq!(made.unwrap().cause().len(), MAX_CAUSE_BYTES);
}

#[test]
fn an_idle_region_keeps_all_but_what_it_staged() {
    let new = full_region("east", 7);
    let carried = RegionEntry::new(new.clone()).unwrap().carried();
    let expected = RegionEntry::new(NewRegion {
        staged: Vec::new(),
        ..new
    });
    assert_eq!(carried, expected.unwrap());
}

#[test]
fn every_segment_is_named_once_with_its_owner_and_origin() {
    // West failed: its state is of 40; it has pending rows of 40 in a segment, and some inline.
    let found = metadata(42).restored("sales").unwrap();
    assert_eq!(found.id, CheckpointId(42));
    let found: Vec<_> = found
        .segments
        .into_iter()
        .map(|(owner, origin, reference)| (owner, origin.0, reference))
        .collect();
    let owner =
        |operator: &str, region: &str, store: &str| Owner::new("sales", operator, region, store);
    let expected = [
        (owner("stats", "east", "sums"), 42, reference(1, 64)),
        (owner("stats", "east", "sums"), 42, reference(2, 64)),
        (owner("in-flight", "east", "42"), 42, reference(2, 1 << 33)),
        (owner("stats", "west", "sums"), 40, reference(1, 64)),
        (owner("stats", "west", "sums"), 40, reference(2, 64)),
        (owner("in-flight", "west", "40"), 40, reference(2, 1 << 33)),
    ];
    assert_eq!(found, expected);
}

#[test]
fn in_flight_data_has_the_origin_at_which_it_was_stored() {
    // Whatever happens to the state of its region; a segment of several channels is named once.
    let mut first = in_flight(7, 1, InFlightPlace::Segment(reference(1, 0)));
    first.channel = "left".to_owned();
    let second = in_flight(7, 1, InFlightPlace::Segment(reference(1, 0)));
    let entry = RegionEntry::new(NewRegion {
        in_flight: vec![first, second],
        ..empty_region("r", 5)
    });
    let owner = Owner::new("p", "in-flight", "r", "7");
    let expected = (owner, CheckpointId(7), reference(1, 0));
    assert_eq!(entry.unwrap().references("p").unwrap(), [expected]);
}

#[test]
fn bytes_of_an_entry_that_do_not_agree_are_corrupt() {
    let entry = RegionEntry::new(full_region("east", 7)).unwrap();
    // Field 8, the size of its in-flight data, is 70.
    let mut bytes = entry.to_bytes();
    let at = bytes
        .windows(2)
        .position(|two| two == [8 << 3, 70])
        .unwrap();
    bytes[at + 1] = 71;
    let error = RegionEntry::from_bytes(bytes).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(
        error.to_string().contains("expected 71, found 70"),
        "{error}"
    );
    let refused = RegionEntry::from_bytes(
        [
            entry.to_bytes(),
            vec![1 << 3 | 2, 0x80, 0x10],
            vec![b'x'; 2048],
        ]
        .concat(),
    );
    let error = refused.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    assert!(error.to_string().contains("at most 1024 bytes"), "{error}");
}

#[test]
fn impossible_metadata_is_refused() {
    type Change = fn(&mut CheckpointFacts, &mut Vec<RegionEntry>);
    let cases: [(&str, Change); 8] = [
        ("batch id", |new, _| new.batch_id = -2),
        ("name of a coordinator", |new, _| {
            new.coordinators.insert(String::new(), Vec::new());
        }),
        ("name of a finished operator", |new, _| {
            new.finished_operators.push("x".repeat(1025))
        }),
        ("key of a property", |new, _| {
            new.properties.insert("x".repeat(1025), String::new());
        }),
        ("\"east\" occurs twice", |_, regions| {
            let east = RegionEntry::new(empty_region("east", 1)).unwrap();
            regions.push(east);
        }),
        ("expected up to checkpoint 42, found 43", |_, regions| {
            *regions = vec![RegionEntry::new(empty_region("east", 43)).unwrap()];
        }),
        ("expected before checkpoint 42, found 42", |_, regions| {
            let east = RegionEntry::new(empty_region("east", 42)).unwrap();
            *regions = vec![east.fell_back("", 1, &[]).unwrap()];
        }),
        ("topology, finished operators and properties", |new, _| {
            new.topology = vec![1; 1 << 20]
        }),
    ];
    for (expected, change) in cases {
        let (mut new, mut entries) = (facts(42), regions(42));
        change(&mut new, &mut entries);
        let error = Metadata::new(new, entries).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
        assert!(
            error.to_string().contains(expected),
            "no {expected:?} in {error}"
        );
    }
}

#[test]
fn inline_state_has_no_segment() {
    let states = vec![state(
        "s",
        StateKind::Value,
        "",
        StateContent::Inline(vec![1]),
    )];
    let entry = RegionEntry::new(NewRegion {
        operators: vec![operator("op", states)],
        ..empty_region("r", 1)
    });
    assert_eq!(entry.unwrap().references("p").unwrap(), []);
}
