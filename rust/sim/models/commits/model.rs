//! The bounds of a model, its state and its invariants.

use holdfast_core::terms::Step;
use stateright::Property;

use crate::driver::{Application, Copy, Executor, Query, Stage, Task};
use crate::storage::{FIRST_FILE, Id, Name, Storage};

/// The last batch. The first one is committed when a history begins.
pub const BATCHES: usize = 4;
/// Entries of the commit log that Spark keeps.
pub const RETAINED: usize = 1;

/// A change of the protocol that breaks it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// A batch is published before its files are durable.
    SyncsNothing,
    /// The file of an executor that is gone is taken without a look at it.
    TrustsTheLost,
    /// A task reports its commit without a copy of it.
    ReportsWithoutCopy,
    /// The copy of a commit is on the executor that made the commit.
    KeepsCopyAtHome,
    /// Copies go when the driver takes the result of the task.
    DropsCopiesEarly,
    /// A file is made from copies that do not have all that the batch needs.
    TakesAnyCopies,
    /// A driver publishes although a newer marker is in the folder.
    ChecksNoTerms,
    /// The first batch of a run is published although the log has later ones.
    LooksAtNoLog,
    /// Terms are compared with the newest that the application gave, not with those that are its own.
    HidesBehindNewest,
    /// The entry of the commit log replaces one that is there.
    PublishReplaces,
    /// A term is above those that the application gave, not above those in the folder.
    TermsIgnoreFolder,
    /// An application makes no marker.
    MarksNothing,
    /// A clean-up deletes files of another application.
    ReclaimsForeignFiles,
    /// A clean-up deletes files that executors may append to.
    ReclaimsOpenFiles,
    /// The newest batch decides what is needed.
    FloorOfNewest,
    /// A file goes with its first segment that is not needed.
    OneDeadSegmentIsEnough,
}

/// The protocol or a mutant of it, and the bounds of its histories.
#[derive(Clone, Debug)]
pub struct Model {
    /// Applications that use the checkpoint.
    pub applications: usize,
    /// Runs of the query.
    pub starts: u8,
    /// Executors that are given a term, and how many of an application run at the same time.
    pub executors: usize,
    pub at_once: usize,
    /// Crashes of drivers and executors, and executors that are taken for gone and continue.
    pub disturbances: u8,
    /// Clean-ups of each application.
    pub passes: u8,
    /// A driver may stand still between its looks and its entry, until another one has made this entry
    /// and later ones, and Spark has deleted it.
    pub stands_still: bool,
    /// Files are objects: they appear whole when they are finished. Commits have copies until then.
    pub objects: bool,
    pub mutant: Option<Mutant>,
}

impl Model {
    pub fn is(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    pub storage: Storage,
    pub applications: Vec<Application>,
    /// A place becomes free when its executor ends.
    pub executors: Vec<Option<Executor>>,
    /// Of commits whose objects were unfinished, in order.
    pub copies: Vec<Copy>,
    pub starts: u8,
    /// Executors that may still come.
    pub joins: usize,
    /// Terms that were given, as bits.
    pub given: u32,
    pub disturbances: u8,
}

impl State {
    pub fn queries(&self) -> impl Iterator<Item = &Query> {
        self.applications
            .iter()
            .filter_map(|one| one.query.as_ref())
    }

    /// If all else ends here, another application commits the next batch.
    fn goes_on(&self, model: &Model) -> Option<Query> {
        let mut storage = self.storage.clone();
        let mut application = Application::new(0);
        let query = Query::start(&storage)?;
        let mut given = self.given;
        let term = loop {
            match application.step(model, given) {
                Step::Look => application.look(&storage),
                Step::Mark(term) => {
                    application.marker = application.take(term, &mut given);
                    storage.mark(application.marker);
                }
                Step::Keep => return None,
                Step::Give(term) => break application.take(term, &mut given),
            }
        };
        let file = Name { term, number: 0 };
        let mut executor = Executor::new(0, file);
        executor.append(model, &mut storage, query.version());
        let id = Id::next(&query.parent, query.version(), file);
        query.make_durable(&id, model, &mut [Some(executor)], &[], &mut storage)?;
        query.check(&id, &application, model, &storage)?;
        query.publish(&id, model, &mut storage)
    }

    /// Returns whether the driver can finish what a task reported, if the executor that has the copy
    /// is still there.
    fn survives(&self, model: &Model, query: &Query) -> bool {
        let Stage::Made(id) = &query.stage else {
            return true;
        };
        let mut executors = self.executors.clone();
        let mut live = executors.iter().flatten().filter(|one| !one.is_lost);
        if !live.any(|one| query.neighbour == Some(one.file.term)) {
            return true;
        }
        let mut storage = self.storage.clone();
        let stage = query.make_durable(id, model, &mut executors, &self.copies, &mut storage);
        match stage {
            Some(Stage::Gathered(id, found)) => query.complete(&id, found, &mut storage).is_some(),
            other => other.is_some(),
        }
    }

    /// Returns whether Spark may delete old entries: not while a driver is about to create one of them.
    pub fn may_purge(&self, model: &Model, newest: usize) -> bool {
        let mut behind = self
            .queries()
            .filter(|one| one.batch + 1 + RETAINED <= newest);
        model.stands_still || behind.all(|query| !matches!(query.stage, Stage::Checked(_)))
    }
}

pub const NO_COMMIT_LOST: &str = "no acknowledged commit is lost";
pub const READABLE: &str = "no reader of a published commit finds a missing file";
pub const LIVE_STAYS: &str = "no file of a live commit is reclaimed";
pub const FENCED_IS_OVER: &str = "a fenced driver publishes nothing";
pub const SURVIVES: &str = "a commit with a copy outlives its executor";
pub const GOES_ON: &str = "a new application goes on";

/// A claim about every state, or about some state.
type Claim = Property<Model>;

pub fn invariants() -> Vec<Claim> {
    vec![
        Claim::always(NO_COMMIT_LOST, |_, state| {
            let storage = &state.storage;
            let oldest = storage.oldest();
            (oldest..)
                .zip(&storage.acknowledged[oldest..])
                .all(|(batch, id)| {
                    let before = storage.acknowledged[batch.saturating_sub(1)].as_ref();
                    let id = id.as_ref();
                    storage.log[batch].as_ref() == id
                        && id
                            .zip(before)
                            .is_none_or(|(id, before)| id.history.starts_with(&before.history))
                })
        }),
        Claim::always(READABLE, |_, state| state.storage.is_readable()),
        Claim::always(LIVE_STAYS, |_, state| !state.storage.took_live),
        Claim::always(FENCED_IS_OVER, |_, state| !state.storage.late),
        Claim::always(SURVIVES, |model, state| {
            state.queries().all(|query| state.survives(model, query))
        }),
        Claim::always(GOES_ON, |model, state| {
            state.storage.committed() == BATCHES || state.goes_on(model).is_some()
        }),
    ]
}

/// Events that must happen in some history, or the histories are too tame.
pub fn reached(model: &Model) -> Vec<Claim> {
    let mut reached = vec![Claim::sometimes(
        "the last batch is committed",
        |_, state| state.storage.committed() == BATCHES,
    )];
    if model.passes > 0 {
        reached.push(Claim::sometimes("a file is reclaimed", |_, state| {
            !state.storage.has(FIRST_FILE)
        }));
    }
    if model.applications > 1 {
        reached.push(Claim::sometimes(
            "two drivers are about to publish one batch",
            |_, state| {
                let mut queries = state.queries();
                queries.all(|one| matches!(one.stage, Stage::Checked(_)))
                    && state.queries().count() == 2
            },
        ));
    }
    if model.applications > 1 && model.passes > 0 {
        reached.push(Claim::sometimes("an open file is reclaimed", |_, state| {
            state.executors.iter().flatten().any(|one| one.is_deleted)
        }));
    }
    if model.objects && model.disturbances > 0 {
        reached.push(Claim::sometimes(
            "a file is about to be made from copies",
            |_, state| {
                let mut queries = state.queries();
                queries.any(|one| matches!(one.stage, Stage::Gathered(..)))
            },
        ));
        reached.push(Claim::sometimes(
            "a zombie finishes its object before the driver",
            |_, state| {
                state.queries().any(|one| match &one.stage {
                    Stage::Gathered(id, _) => state.storage.has(id.newest().0),
                    _ => false,
                })
            },
        ));
    }
    if model.disturbances > 0 {
        reached.push(Claim::sometimes(
            "a zombie commits beside its successor",
            |_, state| {
                let executors = || state.executors.iter().flatten();
                executors().any(|zombie| {
                    zombie.is_lost
                        && matches!(zombie.task, Task::Committed { .. })
                        && executors().any(|one| one.of == zombie.of && !one.is_lost)
                })
            },
        ));
    }
    reached
}
