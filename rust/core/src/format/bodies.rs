//! Bodies of the frames: tagged fields, so that a later version can add some.

use prost::Message;

use super::frame::{Frame, FrameKind, split};
use super::{IndexEntry, JournalRef, SegmentHead, SegmentKind, TableKeys};
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

/// Decodes the body of a frame of the expected type.
pub(super) fn decode<M: Message + Default>(frame: Frame<'_>, kind: FrameKind) -> Result<M> {
    let frame = frame.expect(kind)?;
    let mut body = Vec::new();
    frame.decode_into(&mut body)?;
    M::decode(body.as_slice())
        .map_err(|e| Error::corrupt(format!("body of a {kind:?} frame cannot be decoded: {e}")))
}

/// Refuses an owner whose names would not fit the bounds of the format.
pub(super) fn check_owner(owner: &Owner) -> Result<()> {
    for part in [
        &owner.pipeline,
        &owner.operator,
        &owner.region,
        &owner.store,
    ] {
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
        .ok_or_else(|| Error::corrupt(format!("segment kind: expected 1 to 5, found {tag}")))
}

/// Field of a head that names its journal: length 8, digest 16; empty without one.
pub(super) fn journal_bytes(journal: Option<JournalRef>) -> Vec<u8> {
    journal.map_or_else(Vec::new, |JournalRef { len, digest }| {
        [len.to_le_bytes().as_slice(), &digest.to_le_bytes()].concat()
    })
}

fn journal_from(bytes: &[u8]) -> Result<Option<JournalRef>> {
    if bytes.is_empty() {
        return Ok(None);
    }
    let about = |e: Error| e.context("journal of a segment");
    let (len, rest) = split::<8>(bytes).map_err(about)?;
    let (digest, rest) = split::<16>(rest).map_err(about)?;
    if !rest.is_empty() {
        return Err(Error::corrupt(format!(
            "journal of a segment: expected 24 bytes, found {}",
            bytes.len()
        )));
    }
    Ok(Some(JournalRef {
        len: u64::from_le_bytes(len),
        digest: u128::from_le_bytes(digest),
    }))
}

impl TryFrom<HeadMessage> for SegmentHead {
    type Error = Error;

    fn try_from(message: HeadMessage) -> Result<Self> {
        let lineage: Result<Vec<_>> = message
            .lineage
            .iter()
            .map(|bytes| {
                SegmentRef::from_bytes(bytes)
                    .map_err(|e| Error::corrupt(format!("lineage of a segment: {e}")))
            })
            .collect();
        let replaced = match message.replaced.as_slice() {
            [] => None,
            bytes => Some(
                SegmentRef::from_bytes(bytes)
                    .map_err(|e| Error::corrupt(format!("replaced segment: {e}")))?,
            ),
        };
        Ok(Self {
            owner: owner_from(message.owner)?,
            created: CheckpointId(message.created),
            kind: kind_from(message.kind)?,
            lineage: lineage?,
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
    /// The head as a message, for another process. What the head of a run does not say is in it.
    pub fn to_bytes(&self) -> Vec<u8> {
        let lineage = self.lineage.iter().map(|r| r.to_bytes().to_vec());
        let message = HeadMessage {
            owner: Some(self.owner.clone()),
            created: self.created.0,
            kind: u32::from(self.kind.tag()),
            lineage: lineage.collect(),
            payload_bytes: self.payload_bytes,
            entries: self.entries,
            replaced: self
                .replaced
                .map_or_else(Vec::new, |r| r.to_bytes().to_vec()),
            journal: journal_bytes(self.journal),
            tables: self.tables.clone(),
            runs: self.runs,
        };
        message.encode_to_vec()
    }

    /// Inverse of [`SegmentHead::to_bytes`].
    ///
    /// # Errors
    /// `Corrupt` when the bytes are no head.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        HeadMessage::decode(bytes)
            .map_err(|e| Error::corrupt(format!("head of a segment cannot be decoded: {e}")))?
            .try_into()
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
    let (digest, rest) = split::<16>(&message.digest)?;
    if !rest.is_empty() {
        return Err(Error::corrupt(format!(
            "digest of a segment: expected 16 bytes, found {}",
            message.digest.len()
        )));
    }
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

/// Refuses a header or footer that names another file, as a misplaced copy would.
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
