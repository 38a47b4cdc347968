//! The id that a commit returns. It *is* the reference to the segment with the state, so Spark's
//! own commit log is the atomic root of a checkpoint and no manifest is needed.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use prost::bytes::{Buf, BufMut};

use super::delta_runs::DeltaRuns;
use crate::error::{Error, ErrorKind, Result};
use crate::ids::{CheckpointId, OwnerTag, SEGMENT_REF_BYTES, SegmentRef};

const PREFIX: &str = "hf1-";
const VIEW_PREFIX: &str = "hfv1-";
const NEWEST: u64 = 1;
/// Set in the number of delta runs if pending inputs follow.
const PARKED: u8 = 0x80;
const PENDING_BYTES: usize = 8 + SEGMENT_REF_BYTES;

/// Bound on the pending inputs of a version: 1,024 of 52 bytes are 71 KiB of text in `commits/N`.
pub const MAX_PENDING: usize = 1_024;

/// State of one store at one version. A commit without changes returns an id of the same segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CommitId {
    /// Version of the store, Spark's batch id + 1.
    pub version: u64,
    /// `created` of the oldest segment needed to load this version. Older segments of the owner are
    /// dead as soon as no older version is retained.
    pub floor: CheckpointId,
    /// Delta runs in the lineage. The newest replaces all older segments that are not in the list.
    pub deltas: DeltaRuns,
    /// Whose state it is.
    pub owner: OwnerTag,
    /// The newest segment of the lineage; `None` for a store that was never written.
    pub segment: Option<SegmentRef>,
    /// The newest segment that `segment` replaced, if it is a run. The run's head may be lost.
    pub replaced: Option<SegmentRef>,
}

/// The input of one batch that a version of a store does not reflect yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Pending {
    /// The version that its batch made, Spark's batch id + 1.
    pub version: u64,
    /// Its last piece, whose lineage names the others.
    pub segment: SegmentRef,
}

/// Id of a version: *parked* if input of its batch is pending, perhaps in addition to older input.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct VersionId {
    /// The content.
    pub state: CommitId,
    /// Input that the content does not reflect, oldest first; empty if the version is not parked.
    pub pending: Vec<Pending>,
}

impl VersionId {
    /// The oldest version whose input is pending; `None` if this version is not parked.
    pub fn pending_since(&self) -> Option<u64> {
        self.pending.first().map(|pending| pending.version)
    }

    /// An id with one pending input only, for [`VersionId::waiting_for`]; `None` if not pending.
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
        let mut bytes = Vec::with_capacity(120);
        bytes.put_u64_le(state.version);
        bytes.put_u64_le(state.floor.0);
        bytes.put_u64_le(state.owner.0);
        let parked = if pending.is_empty() { 0 } else { PARKED };
        bytes.push(state.deltas.len() as u8 | parked);
        state.deltas.iter().for_each(|run| bytes.put_u64_le(run.0));
        if parked != 0 {
            bytes.put_u16_le(pending.len() as u16);
            for Pending { version, segment } in pending {
                bytes.put_u64_le(*version);
                bytes.extend_from_slice(&segment.to_bytes());
            }
        }
        for reference in state.segment.iter().chain(&state.replaced) {
            bytes.extend_from_slice(&reference.to_bytes());
        }
        bytes.put_u32_le(crc32c::crc32c(&bytes));
        write!(f, "{PREFIX}{}", URL_SAFE_NO_PAD.encode(bytes))
    }
}

fn refused(text: &str) -> Error {
    let version: Option<u64> = text
        .strip_prefix(StoreId::PREFIX)
        .and_then(|rest| rest.trim_start_matches('v').split_once('-'))
        .and_then(|(version, _)| version.parse().ok());
    if let Some(version) = version.filter(|version| *version > NEWEST) {
        return Error::newer("version of a state store checkpoint id", NEWEST, version);
    }
    Error::new(
        ErrorKind::Unsupported,
        format!(
            "state store checkpoint id {text:?} was not written by Holdfast (expected it to start \
             with {PREFIX} or {VIEW_PREFIX}); continue this checkpoint with what made it"
        ),
    )
}

fn damaged(text: &str) -> Error {
    Error::corrupt(format!(
        "state store checkpoint id {text:?} is damaged: the commit log of this checkpoint is not as \
         it was written"
    ))
}

impl FromStr for VersionId {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let encoded = text.strip_prefix(PREFIX).ok_or_else(|| refused(text))?;
        decoded(encoded).ok_or_else(|| damaged(text))
    }
}

fn decoded(encoded: &str) -> Option<VersionId> {
    let bytes = URL_SAFE_NO_PAD.decode(encoded).ok()?;
    let mut rest = without_checksum(&bytes)?;
    let mut number = || rest.try_get_u64_le().ok();
    let (version, floor) = (number()?, CheckpointId(number()?));
    let owner = OwnerTag(number()?);
    let first = rest.try_get_u8().ok()?;
    let (deltas, mut rest) = take_deltas(usize::from(first & !PARKED), rest)?;
    let mut pending = Vec::new();
    if first & PARKED != 0 {
        (pending, rest) = take_pending(rest)?;
    }
    let references = rest.chunks(SEGMENT_REF_BYTES);
    let mut references = references.map(|bytes| SegmentRef::from_bytes(bytes).ok());
    let mut reference = || {
        references
            .next()
            .map_or(Some(None), |found| found.map(Some))
    };
    let state = CommitId {
        version,
        floor,
        deltas,
        owner,
        segment: reference()?,
        replaced: reference()?,
    };
    let id = VersionId { state, pending };
    (reference()?.is_none() && id.is_in_order()).then_some(id)
}

fn take_deltas(number: usize, bytes: &[u8]) -> Option<(DeltaRuns, &[u8])> {
    let (created, rest) = bytes.split_at_checked(number * 8)?;
    let (created, _) = created.as_chunks::<8>();
    let created = created.iter().map(|bytes| u64::from_le_bytes(*bytes));
    let deltas = DeltaRuns::of(created.map(CheckpointId)).ok()?;
    Some((deltas, rest))
}

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

fn without_checksum(bytes: &[u8]) -> Option<&[u8]> {
    let (bytes, checksum) = bytes.split_last_chunk::<4>()?;
    (crc32c::crc32c(bytes) == u32::from_le_bytes(*checksum)).then_some(bytes)
}

/// Id of a version whose rows are in stores of an older number of partitions until its next commit.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ViewId {
    /// The batch whose state the other stores have.
    pub batch: u64,
    /// The number of their partitions.
    pub from: u32,
    /// The number of partitions of this version.
    pub to: u32,
    /// The name of its store, and of the others.
    pub store: String,
    /// Ids of the other stores, by partition.
    pub parents: BTreeMap<u32, String>,
}

impl fmt::Display for ViewId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (batch, from, to, store) = (self.batch, self.from, self.to, &self.store);
        let mut text = format!("{VIEW_PREFIX}{batch}:{from}:{to}:{store}");
        for (partition, id) in &self.parents {
            text.push_str(&format!(":{partition}:{id}"));
        }
        write!(f, "{text}:{:08x}", crc32c::crc32c(text.as_bytes()))
    }
}

fn view(text: &str) -> Option<ViewId> {
    let (body, checksum) = text.rsplit_once(':')?;
    let is_intact = checksum == format!("{:08x}", crc32c::crc32c(body.as_bytes()));
    let mut parts = body.strip_prefix(VIEW_PREFIX)?.split(':');
    let (batch, from) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    let (to, store) = (parts.next()?.parse().ok()?, parts.next()?.to_owned());
    let mut parents = BTreeMap::new();
    while let Some(partition) = parts.next() {
        parents.insert(partition.parse().ok()?, parts.next()?.to_owned());
    }
    let found = ViewId {
        batch,
        from,
        to,
        store,
        parents,
    };
    is_intact.then_some(found)
}

/// Any id of a store of Holdfast.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum StoreId {
    /// A version with state of its own, or one that is parked.
    Version(VersionId),
    /// A version whose rows are in other stores.
    View(ViewId),
}

impl StoreId {
    /// The beginning of Holdfast's ids, in every version. Spark's own providers have UUIDs.
    pub const PREFIX: &'static str = "hf";

    /// The beginning of the ids of views.
    pub const VIEW_PREFIX: &'static str = VIEW_PREFIX;

    /// The ids whose segments a store of this partition needs: its own, or the ids of a view.
    ///
    /// # Errors
    /// `Corrupt`, `Newer` and `Unsupported` as for `from_str`.
    pub fn needed(partition: u32, text: &str) -> Result<Vec<(u32, VersionId)>> {
        match text.parse()? {
            Self::Version(id) => Ok(vec![(partition, id)]),
            Self::View(view) => {
                let parents = view.parents.iter();
                parents
                    .map(|(parent, id)| Ok((*parent, id.parse()?)))
                    .collect()
            }
        }
    }
}

impl FromStr for StoreId {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        if text.starts_with(VIEW_PREFIX) {
            return view(text).map(Self::View).ok_or_else(|| damaged(text));
        }
        text.parse().map(Self::Version)
    }
}

#[cfg(test)]
#[path = "commit_id_tests.rs"]
mod tests;
