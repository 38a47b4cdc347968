//! A model of moves between state store providers, which docs/internals/moves.md describes: commands that
//! publish a batch without input, drivers that run at the same time, and a crash at each step. Stateright
//! visits every history within the bounds of a [`Model`].
//!
//! Each step of a command and of a driver is one request that reads or writes; a listing is one step. The
//! steps and their phases represent these parts of the product:
//!
//! | step | part |
//! |---|---|
//! | `StartCommand` | `plan_adoption`, `plan_leave`, `plan_undo` of `moves.py`, with `Logs.require_next`; `purgeable` |
//! | `CommandStep`: `Write` | `StateCopy::run`; for a move back `MadeFiles::move`, from `StateCopy::beforeCommit` |
//! | `Plan`, `LookAgain` | `Move::plan` creates `offsets/N`, and lists the log again |
//! | `Commit` | `Move::commit` creates `commits/N` |
//! | `Purge` | `OldFiles::purge` |
//! | `StartDriver` | Spark reads the logs; `CheckpointGuard::refuseForeignCheckpoint` |
//! | `DriverStep` | Spark plans a batch, runs it on the provider of its plan, and commits it |
//! | `CrashDriver`, `CrashCommand` | the process ends |
//!
//! Only a mutant has `DeleteCommit` and `DeletePlan`. A version of the old provider is written in one step.
//! The model has no second driver next to the first, and no storage that fails.
#![allow(clippy::indexing_slicing)]

mod checkpoint;
mod command;
mod driver;
#[path = "../harness.rs"]
mod harness;
mod model;
mod steps;

use command::Kind;
use harness::{assert_that_every_history_keeps_the_invariants, assert_that_some_history_breaks};
use model::{
    GOES_ON, LOG_WHOLE, Model, Mutant, NO_ROW_LOST, NO_ROW_TWICE, SAYS_TRUTH, STATE_RIGHT,
};

fn model(commands: &'static [Kind], starts: u8) -> Model {
    Model {
        commands,
        starts,
        crashes: 2,
        mutant: None,
    }
}

#[test]
fn a_checkpoint_is_adopted_and_the_adoption_undone_at_any_time() {
    assert_that_every_history_keeps_the_invariants(model(&[Kind::Adopt, Kind::Undo], 4));
}

#[test]
fn a_checkpoint_leaves_again_at_any_time() {
    assert_that_every_history_keeps_the_invariants(model(&[Kind::Adopt, Kind::Leave], 4));
}

#[test]
fn old_files_are_purged_beside_all_commands() {
    let commands = &[Kind::Adopt, Kind::Undo, Kind::Leave, Kind::Purge];
    assert_that_every_history_keeps_the_invariants(model(commands, 3));
}

#[test]
#[ignore = "minutes: `make models`"]
fn a_checkpoint_is_adopted_undone_and_leaves_with_more_starts() {
    let commands = &[Kind::Adopt, Kind::Undo, Kind::Leave];
    assert_that_every_history_keeps_the_invariants(model(commands, 5));
}

/// Each mutant, commands that suffer from it, and the invariant that it breaks.
const MUTANTS: [(Mutant, &[Kind], &str); 14] = [
    (Mutant::PlanReplaces, &[Kind::Adopt], NO_ROW_TWICE),
    (Mutant::PlanTakesRows, &[Kind::Adopt], STATE_RIGHT),
    (Mutant::NoPlan, &[Kind::Adopt], LOG_WHOLE),
    (Mutant::CommitsFirst, &[Kind::Adopt], LOG_WHOLE),
    (Mutant::CommitsHalf, &[Kind::Adopt], STATE_RIGHT),
    (Mutant::TakesPlanned, &[Kind::Adopt], NO_ROW_LOST),
    (Mutant::RefusesPending, &[Kind::Adopt], GOES_ON),
    (Mutant::DoesNotLookAgain, &[Kind::Adopt], SAYS_TRUTH),
    (Mutant::DriverTakesPending, &[Kind::Adopt], STATE_RIGHT),
    (Mutant::UndoDeletes, &[Kind::Adopt, Kind::Undo], NO_ROW_LOST),
    (Mutant::UndoesRows, &[Kind::Adopt, Kind::Undo], STATE_RIGHT),
    (
        Mutant::WritesBeforePlan,
        &[Kind::Adopt, Kind::Leave],
        STATE_RIGHT,
    ),
    (
        Mutant::PurgesBeforeRows,
        &[Kind::Adopt, Kind::Undo, Kind::Purge],
        STATE_RIGHT,
    ),
    (
        Mutant::PurgesAll,
        &[Kind::Adopt, Kind::Leave, Kind::Purge],
        STATE_RIGHT,
    ),
];

#[test]
fn every_mutant_breaks_an_invariant() {
    for (mutant, commands, invariant) in MUTANTS {
        let model = Model {
            mutant: Some(mutant),
            ..model(commands, 4)
        };
        assert_that_some_history_breaks(model, invariant);
    }
}
