//! Bodies of the frames: tagged fields, so that a later version can add more.

use prost::Message;
use prost::bytes::Buf;

use super::frame::{Frame, FrameKind};
use super::{IndexEntry, JournalRef, NewSegment, SegmentHead, SegmentKind, TableKeys};
use crate::error::{Error, Result};
use crate::ids::{CheckpointId, FileId, Owner, SegmentRef, Term};

/// Bound on each of the four parts of an owner, in bytes.
const MAX_OWNER_PART_BYTES: usize = 1024;

#[derive(Clone, PartialEq, Message)]
pub(super) struct FileHeaderMessage {
    #[prost(uint64, tag = "1")]
    pub term: u64,
    #[prost(uint32, tag = "2")]
    pub seq: u32,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct HeadMessage {
    #[prost(message, optional, tag = "1")]
    pub owner: Option<Owner>,
    #[prost(uint64, tag = "2")]
    pub created: u64,
    #[prost(uint32, tag = "3")]
    pub kind: u32,
    #[prost(bytes = "vec", repeated, tag = "4")]
    pub lineage: Vec<Vec<u8>>,
    #[prost(uint64, tag = "5")]
    pub payload_bytes: u64,
    #[prost(uint64, tag = "6")]
    pub entries: u64,
    #[prost(bytes = "vec", tag = "7")]
    pub replaced: Vec<u8>,
    #[prost(bytes = "vec", tag = "8")]
    pub journal: Vec<u8>,
    #[prost(message, repeated, tag = "9")]
    pub tables: Vec<TableKeys>,
    #[prost(uint32, tag = "10")]
    pub runs: u32,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct EntryMessage {
    #[prost(uint64, tag = "1")]
    pub offset: u64,
    #[prost(uint64, tag = "2")]
    pub len: u64,
    #[prost(bytes = "vec", tag = "3")]
    pub digest: Vec<u8>,
    #[prost(message, optional, tag = "4")]
    pub owner: Option<Owner>,
    #[prost(uint64, tag = "5")]
    pub created: u64,
    #[prost(uint32, tag = "6")]
    pub kind: u32,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct FooterMessage {
    #[prost(uint64, tag = "1")]
    pub term: u64,
    #[prost(uint32, tag = "2")]
    pub seq: u32,
    #[prost(uint64, tag = "3")]
    pub data_end: u64,
    #[prost(message, repeated, tag = "4")]
    pub entries: Vec<EntryMessage>,
}

pub(crate) fn decode<M: Message + Default>(what: &str, bytes: impl Buf) -> Result<M> {
    M::decode(bytes).map_err(|e| Error::corrupt(format!("{what} cannot be decoded: {e}")))
}

pub(crate) fn decode_body<M: Message + Default>(frame: Frame<'_>, kind: FrameKind) -> Result<M> {
    let mut body = Vec::new();
    frame.expect(kind)?.decode_into(&mut body)?;
    decode(&format!("body of a {kind:?} frame"), body.as_slice())
}

pub(super) fn check_owner(owner: &Owner) -> Result<()> {
    for part in owner.parts() {
        if part.len() > MAX_OWNER_PART_BYTES {
            return Err(Error::invalid_input(format!(
                "a part of an owner's name has at most {MAX_OWNER_PART_BYTES} bytes, found {}",
                part.len()
            )));
        }
    }
    Ok(())
}

fn owner_from(found: Option<Owner>) -> Result<Owner> {
    let owner = found.ok_or_else(|| Error::corrupt("a segment without an owner"))?;
    check_owner(&owner).map_err(|e| Error::corrupt(e.to_string()))?;
    Ok(owner)
}

fn kind_from(tag: u32) -> Result<SegmentKind> {
    u8::try_from(tag)
        .ok()
        .and_then(SegmentKind::from_tag)
        .ok_or_else(|| Error::corrupt(format!("segment kind: expected 1, 3, 4 or 5, found {tag}")))
}

/// Field of a head that names its journal: length 8, digest 16.
fn journal_bytes(JournalRef { len, digest }: JournalRef) -> Vec<u8> {
    [len.to_le_bytes().as_slice(), &digest.to_le_bytes()].concat()
}

fn journal_from(mut bytes: &[u8]) -> Result<Option<JournalRef>> {
    match bytes.len() {
        0 => Ok(None),
        24 => Ok(Some(JournalRef {
            len: bytes.get_u64_le(),
            digest: bytes.get_u128_le(),
        })),
        found => Err(Error::corrupt(format!(
            "journal of a segment: expected 24 bytes, found {found}"
        ))),
    }
}

fn reference_from(what: &str, bytes: &[u8]) -> Result<SegmentRef> {
    SegmentRef::from_bytes(bytes).map_err(|e| Error::corrupt(format!("{what}: {e}")))
}

impl HeadMessage {
    pub fn of(new: &NewSegment<'_>, journal: Option<JournalRef>, payload_bytes: u64) -> Self {
        let bytes = |reference: &SegmentRef| reference.to_bytes().to_vec();
        Self {
            owner: Some(new.owner.clone()),
            created: new.created.0,
            kind: u32::from(new.kind.tag()),
            lineage: new.lineage.iter().map(bytes).collect(),
            payload_bytes,
            entries: new.entries,
            replaced: new.replaced.as_ref().map_or_else(Vec::new, bytes),
            journal: journal.map_or_else(Vec::new, journal_bytes),
            tables: new.tables.to_vec(),
            runs: new.runs,
        }
    }
}

impl TryFrom<HeadMessage> for SegmentHead {
    type Error = Error;

    fn try_from(message: HeadMessage) -> Result<Self> {
        let lineage = message.lineage.iter();
        let lineage = lineage.map(|bytes| reference_from("lineage of a segment", bytes));
        let replaced = match message.replaced.as_slice() {
            [] => None,
            bytes => Some(reference_from("replaced segment", bytes)?),
        };
        Ok(Self {
            owner: owner_from(message.owner)?,
            created: CheckpointId(message.created),
            kind: kind_from(message.kind)?,
            lineage: lineage.collect::<Result<_>>()?,
            replaced,
            journal: journal_from(&message.journal)?,
            payload_bytes: message.payload_bytes,
            entries: message.entries,
            tables: message.tables,
            runs: message.runs,
        })
    }
}

impl SegmentHead {
    /// The head as a message for another process; of a run with the sizes from its trailer.
    pub fn to_bytes(&self) -> Vec<u8> {
        let new = NewSegment {
            owner: &self.owner,
            created: self.created,
            kind: self.kind,
            lineage: &self.lineage,
            replaced: self.replaced,
            entries: self.entries,
            tables: &self.tables,
            runs: self.runs,
        };
        HeadMessage::of(&new, self.journal, self.payload_bytes).encode_to_vec()
    }

    /// Inverse of [`SegmentHead::to_bytes`].
    ///
    /// # Errors
    /// `Corrupt` when the bytes are no head.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        decode::<HeadMessage>("head of a segment", bytes)?.try_into()
    }
}

pub(super) fn entry_message(entry: &IndexEntry) -> EntryMessage {
    EntryMessage {
        offset: entry.reference.offset,
        len: entry.reference.len,
        digest: entry.reference.digest.to_le_bytes().to_vec(),
        owner: Some(entry.owner.clone()),
        created: entry.created.0,
        kind: u32::from(entry.kind.tag()),
    }
}

pub(super) fn entry_from(file: FileId, message: EntryMessage) -> Result<IndexEntry> {
    let digest = <[u8; 16]>::try_from(message.digest.as_slice()).map_err(|_| {
        let found = message.digest.len();
        Error::corrupt(format!(
            "digest of a segment: expected 16 bytes, found {found}"
        ))
    })?;
    Ok(IndexEntry {
        reference: SegmentRef {
            file,
            offset: message.offset,
            len: message.len,
            digest: u128::from_le_bytes(digest),
        },
        owner: owner_from(message.owner)?,
        created: CheckpointId(message.created),
        kind: kind_from(message.kind)?,
    })
}

/// Refuses a header or footer of another file: a misplaced copy.
pub(super) fn check_file(file: FileId, term: u64, seq: u32) -> Result<()> {
    let found = FileId {
        term: Term(term),
        seq,
    };
    if found == file {
        return Ok(());
    }
    Err(Error::corrupt(format!(
        "expected the bytes of {file}, found those of {found}"
    )))
}
