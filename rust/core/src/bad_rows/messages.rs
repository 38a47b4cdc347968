//! The messages between the machine and the driver. They cross as JSON.

use serde::{Deserialize, Serialize};

use super::marker::{Letter, Marker};
use crate::isolation::{Attempt, Part};

/// The stage behind a source in one batch, and the rules for it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Plan {
    /// The source, for texts.
    pub source: String,
    /// The columns of its rows: digests of other columns cannot be compared.
    pub form: String,
    /// Partitions of the stage.
    pub partitions: u32,
    /// An earlier run began the batch.
    pub rerun: bool,
    /// All runs of the batch have this program, so a row fails in each of them or in none.
    pub same_program: bool,
    /// Batches before this one that Spark keeps.
    pub retained: u64,
    /// How many rows may be set aside.
    pub limits: Limits,
}

/// How many rows of a batch may be set aside. One row always may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Limits {
    /// Rows.
    pub rows: u64,
    /// Rows of a million rows of input.
    pub per_million: u64,
}

/// Rows with equal content that a task left out.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
pub struct Found {
    /// The digest of the content.
    pub digest: String,
    /// Where each of them is in the source.
    pub positions: Vec<String>,
    /// `None` if the marker named them before.
    pub letter: Option<Letter>,
}

/// An event, reported by the driver.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub enum Fact {
    /// A batch begins. It ends the one before.
    Begin(Box<Plan>),
    /// A stage begins to read the source in so many tasks.
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
    /// An attempt has read a partition to its end without these rows. The batch has about so many.
    Settles(Part, Vec<Found>, u64),
    /// The marker of the last [`Action::Write`] is durable.
    Written,
    /// It may be durable or not, after this error.
    NotWritten(String),
    /// The batch has its entry in the commit log.
    Committed,
}

/// An order to the driver.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub enum Action {
    /// Answers an attempt that asked.
    Answer(Part, Answer),
    /// Reports to an attempt that the marker with its rows is durable.
    Settled(Part),
    /// Refuses an attempt that asked or settled, for this reason.
    Refuse(Part, String),
    /// Writes the marker of a batch and reports when it is durable. No other is written until then.
    Write(u64, #[serde(serialize_with = "Marker::as_text")] Marker),
    /// Deletes the marker of a batch.
    Delete(u64),
    /// Writes the dead letters of a batch. If they are there, they are replaced.
    Publish(u64, #[serde(serialize_with = "Marker::as_text")] Marker),
    /// Kills these tasks: an attempt waits until no other one can deliver the rows it leaves out.
    Kill(Vec<u64>),
    /// Reports [`Fact::Waited`] in a second.
    Wait(Part),
    /// Has the tasks of these partitions ask before they begin.
    Suspect(Vec<u32>),
    /// Logs a warning.
    Warn(String),
    /// Logs an error.
    Report(String),
    /// Ends the batch, which cannot begin.
    Fail(String),
}

/// The answer to an attempt that asks what it does with a partition.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Answer {
    /// Digests of rows that it leaves out.
    pub named: Vec<String>,
    /// It tries rows apart before it delivers any: an attempt failed.
    pub searches: bool,
    /// Rows that the search may find.
    pub rows_max: u64,
}
