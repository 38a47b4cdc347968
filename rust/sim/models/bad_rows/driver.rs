//! The driver: the product's machine decides, and this world does what it orders.

use std::collections::BTreeMap;

use holdfast_core::bad_rows::{self, Action, Answer, Fact, Found, Letter, Limits, Marker, Plan};
use holdfast_core::isolation::{self, Part};

use crate::model::{
    BATCHES_MAX, CONTENTS, JOBS, Model, Mutant, PARTITIONS, Program, ROWS, Rows, bit,
};

/// Failures of a task after which Spark ends the query.
const FAILURES_MAX: u32 = 3;

/// For each row of each batch, how often it is somewhere; 2 is more than once.
type Counts = [[[u8; CONTENTS]; PARTITIONS]; BATCHES_MAX];

/// Survives the driver.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Durable {
    pub committed: u8,
    /// An earlier run began the batch after the committed ones.
    pub begun: bool,
    pub markers: BTreeMap<u64, Marker>,
    /// The program of all runs of the batch, or none if there were several.
    pub program: Option<Program>,
    /// Outputs to which a job of the batch was written.
    pub written: [bool; JOBS],
    pub outputs: [Counts; JOBS],
    pub letters: Counts,
}

impl Durable {
    fn batch(&self) -> u64 {
        u64::from(self.committed) + 1
    }

    pub fn marker(&self) -> Option<&Marker> {
        self.markers.get(&self.batch())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Phase {
    Launched,
    /// The stage runs, without the rows that the attempt leaves out.
    Delivering,
    /// The driver was told about these rows, and has not answered.
    Settling,
    Settled,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Attempt {
    pub number: u32,
    pub phase: Phase,
    pub left_out: Rows,
    /// Rows of these that the marker did not name.
    found: Rows,
    /// The driver ordered to kill it.
    pub is_doomed: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Partition {
    pub attempts: Vec<Attempt>,
    launched: u32,
    failed: u32,
    is_suspect: bool,
    is_through: bool,
    /// The rows without which Spark took a result in this job.
    pub accepted: Option<Rows>,
}

/// The memory of the driver about the batch that it runs.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Run {
    machine: bad_rows::Run,
    pub is_rerun: bool,
    /// Another program may have delivered rows of the batch.
    pub is_closed: bool,
    /// Jobs of the batch that wrote their output.
    pub job: usize,
    pub partitions: [Partition; PARTITIONS],
    pub has_failed: bool,
    /// The last batch is committed, and its dead letters are not written.
    pub publishes: bool,
}

impl Run {
    /// Returns whether more rows throw than may be set aside.
    pub fn exceeds(&self, model: &Model, program: Program) -> bool {
        let bad = ROWS.iter().map(|rows| rows & program.throws());
        u64::from(bad.map(Rows::count_ones).sum::<u32>()) > model.rows_max
    }

    /// Begins the batch after the committed ones. A driver that starts writes letters first.
    pub fn start(model: &Model, durable: &mut Durable, program: Program) -> Self {
        let mut machine = bad_rows::Run::default();
        let markers = durable.markers.clone();
        for (batch, marker) in markers {
            let is_committed = batch <= durable.committed.into();
            if !model.is(Mutant::ForgetsMarker) || is_committed {
                machine.know(batch, marker);
            }
            if is_committed && !model.is(Mutant::ForgetsLetters) {
                for action in machine.take(batch, &[], Fact::Committed) {
                    publish(model, durable, action);
                }
            }
        }
        Self::begin(model, durable, program, machine)
    }

    fn begin(
        model: &Model,
        durable: &mut Durable,
        program: Program,
        machine: bad_rows::Run,
    ) -> Self {
        let is_same = durable.program == Some(program);
        let mut run = Self {
            machine,
            is_rerun: durable.begun,
            is_closed: durable.begun && !is_same,
            job: 0,
            partitions: Default::default(),
            has_failed: false,
            publishes: false,
        };
        let plan = Plan {
            source: String::new(),
            form: String::new(),
            partitions: PARTITIONS as u32,
            rerun: durable.begun,
            same_program: is_same || model.is(Mutant::EveryProgramIsTheSame),
            retained: BATCHES_MAX as u64,
            limits: Limits {
                rows: model.rows_max,
                per_million: 1_000_000,
            },
        };
        let is_late = model.is(Mutant::ProgramIsRecordedLate) && durable.program.is_some();
        let is_second = durable.begun && model.is(Mutant::SecondProgramIsNotRecorded);
        if !is_same && !is_late && !is_second {
            durable.program = (!durable.begun).then_some(program);
        }
        durable.begun = true;
        let mut world = World {
            model,
            durable,
            run: &mut run,
        };
        world.tell(Fact::Begin(Box::new(plan)));
        world.tell(Fact::StageBegan(0, PARTITIONS as u32));
        run
    }

    /// Spark writes `commits/N`.
    pub fn commit(&mut self, model: &Model, durable: &mut Durable, program: Program) {
        if model.is(Mutant::ProgramIsRecordedLate) {
            durable.program = Some(program);
        }
        durable.committed += 1;
        durable.begun = false;
        durable.written = Default::default();
        self.publishes = true;
    }

    /// Writes the dead letters of the committed batch, and begins the next one.
    pub fn publish(self, model: &Model, durable: &mut Durable, program: Program) -> Self {
        let mut machine = self.machine;
        for action in machine.take(durable.committed.into(), &[], Fact::Committed) {
            publish(model, durable, action);
        }
        if durable.committed < model.batches {
            return Self::begin(model, durable, program, machine);
        }
        Self {
            machine,
            publishes: false,
            partitions: Default::default(),
            ..self
        }
    }
}

fn publish(model: &Model, durable: &mut Durable, action: Action) {
    let Action::Publish(batch, marker) = action else {
        return;
    };
    let letters = &mut durable.letters[batch as usize - 1];
    if !model.is(Mutant::RepeatsLetters) {
        *letters = Default::default();
    }
    for (digest, bad) in &marker.rows {
        let k: usize = digest.parse().unwrap();
        for place in &bad.positions {
            let p: usize = place.parse().unwrap();
            letters[p][k] = (letters[p][k] + 1).min(2);
        }
    }
}

/// A step that the driver or a task takes.
pub struct World<'a> {
    pub model: &'a Model,
    pub durable: &'a mut Durable,
    pub run: &'a mut Run,
}

impl World<'_> {
    /// Tells the machine, and does what it orders. Mutants sit between both.
    fn tell(&mut self, fact: Fact) {
        let is_through = |p: &u32| {
            self.run.partitions[*p as usize].is_through && !self.model.is(Mutant::ForgetsDelivery)
        };
        let through: Vec<u32> = (0..PARTITIONS as u32).filter(is_through).collect();
        for action in self.run.machine.take(self.durable.batch(), &through, fact) {
            match action {
                // The task that asked takes it from the list.
                Action::Answer(part, answer) => self.answered(part, &answer),
                Action::Settled(part) => {
                    if let Some((p, index)) = self.find(part) {
                        self.run.partitions[p].attempts[index].phase = Phase::Settled;
                    }
                }
                Action::Refuse(part, _) => {
                    if let Some((p, index)) = self.find(part) {
                        self.fail(p, index);
                    }
                }
                Action::Write(batch, marker) => {
                    if !self.model.is(Mutant::NoMarker) {
                        self.durable.markers.insert(batch, marker);
                    }
                    self.tell(Fact::Written);
                }
                Action::Delete(_) if self.model.is(Mutant::MarkerStays) => {}
                Action::Delete(batch) => {
                    self.durable.markers.remove(&batch);
                }
                Action::Kill(tasks) => {
                    for (p, partition) in self.run.partitions.iter_mut().enumerate() {
                        for attempt in &mut partition.attempts {
                            attempt.is_doomed |= tasks.contains(&task(p, attempt.number));
                        }
                    }
                }
                Action::Suspect(partitions) => {
                    for p in partitions {
                        self.run.partitions[p as usize].is_suspect = true;
                    }
                }
                Action::Fail(why) => panic!("{why}"),
                // No second passes, and the sink waits for no seal.
                _ => {}
            }
        }
    }

    fn part(&self, p: usize, number: u32) -> Part {
        let attempt = isolation::Attempt {
            stage: self.run.job as u32,
            stage_attempt: 0,
            task: p as u32,
            number,
        };
        let partition = p as u32;
        Part { attempt, partition }
    }

    fn find(&self, part: Part) -> Option<(usize, usize)> {
        let p = part.partition as usize;
        let mut attempts = self.run.partitions[p].attempts.iter();
        let index = attempts.position(|one| self.part(p, one.number) == part)?;
        Some((p, index))
    }

    pub fn launch(&mut self, p: usize) {
        let partition = &mut self.run.partitions[p];
        let number = partition.launched;
        partition.launched += 1;
        partition.attempts.push(Attempt {
            number,
            phase: Phase::Launched,
            left_out: 0,
            found: 0,
            is_doomed: false,
        });
        self.tell(Fact::Began(self.part(p, number).attempt, task(p, number)));
    }

    /// An attempt runs the stage, or asks before.
    pub fn compute(&mut self, p: usize, index: usize) {
        let number = self.run.partitions[p].attempts[index].number;
        let is_blind = self.run.job > 0 && self.model.is(Mutant::LaterJobAsksNobody);
        if number > 0 || (self.run.partitions[p].is_suspect && !is_blind) {
            self.run.partitions[p].is_suspect = true;
            self.tell(Fact::Asks(self.part(p, number), task(p, number)));
        } else {
            self.run.partitions[p].attempts[index].phase = Phase::Delivering;
        }
    }

    fn answered(&mut self, part: Part, answer: &Answer) {
        let Some((p, index)) = self.find(part) else {
            return;
        };
        let named = answer
            .named
            .iter()
            .map(|digest| bit(digest.parse().unwrap()));
        let attempt = &mut self.run.partitions[p].attempts[index];
        attempt.phase = Phase::Delivering;
        attempt.left_out = named.sum::<Rows>() & ROWS[p];
        attempt.found = 0;
        // It tries rows apart in the next step, with the program of the run.
        if answer.searches && !self.model.is(Mutant::NeverSearches) {
            attempt.found = Rows::MAX;
        }
    }

    /// The search finds these rows.
    pub fn search(&mut self, p: usize, index: usize, bad: Rows) {
        let attempt = &mut self.run.partitions[p].attempts[index];
        attempt.found = bad & ROWS[p] & !attempt.left_out;
        attempt.left_out |= attempt.found;
    }

    /// An attempt has read its partition.
    pub fn settle(&mut self, p: usize, index: usize) {
        let attempt = &mut self.run.partitions[p].attempts[index];
        let Attempt {
            number,
            left_out,
            found,
            ..
        } = *attempt;
        if self.model.is(Mutant::SettlesNothing) {
            attempt.phase = Phase::Settled;
            return;
        }
        attempt.phase = Phase::Settling;
        if self.model.is(Mutant::SettlesBesideOthers) {
            let attempts = self.run.partitions[p].attempts.clone();
            for other in attempts.into_iter().filter(|one| one.number != number) {
                let attempt = self.part(p, other.number).attempt;
                self.tell(Fact::Ended(attempt, false, None));
            }
        }
        let contents = (0..CONTENTS).filter(|k| left_out & bit(*k) != 0);
        let rows = contents.map(|k| Found {
            digest: k.to_string(),
            positions: vec![p.to_string()],
            letter: (found & bit(k) != 0).then(Letter::default),
        });
        let rows = rows.collect();
        self.tell(Fact::Settles(self.part(p, number), (rows, 9)));
    }

    fn end(&mut self, p: usize, index: usize, success: bool, failure: Option<String>) {
        let attempt = self.run.partitions[p].attempts.remove(index);
        let attempt = self.part(p, attempt.number).attempt;
        self.tell(Fact::Ended(attempt, success, failure));
    }

    /// An attempt fails. Spark ends the query if that happens too often.
    pub fn fail(&mut self, p: usize, index: usize) {
        self.run.partitions[p].failed += 1;
        self.run.has_failed |= self.run.partitions[p].failed == FAILURES_MAX;
        self.end(p, index, false, Some(String::new()));
    }

    pub fn kill(&mut self, p: usize, index: usize) {
        self.end(p, index, false, None);
    }

    /// An attempt succeeds, and Spark kills the others.
    pub fn report(&mut self, p: usize, index: usize) {
        let partition = &mut self.run.partitions[p];
        partition.accepted = Some(partition.attempts[index].left_out);
        partition.is_through = true;
        self.end(p, index, true, None);
        while !self.run.partitions[p].attempts.is_empty() {
            self.kill(p, 0);
        }
    }

    /// The job writes its output to the sink.
    pub fn write(&mut self) {
        let (job, batch) = (self.run.job, usize::from(self.durable.committed));
        let is_ignored = std::mem::replace(&mut self.durable.written[job], true);
        for (p, partition) in self.run.partitions.iter().enumerate() {
            let rows = ROWS[p] & !partition.accepted.unwrap_or_default();
            for k in (0..CONTENTS).filter(|k| !is_ignored && rows & bit(*k) != 0) {
                self.durable.outputs[job][batch][p][k] += 1;
            }
        }
        self.tell(Fact::StageEnded(job as u32));
        self.run.job += 1;
        for partition in &mut self.run.partitions {
            *partition = Partition {
                is_suspect: partition.is_suspect,
                is_through: partition.is_through,
                ..Partition::default()
            };
        }
        if self.run.job < JOBS {
            self.tell(Fact::StageBegan(self.run.job as u32, PARTITIONS as u32));
        }
    }
}

impl Attempt {
    /// The search has not ended.
    pub fn searches(&self) -> bool {
        self.phase == Phase::Delivering && self.found == Rows::MAX
    }
}

fn task(p: usize, number: u32) -> u64 {
    u64::from(number << 8) + p as u64
}
