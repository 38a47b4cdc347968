//! The decisions about one source in one batch.

use std::collections::{BTreeMap, BTreeSet};

use super::marker::{Letter, Marker};
use super::messages::{Action, Answer, Fact, Found, Plan};
use crate::isolation::{Attempt, Part};

/// Seconds for which an attempt that found bad rows waits until no other one runs.
const ALONE_S: u32 = 30;

/// Errors that a refusal quotes.
const QUOTED: usize = 3;

/// By the digest of rows with equal content, where each of them is.
type Places = BTreeMap<String, Vec<String>>;

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Batch {
    pub(super) actions: Vec<Action>,
    pub(super) number: u64,
    plan: Plan,
    /// The marker of an earlier run.
    base: Option<Marker>,
    /// The letters of rows of this run, by digest.
    letters: BTreeMap<String, Letter>,
    partitions: BTreeMap<u32, Partition>,
    attempts: BTreeMap<Attempt, Tried>,
    /// Tasks of which an attempt failed, by stage.
    failed: BTreeSet<(u32, u32)>,
    /// Attempts that found bad rows, until no other one can deliver these rows, and seconds until then.
    waiting: BTreeMap<Part, (Vec<Found>, u64, u32)>,
    /// Stages with tasks that do not read exactly the partition of their number.
    reshaped: BTreeSet<u32>,
    /// A job may have given rows of the batch to a sink.
    has_job: bool,
    /// Too many rows are bad, and so the batch fails.
    exceeded: Option<String>,
    /// Attempts that wait until the marker with their rows is durable.
    settled: Vec<Part>,
    /// Too many rows are bad: the marker becomes again what it was when the batch began.
    reverts: bool,
    /// A write failed, and may have made a marker durable.
    pub(super) is_uncertain: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Partition {
    /// The rows that its attempts leave out. Others may have equal content in other partitions.
    left_out: Places,
    /// A task read it all and Spark took the result.
    is_through: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Tried {
    /// Spark's number of the task, while it runs.
    task: Option<u64>,
    has_ended: bool,
    /// The partitions that it asked for.
    asked: BTreeSet<u32>,
}

/// Refuses attempts whose rows did not become durable.
pub(super) fn refused(parts: Vec<Part>, why: &str) -> impl Iterator<Item = Action> {
    let refuse = move |part| Action::Refuse(part, why.to_owned());
    parts.into_iter().map(refuse)
}

impl Batch {
    pub(super) fn begin(number: u64, plan: Plan, base: Option<&Marker>) -> Result<Self, String> {
        if let Some(base) = base.filter(|base| base.form != plan.form) {
            return Err(format!(
                "An earlier run of batch {number} set rows of {} aside that had the columns {}. Now they \
                 have the columns {}, so these rows cannot be recognized. End the batch with a program \
                 that reads the same columns.",
                plan.source, base.form, plan.form
            ));
        }
        let suspects = base.map_or(0, |_| plan.partitions);
        Ok(Self {
            actions: vec![Action::Suspect((0..suspects).collect())],
            number,
            plan,
            base: base.cloned(),
            ..Self::default()
        })
    }

    pub(super) fn end(self, actions: &mut Vec<Action>) {
        let parts = self.settled.into_iter().chain(self.waiting.into_keys());
        actions.extend(refused(parts.collect(), "The query has gone on"));
    }

    pub(super) fn take(&mut self, through: &[u32], fact: Fact) {
        for partition in through {
            self.partitions.entry(*partition).or_default().is_through = true;
        }
        match fact {
            Fact::StageBegan(stage, tasks) if tasks != self.plan.partitions => {
                self.reshaped.insert(stage);
            }
            Fact::StageEnded(stage) => {
                self.has_job = true;
                let attempts = &mut self.attempts;
                attempts.retain(|one, tried| one.stage != stage || !tried.has_ended);
            }
            Fact::Began(attempt, task) => self.tried(attempt).task = Some(task),
            Fact::Ended(attempt, _, failure) => self.ended(attempt, failure.is_some()),
            Fact::Asks(part, task) => self.asks(part, task),
            Fact::Waited(part) => self.waited(part),
            Fact::Settles(part, (found, input)) => self.settles(part, found, input),
            _ => {}
        }
        while self.settle_one() {}
    }

    fn tried(&mut self, attempt: Attempt) -> &mut Tried {
        self.attempts.entry(attempt).or_default()
    }

    fn ended(&mut self, attempt: Attempt, is_failure: bool) {
        let tried = self.tried(attempt);
        tried.task = None;
        tried.has_ended = true;
        if is_failure {
            self.failed.insert((attempt.stage, attempt.task));
        }
        let gone: Vec<Part> = self.waiting.keys().copied().collect();
        for part in gone.into_iter().filter(|part| part.attempt == attempt) {
            self.waiting.remove(&part);
            self.refuse(part);
        }
    }

    fn asks(&mut self, part: Part, task: u64) {
        if part.attempt.task != part.partition {
            self.reshaped.insert(part.attempt.stage);
        }
        let tried = self.tried(part.attempt);
        if tried.has_ended {
            return self.refuse(part);
        }
        // Spark may report later that the attempt began.
        tried.task = Some(task);
        tried.asked.insert(part.partition);
        if let Some(why) = self.exceeded.clone() {
            return self.actions.push(Action::Refuse(part, why));
        }
        let (stage, task) = (part.attempt.stage, part.attempt.task);
        let has_failed = self.failed.contains(&(stage, task));
        if has_failed && self.is_closed() {
            let why = self.may_be_elsewhere(part.partition, "run with another program");
            self.actions.push(Action::Report(why));
        }
        let named = self.named(part.partition);
        let count: usize = named.values().map(Vec::len).sum();
        let answer = Answer {
            searches: has_failed && !self.is_closed(),
            rows_max: self.plan.limits.rows.saturating_sub(count as u64),
            named: named.into_keys().collect(),
        };
        self.actions.push(Action::Answer(part, answer));
    }

    /// An earlier run may have given the sink any row that its marker does not name.
    fn is_closed(&self) -> bool {
        self.plan.rerun && !self.plan.same_program
    }

    /// The rows that every attempt at a partition leaves out.
    fn named(&self, partition: u32) -> Places {
        let base = self.base.iter().flat_map(|base| &base.rows);
        let mut named: Places = base
            .map(|(digest, bad)| (digest.clone(), bad.positions.clone()))
            .collect();
        if let Some(partition) = self.partitions.get(&partition) {
            named.extend(partition.left_out.clone());
        }
        named
    }

    fn settles(&mut self, part: Part, found: Vec<Found>, input: u64) {
        let tried = self.attempts.get(&part.attempt);
        if !tried.is_some_and(|one| !one.has_ended && one.asked.contains(&part.partition)) {
            return self.refuse(part);
        }
        self.waiting.insert(part, (found, input, ALONE_S));
        while self.settle_one() {}
        self.wait_on(part);
    }

    fn waited(&mut self, part: Part) {
        if let Some((_, _, seconds)) = self.waiting.get_mut(&part) {
            *seconds = seconds.saturating_sub(1);
            if *seconds == 0 {
                self.waiting.remove(&part);
                return self.refuse(part);
            }
            self.wait_on(part);
        }
    }

    /// Kills the tasks that an attempt waits for, if it has to wait.
    fn wait_on(&mut self, part: Part) {
        if self.waiting.contains_key(&part) {
            let tasks: Vec<u64> = self.others(part).collect();
            self.actions.push(Action::Kill(tasks));
            self.actions.push(Action::Wait(part));
        }
    }

    /// Settles for an attempt that need not wait any more. Returns whether there was one.
    fn settle_one(&mut self) -> bool {
        let mut waiting = self.waiting.iter();
        let next = waiting.find_map(|(part, (found, ..))| {
            let is_news = self.is_news(part.partition, found);
            (!is_news || self.others(*part).next().is_none()).then_some(*part)
        });
        let Some((part, (found, input, _))) =
            next.and_then(|part| self.waiting.remove_entry(&part))
        else {
            return false;
        };
        match self.why_not(part.partition, &found, input) {
            Some(why) => self.actions.push(Action::Refuse(part, why)),
            None => self.settle(part, found),
        }
        true
    }

    /// Returns whether other attempts do not know of all of these rows.
    fn is_news(&self, partition: u32, found: &[Found]) -> bool {
        let named = self.named(partition);
        found.iter().any(|row| !named.contains_key(&row.digest))
    }

    fn why_not(&mut self, partition: u32, found: &[Found], input: u64) -> Option<String> {
        if self.exceeded.is_some() {
            return self.exceeded.clone();
        }
        let entry = self.partitions.entry(partition).or_default();
        let digests: BTreeSet<&String> = found.iter().map(|row| &row.digest).collect();
        if !entry.left_out.keys().all(|one| digests.contains(one)) {
            return Some(format!(
                "Another attempt found more bad rows in partition {partition}"
            ));
        }
        let is_through = entry.is_through;
        if !self.is_news(partition, found) {
            return None;
        }
        if is_through || self.is_closed() {
            let place = if is_through { "job" } else { "run" };
            return Some(self.may_be_elsewhere(partition, place));
        }
        self.exceeds(partition, found, input)
    }

    fn may_be_elsewhere(&self, partition: u32, place: &str) -> String {
        format!(
            "Rows of partition {partition} of {} fail now, and an earlier {place} of batch {} may have \
             given them to the sink. They are not set aside.",
            self.plan.source, self.number
        )
    }

    /// Too many rows are bad: the batch fails, as if no row had been set aside.
    fn exceeds(&mut self, partition: u32, found: &[Found], input: u64) -> Option<String> {
        let mut with = self.clone();
        with.leave_out(partition, found.to_vec());
        let limits = self.plan.limits;
        let share = (u128::from(input) * u128::from(limits.per_million) / 1_000_000) as u64;
        let (count, allowed) = (with.marker().count(), limits.rows.min(share.max(1)));
        if count <= allowed {
            return None;
        }
        let news = found.iter().filter_map(|row| row.letter.as_ref());
        let mut errors: Vec<&str> = news.map(|one| one.error.as_str()).collect();
        errors.dedup();
        errors.truncate(QUOTED);
        let why = format!(
            "At least {count} of about {input} rows of {} in batch {} are bad, which is more than \
             bad_rows_max_ratio and bad_rows_max allow ({allowed}). No row is set aside and the batch \
             fails. The first errors: {}",
            self.plan.source,
            self.number,
            errors.join("; ")
        );
        self.actions.push(Action::Report(why.clone()));
        self.exceeded = Some(why.clone());
        if !self.has_job {
            self.partitions
                .values_mut()
                .for_each(|one| one.left_out.clear());
            self.reverts = true;
        }
        Some(why)
    }

    fn settle(&mut self, part: Part, found: Vec<Found>) {
        self.leave_out(part.partition, found);
        self.actions.push(Action::Suspect(vec![part.partition]));
        self.settled.push(part);
    }

    fn leave_out(&mut self, partition: u32, found: Vec<Found>) {
        let entry = self.partitions.entry(partition).or_default();
        for row in found {
            self.letters
                .extend(row.letter.map(|letter| (row.digest.clone(), letter)));
            entry.left_out.insert(row.digest, row.positions);
        }
    }

    /// The marker with all rows that are set aside.
    fn marker(&self) -> Marker {
        let fresh = || Marker::new(&self.plan.form);
        let mut marker = self.base.clone().unwrap_or_else(fresh);
        let mut all = Places::new();
        for (digest, positions) in self.partitions.values().flat_map(|one| &one.left_out) {
            let places = all.entry(digest.clone()).or_default();
            places.extend(positions.iter().cloned());
        }
        for (digest, places) in all {
            marker.add(&digest, places, self.letters.get(&digest));
        }
        marker
    }

    /// Takes all changes: the marker as they make it, and the attempts that wait for it.
    pub(super) fn take_changes(
        &mut self,
        durable: Option<&Marker>,
    ) -> Option<(Option<Marker>, Vec<Part>)> {
        let settled = std::mem::take(&mut self.settled);
        let reverts = std::mem::take(&mut self.reverts);
        let marker = match durable {
            _ if settled.is_empty() && !reverts => return None,
            _ if reverts && self.base.is_none() => None,
            None if self.partitions.values().all(|one| one.left_out.is_empty()) => None,
            _ => Some(self.marker()),
        };
        Some((marker, settled))
    }

    pub(super) fn durable(&mut self, settled: Vec<Part>) {
        self.actions
            .extend(settled.into_iter().map(Action::Settled));
    }

    /// The tasks of other attempts that can deliver a partition.
    fn others(&self, part: Part) -> impl Iterator<Item = u64> {
        self.attempts.iter().filter_map(move |(one, tried)| {
            let may_deliver = if tried.asked.is_empty() {
                one.task == part.partition || self.reshaped.contains(&one.stage)
            } else {
                tried.asked.contains(&part.partition)
            };
            tried.task.filter(|_| *one != part.attempt && may_deliver)
        })
    }

    fn refuse(&mut self, part: Part) {
        let Part { attempt, partition } = part;
        let why = format!("Another attempt took over partition {partition} from {attempt}");
        self.actions.push(Action::Refuse(part, why));
    }
}
