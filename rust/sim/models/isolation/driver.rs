//! The driver: decisions, the marker, and the order in which a batch becomes durable.

use crate::model::{BATCHES_MAX, KEYS, Model, Mutant, PARTITIONS, Sink};
use crate::store::Store;
use crate::tasks::{ALL, Keys, NONE, Partition, Phase, is_part};

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
    /// By partition, the keys whose rows the batch before parked.
    pub suspects: [Keys; PARTITIONS],
    /// An earlier run began the batch: `offsets/N` is there.
    pub begun: bool,
    pub marker: Option<Marker>,
    /// Outputs to which a job of the batch was written.
    pub written: [bool; 2],
    /// How often the result of each batch is in each output, by partition and key; 2 is more than once.
    pub outputs: [[[[u8; BATCHES_MAX]; KEYS]; PARTITIONS]; 2],
}

/// The durable record of a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Marker {
    /// By partition, the keys whose rows an attempt parked that ran to its end.
    pub settled: [Option<Keys>; PARTITIONS],
    /// The sink may have been reached.
    pub sealed: bool,
}

impl Durable {
    /// The keys whose rows the marker parks; none if it does not name the partition.
    pub fn settled(&self, p: usize) -> Option<Keys> {
        self.marker.and_then(|marker| marker.settled[p])
    }

    /// Returns whether the sink got nothing of a partition from an earlier run of the batch, by what is
    /// durable: it stays parked until an attempt settles it.
    pub fn is_untouched(&self, p: usize) -> bool {
        self.stores[p].is_parked() && self.settled(p).is_none()
    }
}

impl Durable {
    /// A new marker is sealed if an earlier run may have reached the sink.
    fn settle(&mut self, model: &Model, p: usize, waits: Keys, sealed: bool) {
        let lacks_part = is_part(waits) && model.is(Mutant::MarkerLacksPart);
        if !model.is(Mutant::NoMarker) && !model.is(Mutant::MarkerAfterSink) {
            let marker = self.marker.get_or_insert(Marker {
                sealed,
                ..Marker::default()
            });
            marker.settled[p] = Some(if lacks_part { ALL } else { waits });
        }
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
            let is_bound = run.is_closed && !durable.is_untouched(p);
            partition.waits = durable.settled(p).or(is_bound.then_some(NONE));
            partition.is_decided = is_bound || partition.waits == Some(ALL);
        }
        durable.begun = true;
        run.accept_healthy(model, durable);
        run
    }

    /// A healthy partition delivers in any case, and nothing depends on when.
    fn accept_healthy(&mut self, model: &Model, durable: &Durable) {
        for p in (0..PARTITIONS).filter(|p| model.poison[*p] == NONE) {
            self.accept(model, durable, p, NONE);
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
        self.partitions[p].parks() || durable.stores[p].is_parked()
    }

    /// Answers that an attempt may get. Without one it waits.
    pub fn answers(&self, model: &Model, durable: &Durable, p: usize, index: usize) -> Vec<Keys> {
        let partition = &self.partitions[p];
        let failures = if model.is(Mutant::CountsAttemptNumber) {
            partition.attempts[index].number
        } else {
            partition.failures
        };
        let others = partition.may_deliver_beside(model, index);
        let others_parked = (self.parked() & !bit(p)).count_ones();
        let has_room = others_parked < PARKED_MAX || model.is(Mutant::ParksAll);
        // A partition with pending input may be parked without a try, so that it costs less.
        let is_suspect = self.is_suspect(durable, p);
        let backs_off = is_suspect && has_room && !is_last_batch(model, durable);
        let suspects = durable.suspects[p];
        let now = match partition.waits {
            Some(waits) if partition.is_decided => return vec![waits],
            Some(waits) => waits,
            None if backs_off && model.divides && suspects != NONE => {
                // The rows of any suspects are tried.
                return (NONE..=suspects).filter(|w| w & !suspects == 0).collect();
            }
            None if backs_off && others == 0 => return vec![NONE, ALL],
            None => NONE,
        };
        let is_try = self.is_try(model, durable, p);
        let is_last = failures + others + 1 >= FAILURES_MAX || (is_try && failures > 0);
        let next = if is_try && failures + 1 < FAILURES_MAX {
            suspects
        } else {
            ALL
        };
        let is_stuck = is_part(now) && !is_try && model.is(Mutant::NewKeyIsNoSuspect);
        let is_alone = others == 0
            || model.is(Mutant::ParksBesideOthers)
            || (is_try && model.is(Mutant::DividesBesideOthers));
        if !is_last || !has_room || is_stuck {
            vec![now]
        } else if is_alone {
            vec![next]
        } else {
            Vec::new()
        }
    }

    /// Returns whether keys that waited before the batch do not wait.
    fn is_try(&self, model: &Model, durable: &Durable, p: usize) -> bool {
        let suspects = durable.suspects[p];
        model.divides && self.partitions[p].waits.unwrap_or(NONE) & suspects != suspects
    }

    /// Returns whether another attempt waits, and parks if this one does not deliver. The service
    /// kills this one then.
    pub fn is_awaited(&self, model: &Model, durable: &Durable, p: usize, index: usize) -> bool {
        let partition = &self.partitions[p];
        let mut others = partition.attempts.iter().enumerate();
        let is_try = self.is_try(model, durable, p) && partition.failures > 0;
        (is_try || partition.failures + 1 >= FAILURES_MAX)
            && partition.attempts[index].phase == Phase::Delivering
            && others.any(|(other, attempt)| {
                attempt.is_asking()
                    && !attempt.ended
                    && self.answers(model, durable, p, other).is_empty()
            })
    }

    pub fn answer(
        &mut self,
        model: &Model,
        durable: &mut Durable,
        (p, index): (usize, usize),
        answer: Keys,
    ) {
        let is_suspect = self.is_suspect(durable, p);
        let partition = &mut self.partitions[p];
        partition.attempts[index].waits = answer;
        if answer != NONE || is_suspect {
            partition.waits = Some(answer);
        }
        partition.is_decided |= answer == ALL;
        let phase = if answer == ALL {
            Phase::Parking
        } else {
            Phase::Delivering
        };
        partition.enter(model, index, phase);
        if model.is(Mutant::SettlesAtAnswer) {
            durable.settle(model, p, answer, self.is_closed);
        }
    }

    /// An attempt ran to its end. The driver refuses a zombie, which fails then.
    pub fn settle(&mut self, model: &Model, durable: &mut Durable, p: usize, index: usize) {
        let attempt = self.partitions[p].attempts[index];
        if attempt.ended && !model.is(Mutant::TakesInfoOfZombie) {
            self.partitions[p].attempts.remove(index);
            return;
        }
        durable.settle(model, p, attempt.waits, self.is_closed);
        self.partitions[p].enter(model, index, Phase::Settled);
    }

    /// Returns whether the end of an attempt has to be durable before Spark takes its result.
    pub fn settles(&self, durable: &Durable, p: usize, index: usize) -> bool {
        self.partitions[p].attempts[index].waits != NONE || durable.stores[p].is_parked()
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
        if attempt.ended {
            self.take_info(model, durable, p, attempt.waits);
        } else {
            self.accept(model, durable, p, attempt.waits);
        }
    }

    /// Spark takes the result of an attempt, which is the decision for later jobs.
    fn accept(&mut self, model: &Model, durable: &Durable, p: usize, outcome: Keys) {
        let partition = &mut self.partitions[p];
        partition.accepted = Some(outcome);
        partition.waits.get_or_insert(outcome);
        partition.is_decided = true;
        partition.attempts.clear();
        self.take_info(model, durable, p, outcome);
    }

    fn take_info(&mut self, model: &Model, durable: &Durable, p: usize, outcome: Keys) {
        let (base, batch) = (&durable.stores[p], durable.committed + 1);
        let info = &mut self.partitions[p].info;
        info.get_or_insert_with(|| base.next(batch, outcome, model));
    }

    /// Partitions of which the run parks rows, as bits.
    pub fn parked(&self) -> u8 {
        self.bits(Partition::parks)
    }

    /// Partitions whose rows Spark has from this job, as bits.
    pub fn delivered(&self) -> u8 {
        self.bits(|partition| partition.accepted.is_some_and(|waits| waits != ALL))
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
            let Some(waits) = partition.accepted.filter(|_| !is_ignored) else {
                continue;
            };
            let base = &durable.stores[p];
            let next = base.next(durable.committed + 1, waits, model);
            for (k, key) in next.keys.iter().enumerate() {
                for batch in &key.applied[base.keys[k].applied.len()..] {
                    let count = &mut durable.outputs[job][p][k][usize::from(*batch) - 1];
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
            let forgets = match partition.waits {
                Some(ALL) => model.is(Mutant::ForgetsPark),
                Some(NONE) => model.is(Mutant::ForgetsDelivery),
                Some(_) => model.is(Mutant::ForgetsPart),
                None => false,
            };
            if forgets {
                partition.waits = None;
                partition.is_decided = false;
                partition.failures = 0;
            }
        }
        self.accept_healthy(model, durable);
    }

    /// Spark writes `commits/N`, which names the store of the first info of each partition.
    pub fn commit(self, durable: &mut Durable) {
        let waits = self.partitions.each_ref().map(|p| p.waits.unwrap_or(NONE));
        let stores = self.partitions.map(|p| p.info.unwrap_or_default());
        *durable = Durable {
            committed: durable.committed + 1,
            suspects: std::array::from_fn(|p| {
                if stores[p].is_parked() {
                    waits[p]
                } else {
                    NONE
                }
            }),
            stores,
            outputs: durable.outputs,
            ..Durable::default()
        };
    }
}

/// Nothing fails any more in the last batch, and each partition is tried.
pub const fn is_last_batch(model: &Model, durable: &Durable) -> bool {
    durable.committed + 1 == model.batches
}

pub const fn bit(p: usize) -> u8 {
    1 << p
}
