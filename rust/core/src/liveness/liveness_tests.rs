#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::collections::BTreeSet;
use std::sync::Arc;

use super::rule::{Verdict, judge};
use super::*;
use crate::{CheckpointId, FileId, Owner, SegmentRef};

fn id(number: u64) -> CheckpointId {
    CheckpointId(number)
}

fn owner(region: &str) -> Owner {
    Owner::new("", "op", region, "default")
}

fn file(seq: u32) -> FileId {
    FileId {
        term: crate::Term(1),
        seq,
    }
}

fn retained(decided: u64, checkpoints: &[(u64, &[(&str, u64)])]) -> Retained {
    let fallbacks = |list: &[(&str, u64)]| list.iter().map(|(o, c)| (owner(o), id(*c))).collect();
    Retained {
        decided: id(decided),
        checkpoints: checkpoints
            .iter()
            .map(|(c, list)| (id(*c), fallbacks(list)))
            .collect(),
    }
}

fn view(decided: u64, checkpoints: &[(u64, &[(&str, u64)])]) -> View {
    let mut view = View::default();
    view.merge(&retained(decided, checkpoints));
    view
}

fn segment(region: &str, created: u64) -> SegmentFacts {
    let reference = reference(file(1), 0);
    SegmentFacts::new(Arc::new(owner(region)), &reference, id(created))
}

fn reference(file: FileId, offset: u64) -> SegmentRef {
    SegmentRef {
        file,
        offset,
        len: 100,
        digest: 0,
    }
}

/// A closed file of 1000 bytes, from files of which 100 bytes each belong to a segment of this owner
/// and checkpoint.
fn add_file(ledger: &mut Ledger, seq: u32, segments: &[(&str, u64)]) {
    ledger.add_file(file(seq), FileFacts::created(None, 1000));
    for (number, (region, created)) in segments.iter().enumerate() {
        let reference = reference(file(seq), 100 * number as u64);
        ledger.append(&owner(region), &reference, id(*created));
    }
    ledger.change_file(file(seq), |facts| facts.open = false);
}

/// A ledger of such files that got this message.
fn decided(files: &[&[(&str, u64)]], message: &Retained, bound: f64) -> (Ledger, Actions) {
    let mut ledger = Ledger::default();
    for (seq, segments) in (1..).zip(files) {
        add_file(&mut ledger, seq, segments);
    }
    ledger.merge(message).unwrap();
    let actions = ledger.settle(Occasion::Message, bound);
    (ledger, actions)
}

fn is_live(view: &View, segment: &SegmentFacts) -> bool {
    judge(view, segment) != Some(Verdict::Dead)
}

#[test]
fn what_an_open_attempt_wrote_lives() {
    assert!(is_live(&View::default(), &segment("a", 0)));
    let view = view(4, &[(4, &[])]);
    assert!(is_live(&view, &segment("a", 5)));
    assert!(!is_live(&view, &segment("a", 3)));
}

#[test]
fn a_segment_lives_while_its_interval_meets_the_live_set() {
    let mut reused = segment("a", 3);
    reused.last_used = id(6);
    assert!(is_live(&view(7, &[(5, &[])]), &reused));
    assert!(is_live(&view(7, &[(3, &[]), (7, &[])]), &reused));
    assert!(!is_live(&view(7, &[(2, &[]), (7, &[])]), &reused));
}

#[test]
fn an_owner_that_fell_back_loses_the_attempt_and_keeps_its_origin() {
    let view = view(4, &[(4, &[("b", 2)])]);
    assert!(!is_live(&view, &segment("b", 4)));
    assert!(is_live(&view, &segment("b", 2)));
    assert!(is_live(&view, &segment("a", 4)));
    assert!(!is_live(&view, &segment("a", 2)));
    assert!(view.fell_back(&owner("b")) && !view.fell_back(&owner("a")));
}

#[test]
fn an_origin_outlives_the_checkpoint_that_made_it() {
    let view = view(9, &[(8, &[("b", 2)]), (9, &[("b", 2)])]);
    assert!(is_live(&view, &segment("b", 2)));
    assert_eq!(view.live_set(&owner("b")), &BTreeSet::from([id(2)]));
}

#[test]
fn a_lease_holds_until_the_attempt_is_decided() {
    let mut leased = segment("a", 3);
    leased.leases = BTreeSet::from([id(5)]);
    // Checkpoint 3 is subsumed while attempt 5 is about to cite the segment.
    assert_eq!(judge(&view(4, &[(4, &[])]), &leased), None);
    assert_eq!(judge(&view(5, &[(4, &[])]), &leased), Some(Verdict::Dead));
    assert_eq!(
        judge(&view(5, &[(5, &[])]), &leased),
        Some(Verdict::Renewed {
            last_used: id(5),
            leases: BTreeSet::new()
        })
    );
    let partial = view(5, &[(5, &[("a", 4)])]);
    assert_eq!(judge(&partial, &leased), Some(Verdict::Dead));
}

#[test]
fn the_outcome_of_a_leased_attempt_is_learnt_from_a_later_message() {
    let mut leased = segment("a", 3);
    leased.leases = BTreeSet::from([id(5)]);
    // The message of checkpoint 5 was lost; 7 fell back to it, and 5 itself is not retained.
    let verdict = judge(&view(7, &[(7, &[("a", 5)])]), &leased);
    assert_eq!(
        verdict,
        Some(Verdict::Renewed {
            last_used: id(5),
            leases: BTreeSet::new()
        })
    );
}

#[test]
fn messages_in_any_order_lead_to_the_newest_view() {
    let messages = [
        retained(4, &[(3, &[]), (4, &[])]),
        retained(5, &[(3, &[]), (4, &[]), (5, &[("b", 4)])]),
        retained(5, &[(4, &[]), (5, &[("b", 4)])]),
        retained(5, &[(5, &[("b", 4)])]),
    ];
    let expected = view(5, &[(5, &[("b", 4)])]);
    for a in 0..4 {
        for b in 0..4 {
            for c in 0..4 {
                for d in 0..4 {
                    let order = [a, b, c, d];
                    let mut view = View::default();
                    order.iter().for_each(|i| drop(view.merge(&messages[*i])));
                    if order.contains(&3) {
                        assert_eq!(view, expected, "{order:?}");
                    }
                }
            }
        }
    }
}

#[test]
fn a_restored_checkpoint_is_retained_until_a_message_says_otherwise() {
    let mut view = view(7, &[(6, &[]), (7, &[])]);
    view.restore([(id(5), Fallbacks::from([(owner("b"), id(2))]))]);
    assert_eq!(view.decided(), Some(id(7)));
    assert!(is_live(&view, &segment("a", 5)) && is_live(&view, &segment("b", 2)));
    view.merge(&retained(8, &[(8, &[])]));
    assert!(!is_live(&view, &segment("a", 5)));
}

/// Each owner has its own subsumption (R44 in docs/semantics.md). Regions A = {S1, S2} and
/// B = {S3}, one file per checkpoint, one checkpoint retained. 2: B falls back to 1; 3: A falls back to 2; 4: aborted; 5: global.
#[test]
fn the_worked_example_keeps_exactly_what_is_needed() {
    let mut ledger = Ledger::default();
    let mut step = |number: u32, message: Retained| -> Vec<String> {
        let created = u64::from(number);
        let segments = ["S1", "S2", "S3"].map(|s| (s, created));
        add_file(&mut ledger, number, &segments);
        ledger.merge(&message).unwrap();
        let actions = ledger.settle(Occasion::Message, 0.0);
        actions
            .delete
            .iter()
            .for_each(|file| ledger.forget_file(*file));
        let files = ledger.files().iter();
        files
            .flat_map(|(id, f)| {
                let segments = f.segments().values();
                segments.map(move |s| format!("{}:P{}", s.owner.region, id.seq))
            })
            .collect()
    };
    assert_eq!(
        step(1, retained(1, &[(1, &[])])),
        ["S1:P1", "S2:P1", "S3:P1"]
    );
    let two = retained(2, &[(2, &[("S3", 1)])]);
    assert_eq!(step(2, two), ["S3:P1", "S1:P2", "S2:P2"]);
    let three = retained(3, &[(3, &[("S1", 2), ("S2", 2)])]);
    assert_eq!(step(3, three.clone()), ["S1:P2", "S2:P2", "S3:P3"]);
    let four = Retained {
        decided: id(4),
        ..three
    };
    assert_eq!(step(4, four), ["S1:P2", "S2:P2", "S3:P3"]);
    assert_eq!(
        step(5, retained(5, &[(5, &[])])),
        ["S1:P5", "S2:P5", "S3:P5"]
    );
}

#[test]
fn files_are_deleted_only_when_closed_and_without_live_segments() {
    let mut ledger = Ledger::default();
    let dead = [("a", 1), ("b", 2)];
    for seq in [1, 2, 4] {
        add_file(&mut ledger, seq, &dead);
    }
    add_file(&mut ledger, 6, &[("a", 1), ("a", 3)]);
    ledger.change_file(file(2), |facts| facts.open = true);
    ledger.add_file(file(3), FileFacts::created(None, 10));
    ledger.add_file(file(5), FileFacts::created(Some(id(3)), 1000));
    ledger.append(&owner("a"), &reference(file(5), 0), id(3));
    ledger.merge(&retained(2, &[(2, &[("b", 1)])])).unwrap();
    ledger.release(&reference(file(4), 0));
    ledger.release(&reference(file(4), 100));
    ledger.change_file(file(4), |facts| facts.deleting = true);
    ledger.merge(&retained(3, &[(3, &[])])).unwrap();
    let actions = ledger.settle(Occasion::Message, 0.0);
    assert_eq!(actions.delete, [file(1)]);
    assert_eq!(actions.abandon, [file(2)]);
    assert_eq!(actions.seal, [file(5)]);
    assert_eq!(
        ledger.settle(Occasion::Message, 0.0),
        Actions::default(),
        "decided once"
    );
}

#[test]
fn the_most_wasteful_files_stop_being_reused_until_the_bound_holds() {
    let (one, nine) = ([("a", 3); 1], [("a", 3); 9]);
    // Four equal files of 10 % use, one of 90 %: 1300 live bytes in 5000.
    let files: [&[_]; 5] = [&one, &one, &one, &one, &nine];
    let wasteful = |bound| {
        let (ledger, _) = decided(&files, &retained(3, &[(3, &[])]), bound);
        let seqs = 1..=5;
        seqs.filter(|seq| ledger.is_wasteful(file(*seq)))
            .collect::<Vec<_>>()
    };
    assert_eq!(wasteful(2.0), [1, 2, 3], "files of equal waste stay apart");
    assert_eq!(wasteful(3.5), [1]);
    assert_eq!(wasteful(5.0), Vec::<u32>::new());
    assert_eq!(
        wasteful(0.5),
        Vec::<u32>::new(),
        "below 1 there is no bound"
    );
}

/// The same for floors: see the test of this name in `tests/reclaim.rs`.
#[test]
fn a_file_within_the_bound_does_not_hide_a_smaller_one_that_is_not() {
    let mut ledger = Ledger::default();
    for (seq, physical_bytes, live_bytes) in [(1, 100, 60), (2, 30, 1)] {
        ledger.add_file(file(seq), FileFacts::found(physical_bytes));
        let reference = SegmentRef {
            len: live_bytes,
            ..reference(file(seq), 0)
        };
        ledger.append(&owner("a"), &reference, id(1));
    }
    ledger.merge(&retained(1, &[(1, &[])])).unwrap();
    ledger.settle(Occasion::Message, 2.0);
    assert!(!ledger.is_wasteful(file(1)) && ledger.is_wasteful(file(2)));
}

#[test]
fn files_pinned_by_owners_that_fell_back_are_not_blamed() {
    let files: [&[_]; 2] = [&[("b", 2)], &[("a", 5); 9]];
    let (ledger, _) = decided(&files, &retained(5, &[(5, &[("b", 2)])]), 1.2);
    assert!(ledger.is_pinned(file(1)) && !ledger.is_pinned(file(2)));
    assert!(!ledger.is_wasteful(file(1)) && !ledger.is_wasteful(file(2)));
    let mut ledger = ledger;
    ledger
        .merge(&retained(6, &[(5, &[("b", 2)]), (6, &[])]))
        .unwrap();
    ledger.settle(Occasion::Message, 1.2);
    assert!(!ledger.is_pinned(file(1)), "b contributed again");
}

#[test]
fn owners_without_live_segments_are_forgotten() {
    let mut ledger = Ledger::default();
    ledger.add_file(file(1), FileFacts::created(None, 10));
    for number in 1..=1000u64 {
        // Owners of in-flight data have the checkpoint in their name.
        let owner = owner(&number.to_string());
        ledger.append(&owner, &reference(file(1), 100 * number), id(number));
        ledger.merge(&retained(number, &[(number, &[])])).unwrap();
        ledger.settle(Occasion::Message, 0.0);
        assert_eq!(ledger.owners(), 1);
        assert_eq!(ledger.watched.len(), 1);
    }
}

/// A message about one owner judges the segments of that owner, and none of the 100,000 segments of
/// the first checkpoints, which all stay.
#[test]
fn a_message_costs_what_it_changes() {
    let mut ledger = Ledger::default();
    let (owners, checkpoints) = (1000, 100);
    for created in 1..=checkpoints {
        let seq = u32::try_from(created).unwrap();
        let regions: Vec<String> = (0..owners).map(|n: u64| n.to_string()).collect();
        let segments: Vec<_> = regions.iter().map(|r| (r.as_str(), created)).collect();
        add_file(&mut ledger, seq, &segments);
        ledger.change_file(file(seq), |facts| facts.physical_bytes = 200_000);
    }
    let kept: Vec<u64> = (1..=checkpoints).collect();
    let view = |decided: u64, more: &[(u64, &[(&str, u64)])]| {
        let mut view = retained(decided, more);
        view.checkpoints
            .extend(kept.iter().map(|number| (id(*number), Fallbacks::new())));
        view
    };
    ledger.merge(&view(checkpoints, &[])).unwrap();
    ledger.settle(Occasion::Message, 2.0);
    assert_eq!(ledger.judgements(), owners * checkpoints);
    let cost = |ledger: &mut Ledger, message: &Retained| {
        let before = ledger.judgements();
        ledger.merge(message).unwrap();
        ledger.settle(Occasion::Message, 2.0);
        ledger.judgements() - before
    };
    ledger.add_file(file(101), FileFacts::created(None, 10));
    ledger.append(&owner("7"), &reference(file(101), 0), id(101));
    ledger.lease(&reference(file(100), 700), id(101));
    assert_eq!(
        cost(&mut ledger, &view(101, &[(101, &[])])),
        2,
        "written and leased"
    );
    assert_eq!(cost(&mut ledger, &view(101, &[(101, &[])])), 0, "repeated");
    ledger.append(&owner("7"), &reference(file(101), 100), id(102));
    assert_eq!(cost(&mut ledger, &view(102, &[(101, &[])])), 1, "aborted");
    ledger.append(&owner("7"), &reference(file(101), 200), id(103));
    let fallback: &[_] = &[("8", 101)];
    assert_eq!(
        cost(&mut ledger, &view(103, &[(103, fallback)])),
        // Two segments of 7, one of them for 101, and all of 8, which has a live set of its own
        // now.
        2 + checkpoints
    );
    ledger.append(&owner("7"), &reference(file(101), 300), id(104));
    assert_eq!(
        cost(&mut ledger, &view(104, &[(103, fallback), (104, fallback)])),
        1
    );
    assert_eq!(
        cost(&mut ledger, &view(105, &[(104, fallback)])),
        1,
        "103 is subsumed"
    );
}

#[test]
fn an_open_file_is_sealed_while_there_is_room_to_write_its_live_part_again() {
    let mut ledger = Ledger::default();
    let bytes = 100_000;
    ledger.add_file(file(1), FileFacts::created(None, 0));
    let mut step = |number: u64, only: Occasion| {
        let reference = SegmentRef {
            len: bytes,
            ..reference(file(1), bytes * (number - 1))
        };
        ledger.append(&owner("a"), &reference, id(number));
        ledger.change_file(file(1), |facts| facts.physical_bytes = bytes * number);
        ledger.merge(&retained(number, &[(number, &[])])).unwrap();
        ledger.settle(only, 2.0).seal
    };
    assert_eq!(step(1, Occasion::Message), []);
    assert_eq!(step(2, Occasion::Between), [], "only messages seal");
    assert_eq!(step(3, Occasion::Message), [file(1)]);
}
