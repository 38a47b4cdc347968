//! The driver: the product's machine decides, and this world does what it orders.

use std::collections::BTreeMap;

use holdfast_core::isolation::{self, Action, Fact, Limits, Marker, Part, Plan};

use crate::model::{BATCHES_MAX, KEYS, Model, Mutant, PARTITIONS, Sink};
use crate::store::Store;
use crate::tasks::{ALL, FAILURES_MAX, Keys, NONE, Partition, Phase, has_key, is_part, keys_of};

/// Partitions of a batch that may be parked at once.
pub const PARKED_MAX: usize = 1;

/// Survives the driver. All but stores, markers and outputs belongs to the batch after the committed ones.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Durable {
    /// Batches that have an entry in `commits`.
    pub committed: u8,
    /// The stores that the newest entry names.
    pub stores: [Store; PARTITIONS],
    /// An earlier run began the batch: `offsets/N` is there.
    pub begun: bool,
    pub markers: BTreeMap<u64, Marker>,
    /// Outputs to which a job of the batch was written.
    pub written: [bool; 2],
    /// Times that the result of each batch is in each output, by partition and key; 2 is more than once.
    pub outputs: [[[[u8; BATCHES_MAX]; KEYS]; PARTITIONS]; 2],
}

impl Durable {
    /// The first batch parked these keys of partition 1, and groups wait.
    pub fn after_one(waits: Keys, groups: &str) -> Self {
        let mut durable = Self {
            committed: 1,
            ..Self::default()
        };
        for (p, store) in durable.stores.iter_mut().enumerate() {
            for (k, key) in store.keys.iter_mut().enumerate() {
                if p == 1 && has_key(waits, k) {
                    key.pending.push(1);
                    continue;
                }
                key.applied.push(1);
                for output in &mut durable.outputs {
                    output[p][k][0] = 1;
                }
            }
        }
        durable.markers.insert(1, marker(groups));
        durable
    }

    fn batch(&self) -> u64 {
        u64::from(self.committed) + 1
    }

    pub fn marker(&self) -> Option<&Marker> {
        self.markers.get(&self.batch())
    }

    /// The keys whose rows the marker parks; none if it does not name the partition.
    pub fn settled(&self, p: usize) -> Option<Keys> {
        let parked = self.marker()?.parked.get(&(p as u32))?;
        Some(keys_of(&parked.waits))
    }
}

/// The memory of the driver about the batch that it runs.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Run {
    machine: isolation::Run,
    /// An earlier run began this batch.
    pub is_rerun: bool,
    /// Jobs of the batch that wrote their output.
    pub jobs: u8,
    pub partitions: [Partition; PARTITIONS],
    /// The sink may have the batch.
    pub is_sealed: bool,
    /// A mutant's marker, which is written too late.
    pub late: Option<Marker>,
    /// The partition for which Spark ended the query.
    pub failed: Option<usize>,
}

impl Run {
    /// Begins the batch after the committed ones. A driver that starts reads all markers.
    pub fn begin(model: &Model, durable: &mut Durable, machine: Option<isolation::Run>) -> Self {
        let mut run = Self {
            machine: machine.unwrap_or_else(|| knowing(&durable.markers)),
            is_rerun: durable.begun,
            jobs: 0,
            partitions: Default::default(),
            is_sealed: false,
            late: None,
            failed: None,
        };
        let plan = plan(model, durable);
        durable.begun = true;
        let mut world = World {
            model,
            durable,
            run: &mut run,
        };
        world.tell(Fact::Begin(Box::new(plan)));
        world.begin_job();
        run
    }

    /// Partitions whose rows Spark has from this job, as bits.
    pub fn delivered(&self) -> u8 {
        let partitions = self.partitions.iter().enumerate();
        let delivered = partitions.filter(|(_, one)| one.accepted.is_some_and(|keys| keys != ALL));
        delivered.map(|(p, _)| bit(p)).sum()
    }

    /// Spark writes `commits/N`, which names the store of the first info of each partition. Returns the
    /// machine, which continues with the next batch.
    pub fn commit(self, durable: &mut Durable) -> isolation::Run {
        let stores = self.partitions.map(|p| p.info.unwrap_or_default());
        *durable = Durable {
            committed: durable.committed + 1,
            stores,
            markers: std::mem::take(&mut durable.markers),
            outputs: durable.outputs,
            ..Durable::default()
        };
        self.machine
    }
}

/// A step that the driver or a task takes.
pub struct World<'a> {
    pub model: &'a Model,
    pub durable: &'a mut Durable,
    pub run: &'a mut Run,
}

impl World<'_> {
    fn begin_job(&mut self) {
        let (stage, tasks) = (u32::from(self.run.jobs), PARTITIONS as u32);
        self.tell(Fact::StageBegan(stage, tasks));
        // A healthy partition delivers in any case, and nothing depends on when.
        for p in (0..PARTITIONS).filter(|p| self.model.poison[*p] == NONE) {
            self.take_info(p, NONE);
            self.run.partitions[p].accepted = Some(NONE);
        }
    }

    /// Tells the machine, and does what it orders. Mutants sit between both.
    fn tell(&mut self, fact: Fact) {
        let through = self.through();
        for action in self.run.machine.take(self.durable.batch(), &through, fact) {
            match action {
                Action::Answer(part, answer) => self.answered(part, &answer),
                Action::Settled(part) => self.enter(part, Phase::Settled),
                Action::Refuse(part, _) if self.model.is(Mutant::TakesInfoOfZombie) => {
                    self.enter(part, Phase::Settled);
                }
                Action::Refuse(part, _) => {
                    if let Some((p, index)) = self.find(part) {
                        if self.run.partitions[p].attempts[index].ended {
                            self.run.partitions[p].attempts.remove(index);
                        } else {
                            self.fail(p, index);
                        }
                    }
                }
                Action::Sealed(_) => self.run.is_sealed = true,
                Action::Write(_, marker) => {
                    self.write_marker(marker);
                    self.tell(Fact::Written);
                }
                Action::Delete(batch) => {
                    self.durable.markers.remove(&batch);
                }
                Action::Kill(tasks) => {
                    for (p, partition) in self.run.partitions.iter_mut().enumerate() {
                        for attempt in &mut partition.attempts {
                            let is_asking = attempt.phase == Phase::Asking;
                            attempt.is_doomed |= tasks.contains(&attempt.task(p))
                                && !(is_asking && self.model.is(Mutant::WaitsForAskers));
                        }
                    }
                }
                Action::Suspect(partitions) => {
                    for p in partitions {
                        self.run.partitions[p as usize].is_suspect = true;
                    }
                }
                Action::Fail(why) => panic!("{why}"),
                // No task of the model stops early, and no second passes.
                Action::ForgetCommits(_) | Action::Wait(_) => {}
                Action::Show(_) | Action::Warn(_) | Action::Report(_) | Action::Publish(..) => {}
            }
        }
    }

    fn enter(&mut self, part: Part, phase: Phase) {
        if let Some((p, index)) = self.find(part) {
            self.run.partitions[p].enter(self.model, index, phase);
        }
    }

    fn write_marker(&mut self, mut marker: Marker) {
        if self.model.is(Mutant::MarkerLacksPart) {
            for parked in marker.parked.values_mut() {
                if is_part(keys_of(&parked.waits)) {
                    parked.waits = isolation::Groups::all();
                }
            }
        }
        if self.model.is(Mutant::MarkerAfterSink) {
            self.run.late = Some(marker);
        } else if !self.model.is(Mutant::NoMarker) {
            self.durable.markers.insert(self.durable.batch(), marker);
        }
    }

    /// A mutant writes its marker.
    pub fn write_late(&mut self) {
        let batch = self.durable.batch();
        self.durable
            .markers
            .extend(self.run.late.take().map(|marker| (batch, marker)));
    }

    fn find(&self, part: Part) -> Option<(usize, usize)> {
        let p = part.partition as usize;
        let mut attempts = self.run.partitions[p].attempts.iter();
        let index = attempts.position(|one| one.id(self.run.jobs, p) == part.attempt)?;
        Some((p, index))
    }

    fn id(&self, p: usize, index: usize) -> isolation::Attempt {
        self.run.partitions[p].attempts[index].id(self.run.jobs, p)
    }

    pub fn launch(&mut self, p: usize) {
        let attempt = self.run.partitions[p].launch();
        let (task, attempt) = (attempt.task(p), attempt.id(self.run.jobs, p));
        self.tell(Fact::Began(attempt, task));
    }

    /// An attempt runs the stage, or asks before.
    pub fn compute(&mut self, p: usize, index: usize) {
        let attempt = self.run.partitions[p].attempts[index];
        let is_blind = self.run.jobs > 0 && self.model.is(Mutant::LaterJobAsksNobody);
        let asks = attempt.number > 0
            || attempt.stage_attempt > 0
            || (self.run.partitions[p].is_suspect && !is_blind);
        if !asks {
            return self.run.partitions[p].enter(self.model, index, Phase::Delivering);
        }
        self.run.partitions[p].has_asked = true;
        let is_alone = self.run.partitions[p]
            .attempts
            .iter()
            .all(|one| one.phase != Phase::Asking);
        self.run.partitions[p].enter(self.model, index, Phase::Asking);
        if !is_alone && self.model.is(Mutant::WaitsForAskers) {
            return;
        }
        let (attempt, task) = (attempt.id(self.run.jobs, p), attempt.task(p));
        let is_part =
            self.model.is(Mutant::DividesBesideOthers) && self.durable.stores[p].is_parked();
        if self.model.is(Mutant::ParksBesideOthers) || is_part {
            for index in 0..self.run.partitions[p].attempts.len() {
                let other = self.id(p, index);
                if other != attempt {
                    self.tell_end(other, false, false);
                }
            }
        }
        let partition = p as u32;
        self.tell(Fact::Asks(Part { attempt, partition }, task));
    }

    fn answered(&mut self, part: Part, answer: &isolation::Answer) {
        let Some((p, index)) = self.find(part) else {
            return;
        };
        let mut waits = keys_of(&answer.waits);
        let mut parks = answer.parks;
        let pending = self.durable.stores[p].waiting();
        if self.model.is(Mutant::NewKeyIsNoSuspect) && parks && is_part(pending) {
            (waits, parks) = (pending, false);
        }
        let is_full = self.others_parked(p) >= PARKED_MAX;
        let partition = &mut self.run.partitions[p];
        partition.answer = Some(waits);
        partition.is_full = is_full;
        partition.attempts[index].waits = waits;
        partition.attempts[index].settles = answer.settles;
        let phase = if parks {
            Phase::Parking
        } else {
            Phase::Delivering
        };
        partition.enter(self.model, index, phase);
        if self.model.is(Mutant::SettlesAtAnswer) && answer.settles {
            self.tell(Fact::Settles(part, 0));
        }
    }

    /// An attempt ran to its end. The driver refuses a zombie, which fails then.
    pub fn settle(&mut self, p: usize, index: usize) {
        let (attempt, partition) = (self.id(p, index), p as u32);
        self.tell(Fact::Settles(Part { attempt, partition }, 0));
    }

    fn tell_end(&mut self, attempt: isolation::Attempt, success: bool, is_failure: bool) {
        let failure = is_failure.then(String::new);
        self.tell(Fact::Ended(attempt, success, failure));
        let rerun_marks =
            self.model.is(Mutant::RerunMarksFailure) && self.model.sink == Sink::Transactional;
        if rerun_marks && self.run.is_rerun && self.durable.marker().is_none() {
            let mut open = marker("[]");
            open.parked.clear();
            self.durable.markers.insert(self.durable.batch(), open);
        }
    }

    /// An attempt fails. Spark ends the query if that happens too often.
    pub fn fail(&mut self, p: usize, index: usize) {
        let attempt = self.id(p, index);
        if self.run.partitions[p].fail(index) {
            self.run.failed = Some(p);
        }
        self.tell_end(attempt, false, true);
    }

    /// The executor of an attempt is lost, and with it output of the map stage.
    pub fn lose_executor(&mut self, p: usize, index: usize) {
        let attempt = self.id(p, index);
        if self.run.partitions[p].lose_executor(self.model, index) {
            self.run.failed = Some(p);
        }
        let counts = !self.model.is(Mutant::CountsAttemptNumber);
        self.tell_end(attempt, false, counts);
    }

    pub fn kill(&mut self, p: usize, index: usize) {
        let attempt = self.id(p, index);
        self.run.partitions[p].end(self.model, index);
        self.tell_end(attempt, false, false);
    }

    /// An attempt succeeds. Spark ignores what a zombie reports.
    pub fn report(&mut self, p: usize, index: usize) {
        let attempt = self.id(p, index);
        let one = self.run.partitions[p].attempts.remove(index);
        self.take_info(p, one.waits);
        if one.ended {
            return;
        }
        // Spark takes the result, which is the decision for later jobs.
        self.run.partitions[p].accepted = Some(one.waits);
        self.run.partitions[p].is_through = true;
        self.tell_end(attempt, true, false);
        for other in std::mem::take(&mut self.run.partitions[p].attempts) {
            self.tell_end(other.id(self.run.jobs, p), false, false);
        }
    }

    fn take_info(&mut self, p: usize, outcome: Keys) {
        let (base, batch) = (&self.durable.stores[p], self.durable.committed + 1);
        let info = &mut self.run.partitions[p].info;
        info.get_or_insert_with(|| base.next(batch, outcome, self.model));
    }

    fn through(&self) -> Vec<u32> {
        let is_through = |p: &u32| self.run.partitions[*p as usize].is_through;
        (0..PARTITIONS as u32).filter(is_through).collect()
    }

    /// Partitions other than this one of which the run parks rows, or may do so.
    fn others_parked(&self, p: usize) -> usize {
        let others = (0..PARTITIONS).filter(|other| *other != p);
        others
            .filter(|p| {
                let partition = &self.run.partitions[*p];
                let is_pending = self.durable.stores[*p].is_parked() && !partition.is_through;
                let is_settled = self.durable.settled(*p).is_some_and(|waits| waits != NONE);
                partition.parks() || is_pending || is_settled
            })
            .count()
    }

    /// The sink is about to commit.
    pub fn seal(&mut self) {
        self.tell(Fact::Seal);
    }

    /// The job writes its output to the sink.
    pub fn write(&mut self) {
        let job = usize::from(self.run.jobs);
        let is_ignored = self.durable.written[job] && self.model.sink != Sink::AtLeastOnce;
        self.durable.written[job] = true;
        for (p, partition) in self.run.partitions.iter().enumerate() {
            let Some(waits) = partition.accepted.filter(|_| !is_ignored) else {
                continue;
            };
            let base = &self.durable.stores[p];
            let next = base.next(self.durable.committed + 1, waits, self.model);
            for (k, key) in next.keys.iter().enumerate() {
                for batch in &key.applied[base.keys[k].applied.len()..] {
                    let count = &mut self.durable.outputs[job][p][k][usize::from(*batch) - 1];
                    *count = (*count + 1).min(2);
                }
            }
        }
        let stage = u32::from(self.run.jobs);
        self.tell(Fact::StageEnded(stage));
        self.run.jobs += 1;
        if self.run.jobs == self.model.jobs() {
            return;
        }
        let mut partitions = self.run.partitions.iter();
        let forgets = partitions.any(|partition| match partition.answer {
            Some(ALL) => self.model.is(Mutant::ForgetsPark),
            Some(NONE) | None => partition.is_through && self.model.is(Mutant::ForgetsDelivery),
            Some(_) => self.model.is(Mutant::ForgetsPart),
        });
        for partition in &mut self.run.partitions {
            partition.begin_job();
        }
        if forgets {
            let mut markers = self.durable.markers.clone();
            markers.remove(&self.durable.batch());
            self.run.machine = knowing(&markers);
            self.run.partitions.iter_mut().for_each(Partition::forget);
            self.tell(Fact::Begin(Box::new(plan(self.model, self.durable))));
        }
        self.begin_job();
    }
}

/// A marker that is not sealed, in which these groups of partition 1 wait.
fn marker(groups: &str) -> Marker {
    let text = format!(
        r#"{{"version":1,"operator":0,"name":"","times":{{}},"parked":{{"1":{{"waits":{groups}}}}}}}"#
    );
    Marker::from_json(text.as_bytes()).unwrap()
}

/// The machine of a driver that starts.
fn knowing(markers: &BTreeMap<u64, Marker>) -> isolation::Run {
    let mut machine = isolation::Run::new("", "");
    for (batch, marker) in markers {
        machine.know(*batch, marker.clone());
    }
    machine
}

fn plan(model: &Model, durable: &Durable) -> Plan {
    let pending = durable.stores.iter().enumerate().filter_map(|(p, store)| {
        let mut batches: Vec<u64> = store.pending().map(u64::from).collect();
        batches.sort_unstable();
        batches.dedup();
        (!batches.is_empty()).then_some((p as u32, batches))
    });
    Plan {
        operator: 0,
        name: String::new(),
        times: BTreeMap::new(),
        pending: pending.collect(),
        partitions: PARTITIONS as u32,
        seals: model.sink == Sink::Transactional,
        divides: model.divides,
        rerun: durable.begun,
        reruns_park: model.sink == Sink::AtLeastOnce || model.is(Mutant::RerunParks),
        retained: 0,
        limits: Limits {
            attempts: FAILURES_MAX - 1,
            batches: BATCHES_MAX,
            parked: if model.is(Mutant::ParksAll) {
                PARTITIONS
            } else {
                PARKED_MAX
            },
        },
    }
}

/// Nothing fails any more in the last batch, and each partition is tried.
pub const fn is_last_batch(model: &Model, durable: &Durable) -> bool {
    durable.committed + 1 == model.batches
}

pub const fn bit(p: usize) -> u8 {
    1 << p
}
