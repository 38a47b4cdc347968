//! The steps, for the model checker.

use stateright::Property;

use crate::checkpoint::Checkpoint;
use crate::command::{After, Command, Kind};
use crate::driver::Driver;
use crate::model::{AT_ONCE, Model, State, invariants, reached};

/// A step. A command is named by its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    StartDriver,
    DriverStep,
    CrashDriver,
    StartCommand(usize, Kind),
    CommandStep(usize),
    CrashCommand(usize),
}

impl stateright::Model for Model {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            checkpoint: Checkpoint::new(),
            driver: None,
            commands: [None; AT_ONCE],
            starts: self.starts,
            crashes: self.crashes,
            said: None,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        match state.driver {
            None => actions.push(Action::StartDriver),
            Some(driver) => {
                if driver.has_work(&state.checkpoint) {
                    actions.push(Action::DriverStep);
                }
                if state.crashes > 0 {
                    actions.push(Action::CrashDriver);
                }
            }
        }
        for (place, command) in state.commands.iter().enumerate() {
            if command.is_some() {
                actions.push(Action::CommandStep(place));
                if state.crashes > 0 {
                    actions.push(Action::CrashCommand(place));
                }
            } else if state.starts > 0 {
                let starts = self.commands.iter();
                actions.extend(starts.map(|kind| Action::StartCommand(place, *kind)));
            }
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        let checkpoint = &mut state.checkpoint;
        state.said = None;
        match action {
            Action::StartDriver => state.driver = Some(Driver::start(self, checkpoint)?),
            Action::DriverStep => state.driver = state.driver?.step(self, checkpoint),
            Action::CrashDriver => {
                state.crashes -= 1;
                state.driver = None;
            }
            Action::StartCommand(place, kind) => {
                state.starts -= 1;
                state.commands[place] = Some(Command::start(self, checkpoint, kind)?);
            }
            Action::CommandStep(place) => {
                let after = state.commands[place]?.step(self, checkpoint);
                state.commands[place] = match after {
                    After::GoesOn(command) => Some(command),
                    After::Refused => None,
                    After::Done(batch) => {
                        state.said = Some(batch);
                        None
                    }
                };
            }
            Action::CrashCommand(place) => {
                state.crashes -= 1;
                state.commands[place] = None;
            }
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = invariants();
        if self.mutant.is_none() {
            properties.extend(reached(self.commands));
        }
        properties
    }
}
