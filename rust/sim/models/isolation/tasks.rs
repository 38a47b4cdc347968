//! The tasks of one partition in one job, as Spark's scheduler knows them.

use holdfast_core::isolation::{self, Groups};

use crate::model::{KEYS, Model, Mutant};
use crate::store::Store;

/// Failures of a task in one stage attempt after which Spark ends the job.
pub const FAILURES_MAX: u32 = 3;

/// Keys of a partition, as bits.
pub type Keys = u8;

pub const NONE: Keys = 0;
pub const ALL: Keys = (1 << KEYS) - 1;

pub const fn has_key(keys: Keys, k: usize) -> bool {
    keys & (1 << k) != 0
}

/// Returns whether some keys are processed and some wait.
pub const fn is_part(waits: Keys) -> bool {
    waits != NONE && waits != ALL
}

/// The keys in these groups: the hash of a key is its number.
pub fn keys_of(groups: &Groups) -> Keys {
    let keys = (0..KEYS).filter(|k| groups.has(*k as u32));
    keys.map(|k| 1 << k).sum()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Phase {
    /// Spark launched the attempt, and the guard has not begun.
    Launched,
    /// The guard asked the driver and waits for the answer.
    Asking,
    /// The stage runs.
    Delivering,
    /// The input goes into the store, and the stage does not run.
    Parking,
    /// The attempt is through with the partition, and that is durable.
    Settled,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Attempt {
    pub stage_attempt: u32,
    pub number: u32,
    pub phase: Phase,
    /// The keys whose rows it parks, once it has an answer.
    pub waits: Keys,
    /// The end of the attempt has to be durable before Spark takes its result.
    pub settles: bool,
    /// The driver ordered to kill it.
    pub is_doomed: bool,
    /// Spark takes no result of this attempt any more, but it may continue: a zombie.
    pub ended: bool,
}

impl Attempt {
    pub fn id(&self, job: u8, p: usize) -> isolation::Attempt {
        isolation::Attempt {
            stage: job.into(),
            stage_attempt: self.stage_attempt,
            task: p as u32,
            number: self.number,
        }
    }

    /// Spark's number of the task.
    pub fn task(&self, p: usize) -> u64 {
        u64::from(self.stage_attempt << 16 | self.number << 8) + p as u64
    }
}

/// A partition in the batch that a run works on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Partition {
    /// The keys that the last answer parks.
    pub answer: Option<Keys>,
    /// The limit of parked partitions was reached then, so the query may fail.
    pub is_full: bool,
    /// All attempts of the job ask.
    pub is_suspect: bool,
    /// An attempt of the job asked, so all of later jobs do.
    pub has_asked: bool,
    /// Spark took a result of it, in any job of the batch.
    pub is_through: bool,
    /// Attempts of this job that may still do something. Their order means nothing, and is always one.
    pub attempts: Vec<Attempt>,
    /// The newest stage attempt of this job, the attempts that it launched, and those that failed.
    pub stage_attempt: u32,
    pub launched: u32,
    pub failed: u32,
    /// The keys that the attempt parked whose result Spark took in this job.
    pub accepted: Option<Keys>,
    /// The first commit info that the driver got, over all jobs of the batch.
    pub info: Option<Store>,
}

impl Partition {
    /// Returns whether rows of it are parked.
    pub fn parks(&self) -> bool {
        self.answer.is_some_and(|waits| waits != NONE)
    }

    /// Another job is another stage. Its first attempts have number 0.
    pub fn begin_job(&mut self) {
        *self = Self {
            answer: self.answer,
            is_full: self.is_full,
            is_suspect: self.is_suspect || self.has_asked,
            is_through: self.is_through,
            info: self.info.take(),
            ..Self::default()
        };
    }

    /// A mutant forgets what became of the partition in this batch.
    pub fn forget(&mut self) {
        *self = Self {
            info: self.info.take(),
            ..Self::default()
        };
    }

    /// Attempt numbers start at 0 again.
    pub fn begin_stage_attempt(&mut self) {
        self.stage_attempt += 1;
        self.launched = 0;
        self.failed = 0;
    }

    pub fn launch(&mut self) -> Attempt {
        let attempt = Attempt {
            stage_attempt: self.stage_attempt,
            number: self.launched,
            phase: Phase::Launched,
            waits: NONE,
            settles: false,
            is_doomed: false,
            ended: false,
        };
        self.add(attempt);
        self.launched += 1;
        attempt
    }

    fn add(&mut self, attempt: Attempt) {
        let at = self.attempts.partition_point(|other| *other < attempt);
        self.attempts.insert(at, attempt);
    }

    /// An attempt begins something else. Only a mutant notices zombies that asked already.
    pub fn enter(&mut self, model: &Model, index: usize, phase: Phase) {
        let attempt = self.attempts.remove(index);
        let asked = matches!(phase, Phase::Delivering | Phase::Parking | Phase::Settled);
        if !attempt.ended || !asked || model.is(Mutant::TakesInfoOfZombie) {
            self.add(Attempt { phase, ..attempt });
        }
    }

    /// Spark takes nothing from the attempt any more. It may continue.
    pub fn end(&mut self, model: &Model, index: usize) {
        self.attempts[index].ended = true;
        self.enter(model, index, self.attempts[index].phase);
    }

    /// The task fails with an error. Spark ends the job if that happens too often in a stage attempt.
    pub fn fail(&mut self, index: usize) -> bool {
        let attempt = self.attempts.remove(index);
        self.failed += u32::from(attempt.stage_attempt == self.stage_attempt);
        self.failed == FAILURES_MAX
    }

    /// Its executor is lost, and with it output of the map stage. So Spark begins another stage attempt,
    /// and ends the job if there were too many.
    pub fn lose_executor(&mut self, model: &Model, index: usize) -> bool {
        let is_newest = self.attempts[index].stage_attempt == self.stage_attempt;
        self.end(model, index);
        if is_newest {
            self.begin_stage_attempt();
        }
        self.stage_attempt >= FAILURES_MAX + u32::from(model.disturbances)
    }

    pub fn live_in_newest_stage_attempt(&self) -> usize {
        let attempts = self.attempts.iter();
        attempts
            .filter(|attempt| !attempt.ended && attempt.stage_attempt == self.stage_attempt)
            .count()
    }
}
