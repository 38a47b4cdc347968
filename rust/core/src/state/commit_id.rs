//! The id a commit returns. It *is* the reference to the segment that holds the state, so Spark's
//! own commit log is the atomic root of a checkpoint and no manifest is needed.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use prost::bytes::{Buf, BufMut};

use super::delta_runs::DeltaRuns;
use crate::error::{Error, ErrorKind, Result};
use crate::ids::{CheckpointId, OwnerTag, SEGMENT_REF_BYTES, SegmentRef};

/// Ids of older builds, without owner and checksum.
const PREFIX_1: &str = "hf1-";
const PREFIX_2: &str = "hf2-";
/// Ids of versions that have delta runs.
const PREFIX_3: &str = "hf3-";
/// Ids of parked versions.
const PREFIX_4: &str = "hf4-";
/// The newest version of an id.
const NEWEST: u64 = 4;

/// Encoded size of a [`Pending`].
const PENDING_BYTES: usize = 8 + SEGMENT_REF_BYTES;

/// Bound on the pending inputs of a version: 1,024 of 52 bytes are 71 KiB of text in each `commits/N`.
pub const MAX_PENDING: usize = 1_024;

/// State of one store at one version, as text in Spark's `commits/N`.
///
/// A commit without changes returns a new id (another version) for the same segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CommitId {
    /// Version of the store, Spark's batch id + 1.
    pub version: u64,
    /// `created` of the oldest segment needed to load this version. Older segments of the owner are
    /// dead as soon as no older version is retained.
    pub floor: CheckpointId,
    /// The delta runs in the lineage of `segment`. The newest one stands for all segments of the
    /// owner that are older than it and not in the list.
    pub deltas: DeltaRuns,
    /// Whose state it is; `None` in an id of an older build.
    pub owner: Option<OwnerTag>,
    /// The newest segment of the lineage; `None` for a store that was never written.
    pub segment: Option<SegmentRef>,
    /// The newest segment that `segment` replaced, if that is a run. The head of the run names it,
    /// too, but is lost with the run.
    pub replaced: Option<SegmentRef>,
}

/// The input of one batch that a version of a store does not have yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Pending {
    /// The version that its batch made, Spark's batch id + 1.
    pub version: u64,
    /// Its last piece, whose lineage names the others.
    pub segment: SegmentRef,
}

/// Id of a version that may be *parked*: the input of its batch, or a part of it, is pending, and perhaps
/// that of batches before.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct VersionId {
    /// The content.
    pub state: CommitId,
    /// Input that the content does not have, oldest first; empty if the version is not parked.
    pub pending: Vec<Pending>,
}

impl VersionId {
    /// The oldest version whose input is pending; `None` if this version is not parked.
    pub fn pending_since(&self) -> Option<u64> {
        self.pending.first().map(|pending| pending.version)
    }

    /// An id with one of the pending inputs alone, for [`VersionId::waiting_for`]; `None` if this version does
    /// not wait for it.
    #[must_use]
    pub fn input_alone(&self, version: u64) -> Option<Self> {
        let found = self
            .pending
            .iter()
            .find(|pending| pending.version == version)?;
        Some(Self {
            state: CommitId {
                version,
                ..self.state
            },
            pending: vec![*found],
        })
    }

    /// This version, which waits for the pending input of other ids, oldest first.
    #[must_use]
    pub fn waiting_for<'a>(mut self, inputs: impl IntoIterator<Item = &'a Self>) -> Self {
        let inputs = inputs.into_iter();
        self.pending = inputs.flat_map(|input| input.pending.clone()).collect();
        self
    }

    /// Returns whether pending input is in order and ends with that of this version.
    fn is_in_order(&self) -> bool {
        let versions = self.pending.iter().map(|pending| pending.version);
        let last = self.pending.last().map(|pending| pending.version);
        last.is_none_or(|last| last == self.state.version) && versions.is_sorted_by(|a, b| a < b)
    }
}

impl From<CommitId> for VersionId {
    fn from(state: CommitId) -> Self {
        Self {
            state,
            pending: Vec::new(),
        }
    }
}

impl fmt::Display for CommitId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        VersionId::from(*self).fmt(f)
    }
}

impl fmt::Display for VersionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { state, pending } = self;
        let prefix = match state.owner {
            None => PREFIX_1,
            Some(_) if !pending.is_empty() => PREFIX_4,
            Some(_) if state.deltas.is_empty() => PREFIX_2,
            Some(_) => PREFIX_3,
        };
        let mut bytes = Vec::with_capacity(116);
        bytes.put_u64_le(state.version);
        bytes.put_u64_le(state.floor.0);
        if let Some(owner) = state.owner {
            bytes.put_u64_le(owner.0);
        }
        if [PREFIX_3, PREFIX_4].contains(&prefix) {
            bytes.push(state.deltas.len() as u8);
            state.deltas.iter().for_each(|run| bytes.put_u64_le(run.0));
        }
        if prefix == PREFIX_4 {
            bytes.put_u16_le(pending.len() as u16);
            for Pending { version, segment } in pending {
                bytes.put_u64_le(*version);
                bytes.extend_from_slice(&segment.to_bytes());
            }
        }
        for reference in state.segment.iter().chain(&state.replaced) {
            bytes.extend_from_slice(&reference.to_bytes());
        }
        if prefix != PREFIX_1 {
            bytes.put_u32_le(crc32c::crc32c(&bytes));
        }
        write!(f, "{prefix}{}", URL_SAFE_NO_PAD.encode(bytes))
    }
}

/// The version of an id, also of a newer Holdfast.
fn version_of(text: &str) -> Option<u64> {
    let (version, _) = text.strip_prefix("hf")?.split_once('-')?;
    version.parse().ok()
}

impl FromStr for VersionId {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let prefixes = [PREFIX_1, PREFIX_2, PREFIX_3, PREFIX_4];
        let known = prefixes.iter().find(|prefix| text.starts_with(**prefix));
        if let Some(version) = version_of(text).filter(|version| *version > NEWEST) {
            return Err(Error::newer(
                "version of a state store checkpoint id",
                NEWEST,
                version,
            ));
        }
        let Some((prefix, encoded)) = known.map(|prefix| text.split_at(prefix.len())) else {
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!(
                    "state store checkpoint id {text:?} was not written by Holdfast (expected it to \
                     start with one of {prefixes:?}); continue this checkpoint with what made it"
                ),
            ));
        };
        let checked = prefix != PREFIX_1;
        let damaged = || {
            Error::corrupt(format!(
                "state store checkpoint id {text:?} is damaged: the commit log of this checkpoint \
                 is not as it was written"
            ))
        };
        let bytes = URL_SAFE_NO_PAD.decode(encoded).map_err(|_| damaged())?;
        let mut rest = bytes.as_slice();
        if checked {
            rest = without_checksum(rest).ok_or_else(damaged)?;
        }
        let mut number = || rest.try_get_u64_le().map_err(|_| damaged());
        let (version, floor) = (number()?, CheckpointId(number()?));
        let owner = checked.then(number).transpose()?.map(OwnerTag);
        let mut deltas = DeltaRuns::NONE;
        if [PREFIX_3, PREFIX_4].contains(&prefix) {
            (deltas, rest) = take_deltas(rest).ok_or_else(damaged)?;
        }
        let mut pending = Vec::new();
        if prefix == PREFIX_4 {
            (pending, rest) = take_pending(rest).ok_or_else(damaged)?;
        }
        let mut references = rest
            .chunks(SEGMENT_REF_BYTES)
            .map(|bytes| SegmentRef::from_bytes(bytes).map_err(|_| damaged()));
        let segment = references.next().transpose()?;
        let replaced = references.next().transpose()?;
        let state = CommitId {
            version,
            floor,
            deltas,
            owner,
            segment,
            replaced,
        };
        let id = Self { state, pending };
        let has_deltas = prefix != PREFIX_3 || !deltas.is_empty();
        if references.next().is_some() || !has_deltas || !id.is_in_order() {
            return Err(damaged());
        }
        Ok(id)
    }
}

/// Reads the number of delta runs and `created` of each; `None` if they cannot be right.
fn take_deltas(bytes: &[u8]) -> Option<(DeltaRuns, &[u8])> {
    let (number, rest) = bytes.split_first()?;
    let (created, rest) = rest.split_at_checked(usize::from(*number) * 8)?;
    let (created, _) = created.as_chunks::<8>();
    let created = created.iter().map(|bytes| u64::from_le_bytes(*bytes));
    let deltas = DeltaRuns::of(created.map(CheckpointId)).ok()?;
    Some((deltas, rest))
}

/// Reads the number of pending inputs and each of them; `None` if they cannot be right.
fn take_pending(bytes: &[u8]) -> Option<(Vec<Pending>, &[u8])> {
    let (number, rest) = bytes.split_first_chunk::<2>()?;
    let number = usize::from(u16::from_le_bytes(*number));
    let (entries, rest) = rest.split_at_checked(number * PENDING_BYTES)?;
    let pending = entries.chunks(PENDING_BYTES).map(|entry| {
        let (version, segment) = entry.split_first_chunk::<8>()?;
        Some(Pending {
            version: u64::from_le_bytes(*version),
            segment: SegmentRef::from_bytes(segment).ok()?,
        })
    });
    let is_there = (1..=MAX_PENDING).contains(&number);
    Some((pending.collect::<Option<_>>().filter(|_| is_there)?, rest))
}

/// Returns the bytes before the checksum at the end; `None` if it does not match.
fn without_checksum(bytes: &[u8]) -> Option<&[u8]> {
    let (bytes, checksum) = bytes.split_last_chunk::<4>()?;
    (crc32c::crc32c(bytes) == u32::from_le_bytes(*checksum)).then_some(bytes)
}

#[cfg(test)]
#[path = "commit_id_tests.rs"]
mod tests;
