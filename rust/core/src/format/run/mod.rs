//! Runs: sorted entries in blocks that are verified and found one by one. `FORMAT.md` is the text.
//!
//! ```text
//! head | (blocks of entries ... | groups ...) ... | directory | trailer
//! ```
//!
//! A block is one frame, or several where it is larger than a frame may be. Every block names the
//! digests of the blocks below it: a group those of its blocks of entries, the directory those of the
//! groups, and the trailer that of head and directory. So each block can be verified without reading
//! the others. The digest in a reference is that of all bytes, as for every segment.

mod encode;
mod filter;
mod reader;
mod walk;

pub(crate) use encode::RunEncoder;
pub(crate) use reader::{Block, Group, RunReader};
pub(super) use walk::{Event, RunWalk};

use prost::Message;

use super::frame::{self, FrameKind, HEADER_BYTES, MAX_BODY_BYTES, VERSION_OF_RUNS, split};
use super::{Compression, TableKeys};
use crate::error::{Error, Result};

/// Body of the trailer: length of the directory 8, groups 8, entries 8, bytes of entries 8, length of
/// the segment 8, root 16.
const TRAILER_BODY_BYTES: usize = 56;
/// Length of the trailer in the file.
pub(super) const TRAILER_BYTES: usize = HEADER_BYTES + TRAILER_BODY_BYTES;

/// A block of entries, as its group knows it.
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

/// Consecutive blocks of entries, and the filter of their keys.
#[derive(Clone, PartialEq, Message)]
struct GroupMessage {
    #[prost(message, repeated, tag = "1")]
    blocks: Vec<BlockMessage>,
    #[prost(message, optional, tag = "2")]
    filter: Option<FilterMessage>,
}

/// A binary fuse filter with fingerprints of 8 bits.
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
    /// That of its first block.
    #[prost(bytes = "vec", tag = "1")]
    separator: Vec<u8>,
    /// Where its first block of entries is.
    #[prost(uint64, tag = "2")]
    entries_offset: u64,
    /// Where the group itself is.
    #[prost(uint64, tag = "3")]
    offset: u64,
    #[prost(uint64, tag = "4")]
    stored_bytes: u64,
    /// xxh3-64 of the stored bytes.
    #[prost(fixed64, tag = "5")]
    hash: u64,
}

/// All groups, in the order of their keys.
#[derive(Clone, PartialEq, Message)]
struct DirectoryMessage {
    #[prost(message, repeated, tag = "1")]
    groups: Vec<GroupEntry>,
    /// In the order of their keys; none where keys are not told apart by their beginnings.
    #[prost(message, repeated, tag = "2")]
    tables: Vec<TableKeys>,
}

impl DirectoryMessage {
    /// # Errors
    /// `Corrupt` where the tables have not `entries` keys together.
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

/// What the trailer says.
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
        let numbers = [
            self.directory_bytes,
            self.groups,
            self.entries,
            self.payload_bytes,
            self.stored_bytes,
        ];
        let mut body: Vec<u8> = numbers.iter().flat_map(|n| n.to_le_bytes()).collect();
        body.extend_from_slice(&self.root.to_le_bytes());
        body
    }

    /// Reads the trailer that `bytes` are.
    pub(super) fn parse(bytes: &[u8]) -> Result<Self> {
        let frame = frame::parse(bytes)?.expect(FrameKind::RunTrailer)?;
        Self::from_body(frame.body)
    }

    fn from_body(body: &[u8]) -> Result<Self> {
        let (directory_bytes, rest) = split::<8>(body)?;
        let (groups, rest) = split::<8>(rest)?;
        let (entries, rest) = split::<8>(rest)?;
        let (payload_bytes, rest) = split::<8>(rest)?;
        let (stored_bytes, rest) = split::<8>(rest)?;
        let (root, _) = split::<16>(rest)?;
        Ok(Self {
            directory_bytes: u64::from_le_bytes(directory_bytes),
            groups: u64::from_le_bytes(groups),
            entries: u64::from_le_bytes(entries),
            payload_bytes: u64::from_le_bytes(payload_bytes),
            stored_bytes: u64::from_le_bytes(stored_bytes),
            root: u128::from_le_bytes(root),
        })
    }
}

/// Appends the frames of one block: all but the last have bodies of the largest size, the last one is
/// smaller, so that a reader knows where the block ends.
fn put_block(
    out: &mut Vec<u8>,
    kind: FrameKind,
    compression: Compression,
    body: &[u8],
) -> Result<()> {
    let full = body.chunks_exact(MAX_BODY_BYTES);
    let rest = full.remainder();
    for chunk in full.chain([rest]) {
        frame::put(out, VERSION_OF_RUNS, kind, compression, chunk)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
