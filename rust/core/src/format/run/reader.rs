//! Reads a run block by block, and verifies the blocks that it reads.

use std::sync::Arc;

use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use super::filter::KeyFilter;
use super::{DirectoryMessage, GroupEntry, GroupMessage, TRAILER_BYTES, Totals};
use crate::error::{Error, Result};
use crate::format::decode;
use crate::format::frame::{self, FrameKind};
use crate::format::head::{at, check_head_owner, describe_at, read_first_frame, split_head};
use crate::format::{SegmentHead, SegmentKind, TableKeys, read_frames};
use crate::ids::{Owner, SegmentRef};
use crate::storage::{ReadFile, Storage};

/// Bytes before the trailer that are read with it: a directory of 10 million keys fits.
const DIRECTORY_GUESS_BYTES: u64 = 16 << 10;

/// An open run. Head and directory are in memory: about 60 bytes and a key for every 65,536 keys.
#[derive(Debug)]
pub(crate) struct RunReader {
    input: Arc<dyn ReadFile>,
    location: String,
    pub reference: SegmentRef,
    /// With the sizes from the trailer.
    pub head: SegmentHead,
    groups: Vec<GroupEntry>,
    tables: Vec<TableKeys>,
}

/// Index and filter of a group of blocks. Memory: at most about 128 KiB and the filter's 80 KiB.
#[derive(Debug)]
pub(crate) struct Group {
    pub blocks: Vec<Block>,
    pub filter: Option<KeyFilter>,
}

#[derive(Debug)]
pub(crate) struct Block {
    /// Greater than every key before the block, not greater than its first one.
    pub separator: Vec<u8>,
    /// Offset from the beginning of the segment.
    offset: u64,
    pub stored_bytes: u64,
    hash: u64,
}

impl RunReader {
    /// Opens the file of a run; reads and verifies trailer, directory and head.
    pub fn open(storage: &dyn Storage, reference: &SegmentRef, owner: &Owner) -> Result<Self> {
        let input = storage.open(&reference.file.file_name());
        Self::of(storage, input.map(Arc::from), reference, owner)
    }

    /// Like [`RunReader::open`], for a look at the head. Readers of nearby bytes share the open
    /// file, and keep the bytes around them in memory as long as it is open.
    pub fn look_at(storage: &dyn Storage, reference: &SegmentRef, owner: &Owner) -> Result<Self> {
        let input = storage.open_near(&reference.file.file_name());
        Self::of(storage, input, reference, owner)
    }

    fn of(
        storage: &dyn Storage,
        input: Result<Arc<dyn ReadFile>>,
        reference: &SegmentRef,
        owner: &Owner,
    ) -> Result<Self> {
        let location = storage.location();
        input
            .and_then(|input| Self::read(input, location.clone(), *reference, owner))
            .map_err(|e| e.context(describe_at(&location, reference, owner)))
    }

    pub(super) fn read(
        input: Arc<dyn ReadFile>,
        location: String,
        reference: SegmentRef,
        owner: &Owner,
    ) -> Result<Self> {
        let about = |offset: u64, e| at(&reference, offset as usize, e);
        let trailer = reference.len.saturating_sub(TRAILER_BYTES as u64);
        let read = |offset: u64, len: u64| {
            read_frames(input.as_ref(), reference.offset.saturating_add(offset), len)
                .map_err(|e| about(offset, e))
        };
        let tail = trailer.saturating_sub(DIRECTORY_GUESS_BYTES);
        let mut tail_frames = read(tail, reference.len.saturating_sub(tail))?;
        let behind = tail_frames.split_off((trailer - tail) as usize);
        let totals =
            Totals::parse(&behind).map_err(|e| about(trailer, e.context("trailer of a run")))?;
        let directory = trailer.checked_sub(totals.directory_bytes);
        let Some(directory) = directory.filter(|_| totals.stored_bytes == reference.len) else {
            return Err(about(
                trailer,
                Error::corrupt(format!(
                    "trailer of a run: expected one of {} bytes, found {totals:?}",
                    reference.len
                )),
            ));
        };
        let directory_frames = match directory.checked_sub(tail) {
            Some(before) => tail_frames.split_off(before as usize),
            None => read(directory, totals.directory_bytes)?,
        };
        let head_frame = read_first_frame(input.as_ref(), &reference)?;
        let mut root = Xxh3::new();
        root.update(&head_frame);
        root.update(&directory_frames);
        if root.digest128() != totals.root {
            return Err(about(
                directory,
                Error::corrupt(format!(
                    "root of a run: expected {:032x}, found {:032x}",
                    totals.root,
                    root.digest128()
                )),
            ));
        }
        let (head, _) = split_head(&head_frame).map_err(|e| about(0, e))?;
        let mut head = check_head_owner(head, owner)?;
        if head.kind != SegmentKind::Run {
            return Err(about(
                0,
                Error::corrupt(format!("expected a run, found {:?}", head.kind)),
            ));
        }
        head.entries = totals.entries;
        head.payload_bytes = totals.payload_bytes;
        let body = only_body_of(&directory_frames, FrameKind::Directory)
            .map_err(|e| about(directory, e.context("directory of a run")))?;
        let message = decode::<DirectoryMessage>("directory of a run", body.as_slice())
            .and_then(|message| message.check_tables(totals.entries).map(|()| message))
            .map_err(|e| about(directory, e))?;
        Ok(Self {
            input,
            location,
            reference,
            head,
            groups: message.groups,
            tables: message.tables,
        })
    }

    pub fn keys_behind(&self, prefix: &[u8]) -> u64 {
        if prefix.is_empty() {
            return self.head.entries;
        }
        let table = self.tables.iter().find(|table| table.prefix == prefix);
        table.map_or(0, |table| table.keys)
    }

    /// Returns whether each key begins with the prefix of a table.
    pub fn has_tables(&self) -> bool {
        !self.tables.is_empty() || self.head.entries == 0
    }

    pub fn prefixes(&self) -> impl Iterator<Item = &[u8]> {
        self.tables.iter().map(|table| table.prefix.as_slice())
    }

    pub fn groups(&self) -> usize {
        self.groups.len()
    }

    /// Number of the only group that may have a key; `None` if the key is before all groups.
    pub fn group_of(&self, key: &[u8]) -> Option<usize> {
        let after = self
            .groups
            .partition_point(|g| g.separator.as_slice() <= key);
        after.checked_sub(1)
    }

    pub fn group(&self, number: usize) -> Result<Group> {
        let entry = self.groups.get(number).ok_or_else(|| {
            Error::invalid_input(format!("group {number} of {}", self.groups.len()))
        })?;
        let decode = || {
            let frames = self.stored(entry.offset, entry.stored_bytes)?;
            check_hash(&frames, entry.hash)?;
            let body = only_body_of(&frames, FrameKind::Group)?;
            let message: GroupMessage = decode("group of a run", body.as_slice())?;
            let filter = message.filter.map(KeyFilter::new).transpose()?;
            let mut offset = entry.entries_offset;
            let mut blocks = Vec::with_capacity(message.blocks.len());
            for block in message.blocks {
                blocks.push(Block {
                    separator: block.separator,
                    offset,
                    stored_bytes: block.stored_bytes,
                    hash: block.hash,
                });
                offset = offset.saturating_add(block.stored_bytes);
            }
            Ok(Group { blocks, filter })
        };
        decode().map_err(|e| self.about(entry.offset, e))
    }

    pub fn block(&self, block: &Block) -> Result<Vec<u8>> {
        self.blocks(std::slice::from_ref(block))
    }

    /// Like [`RunReader::block`], for blocks that follow each other, with one read.
    pub fn blocks(&self, blocks: &[Block]) -> Result<Vec<u8>> {
        let Some(first) = blocks.first() else {
            return Ok(Vec::new());
        };
        let lens = blocks.iter().map(|block| block.stored_bytes);
        let len = lens.fold(0, u64::saturating_add);
        let stored = self
            .stored(first.offset, len)
            .map_err(|e| self.about(first.offset, e))?;
        let mut rest = stored.as_slice();
        let mut entries = Vec::new();
        for block in blocks {
            // There are enough bytes: `len` is the sum.
            let (frames, behind) = rest
                .split_at_checked(block.stored_bytes as usize)
                .unwrap_or((rest, &[]));
            check_hash(frames, block.hash)
                .and_then(|()| body_of(frames, FrameKind::Entries, &mut entries))
                .map_err(|e| self.about(block.offset, e))?;
            rest = behind;
        }
        Ok(entries)
    }

    fn about(&self, offset: u64, error: Error) -> Error {
        let what = describe_at(&self.location, &self.reference, &self.head.owner);
        at(&self.reference, offset as usize, error).context(what)
    }

    fn stored(&self, offset: u64, len: u64) -> Result<Vec<u8>> {
        if offset.saturating_add(len) > self.reference.len {
            return Err(Error::corrupt(format!(
                "a block of {len} bytes at {offset} of a run of {} bytes",
                self.reference.len
            )));
        }
        let start = self.reference.offset.saturating_add(offset);
        read_frames(self.input.as_ref(), start, len)
    }
}

impl Group {
    /// Number of the block that has a key, if the group has it.
    pub fn block_of(&self, key: &[u8]) -> Option<usize> {
        let filter = self.filter.as_ref();
        if filter.is_some_and(|filter| !filter.may_have(key)) {
            return None;
        }
        self.block_before(key)
    }

    /// Number of the last block whose keys may be as small as this one.
    pub fn block_before(&self, key: &[u8]) -> Option<usize> {
        let after = self
            .blocks
            .partition_point(|b| b.separator.as_slice() <= key);
        after.checked_sub(1)
    }

    pub fn memory_bytes(&self) -> usize {
        let separators: usize = self.blocks.iter().map(|b| b.separator.capacity()).sum();
        let filter = self.filter.as_ref().map_or(0, KeyFilter::bytes);
        self.blocks.capacity() * size_of::<Block>() + separators + filter
    }
}

fn check_hash(frames: &[u8], expected: u64) -> Result<()> {
    let found = xxh3_64(frames);
    if found == expected {
        return Ok(());
    }
    let len = frames.len();
    Err(Error::corrupt(format!(
        "block of a run: expected {len} bytes with the hash {expected:016x}, found the hash {found:016x}"
    )))
}

fn only_body_of(frames: &[u8], kind: FrameKind) -> Result<Vec<u8>> {
    let mut body = Vec::new();
    body_of(frames, kind, &mut body)?;
    Ok(body)
}

/// Appends the body of the block that has exactly these frames.
fn body_of(frames: &[u8], kind: FrameKind, body: &mut Vec<u8>) -> Result<()> {
    let mut rest = frames;
    loop {
        let frame = frame::parse(rest)?.expect(kind)?;
        frame.decode_into(body)?;
        rest = rest.get(frame.stored_len()..).unwrap_or_default();
        if frame.raw_len < frame::MAX_BODY_BYTES {
            break;
        }
    }
    if rest.is_empty() {
        return Ok(());
    }
    Err(Error::corrupt(format!(
        "{} bytes behind the end of a block",
        rest.len()
    )))
}
