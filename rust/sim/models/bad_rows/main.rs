//! A model of bad rows, which docs/internals/bad-rows.md describes: the order in which rows that are set
//! aside reach marker, sink, commit log and dead letters, and what a re-run after a crash makes of it.
//! All decisions are those of the product: the driver of the model asks `holdfast_core::bad_rows::Run`.
//! Stateright visits every history within the bounds of a [`Model`].
//!
//! The steps of the model represent these parts of the product:
//!
//! | step | part |
//! |---|---|
//! | `Start`, the end of `Commit` | the driver plans a batch, records the program, then `Fact::Begin` |
//! | `Launch`, `LaunchTwin` | Spark's scheduler |
//! | `Compute` | a task begins: `RowGuardRDD`, which asks with `Fact::Asks` and tries rows apart |
//! | `Settle` | a task has read its partition: `Fact::Settles`, then `Action::Write` |
//! | `Kill` | `Action::Kill`, or Spark for reasons of its own |
//! | `Fail`, `Report` | a task fails or succeeds: `Fact::Ended` |
//! | `WriteSink`, `Commit` | the sink commits the output of one job; Spark writes `commits/N` |
//! | `Publish` | the driver writes the dead letters of a committed batch: `Action::Publish` |
//! | `Crash` | the driver ends |
//!
//! Each row throws in all attempts with one program or in none, unless the model has *moods*. Mutants sit
//! between the machine and this world. The model has no driver that continues next to its successor, and
//! no storage that fails.
#![allow(clippy::indexing_slicing, clippy::unwrap_used)]

mod driver;
#[path = "../harness.rs"]
mod harness;
mod model;
mod steps;

use harness::{assert_that_every_history_keeps_the_invariants, assert_that_some_history_breaks};
use model::{GOES_ON, Model, Mutant, NO_ROW_LOST, NO_ROW_TWICE, NOTHING_STAYS};

const MODEL: Model = Model {
    batches: 2,
    rows_max: 9,
    moods: false,
    crashes: 1,
    disturbances: 1,
    changes: 1,
    mutant: None,
};

/// An attempt may pass although another one fails. Then no run may depend on an earlier one.
const MOODY: Model = Model {
    batches: 1,
    moods: true,
    crashes: 0,
    changes: 0,
    ..MODEL
};

/// A user tries another program, and goes back.
const BACK: Model = Model {
    crashes: 2,
    disturbances: 0,
    changes: 2,
    ..MODEL
};

/// More rows are bad than may be.
const TOO_MANY: Model = Model {
    rows_max: 1,
    disturbances: 0,
    ..MODEL
};

#[test]
fn each_row_is_in_the_output_or_in_the_dead_letters() {
    assert_that_every_history_keeps_the_invariants(MODEL);
    assert_that_every_history_keeps_the_invariants(BACK);
}

#[test]
fn attempts_that_disagree_put_no_row_into_both() {
    assert_that_every_history_keeps_the_invariants(MOODY);
}

#[test]
fn a_batch_with_too_many_bad_rows_leaves_no_marker() {
    assert_that_every_history_keeps_the_invariants(TOO_MANY);
}

#[test]
#[ignore = "minutes: `make models`"]
fn more_crashes_and_programs() {
    assert_that_every_history_keeps_the_invariants(Model {
        crashes: 2,
        changes: 2,
        ..MODEL
    });
    assert_that_every_history_keeps_the_invariants(Model {
        disturbances: 2,
        ..MOODY
    });
}

/// Each mutant, a model that suffers from it, and the invariant that it breaks.
const MUTANTS: [(Mutant, Model, &str); 12] = [
    (Mutant::NoMarker, MODEL, NO_ROW_LOST),
    (Mutant::ForgetsMarker, MODEL, NO_ROW_LOST),
    (Mutant::SettlesNothing, MODEL, NO_ROW_LOST),
    (Mutant::ForgetsLetters, MODEL, NO_ROW_LOST),
    (Mutant::RepeatsLetters, MODEL, NO_ROW_TWICE),
    (Mutant::EveryProgramIsTheSame, MODEL, NO_ROW_TWICE),
    (Mutant::ProgramIsRecordedLate, BACK, NO_ROW_TWICE),
    (Mutant::SecondProgramIsNotRecorded, BACK, NO_ROW_TWICE),
    (Mutant::SettlesBesideOthers, MOODY, NO_ROW_TWICE),
    (Mutant::ForgetsDelivery, MOODY, NO_ROW_TWICE),
    (Mutant::LaterJobAsksNobody, MOODY, NO_ROW_TWICE),
    (Mutant::MarkerStays, TOO_MANY, NOTHING_STAYS),
];

#[test]
fn every_mutant_breaks_an_invariant() {
    for (mutant, model, invariant) in MUTANTS {
        let mutant = Some(mutant);
        assert_that_some_history_breaks(Model { mutant, ..model }, invariant);
    }
}

#[test]
fn a_search_that_never_begins_ends_the_query() {
    let mutant = Some(Mutant::NeverSearches);
    assert_that_some_history_breaks(Model { mutant, ..MODEL }, GOES_ON);
}
