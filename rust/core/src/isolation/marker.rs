//! The durable decisions about a batch.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::groups::Groups;
use crate::{Error, Result};

pub(super) const VERSION: u32 = 1;

/// The durable decisions about a batch, in `isolation/<batch>` of the checkpoint; see FORMAT.md.
///
/// A task has its decision written at its end, and so before a sink can commit. If the batch runs
/// again, the same partitions are parked. A batch without any failure has no marker.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Marker {
    pub(super) version: u32,
    pub(super) operator: u64,
    pub(super) name: String,
    pub(super) times: BTreeMap<String, i64>,
    /// By partition, what became of it in the batch.
    pub parked: BTreeMap<u32, Parked>,
    /// The sink may have committed the batch.
    #[serde(default)]
    pub sealed: bool,
}

/// The state of a partition that was parked in a batch, or before it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parked {
    /// Time at which it was parked in this batch, in milliseconds since 1970.
    #[serde(default)]
    pub at_ms: i64,
    /// Batches in which its task failed, since it is parked.
    #[serde(default)]
    pub tries: u32,
    /// The error of the last try.
    pub error: Option<String>,
    /// The groups of keys whose rows wait: none if a try delivered all of them.
    #[serde(default = "Groups::all")]
    pub waits: Groups,
}

impl Marker {
    /// Reads a marker.
    ///
    /// # Errors
    /// [`Corrupt`](crate::ErrorKind::Corrupt) if the bytes are no marker of this version.
    pub fn from_json(bytes: &[u8]) -> Result<Self> {
        from_json(bytes, "a marker", VERSION, |marker: &Self| marker.version)
    }

    /// The text of the file.
    pub fn to_json(&self) -> String {
        to_json(self)
    }
}

/// Reads a marker of one version; `name` is its name in errors.
pub(crate) fn from_json<M: DeserializeOwned>(
    bytes: &[u8],
    name: &str,
    version: u32,
    version_of: fn(&M) -> u32,
) -> Result<M> {
    let marker = serde_json::from_slice(bytes);
    let marker = marker.map_err(|e| Error::corrupt(format!("{name}: {e}")))?;
    match version_of(&marker) {
        found if found == version => Ok(marker),
        found => Err(Error::corrupt(format!("{name} of version {found}"))),
    }
}

pub(crate) fn to_json(marker: &impl Serialize) -> String {
    // Numbers, texts and maps always have a form in JSON.
    serde_json::to_string(marker).unwrap_or_default()
}
