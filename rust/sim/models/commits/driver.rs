//! Applications, the driver of the query in each, and their executors.

use crate::model::{BATCHES, Model, Mutant};
use crate::storage::{Id, Name, Storage, bit};

/// An application. Its terms outlive a run of the query.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Application {
    /// The terms that it gave, as bits.
    pub own: u32,
    /// The newest term of another application when the first executor of the run asked. A newer one ends the
    /// run.
    pub base: u8,
    /// An executor has asked in this run.
    pub has_begun: bool,
    pub query: Option<Query>,
    pub pass: Option<Pass>,
    /// Clean-ups that it may still begin.
    pub passes: u8,
}

/// A run of the query: the batch on which it continues, and how far the next one is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Query {
    pub batch: usize,
    pub parent: Id,
    pub stage: Stage,
    /// It has published nothing yet.
    pub is_new: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Stage {
    Tasks,
    /// The driver has the id of the commit.
    Made(Id),
    Durable(Id),
    /// No newer term was in the folder.
    Checked(Id),
}

/// A clean-up.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Pass {
    /// It knows the floor of the oldest retained batch.
    Floor(u8),
    /// It has judged all files.
    Judged(Vec<Name>),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Executor {
    /// Its application.
    pub of: usize,
    /// Its manager writes this file.
    pub file: Name,
    /// The file was deleted while it is open: what is appended goes nowhere.
    pub is_deleted: bool,
    /// Its driver takes it for gone. It may continue.
    pub is_lost: bool,
    pub task: Task,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Task {
    None,
    /// It has loaded the version before.
    Runs {
        version: u8,
        parent: Id,
    },
    /// Its result is on the way to the driver.
    Committed {
        version: u8,
        id: Id,
    },
}

impl Application {
    pub fn new(passes: u8) -> Self {
        Self {
            own: 0,
            base: 0,
            has_begun: false,
            query: None,
            pass: None,
            passes,
        }
    }

    /// `Terms::next`: above all that is in the folder and that it gave. The clock keeps a term from
    /// being given twice; a list does it here.
    pub fn give_term(&mut self, model: &Model, storage: &Storage, given: &mut u32) -> u8 {
        let listed = match model.is(Mutant::TermsIgnoreFolder) {
            true => 0,
            false => storage.newest_term(),
        };
        let newest = u8::try_from(self.own.checked_ilog2().unwrap_or(0)).unwrap_or(u8::MAX);
        let mut term = listed.max(newest) + 1;
        while *given & (1 << term) != 0 {
            term += 1;
        }
        *given |= 1 << term;
        self.own |= 1 << term;
        term
    }

    /// `Terms::forRun`, for the first executor that asks in a run.
    pub fn begin_run(&mut self, model: &Model, storage: &Storage) {
        if !self.has_begun && !model.is(Mutant::BeginsBlind) {
            self.has_begun = true;
            self.base = storage.newest_foreign(self.own);
        }
    }

    /// `Terms::requireNewest`: whether another application has written since the run began.
    pub fn is_over(&self, model: &Model, storage: &Storage) -> bool {
        if model.is(Mutant::HidesBehindNewest) {
            let newest = self.own.checked_ilog2().unwrap_or(0);
            return u32::from(storage.newest_term()) > newest;
        }
        storage.newest_foreign(self.own) > self.base
    }
}

impl Executor {
    pub fn new(of: usize, file: Name) -> Self {
        Self {
            of,
            file,
            is_deleted: false,
            is_lost: false,
            task: Task::None,
        }
    }
}

impl Query {
    /// Continues after the newest batch.
    pub fn start(storage: &Storage) -> Option<Self> {
        let batch = storage.committed();
        let parent = storage.log[batch].clone()?;
        (batch < BATCHES).then_some(Self {
            batch,
            parent,
            stage: Stage::Tasks,
            is_new: true,
        })
    }

    pub fn version(&self) -> u8 {
        self.batch as u8 + 1
    }

    /// `Durability::makeDurable`. None if the batch fails, which ends the query.
    pub fn make_durable(
        &self,
        id: &Id,
        model: &Model,
        executors: &[Option<Executor>],
        storage: &mut Storage,
    ) -> Option<Stage> {
        let (name, version) = id.newest();
        let mut writers = executors.iter().flatten();
        let has_writer = writers.any(|one| one.file.term == name.term && !one.is_lost);
        let file = storage.file(name);
        let is_whole = file
            .as_ref()
            .is_some_and(|file| file.segments & bit(version) != 0);
        if !has_writer && !is_whole && !model.is(Mutant::TrustsTheLost) {
            return None;
        }
        if let Some(file) = file.filter(|_| !model.is(Mutant::SyncsNothing)) {
            file.durable |= file.segments;
        }
        Some(Stage::Durable(id.clone()))
    }

    /// `Terms::requireNewest`, and in the first batch of a run `CommitLog.requireNext`. None if another
    /// application took over.
    pub fn check(
        &self,
        id: &Id,
        application: &Application,
        model: &Model,
        storage: &Storage,
    ) -> Option<Stage> {
        let is_fenced = application.is_over(model, storage) && !model.is(Mutant::ChecksNoTerms);
        let is_behind = storage.committed() > self.batch + 1 && !model.is(Mutant::LooksAtNoLog);
        let is_over = is_fenced || (self.is_new && is_behind);
        (!is_over).then(|| Stage::Checked(id.clone()))
    }

    /// Creates the entry of the commit log. None if there is one, which ends the query.
    pub fn publish(&self, id: &Id, model: &Model, storage: &mut Storage) -> Option<Query> {
        let batch = self.batch + 1;
        let is_free = storage.log[batch].is_none();
        if !is_free && !model.is(Mutant::PublishReplaces) {
            return None;
        }
        let newest = storage.acknowledged.iter().rposition(Option::is_some);
        storage.late |= newest >= Some(batch);
        storage.log[batch] = Some(id.clone());
        storage.acknowledged[batch].get_or_insert_with(|| id.clone());
        Some(Self {
            batch,
            parent: id.clone(),
            stage: Stage::Tasks,
            is_new: false,
        })
    }
}

/// The driver reads the oldest entry of the log (`Reclaimer::run`).
pub fn read_floor(model: &Model, storage: &Storage) -> Option<Pass> {
    let entry = match model.is(Mutant::FloorOfNewest) {
        true => storage.committed(),
        false => storage.oldest(),
    };
    Some(Pass::Floor(storage.log[entry].as_ref()?.floor))
}

/// `reclaim`: lists and judges. None if a file has a newer term.
pub fn judge(
    floor: u8,
    me: usize,
    application: &Application,
    model: &Model,
    executors: &[Option<Executor>],
    storage: &Storage,
) -> Option<Pass> {
    if application.is_over(model, storage) && !model.is(Mutant::ReclaimsWhenFenced) {
        return None;
    }
    let may_append = |name: Name| {
        let mut live = executors.iter().flatten();
        live.any(|one| one.of == me && !one.is_lost && one.file == name)
            && !model.is(Mutant::ReclaimsOpenFiles)
    };
    let older = bit(floor) - 1;
    let is_dead = |segments: u8| match model.is(Mutant::OneDeadSegmentIsEnough) {
        true => segments & older != 0,
        false => segments & !older == 0,
    };
    let files = storage.files.iter();
    let doomed = files
        .filter(|file| is_dead(file.segments) && !may_append(file.name))
        .map(|file| file.name);
    Some(Pass::Judged(doomed.collect()))
}
