//! The steps, for the model checker.

use stateright::Property;

use crate::driver::{Attempt, Phase, Run, World};
use crate::model::{JOBS, Model, PARTITIONS, Program, ROWS, Rows, State, invariants, reached};

/// A step. An attempt is named by its partition and its index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    Start(Program),
    Crash,
    WriteSink,
    Commit,
    Publish,
    Launch(usize),
    LaunchTwin(usize),
    Compute(usize, usize),
    /// The search of an attempt finds these rows.
    Search(usize, usize, Rows),
    Fail(usize, usize),
    Kill(usize, usize),
    Settle(usize, usize),
    Report(usize, usize),
}

impl stateright::Model for Model {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            durable: Default::default(),
            run: None,
            program: Program::First,
            crashes: self.crashes,
            disturbances: self.disturbances,
            changes: self.changes,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        let Some(run) = state.run.as_ref().filter(|run| !run.has_failed) else {
            let programs = Program::ALL.into_iter();
            let allowed = programs.filter(|one| *one == state.program || state.changes > 0);
            // A query that failed needs another program.
            let failed = state.run.is_some();
            return actions.extend(
                allowed
                    .filter(|one| !failed || *one != state.program)
                    .map(Action::Start),
            );
        };
        if state.crashes > 0 {
            actions.push(Action::Crash);
        }
        if run.publishes {
            return actions.push(Action::Publish);
        }
        if state.durable.committed == self.batches {
            return;
        }
        if run.job == JOBS {
            return actions.push(Action::Commit);
        }
        if run.partitions.iter().all(|one| one.accepted.is_some()) {
            return actions.push(Action::WriteSink);
        }
        for p in (0..PARTITIONS).filter(|p| run.partitions[*p].accepted.is_none()) {
            let attempts = &run.partitions[p].attempts;
            if attempts.is_empty() {
                actions.push(Action::Launch(p));
            } else if state.disturbances > 0 {
                actions.push(Action::LaunchTwin(p));
            }
            for (index, attempt) in attempts.iter().enumerate() {
                self.attempt_actions(state, *attempt, (p, index), actions);
            }
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        let durable = &mut state.durable;
        match action {
            Action::Start(program) => {
                state.changes -= u8::from(program != state.program);
                state.program = program;
                state.run = Some(Run::start(self, durable, program));
                return Some(state);
            }
            Action::Crash => {
                state.crashes -= 1;
                state.run = None;
                return Some(state);
            }
            Action::Commit => {
                state.run.as_mut()?.commit(self, durable, state.program);
                return Some(state);
            }
            Action::Publish => {
                let run = state.run.take()?;
                state.run = Some(run.publish(self, durable, state.program));
                return Some(state);
            }
            _ => {}
        }
        let run = state.run.as_mut()?;
        let mut world = World {
            model: self,
            durable,
            run,
        };
        match action {
            Action::WriteSink => world.write(),
            Action::Launch(p) => world.launch(p),
            Action::LaunchTwin(p) => {
                state.disturbances -= 1;
                world.launch(p);
            }
            Action::Compute(p, index) => world.compute(p, index),
            Action::Search(p, index, bad) => world.search(p, index, bad),
            Action::Fail(p, index) => world.fail(p, index),
            Action::Kill(p, index) => {
                let is_doomed = world.run.partitions[p].attempts[index].is_doomed;
                state.disturbances -= u8::from(!is_doomed);
                world.kill(p, index);
            }
            Action::Settle(p, index) => world.settle(p, index),
            Action::Report(p, index) => world.report(p, index),
            Action::Start(_) | Action::Crash | Action::Commit | Action::Publish => {}
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = invariants();
        if self.mutant.is_none() && self.crashes > 0 && self.disturbances > 0 {
            properties.extend(reached());
        }
        properties
    }
}

impl Model {
    fn attempt_actions(
        &self,
        state: &State,
        attempt: Attempt,
        (p, index): (usize, usize),
        actions: &mut Vec<Action>,
    ) {
        let throws = state.program.throws() & ROWS[p];
        let is_bad = throws & !attempt.left_out != 0;
        match attempt.phase {
            Phase::Launched => actions.push(Action::Compute(p, index)),
            Phase::Delivering if attempt.searches() => {
                actions.push(Action::Search(p, index, throws));
                if self.moods {
                    actions.push(Action::Search(p, index, 0));
                }
            }
            Phase::Delivering => {
                if is_bad {
                    actions.push(Action::Fail(p, index));
                }
                if !is_bad || self.moods {
                    actions.push(match attempt.left_out {
                        0 => Action::Report(p, index),
                        _ => Action::Settle(p, index),
                    });
                }
            }
            Phase::Settling => {}
            Phase::Settled => actions.push(Action::Report(p, index)),
        }
        if state.disturbances > 0 || attempt.is_doomed {
            actions.push(Action::Kill(p, index));
        }
    }
}
