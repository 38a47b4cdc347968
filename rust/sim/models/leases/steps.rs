//! The steps, for the model checker.

use stateright::Property;

use crate::checkpoint::{BRANCH, PARENT};
use crate::cleanup::Pass;
use crate::command::{Command, Plan};
use crate::model::{Checkpoints, Model, State, invariants, judge, reached};

/// A step. Commands and clean-ups are named by their places, drivers by their checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    Commit(usize),
    PurgeEntries(usize),
    PurgeSmallFiles(usize),
    TakeOver,
    Command(usize),
    Pass(usize),
}

impl stateright::Model for Model {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let mut checkpoints = Checkpoints::new();
        for plan in self.before {
            checkpoints.run(*plan, self);
        }
        vec![State {
            verdict: judge(self, &checkpoints),
            checkpoints,
            commands: vec![Command::Waits; self.commands.len()],
            passes: vec![Pass::Waits; self.passes.len()],
            drivers: self.drivers,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for (at, checkpoint) in state.checkpoints.both.iter().enumerate() {
            if checkpoint.newest > 0 && checkpoint.newest < self.batches[at] {
                actions.push(Action::Commit(at));
            }
            if checkpoint.oldest < checkpoint.newest && self.may_purge(state, at) {
                actions.push(Action::PurgeEntries(at));
            }
            if checkpoint.oldest_small < checkpoint.newest && self.is_copied(at) {
                actions.push(Action::PurgeSmallFiles(at));
            }
        }
        if state.drivers > 0 {
            actions.push(Action::TakeOver);
        }
        // Equal commands begin in order.
        for (place, command) in state.commands.iter().enumerate() {
            let mut before = self.commands.iter().zip(&state.commands).take(place);
            let is_next = before
                .all(|(plan, other)| *other != Command::Waits || *plan != self.commands[place]);
            if *command != Command::Ended && (is_next || *command != Command::Waits) {
                actions.push(Action::Command(place));
            }
        }
        for (place, pass) in state.passes.iter().enumerate() {
            let mut before = self.passes.iter().zip(&state.passes).take(place);
            let is_next =
                before.all(|(at, other)| *other != Pass::Waits || *at != self.passes[place]);
            if *pass != Pass::Ended && (is_next || *pass != Pass::Waits) {
                actions.push(Action::Pass(place));
            }
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        let checkpoints = &mut state.checkpoints;
        match action {
            Action::Commit(at) => checkpoints.both[at].commit(),
            // Spark deletes all but the newest.
            Action::PurgeEntries(at) => {
                let checkpoint = &mut checkpoints.both[at];
                checkpoint.oldest = checkpoint.newest;
            }
            Action::PurgeSmallFiles(at) => {
                let checkpoint = &mut checkpoints.both[at];
                checkpoint.oldest_small = checkpoint.newest;
            }
            Action::TakeOver => {
                state.drivers -= 1;
                checkpoints.both[PARENT].term += 1;
            }
            Action::Command(place) => {
                let command = state.commands[place].clone();
                state.commands[place] = command.step(self.commands[place], self, checkpoints)?;
            }
            Action::Pass(place) => {
                let checkpoint = &mut checkpoints.both[self.passes[place]];
                let pass = state.passes[place].clone();
                state.passes[place] = pass.step(self, checkpoint)?;
            }
        }
        if state.checkpoints != last.checkpoints {
            state.verdict = judge(self, &state.checkpoints);
        }
        Some(state)
    }

    /// Only mutants make more leases than there are ids.
    fn within_boundary(&self, state: &State) -> bool {
        state.checkpoints.has_ids()
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = invariants();
        if self.mutant.is_none() {
            properties.extend(reached(self));
        }
        properties
    }
}

impl Model {
    /// Returns whether a command reads Spark's small files of a checkpoint.
    fn is_copied(&self, at: usize) -> bool {
        let mut tags = self.commands.iter();
        at == PARENT || tags.any(|plan| matches!(plan, Plan::Tag { at: BRANCH, .. }))
    }

    /// No command stands still before it publishes while drivers of the branch make later entries and
    /// Spark deletes this one.
    fn may_purge(&self, state: &State, at: usize) -> bool {
        let mut commands = state.commands.iter();
        let publishes = commands
            .any(|command| matches!(command, Command::Makes(make) if make.is_about_to_publish()));
        at != BRANCH || !publishes || self.stands_still
    }
}
