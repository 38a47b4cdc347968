//! The steps, for the model checker.

use stateright::Property;

use crate::driver::{Durable, Run, World, bit, is_last_batch};
use crate::model::{Model, Mutant, PARTITIONS, Sink, State, invariants, reached, reached_by_parts};
use crate::tasks::{ALL, Attempt, Phase};

/// A step. An attempt is named by its partition and its index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    Start,
    Crash,
    FixAndRestart,
    Seal,
    MarkLate,
    WriteSink,
    Commit,
    Launch(usize),
    LaunchTwin(usize),
    ReplaceStageAttempt(usize),
    Compute(usize, usize),
    Fail(usize, usize),
    LoseExecutor(usize, usize),
    Kill(usize, usize),
    Settle(usize, usize),
    Report(usize, usize),
}

impl stateright::Model for Model {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let durable = if self.divides {
            // It takes batches until a group is divided.
            vec![
                Durable::after_one(ALL, "[2,3]"),
                Durable::after_one(1, "[2]"),
            ]
        } else {
            vec![Durable::default()]
        };
        let state = |durable| State {
            durable,
            run: None,
            crashes: self.crashes,
            disturbances: self.disturbances,
            is_fixed: false,
            has_rerun: false,
            exposed: 0,
            through: 0,
        };
        durable.into_iter().map(state).collect()
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        match &state.run {
            None if state.durable.committed < self.batches => actions.push(Action::Start),
            None => {}
            Some(run) if run.failed.is_some() => actions.push(Action::FixAndRestart),
            Some(run) => {
                if state.crashes > 0 {
                    actions.push(Action::Crash);
                }
                self.driver_actions(run, actions);
                for p in (0..PARTITIONS).filter(|p| run.partitions[*p].accepted.is_none()) {
                    self.launches(state, run, p, actions);
                    for index in 0..run.partitions[p].attempts.len() {
                        self.attempt_actions(state, run, (p, index), actions);
                    }
                }
            }
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        let durable = &mut state.durable;
        match action {
            Action::Start => {
                state.has_rerun |= durable.begun;
                state.run = Some(Run::begin(self, durable, None));
            }
            Action::Crash => {
                state.crashes -= 1;
                state.run = None;
            }
            Action::FixAndRestart => {
                state.is_fixed = true;
                state.run = None;
            }
            Action::Commit => {
                let machine = state.run.take()?.commit(durable);
                state.exposed = 0;
                state.through = 0;
                let is_last = is_last_batch(self, durable);
                if is_last {
                    state.is_fixed = true;
                    state.disturbances = 0;
                }
                if durable.committed < self.batches {
                    // The query starts again with the repaired program.
                    let machine = (!is_last).then_some(machine);
                    state.run = Some(Run::begin(self, durable, machine));
                }
            }
            action => self.step(last, &mut state, action)?,
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = invariants();
        if self.mutant.is_none() && self.disturbances > 0 {
            properties.extend(if self.divides {
                Vec::from(reached_by_parts())
            } else {
                Vec::from(reached())
            });
        }
        properties
    }
}

impl Model {
    /// A step within a run.
    fn step(&self, last: &State, state: &mut State, action: Action) -> Option<()> {
        let mut world = World {
            model: self,
            durable: &mut state.durable,
            run: state.run.as_mut()?,
        };
        match action {
            Action::Start | Action::Crash | Action::FixAndRestart | Action::Commit => {}
            Action::Seal => world.seal(),
            Action::MarkLate => world.write_late(),
            Action::WriteSink => {
                state.exposed |= world.run.delivered();
                world.write();
            }
            Action::Launch(p) => world.launch(p),
            Action::LaunchTwin(p) => {
                state.disturbances -= 1;
                world.launch(p);
            }
            Action::ReplaceStageAttempt(p) => {
                state.disturbances -= 1;
                world.run.partitions[p].begin_stage_attempt();
            }
            Action::Compute(p, index) => world.compute(p, index),
            Action::Fail(p, index) => world.fail(p, index),
            Action::LoseExecutor(p, index) => {
                let attempt = world.run.partitions[p].attempts[index];
                state.disturbances -= u8::from(!self.may_fail(last, p, attempt));
                world.lose_executor(p, index);
            }
            Action::Kill(p, index) => {
                let attempt = world.run.partitions[p].attempts[index];
                state.disturbances -= u8::from(!attempt.is_doomed);
                world.kill(p, index);
            }
            Action::Settle(p, index) => {
                state.through |= bit(p);
                world.settle(p, index);
            }
            Action::Report(p, index) => world.report(p, index),
        }
        Some(())
    }

    fn driver_actions(&self, run: &Run, actions: &mut Vec<Action>) {
        let has_written = run.jobs == self.jobs();
        let has_results = !has_written && run.partitions.iter().all(|p| p.accepted.is_some());
        let is_unsealed = !run.is_sealed && self.sink == Sink::Transactional;
        let seals_late = self.is(Mutant::SealAfterSink);
        if is_unsealed && if seals_late { has_written } else { has_results } {
            actions.push(Action::Seal);
        }
        if has_results && (!is_unsealed || seals_late) {
            actions.push(Action::WriteSink);
        }
        if run.jobs > 0 && run.late.is_some() {
            actions.push(Action::MarkLate);
        }
        if has_written {
            actions.push(Action::Commit);
        }
    }

    fn launches(&self, state: &State, run: &Run, p: usize, actions: &mut Vec<Action>) {
        let newest = run.partitions[p].live_in_newest_stage_attempt();
        if newest == 0 {
            actions.push(Action::Launch(p));
        } else if state.disturbances > 0 {
            actions.push(Action::ReplaceStageAttempt(p));
            actions.push(Action::LaunchTwin(p));
        }
    }

    fn attempt_actions(
        &self,
        state: &State,
        run: &Run,
        (p, index): (usize, usize),
        actions: &mut Vec<Action>,
    ) {
        let attempt = run.partitions[p].attempts[index];
        match attempt.phase {
            Phase::Launched => actions.push(Action::Compute(p, index)),
            Phase::Asking => {}
            Phase::Delivering | Phase::Parking if attempt.settles => {
                actions.push(Action::Settle(p, index));
            }
            Phase::Delivering | Phase::Parking | Phase::Settled => {
                actions.push(Action::Report(p, index));
            }
        }
        if attempt.ended {
            return;
        }
        let (may_fail, is_disturbed) = (self.may_fail(state, p, attempt), state.disturbances > 0);
        if may_fail {
            actions.push(Action::Fail(p, index));
        }
        if may_fail || is_disturbed {
            actions.push(Action::LoseExecutor(p, index));
        }
        if is_disturbed || attempt.is_doomed {
            actions.push(Action::Kill(p, index));
        }
    }

    /// Any attempt that processes a poisoned key may fail by itself, or take its executor along.
    fn may_fail(&self, state: &State, p: usize, attempt: Attempt) -> bool {
        let is_poisoned = self.poison[p] & !attempt.waits != 0;
        let runs = matches!(attempt.phase, Phase::Delivering | Phase::Settled);
        is_poisoned && !state.is_fixed && runs
    }
}
