//! The rows of a batch that were set aside.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::Result;
use crate::isolation::marker::{from_json, to_json};

const VERSION: u32 = 1;

/// The rows of a source that a batch goes without, in `bad-rows/<source>/<batch>` of the checkpoint;
/// see FORMAT.md.
///
/// A task has its rows written before Spark takes its result, and so before a sink can commit. If the
/// batch runs again, these rows stay out, even if the program was repaired. The dead letters are made
/// from it. A batch without bad rows has none.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Marker {
    version: u32,
    /// The columns of the rows.
    pub form: String,
    /// By the digest of their content.
    pub rows: BTreeMap<String, Bad>,
}

/// Rows with equal content.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bad {
    /// Where each of them is in the source.
    pub positions: Vec<String>,
    /// The text of the dead letter of each of them.
    pub letter: Letter,
}

/// The text of a dead letter.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Letter {
    /// Spark's error condition, or the class of the exception.
    pub class: String,
    /// The error in one line, with the line of the user's program where that is known.
    pub error: String,
    /// When it was set aside, in milliseconds since 1970.
    pub at_ms: i64,
    /// Spark's bytes of the row, in base64.
    pub row: String,
}

impl Marker {
    pub(super) fn new(form: &str) -> Self {
        Self {
            version: VERSION,
            form: form.to_owned(),
            rows: BTreeMap::new(),
        }
    }

    /// Rows that were set aside.
    pub fn count(&self) -> u64 {
        let positions = self.rows.values().map(|bad| bad.positions.len());
        positions.sum::<usize>() as u64
    }

    /// Sees to it that the marker has at least these rows of one content. An earlier run may have named
    /// fewer of them, before it ended, or as many.
    pub(super) fn add(&mut self, digest: &str, positions: Vec<String>, letter: Option<&Letter>) {
        match (self.rows.get_mut(digest), letter) {
            (Some(bad), _) if bad.positions.len() < positions.len() => bad.positions = positions,
            (None, Some(letter)) => {
                let letter = letter.clone();
                self.rows
                    .insert(digest.to_owned(), Bad { positions, letter });
            }
            _ => {}
        }
    }

    /// Reads a marker.
    ///
    /// # Errors
    /// [`Corrupt`](crate::ErrorKind::Corrupt) if the bytes are no marker of this version.
    pub fn from_json(bytes: &[u8]) -> Result<Self> {
        from_json(bytes, "a marker of bad rows", VERSION, |one: &Self| {
            one.version
        })
    }

    /// The text of the file.
    pub fn to_json(&self) -> String {
        to_json(self)
    }
}
