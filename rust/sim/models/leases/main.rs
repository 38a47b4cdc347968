//! A model of leases: tags and branches of a checkpoint, beside its drivers and their clean-ups.
//! Stateright visits every history within the bounds of a [`Model`].
//!
//! Each step is one request that reads or writes. A command or a clean-up that is killed takes no
//! further step. The steps represent these parts of the product:
//!
//! | step | part |
//! |---|---|
//! | `Commit`, `TakeOver` | a driver commits a batch, another driver takes over |
//! | `PurgeEntries`, `PurgeSmallFiles` | Spark deletes old entries of the commit log, and its other files of old batches |
//! | `Command` of a `Make` | a command asks `leases::next_step`, and takes the step: `Take` may come late |
//! | `Command` of a `Delete` | a command deletes a lease |
//! | `Command` of a `Detach` | a command copies files into a branch, and ends its lease |
//! | `Pass` that `Reads` | `Reclaimer::run` reads the oldest entry; `read_leases`, of which each request is a step |
//! | `Pass` that `Deletes` | `reclaim`: `Leased`, `Needed` and `sort_out` judged before; `Storage::delete_all` |
//!
//! Reads of a branch go through `BranchStorage`. A branch that was not published may be deleted. The
//! model has one store, no delta runs, no parked versions, no records that are damaged later, and no
//! storage that fails. Nobody deletes a branch while a command makes it.
#![allow(clippy::indexing_slicing)]

mod checkpoint;
mod cleanup;
mod command;
mod folder;
#[path = "../harness.rs"]
mod harness;
mod make;
mod model;
mod steps;

use checkpoint::{BRANCH, PARENT};
use command::Plan;
use harness::{assert_that_every_history_keeps_the_invariants, assert_that_some_history_breaks};
use model::{BRANCH_HELD, Model, Mutant, NOTHING_STAYS, READABLE, SAYS_TRUTH, TAGS_WHOLE};

const TAG_2: Plan = Plan::Tag {
    at: PARENT,
    batch: 2,
};
const TAG_3: Plan = Plan::Tag {
    at: PARENT,
    batch: 3,
};
const UNTAG: Plan = Plan::Untag { at: PARENT };
const TAG_OF_BRANCH: Plan = Plan::Tag {
    at: BRANCH,
    batch: 2,
};
const BRANCH_2: Plan = Plan::Branch { batch: 2 };
const BRANCH_3: Plan = Plan::Branch { batch: 3 };

/// A tag, its deletion, and another attempt to make it.
const TAGS: Model = Model {
    before: &[],
    commands: &[TAG_2, TAG_2, UNTAG],
    passes: &[PARENT],
    batches: [3, 0],
    drivers: 0,
    stands_still: false,
    mutant: None,
};

const TAG: Model = Model {
    commands: &[TAG_2],
    ..TAGS
};

const TWO_TAGS: Model = Model {
    commands: &[TAG_2, TAG_2],
    ..TAGS
};

/// A tag is deleted while it is made again.
const UNTAGGED: Model = Model {
    before: &[TAG_2],
    commands: &[TAG_2, UNTAG],
    ..TAGS
};

/// The name of a tag is used again for another batch.
const RENEWED: Model = Model {
    commands: &[TAG_2, UNTAG, TAG_3],
    ..TAGS
};

/// Another driver takes over, and the clean-up of the first one goes on.
const TWO_DRIVERS: Model = Model {
    before: &[TAG_2],
    commands: &[UNTAG],
    passes: &[PARENT, PARENT],
    drivers: 1,
    ..TAGS
};

/// A branch begins with a tag, which is deleted and made again for another batch.
const OF_TAG: Model = Model {
    before: &[TAG_2],
    commands: &[Plan::BranchOfTag, UNTAG, TAG_3],
    ..TAGS
};

const BRANCHES: Model = Model {
    commands: &[BRANCH_2, BRANCH_2],
    passes: &[PARENT, BRANCH],
    batches: [3, 3],
    ..TAGS
};

/// Two commands want a branch of other batches.
const TWO_BATCHES: Model = Model {
    commands: &[BRANCH_2, BRANCH_3],
    drivers: 1,
    ..BRANCHES
};

/// A command that makes the branch still runs when another one detaches it.
const DETACHED: Model = Model {
    before: &[BRANCH_2],
    commands: &[BRANCH_2, Plan::Detach],
    ..BRANCHES
};

/// The branch has a tag.
const TAG_DETACHED: Model = Model {
    before: &[BRANCH_2],
    commands: &[TAG_OF_BRANCH, Plan::Detach],
    passes: &[PARENT],
    ..BRANCHES
};

#[test]
fn tags_are_made_twice_and_deleted() {
    assert_that_every_history_keeps_the_invariants(TAGS);
}

#[test]
fn a_name_is_used_again_for_another_batch() {
    assert_that_every_history_keeps_the_invariants(RENEWED);
}

#[test]
fn clean_ups_of_two_drivers() {
    assert_that_every_history_keeps_the_invariants(TWO_DRIVERS);
}

#[test]
fn a_branch_begins_with_a_tag_that_goes() {
    assert_that_every_history_keeps_the_invariants(OF_TAG);
}

#[test]
fn a_branch_is_made_twice() {
    assert_that_every_history_keeps_the_invariants(BRANCHES);
}

#[test]
fn two_commands_make_a_branch_of_other_batches() {
    assert_that_every_history_keeps_the_invariants(TWO_BATCHES);
}

#[test]
fn a_branch_is_detached_while_it_is_made_again() {
    assert_that_every_history_keeps_the_invariants(DETACHED);
}

#[test]
fn a_branch_with_a_tag_is_detached() {
    assert_that_every_history_keeps_the_invariants(TAG_DETACHED);
}

#[test]
#[ignore = "minutes: `make models`"]
fn a_branch_begins_with_a_tag_while_both_are_made() {
    assert_that_every_history_keeps_the_invariants(Model {
        before: &[],
        commands: &[TAG_2, Plan::BranchOfTag, UNTAG],
        ..OF_TAG
    });
}

#[test]
#[ignore = "minutes: `make models`"]
fn a_branch_is_detached_while_two_commands_make_it() {
    assert_that_every_history_keeps_the_invariants(Model {
        before: &[],
        commands: &[BRANCH_2, BRANCH_2, Plan::Detach],
        passes: &[PARENT],
        ..DETACHED
    });
}

#[test]
#[ignore = "minutes: `make models`"]
fn a_branch_is_made_and_tagged_and_detached() {
    assert_that_every_history_keeps_the_invariants(Model {
        before: &[],
        commands: &[BRANCH_2, TAG_OF_BRANCH, Plan::Detach],
        passes: &[PARENT],
        ..DETACHED
    });
}

/// Each mutant, a model that suffers from it, and the invariant that it breaks.
const MUTANTS: [(Mutant, Model, &str); 24] = [
    (Mutant::ReadsOldestLast, TAG, TAGS_WHOLE),
    (Mutant::IgnoresLeases, TAG, TAGS_WHOLE),
    (Mutant::IgnoresUnheld, TAG, TAGS_WHOLE),
    (Mutant::ReadsLeasesOnce, OF_TAG, READABLE),
    (Mutant::LeaseHasNoFloor, TAG, TAGS_WHOLE),
    (Mutant::LooksFirst, TAG, TAGS_WHOLE),
    (Mutant::HoldsWithoutLook, TAG, TAGS_WHOLE),
    (Mutant::MarkHasNoId, RENEWED, TAGS_WHOLE),
    (Mutant::SameId, RENEWED, TAGS_WHOLE),
    (Mutant::CopiesHaveNoId, RENEWED, TAGS_WHOLE),
    (Mutant::MissingCopyIsNoEnd, TAG, TAGS_WHOLE),
    (Mutant::GivesUpByName, RENEWED, SAYS_TRUTH),
    (Mutant::ReplacesCut, TWO_TAGS, SAYS_TRUTH),
    (Mutant::UntagListsLate, UNTAGGED, SAYS_TRUTH),
    (Mutant::UntagKeepsOthers, UNTAGGED, NOTHING_STAYS),
    (Mutant::PublishesBeforeLook, BRANCHES, READABLE),
    (Mutant::PublishesBeforeHold, BRANCHES, BRANCH_HELD),
    (Mutant::BranchOfTagLooksNot, OF_TAG, READABLE),
    (Mutant::BranchTermsAreOld, TWO_BATCHES, READABLE),
    (Mutant::TakesAnyParent, TWO_BATCHES, READABLE),
    (Mutant::DetachDropsLeaseBeforeCopies, DETACHED, READABLE),
    (Mutant::DetachDropsLeaseBeforeParent, DETACHED, READABLE),
    (Mutant::DetachDeletesParent, DETACHED, READABLE),
    (Mutant::DetachIgnoresLeases, TAG_DETACHED, TAGS_WHOLE),
];

#[test]
fn every_mutant_breaks_an_invariant() {
    for (mutant, model, invariant) in MUTANTS {
        let mutant = Some(mutant);
        assert_that_some_history_breaks(Model { mutant, ..model }, invariant);
    }
}

/// Only the number of retained batches keeps a command from this.
#[test]
fn a_command_that_stands_still_for_too_long_publishes_in_the_past() {
    let model = Model {
        before: &[],
        commands: &[BRANCH_2, BRANCH_2, Plan::Detach],
        passes: &[],
        batches: [2, 3],
        stands_still: true,
        ..DETACHED
    };
    assert_that_some_history_breaks(model, READABLE);
}
