//! A model of partition isolation, which docs/internals/isolation.md describes: the order in which a batch
//! reaches store, sink and commit log, and what a re-run after a crash makes of it. All decisions are those
//! of the product: the driver of the model asks `holdfast_core::isolation::Run`. The model has Spark's
//! scheduler, tasks, storage and outputs. Stateright visits every history within the bounds of a [`Model`].
//!
//! The steps of the model represent these parts of the product:
//!
//! | step | part |
//! |---|---|
//! | `Start`, the end of `Commit` | the driver plans a batch: `Guard`, then `Fact::Begin` |
//! | `Launch`, `LaunchTwin`, `ReplaceStageAttempt` | Spark's scheduler |
//! | `Compute` | a task begins: `GuardRDD::compute`, which asks with `Fact::Asks` |
//! | `Settle` | a task is through with a partition: `Fact::Settles`, then `Action::Write` |
//! | `Kill` | `Action::Kill`, or Spark for reasons of its own |
//! | `Fail`, `LoseExecutor` | Spark's scheduler, then `Fact::Ended`, which may open the marker |
//! | `Report` | a task succeeds after the passes of `GuardRDD` or `ParkTask::park`, then `Fact::Ended` |
//! | `Seal` | the sink that `IsolateFailures` makes, before it commits: `Fact::Seal` |
//! | `WriteSink` | the sink commits the output of one job |
//! | `Commit` | Spark writes `commits/N` |
//! | `Crash`, `FixAndRestart` | the driver ends; a query that failed is started with fixed code |
//!
//! Mutants sit between the machine and this world: one loses a marker, one changes an answer. Only
//! a mutant has `MarkLate`. The model has no driver that continues next to its successor, no jobs
//! of one batch at once, no storage that fails, and no limit on the number of pending batches.
#![allow(clippy::indexing_slicing, clippy::unwrap_used)]

mod driver;
#[path = "../harness.rs"]
mod harness;
mod model;
mod steps;
mod store;
mod tasks;

use harness::{assert_that_every_history_keeps_the_invariants, assert_that_some_history_breaks};
use model::{
    COMPLETES, FEW_PARKED, GOES_ON, Model, Mutant, NO_ROW_LOST, NO_ROW_TWICE, ONE_PLACE,
    SAME_STATE, Sink,
};
use tasks::{ALL, NONE};

fn model(sink: Sink) -> Model {
    Model {
        sink,
        poison: [NONE, ALL],
        divides: false,
        batches: 3,
        // Two jobs have many more histories.
        crashes: if sink == Sink::Transactional { 2 } else { 1 },
        disturbances: 1,
        mutant: None,
    }
}

/// An operator that treats keys independently. The first batch parked some.
fn by_parts(sink: Sink) -> Model {
    Model {
        divides: true,
        batches: if sink == Sink::Transactional { 4 } else { 3 },
        crashes: 1,
        ..model(sink)
    }
}

#[test]
fn a_transactional_sink_gets_each_row_once() {
    assert_that_every_history_keeps_the_invariants(model(Sink::Transactional));
}

#[test]
fn outputs_that_ignore_a_second_write_get_each_row_once() {
    assert_that_every_history_keeps_the_invariants(model(Sink::Idempotent));
}

#[test]
fn other_outputs_get_each_row() {
    assert_that_every_history_keeps_the_invariants(model(Sink::AtLeastOnce));
}

#[test]
fn one_of_two_partitions_that_fail_is_parked() {
    assert_that_every_history_keeps_the_invariants(Model {
        poison: [ALL, ALL],
        crashes: 1,
        disturbances: 0,
        ..model(Sink::Transactional)
    });
}

#[test]
fn a_transactional_sink_gets_each_row_once_while_a_part_of_the_keys_waits() {
    assert_that_every_history_keeps_the_invariants(by_parts(Sink::Transactional));
}

#[test]
fn outputs_that_ignore_a_second_write_get_each_row_once_while_a_part_waits() {
    assert_that_every_history_keeps_the_invariants(by_parts(Sink::Idempotent));
}

#[test]
#[ignore = "minutes: `make models`"]
fn two_crashes_or_another_batch() {
    let by_two_crashes = |model| Model {
        crashes: 2,
        ..model
    };
    for model in [
        by_two_crashes(model(Sink::Idempotent)),
        by_two_crashes(model(Sink::AtLeastOnce)),
        by_two_crashes(by_parts(Sink::Transactional)),
        Model {
            batches: 4,
            ..by_parts(Sink::Idempotent)
        },
    ] {
        assert_that_every_history_keeps_the_invariants(model);
    }
}

/// Each mutant, a sink that suffers from it, and the invariant that it breaks.
const MUTANTS: [(Mutant, Sink, &str); 25] = [
    (Mutant::NoMarker, Sink::Idempotent, NO_ROW_LOST),
    (Mutant::MarkerAfterSink, Sink::Idempotent, NO_ROW_LOST),
    (Mutant::SealAfterSink, Sink::Transactional, NO_ROW_TWICE),
    (Mutant::SettlesAtAnswer, Sink::Idempotent, GOES_ON),
    (Mutant::RerunParks, Sink::Idempotent, NO_ROW_TWICE),
    (Mutant::RerunMarksFailure, Sink::Transactional, NO_ROW_TWICE),
    (Mutant::ForgetsPark, Sink::Idempotent, NO_ROW_TWICE),
    (Mutant::ForgetsDelivery, Sink::Idempotent, NO_ROW_LOST),
    (Mutant::LaterJobAsksNobody, Sink::Idempotent, NO_ROW_TWICE),
    (Mutant::CountsAttemptNumber, Sink::Transactional, GOES_ON),
    (Mutant::ParksBesideOthers, Sink::Idempotent, NO_ROW_TWICE),
    (Mutant::WaitsForAskers, Sink::Transactional, COMPLETES),
    (Mutant::ParksAll, Sink::Transactional, FEW_PARKED),
    (Mutant::TakesInfoOfZombie, Sink::Transactional, NO_ROW_LOST),
    (Mutant::PassesReversed, Sink::Transactional, SAME_STATE),
    (
        Mutant::SkipsBatchWithoutRows,
        Sink::Transactional,
        SAME_STATE,
    ),
    (
        Mutant::InputNamedByPartition,
        Sink::Transactional,
        ONE_PLACE,
    ),
    (Mutant::InputStaysPending, Sink::Transactional, NO_ROW_TWICE),
    (Mutant::NewRowsOvertake, Sink::Transactional, SAME_STATE),
    (Mutant::PartIsNotKept, Sink::Transactional, ONE_PLACE),
    (Mutant::PartKeepsAll, Sink::Transactional, ONE_PLACE),
    (Mutant::DividesBesideOthers, Sink::Idempotent, NO_ROW_LOST),
    (Mutant::MarkerLacksPart, Sink::Idempotent, NO_ROW_TWICE),
    (Mutant::ForgetsPart, Sink::Idempotent, NO_ROW_TWICE),
    (Mutant::NewKeyIsNoSuspect, Sink::Transactional, GOES_ON),
];

#[test]
fn every_mutant_breaks_an_invariant() {
    for (mutant, sink, invariant) in MUTANTS {
        let model = Model {
            mutant: Some(mutant),
            poison: if mutant == Mutant::ParksAll {
                [ALL, ALL]
            } else {
                [NONE, ALL]
            },
            ..if mutant >= Mutant::NewRowsOvertake {
                by_parts(sink)
            } else {
                model(sink)
            }
        };
        assert_that_some_history_breaks(model, invariant);
    }
}
