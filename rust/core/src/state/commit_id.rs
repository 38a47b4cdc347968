//! The id that a commit returns. It *is* the reference to the segment with the state, so Spark's
//! own commit log is the atomic root of a checkpoint and no manifest is needed.
//!
//! Spark puts the ids of all partitions into every task, so an id is short. Without pending inputs
//! it has at most 64 characters below these bounds, and more beyond them: version 2^28, 2^21 files
//! of a term, offset and length 2^28 each. `FORMAT.md` has the arithmetic.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use prost::bytes::{Buf, BufMut};
use prost::encoding::{decode_varint, encode_varint};

use super::delta_runs::{DeltaMarks, DeltaRuns, MARKS, MAX_DELTA_RUNS};
use crate::error::{Error, ErrorKind, Result};
use crate::ids::{CheckpointId, FileId, OwnerTag, SEGMENT_REF_BYTES, SegmentRef, Term};

const PREFIX: &str = "hf2-";
const OLD_PREFIX: &str = "hf1-";
const VIEW_PREFIX: &str = "hfv1-";
const NEWEST: u64 = 2;
const NEWEST_VIEW: u64 = 1;

/// Bits of the first byte, above the number of delta runs.
const HAS_SEGMENT: u8 = 0x10;
const HAS_REPLACED: u8 = 0x20;
/// Terms have 8 bytes. A clock in microseconds needs 7 until the year 4253.
const LONG_TERMS: u8 = 0x40;
const PARKED: u8 = 0x80;
const TERM_BYTES: usize = 7;
const MARK_BYTES: usize = MARKS as usize / 8;
const CHECKSUM_BYTES: usize = 3;
/// The byte of an age that [`rough`] cannot express.
const ANY_AGE: u8 = u8::MAX;

/// Bound on the pending inputs of a version: 1,024 of up to 28 bytes are 38 KiB in `commits/N`.
pub const MAX_PENDING: usize = 1_024;

/// State of one store at one version. A commit without changes returns an id of the same segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CommitId {
    /// Version of the store, Spark's batch id + 1.
    pub version: u64,
    /// `created` of the oldest segment needed to load this version. Older segments of the owner are
    /// dead as soon as no older version is retained. The text of an id has one that may be older.
    pub floor: CheckpointId,
    /// Delta runs in the lineage, which replace all segments that are older than the newest.
    pub deltas: DeltaMarks,
    /// Whose state it is.
    pub owner: OwnerTag,
    /// The newest segment of the lineage; `None` for a store that was never written.
    pub segment: Option<SegmentRef>,
    /// The newest segment that `segment` replaced, if it is a run. The run's head may be lost. Only
    /// ids of older releases have it: later ones name a changelog above the run.
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
        let references = || state.segment.iter().chain(&state.replaced);
        let inputs = pending.iter().map(|pending| &pending.segment);
        let mut terms = references().chain(inputs).map(|one| one.file.term.0);
        let mut shape = state.deltas.len;
        for (bit, is_set) in [
            (HAS_SEGMENT, state.segment.is_some()),
            (HAS_REPLACED, state.replaced.is_some()),
            (LONG_TERMS, terms.any(|term| term >> (8 * TERM_BYTES) != 0)),
            (PARKED, !pending.is_empty()),
        ] {
            shape |= if is_set { bit } else { 0 };
        }
        let mut bytes = Vec::with_capacity(48);
        bytes.push(shape);
        encode_varint(state.version, &mut bytes);
        bytes.push(rough(state.version, state.floor));
        if !state.deltas.is_empty() {
            bytes.push(rough(state.version, state.deltas.newest));
            bytes.put_uint_le(state.deltas.marks, MARK_BYTES);
        }
        bytes.put_u32_le(state.owner.0);
        references().for_each(|one| put_reference(one, shape, &mut bytes));
        if !pending.is_empty() {
            encode_varint(pending.len() as u64, &mut bytes);
        }
        for Pending { version, segment } in pending {
            encode_varint(state.version.wrapping_sub(*version), &mut bytes);
            put_reference(segment, shape, &mut bytes);
        }
        bytes.put_uint_le(checksum(&bytes), CHECKSUM_BYTES);
        write!(f, "{PREFIX}{}", URL_SAFE_NO_PAD.encode(bytes))
    }
}

/// The age of a version in one byte: in blocks of `2^n` versions, fewer than 8 of them. The inverse,
/// [`not_after`], is exact up to an age of 7, and else earlier by less than a third of the age.
fn rough(version: u64, CheckpointId(created): CheckpointId) -> u8 {
    let age = |bits: u32| (version >> bits).saturating_sub(created >> bits);
    let found = (0..32).map(|bits| (bits, age(bits)));
    let found = found.map(|(bits, blocks)| (bits << 3 | blocks as u32, blocks));
    let mut fits = found.filter(|(_, blocks)| *blocks < 8);
    fits.next().map_or(ANY_AGE, |(code, _)| code as u8)
}

fn not_after(version: u64, code: u8) -> Option<CheckpointId> {
    if code == ANY_AGE {
        return Some(CheckpointId(0));
    }
    let (bits, blocks) = (code >> 3, u64::from(code & 7));
    let start = (version >> bits).checked_sub(blocks)? << bits;
    Some(CheckpointId(start))
}

fn term_bytes(shape: u8) -> usize {
    TERM_BYTES + usize::from(shape & LONG_TERMS != 0)
}

fn put_reference(reference: &SegmentRef, shape: u8, bytes: &mut Vec<u8>) {
    bytes.put_uint_le(reference.file.term.0, term_bytes(shape));
    for number in [reference.file.seq.into(), reference.offset, reference.len] {
        encode_varint(number, bytes);
    }
    bytes.put_u64_le(SegmentRef::half(reference.digest));
}

fn take_reference(shape: u8, bytes: &mut &[u8]) -> Option<SegmentRef> {
    let term = Term(bytes.try_get_uint_le(term_bytes(shape)).ok()?);
    let seq = decode_varint(bytes).ok()?.try_into().ok()?;
    Some(SegmentRef {
        file: FileId { term, seq },
        offset: decode_varint(bytes).ok()?,
        len: decode_varint(bytes).ok()?,
        digest: bytes.try_get_u64_le().ok()?.into(),
    })
}

fn checksum(bytes: &[u8]) -> u64 {
    u64::from(crc32c::crc32c(bytes)) & ((1 << (8 * CHECKSUM_BYTES)) - 1)
}

fn refused(text: &str) -> Error {
    let of_id = text.strip_prefix(StoreId::PREFIX);
    let of_view = of_id.and_then(|rest| rest.strip_prefix('v'));
    let newest = of_view.map_or(NEWEST, |_| NEWEST_VIEW);
    let version: Option<u64> = of_view
        .or(of_id)
        .and_then(|rest| rest.split_once('-'))
        .and_then(|(version, _)| version.parse().ok());
    if let Some(version) = version.filter(|version| *version > newest) {
        return Error::newer("version of a state store checkpoint id", newest, version);
    }
    Error::new(
        ErrorKind::Unsupported,
        format!(
            "state store checkpoint id {text:?} was not written by Holdfast (expected it to start \
             with {PREFIX}, {OLD_PREFIX} or {VIEW_PREFIX}); continue this checkpoint with what made \
             it"
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
        let found = match (text.strip_prefix(PREFIX), text.strip_prefix(OLD_PREFIX)) {
            // Each id has one text only.
            (Some(encoded), _) => decoded(encoded).filter(|id| id.to_string() == text),
            (_, Some(encoded)) => decoded_old(encoded),
            _ => return Err(refused(text)),
        };
        let found = found.filter(Self::is_in_order);
        found.ok_or_else(|| damaged(text))
    }
}

fn decoded(encoded: &str) -> Option<VersionId> {
    let bytes = URL_SAFE_NO_PAD.decode(encoded).ok()?;
    let length = bytes.len().checked_sub(CHECKSUM_BYTES)?;
    let (mut rest, mut expected) = bytes.split_at_checked(length)?;
    if checksum(rest) != expected.get_uint_le(CHECKSUM_BYTES) {
        return None;
    }
    let bytes = &mut rest;
    let shape = bytes.try_get_u8().ok()?;
    let version = decode_varint(bytes).ok()?;
    let floor = not_after(version, bytes.try_get_u8().ok()?)?;
    let len = shape & 0x0f;
    let deltas = match usize::from(len) {
        0 => DeltaMarks::NONE,
        1..=MAX_DELTA_RUNS => DeltaMarks {
            len,
            newest: not_after(version, bytes.try_get_u8().ok()?)?,
            marks: bytes.try_get_uint_le(MARK_BYTES).ok()?,
        },
        _ => return None,
    };
    let owner = OwnerTag(bytes.try_get_u32_le().ok()?);
    let mut segment = None;
    let mut replaced = None;
    for (bit, reference) in [(HAS_SEGMENT, &mut segment), (HAS_REPLACED, &mut replaced)] {
        if shape & bit != 0 {
            *reference = Some(take_reference(shape, bytes)?);
        }
    }
    let mut pending = Vec::new();
    if shape & PARKED != 0 {
        let number = decode_varint(bytes).ok()?;
        let number = (1..=MAX_PENDING as u64)
            .contains(&number)
            .then_some(number)?;
        for _ in 0..number {
            pending.push(Pending {
                version: version.wrapping_sub(decode_varint(bytes).ok()?),
                segment: take_reference(shape, bytes)?,
            });
        }
    }
    let state = CommitId {
        version,
        floor,
        deltas,
        owner,
        segment,
        replaced,
    };
    bytes.is_empty().then_some(VersionId { state, pending })
}

/// The ids of releases before `hf2-`, in fields of one size each.
fn decoded_old(encoded: &str) -> Option<VersionId> {
    const PENDING_BYTES: usize = 8 + SEGMENT_REF_BYTES;
    let bytes = URL_SAFE_NO_PAD.decode(encoded).ok()?;
    let (bytes, checksum) = bytes.split_last_chunk::<4>()?;
    let mut rest = (crc32c::crc32c(bytes) == u32::from_le_bytes(*checksum)).then_some(bytes)?;
    let mut number = || rest.try_get_u64_le().ok();
    let (version, floor) = (number()?, CheckpointId(number()?));
    let owner = OwnerTag(number()? as u32);
    let first = rest.try_get_u8().ok()?;
    let (created, mut rest) = rest.split_at_checked(8 * usize::from(first & !PARKED))?;
    let (created, _) = created.as_chunks::<8>();
    let created = created.iter().map(|bytes| u64::from_le_bytes(*bytes));
    let deltas = DeltaRuns::of(created.map(CheckpointId)).ok()?;
    let mut pending = Vec::new();
    if first & PARKED != 0 {
        let number = usize::from(rest.try_get_u16_le().ok()?);
        (1..=MAX_PENDING).contains(&number).then_some(())?;
        let (entries, others) = rest.split_at_checked(number * PENDING_BYTES)?;
        rest = others;
        for entry in entries.chunks(PENDING_BYTES) {
            let (version, segment) = entry.split_first_chunk::<8>()?;
            pending.push(Pending {
                version: u64::from_le_bytes(*version),
                segment: SegmentRef::from_bytes(segment).ok()?,
            });
        }
    }
    let references = rest.chunks(SEGMENT_REF_BYTES).map(SegmentRef::from_bytes);
    let references = references.collect::<Result<Vec<_>>>().ok()?;
    let state = CommitId {
        version,
        floor,
        deltas: deltas.marks(floor),
        owner,
        segment: references.first().copied(),
        replaced: references.get(1).copied(),
    };
    (references.len() <= 2).then_some(VersionId { state, pending })
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
