//! The driver: decisions, the marker, and the order in which a batch becomes durable.

use crate::model::{BATCHES, Model, Mutant, PARTITIONS, Sink};
use crate::store::Store;
use crate::tasks::{Decision, Partition, Phase};

/// Partitions of a batch that may be parked at once.
pub const PARKED_MAX: u32 = 1;
/// Failures of a task in one stage attempt after which Spark ends the job.
pub const FAILURES_MAX: u8 = 3;

/// Survives the driver. All but stores and outputs belongs to the batch after the committed ones.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Durable {
    /// Batches that have an entry in `commits`.
    pub committed: u8,
    /// The stores that the newest entry names.
    pub stores: [Store; PARTITIONS],
    /// An earlier run began the batch: `offsets/N` is there.
    pub begun: bool,
    pub marker: Option<Marker>,
    /// Outputs to which a job of the batch was written.
    pub written: [bool; 2],
    /// How often the result of each batch is in each output, by partition; 2 is more than once.
    pub outputs: [[[u8; BATCHES as usize]; PARTITIONS]; 2],
}

/// The durable record of a batch in which an attempt failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Marker {
    /// Partitions, as bits.
    pub parked: u8,
    /// The sink may have been reached.
    pub sealed: bool,
}

impl Durable {
    pub fn marks(&self, p: usize) -> bool {
        self.marker
            .is_some_and(|marker| marker.parked & bit(p) != 0)
    }
}

/// The memory of the driver about the batch that it runs.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Run {
    /// An earlier run began this batch.
    pub is_rerun: bool,
    /// An earlier run may have given the sink rows of the batch that must not come again.
    pub is_closed: bool,
    /// Jobs of the batch that wrote their output.
    pub jobs: u8,
    pub partitions: [Partition; PARTITIONS],
    /// The partition for which Spark ended the query.
    pub failed: Option<usize>,
}

impl Run {
    /// Begins the batch after the committed ones. The driver reads the marker before the first task.
    pub fn begin(model: &Model, durable: &mut Durable) -> Self {
        let mut run = Self {
            is_rerun: durable.begun,
            is_closed: durable.begun && model.sink_may_hold_rows(durable),
            jobs: 0,
            partitions: Default::default(),
            failed: None,
        };
        for (p, partition) in run.partitions.iter_mut().enumerate() {
            let delivers = run.is_closed.then_some(Decision::Deliver);
            partition.decision = durable.marks(p).then_some(Decision::Park).or(delivers);
        }
        durable.begun = true;
        run.settle(model, durable);
        run
    }

    /// A healthy partition delivers in any case, and nothing depends on when.
    fn settle(&mut self, model: &Model, durable: &Durable) {
        for p in (0..PARTITIONS).filter(|p| !model.poison[*p]) {
            self.accept(model, durable, p, Decision::Deliver);
        }
    }

    /// An attempt runs the stage, or asks before.
    pub fn compute(&mut self, model: &Model, durable: &Durable, p: usize, index: usize) {
        let attempt = self.partitions[p].attempts[index];
        let is_blind = self.jobs > 0 && model.is(Mutant::LaterJobAsksNobody);
        let asks = attempt.number > 0
            || attempt.stage_attempt > 0
            || (self.is_suspect(durable, p) && !is_blind);
        let phase = if asks {
            Phase::Asking
        } else {
            Phase::Delivering
        };
        self.partitions[p].enter(model, index, phase);
    }

    /// A stage comes with the names of these partitions, all of whose attempts ask.
    fn is_suspect(&self, durable: &Durable, p: usize) -> bool {
        self.partitions[p].decision == Some(Decision::Park) || !durable.stores[p].pending.is_empty()
    }

    /// Answers that an attempt may get. Without one it waits.
    pub fn answers(
        &self,
        model: &Model,
        durable: &Durable,
        p: usize,
        index: usize,
    ) -> impl Iterator<Item = Decision> {
        let partition = &self.partitions[p];
        let failures = if model.is(Mutant::CountsAttemptNumber) {
            partition.attempts[index].number
        } else {
            partition.failures
        };
        let others = partition.may_deliver_beside(model, index);
        let is_last = failures + others + 1 >= FAILURES_MAX;
        let is_alone = others == 0 || model.is(Mutant::ParksBesideOthers);
        let has_room = self.parked().count_ones() < PARKED_MAX || model.is(Mutant::ParksAll);
        // A partition with pending input may be parked without a try, so that it costs less.
        let backs_off = self.is_suspect(durable, p) && !is_last_batch(durable);
        let (delivers, parks) = match partition.decision {
            Some(decision) => (decision == Decision::Deliver, decision == Decision::Park),
            None => (
                !is_last || !has_room,
                is_alone && has_room && (is_last || backs_off),
            ),
        };
        let delivers = delivers.then_some(Decision::Deliver);
        delivers.into_iter().chain(parks.then_some(Decision::Park))
    }

    /// Returns whether another attempt waits, and parks if this one does not deliver. The service
    /// kills this one then.
    pub fn is_awaited(&self, model: &Model, durable: &Durable, p: usize, index: usize) -> bool {
        let partition = &self.partitions[p];
        let mut others = partition.attempts.iter().enumerate();
        partition.failures + 1 >= FAILURES_MAX
            && partition.attempts[index].phase == Phase::Delivering
            && others.any(|(other, attempt)| {
                attempt.is_asking()
                    && !attempt.ended
                    && self.answers(model, durable, p, other).next().is_none()
            })
    }

    /// The marker is written before the first answer to park.
    pub fn answer(
        &mut self,
        model: &Model,
        durable: &mut Durable,
        (p, index): (usize, usize),
        answer: Decision,
    ) {
        let partition = &mut self.partitions[p];
        if answer == Decision::Deliver {
            return partition.enter(model, index, Phase::Delivering);
        }
        partition.decision = Some(Decision::Park);
        partition.enter(model, index, Phase::Parking);
        if !model.is(Mutant::NoMarker) && !model.is(Mutant::MarkerAfterSink) {
            durable.marker.get_or_insert_default().parked |= bit(p);
        }
    }

    /// A failure opens the marker of a sink that was not reached, so that a re-run knows.
    pub fn mark_failure(&self, model: &Model, durable: &mut Durable) {
        if model.sink == Sink::Transactional
            && (!self.is_closed || model.is(Mutant::RerunMarksFailure))
        {
            durable.marker.get_or_insert_default();
        }
    }

    /// An attempt succeeds. Spark ignores what a zombie reports.
    pub fn report(&mut self, model: &Model, durable: &Durable, p: usize, index: usize) {
        let attempt = self.partitions[p].attempts.remove(index);
        let outcome = if attempt.phase == Phase::Parking {
            Decision::Park
        } else {
            Decision::Deliver
        };
        if attempt.ended {
            self.take_info(model, durable, p, outcome);
        } else {
            self.accept(model, durable, p, outcome);
        }
    }

    /// Spark takes the result of an attempt, which is the decision for later jobs.
    fn accept(&mut self, model: &Model, durable: &Durable, p: usize, outcome: Decision) {
        let partition = &mut self.partitions[p];
        partition.accepted = Some(outcome);
        partition.decision.get_or_insert(outcome);
        partition.attempts.clear();
        self.take_info(model, durable, p, outcome);
    }

    fn take_info(&mut self, model: &Model, durable: &Durable, p: usize, outcome: Decision) {
        let (base, batch) = (&durable.stores[p], durable.committed + 1);
        let info = &mut self.partitions[p].info;
        info.get_or_insert_with(|| match outcome {
            Decision::Deliver => base.replay(batch, model),
            Decision::Park => base.park(batch, model),
        });
    }

    /// Partitions that the run parks, as bits.
    pub fn parked(&self) -> u8 {
        self.bits(|partition| partition.decision == Some(Decision::Park))
    }

    /// Partitions whose rows Spark has from this job, as bits.
    pub fn delivered(&self) -> u8 {
        self.bits(|partition| partition.accepted == Some(Decision::Deliver))
    }

    fn bits(&self, test: fn(&Partition) -> bool) -> u8 {
        let found = (0..PARTITIONS).filter(|p| test(&self.partitions[*p]));
        found.map(bit).sum()
    }

    /// The job writes its output to the sink.
    pub fn write(&mut self, model: &Model, durable: &mut Durable) {
        let job = usize::from(self.jobs);
        let is_ignored = durable.written[job] && model.sink != Sink::AtLeastOnce;
        durable.written[job] = true;
        for (p, partition) in self.partitions.iter().enumerate() {
            if partition.accepted == Some(Decision::Deliver) && !is_ignored {
                let base = &durable.stores[p];
                let replayed = base.replay(durable.committed + 1, model);
                for batch in &replayed.applied[base.applied.len()..] {
                    let count = &mut durable.outputs[job][p][usize::from(*batch) - 1];
                    *count = (*count + 1).min(2);
                }
            }
        }
        self.jobs += 1;
        if self.jobs == model.jobs() {
            return;
        }
        for partition in &mut self.partitions {
            partition.begin_job();
            let forgets = match partition.decision {
                Some(Decision::Park) => model.is(Mutant::ForgetsPark),
                Some(Decision::Deliver) => model.is(Mutant::ForgetsDelivery),
                None => false,
            };
            if forgets {
                partition.decision = None;
                partition.failures = 0;
            }
        }
        self.settle(model, durable);
    }

    /// Spark writes `commits/N`, which names the store of the first info of each partition.
    pub fn commit(self, durable: &mut Durable) {
        let stores = self.partitions.map(|p| p.info.unwrap_or_default());
        *durable = Durable {
            committed: durable.committed + 1,
            stores,
            outputs: durable.outputs,
            ..Durable::default()
        };
    }
}

/// Nothing fails any more in the last batch, and each partition is tried.
pub const fn is_last_batch(durable: &Durable) -> bool {
    durable.committed + 1 == BATCHES
}

pub const fn bit(p: usize) -> u8 {
    1 << p
}
