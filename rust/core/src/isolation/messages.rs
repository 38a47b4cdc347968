//! The messages between a machine and the driver. They cross as JSON. Those about bad rows have the
//! same form: there a partition is one of a source, and the sink needs no seal.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize, Serializer};

use super::groups::Groups;
use super::marker::Marker;

/// An attempt of a task, as Spark's scheduler names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Attempt {
    /// Spark's number of the stage.
    pub stage: u32,
    /// Counts the attempts of the stage from 0.
    pub stage_attempt: u32,
    /// The partition of the stage's last RDD.
    pub task: u32,
    /// Counts from 0 in each attempt of the stage.
    pub number: u32,
}

impl fmt::Display for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Attempt[stage={}, stageAttempt={}, task={}, number={}]",
            self.stage, self.stage_attempt, self.task, self.number
        )
    }
}

/// A partition of the operator in an attempt, which may compute several.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the fields say what they are")]
pub struct Part {
    pub attempt: Attempt,
    pub partition: u32,
}

/// A guarded operator in one batch, and the rules for it.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Plan {
    /// Number of the operator.
    pub operator: u64,
    /// Its name.
    pub name: String,
    /// Watermarks and times of the batch, by Spark's names.
    pub times: BTreeMap<String, i64>,
    /// By partition that was parked before, the batches whose input is pending, oldest first.
    pub pending: BTreeMap<u32, Vec<u64>>,
    /// Partitions of the operator.
    pub partitions: u32,
    /// The sink commits only after [`Action::Sealed`].
    pub seals: bool,
    /// The operator treats keys independently, so a part of them may wait.
    pub divides: bool,
    /// An earlier run began the batch.
    pub rerun: bool,
    /// A re-run may park partitions whose rows the sink may have.
    pub reruns_park: bool,
    /// Batches before this one that Spark keeps.
    pub retained: u64,
    /// How much may fail, and be parked.
    pub limits: Limits,
}

/// How much may fail, and be parked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
pub struct Limits {
    /// Failures of a task in one batch after which its partition is parked. Spark allows one more.
    pub attempts: u32,
    /// Batches whose input may be pending for one partition.
    pub batches: usize,
    /// Partitions that may be parked at once.
    pub parked: usize,
}

/// An event, reported by the driver. An attempt settles with a time, in milliseconds since 1970.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub enum Fact<P = Plan, S = i64> {
    /// A batch begins. It ends the one before.
    Begin(Box<P>),
    /// A stage begins to compute the partitions in so many tasks.
    StageBegan(u32, u32),
    /// A stage ended.
    StageEnded(u32),
    /// An attempt began. Spark has this number for its task.
    Began(Attempt, u64),
    /// An attempt ended, successfully or not. A failure that counts has an error.
    Ended(Attempt, bool, Option<String>),
    /// An attempt, with this number of the task, asks what it does with a partition.
    Asks(Part, u64),
    /// A second has passed since [`Action::Wait`].
    Waited(Part),
    /// An attempt has done what the answer says.
    Settles(Part, S),
    /// The sink is about to receive the batch.
    Seal,
    /// The marker of the last [`Action::Write`] is durable.
    Written,
    /// It may be durable or not, after this error.
    NotWritten(String),
    /// The batch has its entry in the commit log.
    Committed,
}

/// An order to the driver.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(bound = "M: Serialize, A: Serialize")]
pub enum Action<M = Marker, A = Answer> {
    /// Answers an attempt that asked.
    Answer(Part, A),
    /// Reports to an attempt that the marker with its result is durable.
    Settled(Part),
    /// Refuses an attempt that asked or settled, for this reason.
    Refuse(Part, String),
    /// Lets the sink have the batch, unless there was an error.
    Sealed(Option<String>),
    /// Writes the marker of a batch and reports when it is durable. No other is written until then.
    Write(u64, #[serde(serialize_with = "as_text")] M),
    /// Deletes the marker of a batch.
    Delete(u64),
    /// Writes the dead letters of a batch. If they are there, they are replaced.
    Publish(u64, #[serde(serialize_with = "as_text")] M),
    /// Kills these tasks: an attempt waits until it is the only one that can deliver the partition.
    Kill(Vec<u64>),
    /// Reports [`Fact::Waited`] in a second.
    Wait(Part),
    /// Has the tasks of these partitions ask before they begin.
    Suspect(Vec<u32>),
    /// Takes back commits of a partition by tasks that stopped early: Spark names the first one.
    ForgetCommits(u32),
    /// Shows the oldest batch whose input is pending after this one.
    Show(Option<u64>),
    /// Logs a warning.
    Warn(String),
    /// Logs an error.
    Report(String),
    /// Ends the batch, which cannot begin.
    Fail(String),
}

fn as_text<M: Serialize, S: Serializer>(marker: &M, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&super::marker::to_json(marker))
}

/// The answer to an attempt that asks what it does with a partition.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Answer {
    /// It parks the whole partition, and does not run the operator.
    pub parks: bool,
    /// The groups of keys whose rows become pending.
    pub waits: Groups,
    /// As many keys wait as before the batch.
    pub still: bool,
    /// It reports [`Fact::Settles`] in the end.
    pub settles: bool,
    /// The last failure of the partition's task that is known.
    pub failure: Option<String>,
}
