#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use super::*;

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
    SegmentFacts {
        owner: Arc::new(owner(region)),
        len: 100,
        digest: 0,
        created: id(created),
        last_used: id(created),
        leases: BTreeSet::new(),
    }
}

fn closed_file(segments: Vec<SegmentFacts>) -> FileFacts {
    let numbered = segments.into_iter().enumerate();
    FileFacts {
        open: false,
        only_for: None,
        physical_bytes: 1000,
        durable_bytes: 1000,
        used: true,
        deleting: false,
        segments: numbered.map(|(i, s)| (i as u64 * 100, s)).collect(),
    }
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
                    order.iter().for_each(|i| view.merge(&messages[*i]));
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
    view.restore(id(5), Fallbacks::from([(owner("b"), id(2))]));
    assert_eq!(view.decided(), Some(id(7)));
    assert!(is_live(&view, &segment("a", 5)) && is_live(&view, &segment("b", 2)));
    view.merge(&retained(8, &[(8, &[])]));
    assert!(!is_live(&view, &segment("a", 5)));
}

/// The example of the design notes: regions A = {S1, S2} and B = {S3}, one file per checkpoint, one
/// checkpoint retained. 2: B falls back to 1; 3: A falls back to 2; 4: aborted; 5: global.
#[test]
fn the_worked_example_keeps_exactly_what_is_needed() {
    let mut files = BTreeMap::new();
    let mut view = View::default();
    let mut step = |view: &mut View, number: u32, message: Retained| -> Vec<String> {
        let write = |s: &str| segment(s, u64::from(number));
        files.insert(
            file(number),
            closed_file(["S1", "S2", "S3"].map(write).to_vec()),
        );
        view.merge(&message);
        let facts = Facts {
            view,
            files: &files,
            max_space_amplification: 0.0,
        };
        let actions = decide(&facts);
        for (file, offset, verdict) in actions.segments {
            assert_eq!(verdict, Verdict::Dead);
            files.get_mut(&file).unwrap().segments.remove(&offset);
        }
        actions
            .delete
            .iter()
            .for_each(|file| assert!(files.remove(file).is_some()));
        files
            .iter()
            .flat_map(|(id, f)| {
                f.segments
                    .values()
                    .map(move |s| format!("{}:P{}", s.owner.region, id.seq))
            })
            .collect()
    };
    assert_eq!(
        step(&mut view, 1, retained(1, &[(1, &[])])),
        ["S1:P1", "S2:P1", "S3:P1"]
    );
    let two = retained(2, &[(2, &[("S3", 1)])]);
    assert_eq!(step(&mut view, 2, two), ["S3:P1", "S1:P2", "S2:P2"]);
    let three = retained(3, &[(3, &[("S1", 2), ("S2", 2)])]);
    assert_eq!(
        step(&mut view, 3, three.clone()),
        ["S1:P2", "S2:P2", "S3:P3"]
    );
    let four = Retained {
        decided: id(4),
        ..three
    };
    assert_eq!(step(&mut view, 4, four), ["S1:P2", "S2:P2", "S3:P3"]);
    assert_eq!(
        step(&mut view, 5, retained(5, &[(5, &[])])),
        ["S1:P5", "S2:P5", "S3:P5"]
    );
}

#[test]
fn files_are_deleted_only_when_closed_and_without_live_segments() {
    let dead = || vec![segment("a", 1), segment("b", 2)];
    let mut open = closed_file(dead());
    open.open = true;
    let mut unused = closed_file(Vec::new());
    (unused.open, unused.used) = (true, false);
    let mut going = closed_file(Vec::new());
    going.deleting = true;
    let mut ended = closed_file(vec![segment("a", 3)]);
    (ended.open, ended.only_for) = (true, Some(id(3)));
    let half = closed_file(vec![segment("a", 1), segment("a", 3)]);
    let list = [closed_file(dead()), open, unused, going, ended, half];
    let files: BTreeMap<_, _> = (1..).map(file).zip(list).collect();
    let view = view(3, &[(3, &[])]);
    let actions = decide(&Facts {
        view: &view,
        files: &files,
        max_space_amplification: 0.0,
    });
    assert_eq!(actions.delete, [file(1)]);
    assert_eq!(actions.abandon, [file(2)]);
    assert_eq!(actions.seal, [file(5)]);
    assert_eq!(actions.segments.len(), 5);
}

#[test]
fn the_most_wasteful_files_stop_being_reused_until_the_bound_holds() {
    let live = |n: u64| (0..n).map(|_| segment("a", 3)).collect::<Vec<_>>();
    // Four equal files of 10 % use, one of 90 %: 1300 live bytes in 5000.
    let list = [live(1), live(1), live(1), live(1), live(9)];
    let files: BTreeMap<_, _> = (1..).map(file).zip(list.map(closed_file)).collect();
    let view = view(3, &[(3, &[])]);
    let wasteful = |max| {
        let facts = Facts {
            view: &view,
            files: &files,
            max_space_amplification: max,
        };
        decide(&facts)
            .wasteful
            .into_iter()
            .map(|f| f.seq)
            .collect::<Vec<_>>()
    };
    assert_eq!(
        wasteful(2.0),
        [1, 2, 3],
        "files of equal waste are told apart"
    );
    assert_eq!(wasteful(3.5), [1]);
    assert_eq!(wasteful(5.0), Vec::<u32>::new());
    assert_eq!(
        wasteful(0.5),
        Vec::<u32>::new(),
        "below 1 there is no bound"
    );
}

#[test]
fn files_pinned_by_owners_that_fell_back_are_not_blamed() {
    let files = BTreeMap::from([
        (file(1), closed_file(vec![segment("b", 2)])),
        (
            file(2),
            closed_file((0..9).map(|_| segment("a", 5)).collect()),
        ),
    ]);
    let view = view(5, &[(5, &[("b", 2)])]);
    let actions = decide(&Facts {
        view: &view,
        files: &files,
        max_space_amplification: 1.2,
    });
    assert_eq!(actions.pinned, BTreeSet::from([file(1)]));
    assert!(actions.wasteful.is_empty());
}
