//! The messages between the machine and the driver. They cross as JSON.

use serde::{Deserialize, Serialize};

use super::marker::{Letter, Marker};
use crate::isolation;

/// The stage behind a source in one batch, and the rules for it.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
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

/// An event, reported by the driver. An attempt has read a partition to its end without these rows,
/// and the batch has about so many.
pub type Fact = isolation::Fact<Plan, (Vec<Found>, u64)>;

/// An order to the driver.
pub type Action = isolation::Action<Marker, Answer>;

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
