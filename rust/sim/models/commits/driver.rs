//! Applications, the driver of the query in each, and their executors.

use holdfast_core::Term;
use holdfast_core::commits::{Facts, Step, Writer, next_step};
use holdfast_core::terms;

use crate::model::{BATCHES, Model, Mutant};
use crate::storage::{Id, Name, Storage, bit};

/// An application. Its terms outlive a run of the query.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Application {
    /// The terms that it gave, as bits.
    pub own: u32,
    /// The newest term of another application when the first executor of the run asked. A newer marker ends
    /// the run.
    pub base: u8,
    /// It has looked at the folder in this run.
    pub has_looked: bool,
    /// Its newest marker that was there then; 0 without one.
    pub marker: u8,
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
    /// For an invariant: the term of an executor that could take a copy of the commit.
    pub neighbour: Option<u8>,
    /// It has published nothing yet.
    pub is_new: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Stage {
    Tasks,
    /// The driver has the id of the commit.
    Made(Id),
    /// The executor is gone, and the driver has these segments of its object.
    Gathered(Id, u8),
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
    /// Bits of its appends to an object that is not finished.
    pub buffer: u8,
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
        neighbour: Option<u8>,
    },
}

/// A copy of what a commit appended to an object, on the executor at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Copy {
    pub name: Name,
    pub version: u8,
    pub at: usize,
}

impl Application {
    pub fn new(passes: u8) -> Self {
        Self {
            own: 0,
            base: 0,
            has_looked: false,
            marker: 0,
            query: None,
            pass: None,
            passes,
        }
    }

    fn newest(&self) -> u8 {
        newest_of(self.own)
    }

    /// The next step of `Terms` for an executor that has no term. The clock keeps a term from being
    /// given twice; a list does it here.
    pub fn step(&self, model: &Model, given: u32) -> terms::Step {
        let older = match model.is(Mutant::TermsIgnoreFolder) {
            true => 0,
            false => self.base,
        };
        let mut clock = older.max(self.newest()) + 1;
        while given & (1 << clock) != 0 {
            clock += 1;
        }
        let term = |term: u8| Term(u64::from(term));
        terms::next_step(&terms::Facts {
            older: self.has_looked.then_some(term(older)),
            marker: match model.is(Mutant::MarksNothing) {
                true => Term::END,
                false => term(self.marker),
            },
            runs: true,
            newest: term(self.newest()),
            held: term(0),
            clock: term(clock),
        })
    }

    /// The look of a run that begins.
    pub fn look(&mut self, storage: &Storage) {
        self.has_looked = true;
        self.marker = newest_of(storage.markers & self.own);
        self.base = storage.newest_foreign(self.own);
    }

    /// Uses a term.
    pub fn take(&mut self, term: Term, given: &mut u32) -> u8 {
        *given |= 1 << term.0;
        self.own |= 1 << term.0;
        self.newest()
    }

    /// Returns true if another application took over since the run began.
    pub fn is_over(&self, model: &Model, storage: &Storage) -> bool {
        let compared = match model.is(Mutant::HidesBehindNewest) {
            true => self.newest(),
            false => self.base,
        };
        newest_of(storage.markers & !self.own) > compared
    }
}

impl Executor {
    pub fn new(of: usize, file: Name) -> Self {
        Self {
            of,
            file,
            buffer: 0,
            is_deleted: false,
            is_lost: false,
            task: Task::None,
        }
    }

    pub fn append(&mut self, model: &Model, storage: &mut Storage, version: u8) {
        if model.objects {
            self.buffer |= bit(version);
        } else if !self.is_deleted {
            storage.append(self.file, version);
        }
    }

    /// Finishes its object. Returns false if the name is taken.
    pub fn finish(&mut self, storage: &mut Storage) -> bool {
        let is_new = storage.create(self.file, self.buffer);
        self.file.number += 1;
        self.buffer = 0;
        is_new
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
            neighbour: None,
            is_new: true,
        })
    }

    pub fn version(&self) -> u8 {
        self.batch as u8 + 1
    }

    /// `Durability::makeDurable`, up to the point where a file is made from copies. None if the batch
    /// fails, which ends the query.
    pub fn make_durable(
        &self,
        id: &Id,
        model: &Model,
        executors: &mut [Option<Executor>],
        copies: &[Copy],
        storage: &mut Storage,
    ) -> Option<Stage> {
        let (name, version) = id.newest();
        if model.is(Mutant::SyncsNothing) && storage.has(name) {
            return Some(Stage::Durable(id.clone()));
        }
        let mut facts = Facts {
            end: u64::from(version),
            is_lost: false,
            writer: Writer::Unasked,
            stored: None,
            copied: None,
        };
        let mut found = 0;
        loop {
            match next_step(&facts) {
                Step::Ask => facts.writer = ask(name, model, executors, storage),
                Step::Look => {
                    let stored = stored(name, version, storage);
                    facts.stored = Some(match model.is(Mutant::TrustsTheLost) {
                        true => facts.end,
                        false => stored,
                    });
                }
                Step::Gather => {
                    let is_there =
                        |at: usize| executors[at].as_ref().is_some_and(|one| !one.is_lost);
                    let copies = copies
                        .iter()
                        .filter(|one| one.name == name && is_there(one.at));
                    found = copies.fold(0, |all, one| all | bit(one.version));
                    let has_all = found & bit(version) != 0;
                    facts.copied = Some(has_all || model.is(Mutant::TakesAnyCopies));
                }
                Step::Complete => return Some(Stage::Gathered(id.clone(), found)),
                Step::Done => return Some(Stage::Durable(id.clone())),
                Step::Fail(_) => return None,
            }
        }
    }

    /// Makes the file from copies, unless its name is taken: then the file there has to do.
    pub fn complete(&self, id: &Id, found: u8, storage: &mut Storage) -> Option<Stage> {
        let (name, version) = id.newest();
        let is_new = storage.create(name, found);
        let is_whole = stored(name, version, storage) == u64::from(version);
        (is_new || is_whole).then(|| Stage::Durable(id.clone()))
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
            neighbour: None,
            is_new: false,
        })
    }
}

/// The writer of a file makes it durable, if it is there.
fn ask(
    name: Name,
    model: &Model,
    executors: &mut [Option<Executor>],
    storage: &mut Storage,
) -> Writer {
    let mut writers = executors.iter_mut().flatten();
    let Some(writer) = writers.find(|one| one.file.term == name.term && !one.is_lost) else {
        return Writer::Gone;
    };
    if !model.objects {
        if let Some(file) = storage.file(name) {
            file.durable |= file.segments;
        }
        return Writer::Done;
    }
    let is_open = writer.file == name;
    if (is_open && writer.finish(storage)) || (!is_open && storage.has(name)) {
        Writer::Done
    } else {
        Writer::Failed
    }
}

/// Looks at a file whose writer is gone, and makes it durable. Returns its end; 0 without the file.
fn stored(name: Name, version: u8, storage: &mut Storage) -> u64 {
    let Some(file) = storage.file(name) else {
        return 0;
    };
    file.durable |= file.segments;
    match file.segments & bit(version) {
        0 => 1,
        _ => u64::from(version),
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

/// `reclaim`: judges the files that the driver knows. A list would show no others, or end the clean-up.
pub fn judge(
    floor: u8,
    me: usize,
    application: &Application,
    model: &Model,
    executors: &[Option<Executor>],
    storage: &Storage,
) -> Pass {
    let is_known = |name: Name| {
        let is_own = application.own & (1 << name.term) != 0;
        is_own || name.term <= application.base || model.is(Mutant::ReclaimsForeignFiles)
    };
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
        .filter(|file| is_known(file.name) && is_dead(file.segments) && !may_append(file.name))
        .map(|file| file.name);
    Pass::Judged(doomed.collect())
}

/// The newest of terms, which are bits; 0 without any.
fn newest_of(terms: u32) -> u8 {
    u8::try_from(terms.checked_ilog2().unwrap_or(0)).unwrap_or(u8::MAX)
}
