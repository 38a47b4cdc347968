//! The decisions about one guarded operator in one batch.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use super::groups::Groups;
use super::known::Known;
use super::marker::{Marker, Parked, VERSION};
use super::messages::{Action, Answer, Attempt, Fact, Part, Plan};

/// Seconds for which the last attempt that Spark allows waits until no other one runs.
const ALONE_S: u32 = 30;

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Batch {
    pub(super) known: Known,
    pub(super) actions: Vec<Action>,
    pub(super) number: u64,
    plan: Plan,
    /// The sink may have the batch.
    sealed: bool,
    /// An earlier run may have delivered partitions, so no other one is parked.
    closed: bool,
    /// Partitions that any attempt asked for, or that were parked before.
    partitions: BTreeMap<u32, Partition>,
    attempts: BTreeMap<Attempt, Tried>,
    /// Attempts that park a partition once no other one can deliver it, and the seconds until then.
    waiting: BTreeMap<Part, u32>,
    /// Stages that run. Two of them read this batch at the same time.
    stages: BTreeSet<u32>,
    /// Stages with tasks that do not compute exactly the partition of their number.
    reshaped: BTreeSet<u32>,
    changes: Vec<Change>,
    /// A write failed, and may have made a marker durable.
    pub(super) is_uncertain: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Partition {
    /// The groups of keys whose rows become pending in this batch: none if the operator runs, all
    /// if it does not. `None` until an attempt asks.
    waits: Option<Groups>,
    /// An earlier run of the batch settled it, and delivered all its rows.
    was_settled: bool,
    had_caught_up: bool,
    /// A task read it all and Spark took the result: its outcome holds for the whole batch. A task
    /// that stops early does not count, although an aggregation has committed by the first row.
    is_through: bool,
    /// Such a task is known to have ended.
    has_ended: bool,
    /// Failures of attempts that may have failed for it, and the last error.
    failures: u32,
    error: Option<String>,
}

static UNKNOWN: LazyLock<Partition> = LazyLock::new(Partition::default);

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Tried {
    /// Spark's number of the task, while it runs.
    task: Option<u64>,
    has_ended: bool,
    /// The groups in its answer for each partition that it asked for; `None` while it waits.
    asked: BTreeMap<u32, Option<Groups>>,
}

/// A change of the marker, with the attempt that waits until it is durable.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Change {
    /// A task failed before the sink had anything.
    Open,
    /// An attempt is through. True if a try failed and no marker said so.
    Settle(Part, Parked, bool),
    Seal,
}

impl Change {
    pub(super) fn refused(changes: Vec<Self>, why: &str) -> impl Iterator<Item = Action> {
        changes.into_iter().filter_map(|change| match change {
            Self::Open => None,
            Self::Settle(part, ..) => Some(Action::Refuse(part, why.to_owned())),
            Self::Seal => Some(Action::Sealed(Some(why.to_owned()))),
        })
    }
}

impl Batch {
    /// `sealed`: an earlier run may have reached the sink with the batch.
    pub(super) fn begin(
        number: u64,
        plan: Plan,
        sealed: bool,
        known: &mut Known,
    ) -> Result<Self, String> {
        let mut partitions = BTreeMap::<u32, Partition>::new();
        partitions.extend(plan.pending.keys().map(|p| (*p, Partition::default())));
        let marker = known.markers.get(&number);
        for (partition, parked) in marker.iter().flat_map(|marker| &marker.parked) {
            let is_part = !parked.waits.is_empty() && !parked.waits.has_all_keys();
            if is_part && !plan.divides {
                return Err(format!(
                    "An earlier run of batch {number} divided partition {partition} of {} (operator \
                     {}) by keys, and the program of this run cannot. End the batch with the program \
                     of that run.",
                    plan.name, plan.operator
                ));
            }
            let entry = partitions.entry(*partition).or_default();
            entry.waits = Some(parked.waits.clone());
            entry.was_settled = true;
            entry.had_caught_up = parked.waits.is_empty();
        }
        let suspects = partitions.keys().copied().collect();
        let mut batch = Self {
            known: std::mem::take(known),
            actions: vec![Action::Suspect(suspects)],
            number,
            closed: sealed && !plan.reruns_park,
            plan,
            sealed,
            partitions,
            ..Self::default()
        };
        batch.show();
        Ok(batch)
    }

    pub(super) fn end(self, actions: &mut Vec<Action>) -> Known {
        actions.extend(Change::refused(self.changes, "The query has gone on"));
        self.known
    }

    pub(super) fn take(&mut self, through: &[u32], fact: Fact) {
        for partition in through {
            self.partitions.entry(*partition).or_default().is_through = true;
        }
        match fact {
            Fact::StageBegan(stage, tasks) => {
                self.stages.insert(stage);
                if tasks != self.plan.partitions {
                    self.reshape(stage);
                }
            }
            Fact::StageEnded(stage) => {
                self.stages.remove(&stage);
                let attempts = &mut self.attempts;
                attempts.retain(|one, tried| one.stage != stage || !tried.has_ended);
            }
            Fact::Began(attempt, task) => self.tried(attempt).task = Some(task),
            Fact::Ended(attempt, success, failure) => self.ended(attempt, success, failure),
            Fact::Asks(part, task) => self.asks(part, task),
            Fact::Waited(part) => self.waited(part),
            Fact::Settles(part, now_ms) => self.settles(part, now_ms),
            Fact::Seal => {
                // A failure that Spark reports later opens no marker.
                self.sealed = true;
                self.changes.push(Change::Seal);
            }
            _ => {}
        }
        while self.answer_one() {}
    }

    fn partition(&self, partition: u32) -> &Partition {
        self.partitions.get(&partition).unwrap_or(&UNKNOWN)
    }

    fn tried(&mut self, attempt: Attempt) -> &mut Tried {
        self.attempts.entry(attempt).or_default()
    }

    fn reshape(&mut self, stage: u32) {
        if self.reshaped.insert(stage) && !self.known.has_warned {
            self.known.has_warned = true;
            self.warn(format!(
                "A job of batch {} reads {} (operator {}, run {}) in tasks of several partitions, or \
                 several times, as after coalesce() or union(). Failures of partitions are not isolated \
                 in such jobs: a task that keeps failing fails the batch.",
                self.number, self.plan.name, self.plan.operator, self.known.id
            ));
        }
    }

    fn ended(&mut self, attempt: Attempt, success: bool, failure: Option<String>) {
        let tried = self.tried(attempt);
        tried.task = None;
        tried.has_ended = true;
        let asked = std::mem::take(&mut tried.asked);
        for (partition, answer) in &asked {
            let part = Part {
                attempt,
                partition: *partition,
            };
            match answer {
                Some(groups) if success => self.delivered(*partition, groups),
                Some(_) => {}
                None => {
                    self.waiting.remove(&part);
                    self.refuse(part);
                }
            }
        }
        let Some(error) = failure else {
            return;
        };
        let of = if self.reshaped.contains(&attempt.stage) {
            asked.into_keys().collect()
        } else {
            vec![attempt.task]
        };
        for partition in of {
            let partition = self.partitions.entry(partition).or_default();
            partition.failures += 1;
            partition.error = Some(error.clone());
        }
        if self.plan.seals && !self.sealed {
            self.changes.push(Change::Open);
        }
    }

    fn delivered(&mut self, partition: u32, groups: &Groups) {
        let entry = self.partitions.entry(partition).or_default();
        if !entry.is_through || std::mem::replace(&mut entry.has_ended, true) {
            return;
        }
        let (name, number) = (self.name_of(partition), self.number);
        if groups.is_empty() {
            if let Some(batches) = self.plan.pending.get(&partition).map(Vec::len) {
                self.known.backoffs.remove(&partition);
                self.warn(format!(
                    "Partition {name} has caught up in batch {number}, with the rows of {batches} \
                     parked batches."
                ));
            }
        } else if self.is_try(partition, groups) {
            self.known.back_off(partition, number, 1);
            let keys = groups.share();
            self.warn(format!(
                "Keys of partition {name} have caught up in batch {number}. It is parked with {keys:?} \
                 of its keys."
            ));
        }
    }

    fn asks(&mut self, part: Part, task: u64) {
        if part.attempt.task != part.partition {
            self.reshape(part.attempt.stage);
        }
        let tried = self.tried(part.attempt);
        if tried.has_ended {
            return self.refuse(part);
        }
        // Spark may report later that the attempt began.
        tried.task = Some(task);
        match tried.asked.get(&part.partition).cloned() {
            Some(Some(groups)) => {
                let answer = self.answer(part.partition, groups);
                self.actions.push(Action::Answer(part, answer));
            }
            Some(None) => {}
            None => self.decide(part),
        }
    }

    fn decide(&mut self, part: Part) {
        let partition = part.partition;
        if self.partition(partition).waits.is_none() {
            let first = self.first(partition);
            self.partitions.entry(partition).or_default().waits = Some(Groups::default());
            if !first.is_empty() && self.may_park(partition) {
                self.park(partition, first);
            }
        }
        let now = self.waits(partition);
        // A task of several partitions may have failed for any of them. It only takes back a try.
        let may_wait = !now.has_all_keys()
            && !self.partition(partition).is_through
            && (self.is_single(part.attempt) || self.is_try(partition, &now))
            && self.is_last(part)
            && self.may_park(partition);
        if !may_wait {
            return self.give(part);
        }
        self.tried(part.attempt).asked.insert(partition, None);
        self.waiting.insert(part, ALONE_S);
        self.wait_on(part);
    }

    fn waited(&mut self, part: Part) {
        if let Some(seconds) = self.waiting.get_mut(&part) {
            *seconds = seconds.saturating_sub(1);
            if *seconds == 0 {
                return self.give(part);
            }
        }
        self.wait_on(part);
    }

    /// Kills the tasks that an attempt waits for, if it has to wait.
    fn wait_on(&mut self, part: Part) {
        while self.answer_one() {}
        if self.waiting.contains_key(&part) {
            let tasks: Vec<u64> = self.others(part).collect();
            self.actions
                .extend((!tasks.is_empty()).then_some(Action::Kill(tasks)));
            self.actions.push(Action::Wait(part));
        }
    }

    /// Answers an attempt that need not wait any more. Returns whether there was one.
    fn answer_one(&mut self) -> bool {
        let found = self.waiting.keys().copied().find_map(|part| {
            let is_decided = self.partition(part.partition).is_through
                || self.waits(part.partition).has_all_keys();
            let is_alone = self.others(part).next().is_none()
                && earlier(part.attempt).all(|one| self.has_ended(one));
            (is_decided || is_alone).then_some((part, is_decided))
        });
        let Some((part, is_decided)) = found else {
            return false;
        };
        // Some of the attempts may have been killed, which is no failure.
        if !is_decided && self.is_last(part) && self.may_park(part.partition) {
            let next = if self.is_single(part.attempt) {
                self.next(part.partition, &self.waits(part.partition))
            } else {
                self.before(part.partition)
            };
            self.park(part.partition, next);
        }
        self.give(part);
        true
    }

    fn give(&mut self, part: Part) {
        let groups = self.waits(part.partition);
        let answer = self.answer(part.partition, groups.clone());
        self.actions.push(Action::Answer(part, answer));
        self.waiting.remove(&part);
        self.tried(part.attempt)
            .asked
            .insert(part.partition, Some(groups));
    }

    fn answer(&self, partition: u32, waits: Groups) -> Answer {
        let error = self.partition(partition).error.as_ref();
        let last = self.known.last(partition, self.number);
        let failure = error.or(last.and_then(|last| last.error.as_ref()));
        Answer {
            parks: waits.has_all_keys(),
            still: waits.share() == self.before(partition).share(),
            settles: self.is_pending(partition) || !waits.is_empty(),
            failure: failure.cloned(),
            waits,
        }
    }

    fn park(&mut self, partition: u32, groups: Groups) {
        self.partitions.entry(partition).or_default().waits = Some(groups);
        self.actions.push(Action::ForgetCommits(partition));
        self.show();
    }

    /// Until the marker is durable, a parked partition stays parked; a re-run delivers any other.
    fn settles(&mut self, part: Part, at_ms: i64) {
        let tried = self.attempts.get(&part.attempt);
        let answer = tried.and_then(|tried| tried.asked.get(&part.partition)?.clone());
        let entry = self.partition(part.partition);
        let Some(waits) = answer.filter(|waits| entry.waits.as_ref() == Some(waits)) else {
            return self.refuse(part);
        };
        let error = entry.error.clone().filter(|_| !waits.is_empty());
        let is_news = error.is_some();
        let last = self.known.last(part.partition, self.number);
        let (tries, error) = match last.filter(|_| self.is_pending(part.partition)) {
            Some(last) => (
                last.tries + u32::from(is_news),
                error.or_else(|| last.error.clone()),
            ),
            None => (1, error),
        };
        let parked = Parked {
            at_ms,
            tries,
            error,
            waits,
        };
        self.changes.push(Change::Settle(part, parked, is_news));
    }

    /// Takes all changes. Also returns the marker with them, if it is to be written.
    pub(super) fn take_changes(&mut self) -> (Option<Marker>, Vec<Change>) {
        let durable = self.known.markers.get(&self.number);
        let mut marker = durable.cloned();
        let mut changes = std::mem::take(&mut self.changes);
        let is_uncertain = self.is_uncertain && !changes.is_empty();
        for change in &mut changes {
            // A batch without failures needs no seal.
            if *change == Change::Seal && marker.is_none() && !is_uncertain {
                continue;
            }
            let fresh = || Marker {
                version: VERSION,
                operator: self.plan.operator,
                name: self.plan.name.clone(),
                times: self.plan.times.clone(),
                parked: BTreeMap::new(),
                sealed: self.sealed,
            };
            let marker = marker.get_or_insert_with(fresh);
            match change {
                Change::Open => {}
                Change::Seal => marker.sealed = true,
                Change::Settle(part, parked, is_news) => {
                    let now = marker.parked.get(&part.partition);
                    if now.is_some_and(|now| now.waits == parked.waits) {
                        *is_news = false;
                    } else {
                        marker.parked.insert(part.partition, parked.clone());
                    }
                }
            }
        }
        let marker = marker.filter(|marker| is_uncertain || Some(marker) != durable);
        (marker, changes)
    }

    pub(super) fn durable(&mut self, changes: Vec<Change>) {
        for change in changes {
            match change {
                Change::Open => {}
                Change::Seal => self.actions.push(Action::Sealed(None)),
                Change::Settle(part, parked, is_news) => {
                    if is_news {
                        self.report(part.partition, parked);
                    }
                    self.actions.push(Action::Settled(part));
                }
            }
        }
    }

    /// The groups of keys that wait in the first attempts.
    fn first(&self, partition: u32) -> Groups {
        if !self.is_pending(partition) || self.partition(partition).is_through {
            return Groups::default();
        }
        match self.known.backoffs.get(&partition) {
            Some(backoff) if self.number < backoff.next => self.before(partition),
            Some(_) => self.before(partition).without_first(),
            // No try has failed in this run: the program may be a repaired one.
            None => Groups::default(),
        }
    }

    /// The groups that wait after a failure: a try failed, or keys that have not waited.
    fn next(&self, partition: u32, now: &Groups) -> Groups {
        let before = self.before(partition);
        let has_attempts = self.partition(partition).failures < self.plan.limits.attempts;
        if !self.plan.divides || !has_attempts || !self.is_try(partition, now) {
            Groups::all()
        } else if *now == before.without_first() {
            before.divided()
        } else {
            before
        }
    }

    /// Returns whether keys that waited before the batch do not wait with these groups.
    fn is_try(&self, partition: u32, groups: &Groups) -> bool {
        self.is_pending(partition)
            && (groups.is_empty() || *groups == self.before(partition).without_first())
    }

    fn before(&self, partition: u32) -> Groups {
        if self.plan.divides {
            self.known.waits(partition, self.number)
        } else {
            Groups::all()
        }
    }

    /// Returns whether an attempt has no failure to spare; a try of keys that wait never has.
    fn is_last(&self, part: Part) -> bool {
        let unknown = earlier(part.attempt).filter(|one| !self.has_ended(*one));
        let is_try = self.is_try(part.partition, &self.waits(part.partition));
        let failures_max = if is_try { 1 } else { self.plan.limits.attempts };
        self.partition(part.partition).failures + unknown.count() as u32 >= failures_max
    }

    /// Attempts that ended are forgotten with their stage.
    fn has_ended(&self, attempt: Attempt) -> bool {
        match self.attempts.get(&attempt) {
            Some(tried) => tried.has_ended,
            None => !self.stages.contains(&attempt.stage),
        }
    }

    fn waits(&self, partition: u32) -> Groups {
        self.partition(partition).waits.clone().unwrap_or_default()
    }

    fn is_pending(&self, partition: u32) -> bool {
        self.plan.pending.contains_key(&partition)
    }

    fn is_single(&self, attempt: Attempt) -> bool {
        !self.reshaped.contains(&attempt.stage)
    }

    fn may_park(&mut self, partition: u32) -> bool {
        let limits = self.plan.limits;
        let is_pending = self.is_pending(partition);
        let batches = self.plan.pending.get(&partition).map_or(0, Vec::len);
        let entry = self.partition(partition);
        // A partition that was parked before may be parked again, until it has caught up.
        let parks_again = is_pending && !entry.had_caught_up;
        let parked = self.partitions.iter().filter(|(other, entry)| {
            let is_parked = entry.waits.as_ref().is_some_and(|waits| !waits.is_empty());
            **other != partition && (is_parked || (self.is_pending(**other) && !entry.is_through))
        });
        let parked = parked.count();
        let why = if !parks_again && parked >= limits.parked {
            format!(
                "{parked} partitions are parked, the limit is {}",
                limits.parked
            )
        } else if batches >= limits.batches {
            format!(
                "the rows of {} batches are parked, which is the limit",
                limits.batches
            )
        } else if !is_pending && self.stages.len() > 1 {
            "two jobs read the batch at the same time".to_owned()
        } else if self.closed && (!is_pending || entry.was_settled) {
            // Unless a pending partition is settled, no run has given the sink any of its rows.
            "an earlier run may have given the rows of this batch to the sink (isolation_rerun)"
                .to_owned()
        } else {
            return true;
        };
        self.actions.push(Action::Report(format!(
            "Partition {} fails in batch {} and is not parked: {why}. If it keeps failing, the query \
             fails.",
            self.name_of(partition),
            self.number
        )));
        false
    }

    /// The tasks of other attempts that can deliver a partition. All tasks of a pending partition
    /// ask first. A first attempt at another partition does not.
    fn others(&self, part: Part) -> impl Iterator<Item = u64> {
        self.attempts.iter().filter_map(move |(one, tried)| {
            let may_deliver = if tried.asked.is_empty() {
                one.task == part.partition && !self.is_pending(part.partition)
            } else {
                matches!(tried.asked.get(&part.partition), Some(Some(_)))
            };
            tried.task.filter(|_| *one != part.attempt && may_deliver)
        })
    }

    fn show(&mut self) {
        let since = self
            .partitions
            .keys()
            .filter(|p| !self.waits(**p).is_empty());
        let since = since.map(|partition| {
            let pending = self.plan.pending.get(partition);
            pending
                .and_then(|batches| batches.first().copied())
                .unwrap_or(self.number)
        });
        let since = since.min();
        self.actions.push(Action::Show(since));
    }

    /// A try failed, and that is durable.
    fn report(&mut self, partition: u32, parked: Parked) {
        let (before, waits) = (self.before(partition), parked.waits);
        let last = self.known.backoffs.get(&partition);
        let pause = match last {
            // Keys that had not waited wait now.
            _ if waits.share() > before.share() => 1,
            None => 1,
            // The next try is of less, which may succeed.
            Some(_) if waits.len() > before.len() => 2,
            Some(last) => 2 * last.pause,
        };
        let next = self.known.back_off(partition, self.number, pause);
        let (name, number) = (self.name_of(partition), self.number);
        let error = parked.error.unwrap_or_default();
        if !waits.has_all_keys() {
            let keys = waits.share();
            return self.warn(format!(
                "Partition {name} is parked in batch {number} with {keys:?} of its keys. The next try \
                 is in batch {next}. The last failure: {error}"
            ));
        }
        let failures = self.partition(partition).failures;
        let checkpoint = &self.known.checkpoint;
        self.actions.push(Action::Report(format!(
            "Partition {name} is parked in batch {number} after {failures} failures of its task. The \
             batch completes without its rows. They are stored in the checkpoint and come with a later \
             batch; the next try is in batch {next}, or when the query starts again. To look at them: \
             holdfast parked {checkpoint}. The last failure: {error}"
        )));
    }

    fn name_of(&self, partition: u32) -> String {
        format!(
            "{partition} of {} (operator {})",
            self.plan.name, self.plan.operator
        )
    }

    fn warn(&mut self, text: String) {
        self.actions.push(Action::Warn(text));
    }

    fn refuse(&mut self, part: Part) {
        let Part { attempt, partition } = part;
        let why = format!("Another attempt took over partition {partition} from {attempt}");
        self.actions.push(Action::Refuse(part, why));
    }
}

fn earlier(attempt: Attempt) -> impl Iterator<Item = Attempt> {
    (0..attempt.number).map(move |number| Attempt { number, ..attempt })
}
