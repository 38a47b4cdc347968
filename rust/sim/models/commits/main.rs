//! A model of commits of a checkpoint that two applications use, which docs/internals/commits.md
//! describes: executors append and seal, drivers make durable, publish and reclaim, and an executor that was
//! taken for gone continues. Stateright visits every history within the bounds of a [`Model`].
//!
//! The steps of the model represent these parts of the product:
//!
//! | step | part |
//! |---|---|
//! | `StartQuery` | Spark reads the newest entry; `Terms::starting` |
//! | `Look`, `Mark`, `Join` | `StoreManagers::acquire` asks, `Terms::forRun` takes the steps of `terms::next_step` |
//! | `BeginTask`, `Commit` | `StateStore::open`, `StateStore::commit`, which appends to the manager's file |
//! | `Report` | Spark takes the result of a task, with the id |
//! | `Seal` | `SnapshotManager::seal` |
//! | `MakeDurable` | `Durability::makeDurable`: `StoreManagers::sync`, or `adopt_file` for a writer that is gone |
//! | `Check` | `Terms::requireNewest`, and in the first batch of a run `CommitLog.requireNext` |
//! | `Publish` | `CommitEntry` closes `commits/N`, which must not be there |
//! | `Purge` | Spark deletes entries of its log |
//! | `ReadFloor` | `Reclaimer::run` reads the oldest entry; `Floors::add_version` |
//! | `Judge`, `Delete` | `reclaim`: `sort_out`; `Storage::delete_all` |
//! | `Lose` | `Terms::forgetExecutor`, and the executor continues |
//! | `CrashDriver`, `CrashExecutor` | the application ends, and its executors continue; a machine stops |
//!
//! The model has one store, no storage that fails, no log of plans, and no delta runs.
#![allow(clippy::indexing_slicing)]

mod driver;
#[path = "../harness.rs"]
mod harness;
mod model;
mod steps;
mod storage;

use harness::{assert_that_every_history_keeps_the_invariants, assert_that_some_history_breaks};
use model::{FENCED_IS_OVER, LIVE_STAYS, Model, Mutant, NO_COMMIT_LOST, READABLE, SURVIVES};

/// Two applications, each of which has one executor and may clean up once.
const BESIDE: Model = Model {
    applications: 2,
    starts: 3,
    executors: 3,
    at_once: 1,
    disturbances: 0,
    passes: 1,
    stands_still: false,
    objects: false,
    mutant: None,
};

/// An application whose driver and executors are disturbed.
const DISTURBED: Model = Model {
    applications: 1,
    disturbances: 2,
    ..BESIDE
};

/// The partition may move between two executors.
const MOVING: Model = Model {
    applications: 1,
    at_once: 2,
    ..BESIDE
};

const MOVING_BESIDE: Model = Model {
    at_once: 2,
    ..BESIDE
};

/// An application that another one has overtaken loses its executor and gets another. No clean-up runs.
const OVERTAKEN: Model = Model {
    disturbances: 1,
    passes: 0,
    ..BESIDE
};

/// On an object store, with two executors of which one is killed, or continues without its driver.
const COPIED: Model = Model {
    applications: 1,
    at_once: 2,
    disturbances: 1,
    objects: true,
    ..BESIDE
};

const COPIED_BESIDE: Model = Model {
    applications: 2,
    starts: 2,
    ..COPIED
};

#[test]
fn a_driver_that_was_overtaken_and_gets_another_executor() {
    assert_that_every_history_keeps_the_invariants(OVERTAKEN);
}

#[test]
fn two_drivers_beside_each_other() {
    assert_that_every_history_keeps_the_invariants(BESIDE);
}

#[test]
fn executors_that_stop_and_that_go_on_without_their_driver() {
    assert_that_every_history_keeps_the_invariants(DISTURBED);
}

#[test]
fn a_partition_that_moves_between_executors() {
    assert_that_every_history_keeps_the_invariants(MOVING);
}

#[test]
fn executors_that_stop_before_their_objects_are_finished() {
    assert_that_every_history_keeps_the_invariants(COPIED);
}

#[test]
#[ignore = "minutes: `make models`"]
fn copies_of_two_applications() {
    assert_that_every_history_keeps_the_invariants(COPIED_BESIDE);
}

#[test]
#[ignore = "minutes: `make models`"]
fn two_drivers_of_which_one_is_disturbed() {
    assert_that_every_history_keeps_the_invariants(Model {
        disturbances: 1,
        ..BESIDE
    });
}

#[test]
#[ignore = "minutes: `make models`"]
fn a_partition_that_moves_beside_another_application() {
    assert_that_every_history_keeps_the_invariants(MOVING_BESIDE);
}

/// Each mutant, a model that suffers from it, and the invariant that it breaks.
const MUTANTS: [(Mutant, Model, &str); 16] = [
    (Mutant::SyncsNothing, DISTURBED, READABLE),
    (Mutant::TrustsTheLost, DISTURBED, READABLE),
    (Mutant::ReportsWithoutCopy, COPIED, SURVIVES),
    (Mutant::KeepsCopyAtHome, COPIED, SURVIVES),
    (Mutant::DropsCopiesEarly, COPIED, SURVIVES),
    (Mutant::TakesAnyCopies, COPIED, READABLE),
    (Mutant::ChecksNoTerms, BESIDE, FENCED_IS_OVER),
    (Mutant::LooksAtNoLog, BESIDE, LIVE_STAYS),
    (Mutant::HidesBehindNewest, OVERTAKEN, FENCED_IS_OVER),
    (Mutant::PublishReplaces, BESIDE, NO_COMMIT_LOST),
    (Mutant::TermsIgnoreFolder, BESIDE, FENCED_IS_OVER),
    (Mutant::MarksNothing, BESIDE, FENCED_IS_OVER),
    (Mutant::ReclaimsForeignFiles, MOVING_BESIDE, READABLE),
    (Mutant::ReclaimsOpenFiles, MOVING, READABLE),
    (Mutant::FloorOfNewest, DISTURBED, LIVE_STAYS),
    (Mutant::OneDeadSegmentIsEnough, DISTURBED, LIVE_STAYS),
];

#[test]
fn every_mutant_breaks_an_invariant() {
    for (mutant, model, invariant) in MUTANTS {
        let mutant = Some(mutant);
        assert_that_some_history_breaks(Model { mutant, ..model }, invariant);
    }
}

/// Only the number of retained batches keeps a driver from this.
#[test]
fn a_driver_that_stands_still_for_too_long_publishes_in_the_past() {
    let model = Model {
        stands_still: true,
        ..BESIDE
    };
    assert_that_some_history_breaks(model, FENCED_IS_OVER);
}
