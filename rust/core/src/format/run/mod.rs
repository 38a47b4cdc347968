//! Runs: sorted entries in blocks that are verified and found one by one. `FORMAT.md` is the text.
//!
//! ```text
//! head | (blocks of entries ... | groups ...) ... | directory | trailer
//! ```
//!
//! A block is one frame, or several if it is larger than a frame may be. A group has the digests of
//! its blocks of entries, the directory has the digests of the groups, and the trailer the digest
//! of head and directory. So a reader can verify each block without the others. The digest in a
//! reference covers all bytes, as for every segment.

mod encode;
mod filter;
mod reader;
mod walk;

pub(crate) use encode::RunEncoder;
pub(crate) use reader::{Block, Group, RunReader};
pub(super) use walk::{Event, RunWalk};

use prost::Message;
use prost::bytes::{Buf, BufMut};

use super::frame::{self, FrameKind, HEADER_BYTES, MAX_BODY_BYTES, split};
use super::{Compression, TableKeys};
use crate::error::{Error, Result};

/// Body of the trailer: length of the directory 8, groups 8, entries 8, bytes of entries 8, length of
/// the segment 8, root 16.
const TRAILER_BODY_BYTES: usize = 56;
pub(super) const TRAILER_BYTES: usize = HEADER_BYTES + TRAILER_BODY_BYTES;

#[derive(Clone, PartialEq, Message)]
struct BlockMessage {
    /// Greater than every key before the block, not greater than its first one.
    #[prost(bytes = "vec", tag = "1")]
    separator: Vec<u8>,
    #[prost(uint64, tag = "2")]
    stored_bytes: u64,
    /// xxh3-64 of the stored bytes.
    #[prost(fixed64, tag = "3")]
    hash: u64,
}

#[derive(Clone, PartialEq, Message)]
struct GroupMessage {
    #[prost(message, repeated, tag = "1")]
    blocks: Vec<BlockMessage>,
    #[prost(message, optional, tag = "2")]
    filter: Option<FilterMessage>,
}

#[derive(Clone, PartialEq, Message)]
struct FilterMessage {
    #[prost(fixed64, tag = "1")]
    seed: u64,
    #[prost(uint32, tag = "2")]
    segment_length: u32,
    #[prost(uint32, tag = "3")]
    segment_count_length: u32,
    #[prost(bytes = "vec", tag = "4")]
    fingerprints: Vec<u8>,
}

/// A group, as the directory knows it. Offsets are from the beginning of the segment.
#[derive(Clone, PartialEq, Message)]
struct GroupEntry {
    /// Separator of its first block.
    #[prost(bytes = "vec", tag = "1")]
    separator: Vec<u8>,
    /// Offset of its first block of entries.
    #[prost(uint64, tag = "2")]
    entries_offset: u64,
    /// Offset of the group itself.
    #[prost(uint64, tag = "3")]
    offset: u64,
    #[prost(uint64, tag = "4")]
    stored_bytes: u64,
    /// xxh3-64 of the stored bytes.
    #[prost(fixed64, tag = "5")]
    hash: u64,
}

#[derive(Clone, PartialEq, Message)]
struct DirectoryMessage {
    #[prost(message, repeated, tag = "1")]
    groups: Vec<GroupEntry>,
    /// In the order of their keys; empty if the keys have no prefixes.
    #[prost(message, repeated, tag = "2")]
    tables: Vec<TableKeys>,
}

impl DirectoryMessage {
    fn check_tables(&self, entries: u64) -> Result<()> {
        let keys = self.tables.iter().map(|table| table.keys);
        let keys = keys.fold(0, u64::saturating_add);
        if self.tables.is_empty() || keys == entries {
            return Ok(());
        }
        Err(Error::corrupt(format!(
            "directory of a run: {keys} keys in its tables, {entries} in the run"
        )))
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Totals {
    directory_bytes: u64,
    groups: u64,
    pub entries: u64,
    pub payload_bytes: u64,
    /// Length of the segment, the trailer included.
    stored_bytes: u64,
    /// xxh3-128 of the stored bytes of head and directory.
    root: u128,
}

impl Totals {
    fn to_body(self) -> Vec<u8> {
        let mut body = Vec::with_capacity(TRAILER_BODY_BYTES);
        body.put_u64_le(self.directory_bytes);
        body.put_u64_le(self.groups);
        body.put_u64_le(self.entries);
        body.put_u64_le(self.payload_bytes);
        body.put_u64_le(self.stored_bytes);
        body.put_u128_le(self.root);
        body
    }

    pub(super) fn parse(bytes: &[u8]) -> Result<Self> {
        let frame = frame::parse(bytes)?.expect(FrameKind::RunTrailer)?;
        Self::from_body(frame.body)
    }

    fn from_body(body: &[u8]) -> Result<Self> {
        let (fields, _) = split::<TRAILER_BODY_BYTES>(body)?;
        let mut fields = fields.as_slice();
        Ok(Self {
            directory_bytes: fields.get_u64_le(),
            groups: fields.get_u64_le(),
            entries: fields.get_u64_le(),
            payload_bytes: fields.get_u64_le(),
            stored_bytes: fields.get_u64_le(),
            root: fields.get_u128_le(),
        })
    }
}

/// Appends the frames of one block. Only the body of the last frame is smaller than the largest
/// size, so a reader finds the end of the block.
fn put_block(
    out: &mut Vec<u8>,
    kind: FrameKind,
    compression: Compression,
    body: &[u8],
) -> Result<()> {
    let full = body.chunks_exact(MAX_BODY_BYTES);
    let rest = full.remainder();
    for chunk in full.chain([rest]) {
        frame::put(out, kind, compression, chunk)?;
    }
    Ok(())
}

#[cfg(test)]
mod run_tests;
