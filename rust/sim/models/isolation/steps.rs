//! The steps, for the model checker.

use stateright::Property;

use crate::driver::{Durable, Run, bit, is_last_batch};
use crate::model::{Model, Mutant, PARTITIONS, Sink, State, invariants, reached, reached_by_parts};
use crate::tasks::{Attempt, Keys, Phase};

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
    Decide(usize, usize, Keys),
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
        vec![State {
            durable: Durable::default(),
            run: None,
            crashes: self.crashes,
            disturbances: self.disturbances,
            is_fixed: false,
            has_rerun: false,
            exposed: 0,
            through: 0,
        }]
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
                self.driver_actions(state, run, actions);
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
        let (durable, run) = (&mut state.durable, state.run.as_mut());
        match action {
            Action::Start => {
                state.has_rerun |= durable.begun;
                state.run = Some(Run::begin(self, durable));
            }
            Action::Crash => {
                state.crashes -= 1;
                state.run = None;
            }
            Action::FixAndRestart => {
                state.is_fixed = true;
                state.run = None;
            }
            Action::Seal => durable.marker.as_mut()?.sealed = true,
            Action::MarkLate => {
                let settled = &mut durable.marker.get_or_insert_default().settled;
                *settled = run?.partitions.each_ref().map(|p| p.waits);
            }
            Action::WriteSink => {
                state.exposed |= run.as_ref()?.delivered();
                run?.write(self, durable);
            }
            Action::Commit => {
                state.run.take()?.commit(durable);
                state.exposed = 0;
                state.through = 0;
                if is_last_batch(self, durable) {
                    state.is_fixed = true;
                    state.disturbances = 0;
                }
                if durable.committed < self.batches {
                    state.run = Some(Run::begin(self, durable));
                }
            }
            Action::Launch(p) => run?.partitions[p].launch(),
            Action::LaunchTwin(p) => {
                state.disturbances -= 1;
                run?.partitions[p].launch();
            }
            Action::ReplaceStageAttempt(p) => {
                state.disturbances -= 1;
                run?.partitions[p].begin_stage_attempt();
            }
            Action::Compute(p, index) => run?.compute(self, durable, p, index),
            Action::Decide(p, index, answer) => run?.answer(self, durable, (p, index), answer),
            Action::Fail(p, index) => {
                let run = run?;
                run.failed = run.partitions[p].fail(index).then_some(p);
                run.mark_failure(self, durable);
            }
            Action::LoseExecutor(p, index) => {
                let run = run?;
                if !self.may_fail(last, p, run.partitions[p].attempts[index]) {
                    state.disturbances -= 1;
                }
                run.failed = run.partitions[p].lose_executor(self, index).then_some(p);
                run.mark_failure(self, durable);
            }
            Action::Kill(p, index) => {
                let run = run?;
                if !run.is_awaited(self, durable, p, index) {
                    state.disturbances -= 1;
                }
                run.partitions[p].end(self, index);
            }
            Action::Settle(p, index) => {
                state.through |= bit(p);
                run?.settle(self, durable, p, index);
            }
            Action::Report(p, index) => run?.report(self, durable, p, index),
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
    fn driver_actions(&self, state: &State, run: &Run, actions: &mut Vec<Action>) {
        let durable = &state.durable;
        let has_written = run.jobs == self.jobs();
        let has_results = !has_written && run.partitions.iter().all(|p| p.accepted.is_some());
        let is_open = durable.marker.is_some_and(|marker| !marker.sealed);
        let is_unsealed = is_open && self.sink == Sink::Transactional;
        let seals_late = self.is(Mutant::SealAfterSink);
        if is_unsealed && if seals_late { has_written } else { has_results } {
            actions.push(Action::Seal);
        }
        if has_results && (!is_unsealed || seals_late) {
            actions.push(Action::WriteSink);
        }
        let is_unmarked =
            (0..PARTITIONS).any(|p| run.parked() & bit(p) != 0 && durable.settled(p).is_none());
        if self.is(Mutant::MarkerAfterSink) && run.jobs > 0 && is_unmarked {
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
            Phase::Asking => {
                let answers = run.answers(self, &state.durable, p, index);
                actions.extend(
                    answers
                        .into_iter()
                        .map(|answer| Action::Decide(p, index, answer)),
                );
            }
            Phase::Delivering | Phase::Parking if run.settles(&state.durable, p, index) => {
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
        if is_disturbed || run.is_awaited(self, &state.durable, p, index) {
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
