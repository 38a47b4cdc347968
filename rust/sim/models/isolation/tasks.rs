//! The tasks of one partition in one job.

use crate::driver::FAILURES_MAX;
use crate::model::{KEYS, Model, Mutant};
use crate::store::Store;

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
    pub stage_attempt: u8,
    pub number: u8,
    pub phase: Phase,
    /// The keys whose rows it parks, once it has an answer.
    pub waits: Keys,
    /// Spark takes no result of this attempt any more, but it may go on: a zombie.
    pub ended: bool,
}

/// A partition in the batch that a run works on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Partition {
    /// The keys whose rows attempts park: none if the stage runs, all if it does not.
    pub waits: Option<Keys>,
    /// They do not change any more.
    pub is_decided: bool,
    /// Attempts that failed in this batch, over all jobs and stage attempts.
    pub failures: u8,
    /// Attempts of this job that may still do something. Their order means nothing, and is always one.
    pub attempts: Vec<Attempt>,
    /// The newest stage attempt of this job, the attempts that it launched, and those that failed.
    pub stage_attempt: u8,
    pub launched: u8,
    pub failed: u8,
    /// The keys that the attempt parked whose result Spark took in this job.
    pub accepted: Option<Keys>,
    /// The first commit info that the driver got, over all jobs of the batch.
    pub info: Option<Store>,
}

impl Partition {
    /// Returns whether rows of it are parked.
    pub fn parks(&self) -> bool {
        self.waits.is_some_and(|waits| waits != NONE)
    }

    /// Another job is another stage. Its first attempts have number 0.
    pub fn begin_job(&mut self) {
        *self = Self {
            waits: self.waits,
            is_decided: self.is_decided,
            failures: self.failures,
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

    pub fn launch(&mut self) {
        self.add(Attempt {
            stage_attempt: self.stage_attempt,
            number: self.launched,
            phase: Phase::Launched,
            waits: NONE,
            ended: false,
        });
        self.launched += 1;
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

    /// Spark takes nothing from the attempt any more. It may go on.
    pub fn end(&mut self, model: &Model, index: usize) {
        self.attempts[index].ended = true;
        self.enter(model, index, self.attempts[index].phase);
    }

    /// The task fails with an error. Spark ends the job if that happens too often in a stage attempt.
    pub fn fail(&mut self, index: usize) -> bool {
        let attempt = self.attempts.remove(index);
        self.failures += 1;
        self.failed += u8::from(attempt.stage_attempt == self.stage_attempt);
        self.failed == FAILURES_MAX
    }

    /// Its executor is lost, and with it output of the map stage. So Spark begins another stage attempt,
    /// and ends the job if there were too many.
    pub fn lose_executor(&mut self, model: &Model, index: usize) -> bool {
        let is_newest = self.attempts[index].stage_attempt == self.stage_attempt;
        self.failures += 1;
        self.end(model, index);
        if is_newest {
            self.begin_stage_attempt();
        }
        self.stage_attempt >= FAILURES_MAX + model.disturbances
    }

    pub fn live_in_newest_stage_attempt(&self) -> usize {
        let attempts = self.attempts.iter();
        attempts
            .filter(|attempt| !attempt.ended && attempt.stage_attempt == self.stage_attempt)
            .count()
    }

    /// Other attempts that may still deliver. One that asks does nothing before it has an answer.
    pub fn may_deliver_beside(&self, model: &Model, index: usize) -> u8 {
        let others = self.attempts.iter().enumerate();
        let others = others.filter(|(other, attempt)| *other != index && !attempt.ended);
        others
            .filter(|(_, other)| !other.is_asking() || model.is(Mutant::WaitsForAskers))
            .count() as u8
    }
}

impl Attempt {
    pub fn is_asking(&self) -> bool {
        self.phase == Phase::Asking
    }
}
