#![allow(clippy::unwrap_used, clippy::indexing_slicing)]
use super::*;
use crate::ids::{FileId, SegmentRef, Term};
use crate::state::{CommitId, DeltaRuns, Pending};

const NONE: DeltaMarks = DeltaMarks::NONE;

#[test]
fn a_store_that_rests_does_not_hold_up_the_others_of_its_partition() {
    let [busy, idle, untold] =
        ["left", "right", "none"].map(|store| Owner::new("", "0", "7", store));
    let mut floors = Floors::default();
    floors.add(busy.tag(), CheckpointId(8), NONE);
    floors.add(idle.tag(), CheckpointId(1), NONE);
    assert_eq!(floors.of(&busy), Some(CheckpointId(8)));
    assert_eq!(floors.of(&idle), Some(CheckpointId(1)));
    assert_eq!(floors.of(&untold), None);
}

#[test]
fn a_partition_that_its_operator_has_no_more_is_needed_only_if_it_comes_back() {
    let [kept, gone, of_another] = [("0", "6"), ("0", "7"), ("1", "7")]
        .map(|(operator, partition)| Owner::new("", operator, partition, "left"));
    let state = CommitId {
        version: 20,
        floor: CheckpointId(20),
        deltas: NONE,
        owner: kept.tag(),
        segment: None,
        replaced: None,
    };
    let mut floors = Floors::default();
    floors.add_version("0/6", &state.into());
    assert!(!floors.is_needed(&gone, CheckpointId(20), CheckpointId(20)));
    assert!(floors.is_needed(&gone, CheckpointId(21), CheckpointId(21)));
    assert!(floors.is_needed(&of_another, CheckpointId(1), CheckpointId(1)));
    let untold = Owner::new("", "0", "6", "right");
    assert!(floors.is_needed(&untold, CheckpointId(1), CheckpointId(1)));
}

#[test]
fn what_runs_stand_for_is_not_needed_and_the_runs_are() {
    let [merged, plain] = ["left", "right"].map(|store| Owner::new("", "0", "7", store));
    let deltas = DeltaRuns::of([40, 60].map(CheckpointId)).unwrap();
    let deltas = deltas.marks(CheckpointId(10));
    let mut floors = Floors::default();
    floors.add(merged.tag(), CheckpointId(10), deltas);
    floors.add(plain.tag(), CheckpointId(10), NONE);
    let is_over =
        |created, kind| floors.decides(&merged, CheckpointId(created), kind) == Some(false);
    let runs: Vec<u64> = (0..100)
        .filter(|created| !is_over(*created, ListedKind::Run))
        .collect();
    // And what later versions may have.
    let of_version: Vec<u64> = (60..100).chain([10, 40]).collect();
    assert!(of_version.iter().all(|run| runs.contains(run)), "{runs:?}");
    let of_none = runs.len() - of_version.len();
    assert!(of_none <= 60 / 8, "{of_none} have the mark of another");
    let first_changelog = (0..100).find(|created| !is_over(*created, ListedKind::Other));
    assert_eq!(first_changelog, Some(60));
    let of_changelog =
        |floors: &Floors, owner| floors.decides(owner, CheckpointId(30), ListedKind::Other);
    assert_eq!(of_changelog(&floors, &plain), None);

    // Two versions of one store.
    floors.add(merged.tag(), CheckpointId(10), NONE);
    assert_eq!(of_changelog(&floors, &merged), None);
}

#[test]
fn pending_input_is_needed_from_the_oldest_that_the_oldest_version_waits_for() {
    let owner = Owner::new("", "0", "7", "left");
    let file = FileId {
        term: Term(1),
        seq: 1,
    };
    let segment = SegmentRef {
        file,
        offset: 0,
        len: 9,
        digest: 0,
    };
    let state = CommitId {
        version: 20,
        floor: CheckpointId(10),
        deltas: NONE,
        owner: owner.tag(),
        segment: Some(segment),
        replaced: None,
    };
    let input = |version| Pending { version, segment };
    // Input that keys wait for may be older than the content.
    for (pending, oldest) in [(vec![], 21), (vec![input(9), input(20)], 9)] {
        let mut floors = Floors::default();
        let decided =
            |floors: &Floors, created, kind| floors.decides(&owner, CheckpointId(created), kind);
        floors.add(state.owner, state.floor, state.deltas);
        assert_eq!(decided(&floors, 1, ListedKind::PendingInput), None);
        floors.add_version("0/7", &VersionId { state, pending });
        for created in 0..100 {
            let of_input = decided(&floors, created, ListedKind::PendingInput);
            assert_eq!(of_input, Some(created >= oldest), "{created}");
        }
        assert_eq!(decided(&floors, 1, ListedKind::Other), None);
    }
}
