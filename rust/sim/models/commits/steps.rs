//! The steps, for the model checker.

use holdfast_core::terms::Step;
use stateright::Property;

use crate::driver::{Application, Copy, Executor, Pass, Query, Stage, Task, judge, read_floor};
use crate::model::{BATCHES, Model, Mutant, State, invariants, reached};
use crate::storage::{FIRST_FILE, Id, Name, Storage};

/// A step. Applications and executors are named by their places.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    StartQuery(usize),
    CrashDriver(usize),
    /// The driver lists files and markers.
    Look(usize),
    Mark(usize),
    /// An executor comes and is given a term.
    Join(usize),
    BeginTask(usize),
    Commit(usize),
    /// The driver takes the result of a task.
    Report(usize),
    /// An executor seals its file and begins the next one.
    Seal(usize),
    Lose(usize),
    CrashExecutor(usize),
    MakeDurable(usize),
    /// The driver makes a file from copies.
    Complete(usize),
    Check(usize),
    Publish(usize),
    Purge(usize),
    ReadFloor(usize),
    Judge(usize),
    Delete(usize),
}

impl State {
    fn actions_of_driver(&self, model: &Model, me: usize, actions: &mut Vec<Action>) {
        let application = &self.applications[me];
        match &application.pass {
            None if application.passes > 0 => actions.push(Action::ReadFloor(me)),
            None => {}
            Some(Pass::Floor(_)) => actions.push(Action::Judge(me)),
            Some(Pass::Judged(_)) => actions.push(Action::Delete(me)),
        }
        let Some(query) = &application.query else {
            if self.starts > 0 {
                actions.push(Action::StartQuery(me));
            }
            return;
        };
        if self.disturbances > 0 {
            actions.push(Action::CrashDriver(me));
        }
        match query.stage {
            Stage::Tasks => match application.step(model, self.given) {
                Step::Look => actions.push(Action::Look(me)),
                Step::Mark(_) => actions.push(Action::Mark(me)),
                Step::Keep | Step::Give(_) => {
                    let executors = self.executors.iter().flatten();
                    let own = executors.filter(|one| one.of == me && !one.is_lost);
                    let has_room = own.count() < model.at_once && self.executors.contains(&None);
                    if has_room && self.joins > 0 {
                        actions.push(Action::Join(me));
                    }
                }
            },
            Stage::Made(_) => actions.push(Action::MakeDurable(me)),
            Stage::Gathered(..) => actions.push(Action::Complete(me)),
            Stage::Durable(_) => actions.push(Action::Check(me)),
            Stage::Checked(_) => actions.push(Action::Publish(me)),
        }
        if self.storage.has_old_entries(query.batch) && self.may_purge(model, query.batch) {
            actions.push(Action::Purge(me));
        }
    }

    fn actions_of_executor(
        &self,
        model: &Model,
        place: usize,
        one: &Executor,
        actions: &mut Vec<Action>,
    ) {
        let query = self.applications[one.of].query.as_ref();
        let step = self.applications[one.of].step(model, self.given);
        let has_begun = !matches!(step, Step::Look | Step::Mark(_));
        let waits = query.filter(|query| query.stage == Stage::Tasks && !one.is_lost && has_begun);
        match &one.task {
            Task::None if waits.is_some_and(|query| query.batch < BATCHES) => {
                actions.push(Action::BeginTask(place));
            }
            Task::None => {}
            Task::Runs { .. } => actions.push(Action::Commit(place)),
            Task::Committed { .. } => actions.push(Action::Report(place)),
        }
        if one.file.number == 0 && (self.storage.has(one.file) || one.buffer != 0) {
            actions.push(Action::Seal(place));
        }
        if self.disturbances > 0 {
            actions.push(Action::CrashExecutor(place));
            if !one.is_lost {
                actions.push(Action::Lose(place));
            }
        }
    }

    fn step_of_query(
        &mut self,
        me: usize,
        step: impl FnOnce(&Query, &Id, &mut State) -> Option<Query>,
    ) -> Option<()> {
        let query = self.applications[me].query.take()?;
        let id = match &query.stage {
            Stage::Tasks => return None,
            Stage::Made(id) | Stage::Gathered(id, _) | Stage::Durable(id) | Stage::Checked(id) => {
                id.clone()
            }
        };
        self.applications[me].query = step(&query, &id, self);
        Some(())
    }

    fn take(&mut self, model: &Model, action: &Action) -> Option<()> {
        match *action {
            Action::StartQuery(me) => {
                self.starts -= 1;
                self.applications[me].has_looked = false;
                self.applications[me].query = Some(Query::start(&self.storage)?);
            }
            Action::CrashDriver(me) => {
                self.disturbances -= 1;
                self.lose_executors(me);
                self.applications[me] = Application::new(self.applications[me].passes);
            }
            Action::Look(me) => self.look(me),
            Action::Mark(me) => {
                let application = &mut self.applications[me];
                let Step::Mark(term) = application.step(model, self.given) else {
                    return None;
                };
                application.marker = application.take(term, &mut self.given);
                self.storage.mark(application.marker);
            }
            Action::Join(me) => {
                self.joins -= 1;
                let application = &mut self.applications[me];
                let Step::Give(term) = application.step(model, self.given) else {
                    return None;
                };
                let term = application.take(term, &mut self.given);
                let place = self.executors.iter().position(Option::is_none)?;
                self.executors[place] = Some(Executor::new(me, Name { term, number: 0 }));
            }
            Action::BeginTask(place) => {
                let one = self.executors[place].as_mut()?;
                if one.is_lost {
                    return Some(());
                }
                let query = self.applications[one.of].query.as_ref()?;
                one.task = Task::Runs {
                    version: query.version(),
                    parent: query.parent.clone(),
                };
            }
            Action::Commit(place) => {
                let neighbour = self.neighbour(model, place);
                let one = self.executors[place].as_mut()?;
                let Task::Runs { version, parent } = &one.task else {
                    return None;
                };
                let (version, name) = (*version, one.file);
                let id = Id::next(parent, version, name);
                one.append(model, &mut self.storage, version);
                one.task = Task::Committed {
                    version,
                    id,
                    neighbour: neighbour.map(|(_, term)| term),
                };
                if let Some((at, _)) = neighbour
                    && !model.is(Mutant::ReportsWithoutCopy)
                {
                    let at = match model.is(Mutant::KeepsCopyAtHome) {
                        true => place,
                        false => at,
                    };
                    self.copies.push(Copy { name, version, at });
                    self.copies.sort();
                    self.copies.dedup();
                }
            }
            Action::Report(place) => {
                let one = self.executors[place].as_mut()?;
                let Task::Committed {
                    version,
                    id,
                    neighbour,
                } = std::mem::replace(&mut one.task, Task::None)
                else {
                    return None;
                };
                let query = self.applications[one.of].query.as_mut()?;
                let is_wanted = query.stage == Stage::Tasks && query.version() == version;
                if is_wanted && !one.is_lost {
                    query.stage = Stage::Made(id);
                    query.neighbour = neighbour;
                    if model.is(Mutant::DropsCopiesEarly) {
                        self.copies.clear();
                    }
                }
            }
            Action::Seal(place) => {
                let one = self.executors[place].as_mut()?;
                if model.objects {
                    one.finish(&mut self.storage);
                    return Some(());
                }
                let file = self.storage.file(one.file)?;
                file.durable = file.segments;
                one.file.number += 1;
                one.is_deleted = false;
            }
            Action::Lose(place) => {
                self.disturbances -= 1;
                self.executors[place].as_mut()?.is_lost = true;
            }
            Action::CrashExecutor(place) => {
                self.disturbances -= 1;
                let name = self.executors[place].take()?.file;
                self.storage.crash(name.term);
                self.copies.retain(|copy| copy.at != place);
            }
            Action::MakeDurable(me) => {
                self.step_of_query(me, |query, id, state| {
                    let (executors, storage) = (&mut state.executors, &mut state.storage);
                    let stage = query.make_durable(id, model, executors, &state.copies, storage)?;
                    Some(Query {
                        stage,
                        ..query.clone()
                    })
                })?;
            }
            Action::Complete(me) => {
                self.step_of_query(me, |query, id, state| {
                    let Stage::Gathered(_, found) = query.stage else {
                        return None;
                    };
                    let stage = query.complete(id, found, &mut state.storage)?;
                    Some(Query {
                        stage,
                        ..query.clone()
                    })
                })?;
            }
            Action::Check(me) => {
                let application = self.applications[me].clone();
                self.step_of_query(me, |query, id, state| {
                    let stage = query.check(id, &application, model, &state.storage)?;
                    Some(Query {
                        stage,
                        ..query.clone()
                    })
                })?;
            }
            Action::Publish(me) => self.step_of_query(me, |query, id, state| {
                let name = id.newest().0;
                state.copies.retain(|copy| copy.name != name);
                query.publish(id, model, &mut state.storage)
            })?,
            Action::Purge(me) => {
                let batch = self.applications[me].query.as_ref()?.batch;
                self.storage.purge(batch);
            }
            Action::ReadFloor(me) => {
                let application = &mut self.applications[me];
                application.passes -= 1;
                application.pass = read_floor(model, &self.storage);
            }
            Action::Judge(me) => {
                let Some(Pass::Floor(floor)) = self.applications[me].pass else {
                    return None;
                };
                let application = &self.applications[me];
                let pass = judge(
                    floor,
                    me,
                    application,
                    model,
                    &self.executors,
                    &self.storage,
                );
                self.applications[me].pass = Some(pass);
            }
            Action::Delete(me) => {
                let Some(Pass::Judged(doomed)) = self.applications[me].pass.take() else {
                    return None;
                };
                for one in self.executors.iter_mut().flatten() {
                    one.is_deleted |= doomed.contains(&one.file) && self.storage.has(one.file);
                }
                self.storage.delete(&doomed);
            }
        }
        Some(())
    }

    /// Executors whose terms are older than another application's get new ones.
    fn look(&mut self, me: usize) {
        self.applications[me].look(&self.storage);
        let base = self.applications[me].base;
        for one in self.executors.iter_mut().flatten() {
            one.is_lost |= one.of == me && one.file.term <= base;
        }
    }

    /// Where a copy of a commit goes: another executor of the application, and its term.
    fn neighbour(&self, model: &Model, place: usize) -> Option<(usize, u8)> {
        let of = self.executors[place].as_ref()?.of;
        let mut others = self.executors.iter().enumerate();
        let found = others.find_map(|(at, one)| {
            let one = one.as_ref().filter(|one| one.of == of && !one.is_lost)?;
            (at != place).then_some((at, one.file.term))
        });
        found.filter(|_| model.objects)
    }

    fn lose_executors(&mut self, of: usize) {
        for one in self.executors.iter_mut().flatten() {
            one.is_lost |= one.of == of;
        }
    }
}

impl stateright::Model for Model {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            storage: Storage::new(),
            applications: vec![Application::new(self.passes); self.applications],
            executors: vec![None; 2],
            copies: Vec::new(),
            starts: self.starts,
            joins: self.executors,
            disturbances: self.disturbances,
            given: 1 << FIRST_FILE.term,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for me in 0..state.applications.len() {
            state.actions_of_driver(self, me, actions);
        }
        for (place, one) in state.executors.iter().enumerate() {
            if let Some(one) = one {
                state.actions_of_executor(self, place, one, actions);
            }
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        state.take(self, &action)?;
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = invariants();
        if self.mutant.is_none() {
            properties.extend(reached(self));
        }
        properties
    }
}
