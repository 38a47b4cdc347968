//! Reads a run from its first frame to its last, and verifies all of it.

use std::collections::VecDeque;

use xxhash_rust::xxh3::Xxh3;

use super::{BlockMessage, DirectoryMessage, GroupEntry, GroupMessage, Totals};
use crate::error::{Error, Result};
use crate::format::decode;
use crate::format::frame::{Frame, FrameKind, MAX_BODY_BYTES};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// Part of a block of entries, or all of it. The block ends with it iff `whole`.
    Entries { whole: bool },
    /// Part of the index.
    Index,
    /// The trailer: the run is whole, and its bytes have this digest.
    End { digest: u128, totals: Totals },
}

/// Walks over a run after its head. Remembers 32 bytes for each block of a section of groups.
#[derive(Default)]
pub(crate) struct RunWalk {
    digest: Xxh3,
    root: Xxh3,
    /// Offset of the next frame from the beginning of the segment.
    offset: u64,
    /// The block that the last frame left open.
    open: Option<Block>,
    /// Body of a block that is no block of entries.
    body: Vec<u8>,
    /// Blocks of entries whose group has not come yet, with their offsets.
    blocks: VecDeque<(u64, BlockMessage)>,
    groups: Vec<GroupEntry>,
    /// The directory and its stored length, once it has come.
    directory: Option<(DirectoryMessage, u64)>,
    payload_bytes: u64,
}

struct Block {
    kind: FrameKind,
    offset: u64,
    hash: Xxh3,
    stored_bytes: u64,
}

impl RunWalk {
    pub fn new(head: &[u8]) -> Self {
        let mut digest = Xxh3::new();
        digest.update(head);
        Self {
            root: digest.clone(),
            digest,
            offset: head.len() as u64,
            ..Self::default()
        }
    }

    /// Takes the next frame and its stored bytes.
    pub fn step(&mut self, stored: &[u8], frame: &Frame<'_>) -> Result<Event> {
        self.digest.update(stored);
        if frame.kind == FrameKind::RunTrailer {
            return self.end(stored, frame);
        }
        let is_known = matches!(
            frame.kind,
            FrameKind::Entries | FrameKind::Group | FrameKind::Directory
        );
        let expected = self.open.as_ref().map(|block| block.kind);
        if !is_known || self.directory.is_some() || expected.is_some_and(|k| k != frame.kind) {
            return Err(Error::corrupt(format!(
                "a {:?} frame where a run has none: expected {}",
                frame.kind,
                expected.map_or("a block".to_owned(), |kind| format!("a {kind:?} frame"))
            )));
        }
        let mut block = self.open.take().unwrap_or_else(|| Block {
            kind: frame.kind,
            offset: self.offset,
            hash: Xxh3::new(),
            stored_bytes: 0,
        });
        block.hash.update(stored);
        block.stored_bytes += stored.len() as u64;
        self.offset += stored.len() as u64;
        match frame.kind {
            FrameKind::Entries => self.payload_bytes += frame.raw_len as u64,
            FrameKind::Directory => {
                self.root.update(stored);
                frame.decode_into(&mut self.body)?;
            }
            _ => frame.decode_into(&mut self.body)?,
        }
        let whole = frame.raw_len < MAX_BODY_BYTES;
        if whole {
            self.close(block)?;
        } else {
            self.open = Some(block);
        }
        Ok(match frame.kind {
            FrameKind::Entries => Event::Entries { whole },
            _ => Event::Index,
        })
    }

    fn close(&mut self, block: Block) -> Result<()> {
        let hash = block.hash.digest();
        if block.kind == FrameKind::Entries {
            let found = BlockMessage {
                separator: Vec::new(),
                stored_bytes: block.stored_bytes,
                hash,
            };
            self.blocks.push_back((block.offset, found));
            return Ok(());
        }
        let body = std::mem::take(&mut self.body);
        if block.kind == FrameKind::Directory {
            let directory = self.read_directory(&body)?;
            self.directory = Some((directory, block.stored_bytes));
            return Ok(());
        }
        let group: GroupMessage = decode("group of a run", body.as_slice())?;
        let first = group.blocks.first().map(|block| block.separator.clone());
        let entries_offset = self.check_blocks(group.blocks)?;
        self.groups.push(GroupEntry {
            separator: first.unwrap_or_default(),
            entries_offset,
            offset: block.offset,
            stored_bytes: block.stored_bytes,
            hash,
        });
        Ok(())
    }

    /// Compares blocks of entries with their group; returns the offset of the first one.
    fn check_blocks(&mut self, blocks: Vec<BlockMessage>) -> Result<u64> {
        let mut first = None;
        for expected in blocks {
            let Some((offset, found)) = self.blocks.pop_front() else {
                return Err(Error::corrupt("a group of more blocks than there are"));
            };
            if (expected.stored_bytes, expected.hash) != (found.stored_bytes, found.hash) {
                return Err(Error::corrupt(format!(
                    "block {offset} bytes behind the beginning of a run: expected {} bytes with \
                     the hash {:016x}, found {} bytes with the hash {:016x}",
                    expected.stored_bytes, expected.hash, found.stored_bytes, found.hash
                )));
            }
            first = first.or(Some(offset));
        }
        first.ok_or_else(|| Error::corrupt("a group without blocks"))
    }

    fn read_directory(&self, body: &[u8]) -> Result<DirectoryMessage> {
        let directory: DirectoryMessage = decode("directory of a run", body)?;
        if !self.blocks.is_empty() || directory.groups != self.groups {
            return Err(Error::corrupt(format!(
                "directory of a run: expected {} groups as they are in it, found {} and {} blocks \
                 in no group",
                directory.groups.len(),
                self.groups.len(),
                self.blocks.len()
            )));
        }
        Ok(directory)
    }

    fn end(&mut self, stored: &[u8], frame: &Frame<'_>) -> Result<Event> {
        let expected = Totals::from_body(frame.body)?;
        let directory = self.directory.as_ref();
        if let Some((directory, _)) = directory {
            directory.check_tables(expected.entries)?;
        }
        let found = Totals {
            directory_bytes: directory.map_or(0, |(_, bytes)| *bytes),
            groups: self.groups.len() as u64,
            payload_bytes: self.payload_bytes,
            stored_bytes: self.offset + stored.len() as u64,
            root: self.root.digest128(),
            ..expected
        };
        if expected != found || self.open.is_some() {
            return Err(Error::corrupt(format!(
                "trailer of a run: expected {expected:?}, found {found:?}"
            )));
        }
        Ok(Event::End {
            digest: self.digest.digest128(),
            totals: found,
        })
    }
}
