//! Checks a model: every history keeps the invariants, and some history of each mutant breaks one.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::hash::Hash;

use stateright::{Checker as _, HasDiscoveries, Model};

const THREADS: usize = 2;

pub fn assert_that_every_history_keeps_the_invariants<M>(model: M)
where
    M: Model + Debug + Send + Sync + 'static,
    M::State: Hash + Debug + Send + Sync + Clone + PartialEq + 'static,
    M::Action: Debug + Clone + PartialEq,
{
    let checker = model.checker().threads(THREADS).spawn_dfs().join();
    println!(
        "{:?}: {} states, at most {} steps",
        checker.model(),
        checker.unique_state_count(),
        checker.max_depth()
    );
    checker.assert_properties();
}

/// Asserts that a model which breaks the protocol, for example by a mutant, breaks this invariant.
pub fn assert_that_some_history_breaks<M>(model: M, invariant: &'static str)
where
    M: Model + Debug + Send + Sync + 'static,
    M::State: Hash + Debug + Send + Sync + Clone + PartialEq + 'static,
    M::Action: Debug + Clone + PartialEq,
{
    let checker = model
        .checker()
        .threads(THREADS)
        .finish_when(HasDiscoveries::AllOf(BTreeSet::from([invariant])))
        .spawn_bfs()
        .join();
    let history = checker.discovery(invariant);
    let steps = history.map(|history| history.into_actions());
    println!(
        "{:?} of {} states: {steps:?}",
        checker.model(),
        checker.unique_state_count()
    );
    assert!(steps.is_some(), "{:?} keeps {invariant:?}", checker.model());
}
