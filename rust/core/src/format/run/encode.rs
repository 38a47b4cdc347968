//! Writing a run, entry by entry.

use std::fmt;
use std::ops::Range;

use prost::Message;
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use super::filter::filter_of;
use super::{
    BlockMessage, DirectoryMessage, GroupEntry, GroupMessage, TRAILER_BYTES, Totals, put_block,
};
use crate::error::{Error, Result};
use crate::format::entry::{MAX_LENGTHS_BYTES, put_entry, shared_bytes};
use crate::format::frame::{self, FrameKind};
use crate::format::segment::encode_head;
use crate::format::{Compression, NewSegment, TableKeys};

/// Bound on a block of several entries, raw. A point read reads and decompresses one block.
const BLOCK_BYTES: usize = 16 << 10;

/// A group ends at so many keys: their filter takes 80 KiB, and 3 MiB while it is made.
const GROUP_KEYS: usize = 64 << 10;

/// A group also ends at this size of its index: large keys make no large group.
const GROUP_INDEX_BYTES: usize = 128 << 10;

/// A run gets no filter if it has one group, and neither its entries nor the runs below it take
/// more than this. Most stores are that small, and are loaded whole if there is memory. A run above
/// more is asked for all keys that are not in memory. [`RunEncoder::filter_always`] overrides it.
const UNFILTERED_BYTES: u64 = 256 << 10;

/// Groups are written together up to this size: one read gets the groups of 800,000 keys.
const SECTION_BYTES: usize = 1 << 20;

/// Encodes a run whose entries come in ascending order of their keys. The caller takes the frames
/// as they are made. Memory: one block, one section of groups, the hashes of one group's keys and
/// the directory, which takes about 60 bytes and a key for every 65,536 keys.
#[derive(Default)]
pub(crate) struct RunEncoder {
    compression: Compression,
    /// Frames that were not taken yet.
    out: Vec<u8>,
    taken_bytes: u64,
    /// Digest of the frames that were taken.
    digest: Xxh3,
    /// Digest of head and directory.
    root: Xxh3,
    block: Vec<u8>,
    /// Separator of the block that is being filled.
    separator: Vec<u8>,
    key: Vec<u8>,
    last_key: Vec<u8>,
    /// Length of the prefixes that tell the tables apart.
    prefix_bytes: usize,
    group: OpenGroup,
    has_filter: bool,
    section: OpenSection,
    directory: DirectoryMessage,
    totals: Totals,
}

#[derive(Default)]
struct OpenGroup {
    message: GroupMessage,
    index_bytes: usize,
    start: u64,
    hashes: Vec<u64>,
}

#[derive(Default)]
struct OpenSection {
    frames: Vec<u8>,
    /// The entries of the directory for these groups.
    entries: Range<usize>,
}

impl fmt::Debug for RunEncoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunEncoder")
            .field("stored_bytes", &self.stored_bytes())
            .field("totals", &self.totals)
            .finish_non_exhaustive()
    }
}

impl RunEncoder {
    pub fn new(new: &NewSegment<'_>, compression: Compression) -> Result<Self> {
        let mut out = Vec::new();
        let head = encode_head(new, None, 0)?;
        frame::put_raw(&mut out, FrameKind::Head, &head)
            .map_err(|e| e.context(format!("head of a segment of {}", new.owner)))?;
        let mut root = Xxh3::new();
        root.update(&out);
        let below = new.lineage.iter().map(|segment| segment.len);
        Ok(Self {
            compression,
            out,
            root,
            has_filter: below.fold(0, u64::saturating_add) > UNFILTERED_BYTES,
            ..Self::default()
        })
    }

    pub fn filter_always(&mut self) {
        self.has_filter = true;
    }

    /// Adds an entry whose key is `prefix` and then `key`; `None` removes the key. The run counts
    /// the keys of each prefix that is not empty. All prefixes of a run have one length.
    pub fn push(&mut self, prefix: &[u8], key: &[u8], value: Option<&[u8]>) -> Result<()> {
        let need = prefix.len() + key.len() + value.map_or(0, <[u8]>::len) + MAX_LENGTHS_BYTES;
        if !self.block.is_empty() && self.block.len() + need > BLOCK_BYTES {
            self.close_block()?;
        }
        self.key.clear();
        self.key.extend_from_slice(prefix);
        self.key.extend_from_slice(key);
        if self.totals.entries > 0 && self.key <= self.last_key {
            return Err(Error::invalid_input(
                "the entries of a run must come in ascending order of their keys",
            ));
        }
        if self.totals.entries > 0 && prefix.len() != self.prefix_bytes {
            return Err(Error::invalid_input(
                "the prefixes of the tables of a run must have one length",
            ));
        }
        self.prefix_bytes = prefix.len();
        if self.block.is_empty() {
            let shared = shared_bytes(&self.last_key, &self.key);
            let shortest = self.key.get(..=shared).unwrap_or(&self.key);
            self.separator = shortest.to_vec();
        }
        std::mem::swap(&mut self.key, &mut self.last_key);
        put_entry(&mut self.block, prefix, key, value);
        self.group.hashes.push(xxh3_64(&self.last_key));
        self.totals.entries += 1;
        self.count_behind(prefix);
        Ok(())
    }

    fn count_behind(&mut self, prefix: &[u8]) {
        match self.directory.tables.last_mut() {
            Some(table) if table.prefix == prefix => table.keys += 1,
            _ if prefix.is_empty() => {}
            _ => self.directory.tables.push(TableKeys {
                prefix: prefix.to_vec(),
                keys: 1,
            }),
        }
    }

    /// The caller takes frames when there are about `gathered`. Makes room for all at once: a
    /// growing buffer takes three times its content.
    pub fn expect(&mut self, bytes: usize, gathered: usize) {
        // A section of groups may come on top.
        self.out
            .reserve_exact(bytes.min(gathered + 2 * SECTION_BYTES));
    }

    pub fn frames(&mut self) -> &[u8] {
        &self.out
    }

    pub fn forget_frames(&mut self) {
        self.digest.update(&self.out);
        self.taken_bytes += self.out.len() as u64;
        if self.out.capacity() > 4 * SECTION_BYTES {
            // The parts that follow are smaller.
            self.out = Vec::with_capacity(2 * SECTION_BYTES + 2 * BLOCK_BYTES);
        }
        self.out.clear();
    }

    /// Bytes of all entries so far, before compression.
    pub fn entry_bytes(&self) -> u64 {
        self.totals.payload_bytes + self.block.len() as u64
    }

    pub fn stored_bytes(&self) -> u64 {
        self.taken_bytes + self.out.len() as u64
    }

    /// Ends the run and returns its digest. Its last frames are to be written.
    pub fn finish(&mut self) -> Result<u128> {
        if !self.block.is_empty() {
            self.close_block()?;
        }
        let is_small =
            self.directory.groups.is_empty() && self.totals.payload_bytes <= UNFILTERED_BYTES;
        if is_small && !self.has_filter {
            self.group.hashes.clear();
        }
        if !self.group.message.blocks.is_empty() {
            self.close_group()?;
        }
        self.close_section();
        let start = self.out.len();
        let directory = std::mem::take(&mut self.directory);
        self.totals.groups = directory.groups.len() as u64;
        let directory = directory.encode_to_vec();
        put_block(
            &mut self.out,
            FrameKind::Directory,
            self.compression,
            &directory,
        )?;
        self.root.update(self.out.get(start..).unwrap_or_default());
        self.totals.root = self.root.digest128();
        self.totals.directory_bytes = (self.out.len() - start) as u64;
        self.totals.stored_bytes = self.stored_bytes() + TRAILER_BYTES as u64;
        frame::put_raw(&mut self.out, FrameKind::RunTrailer, &self.totals.to_body())?;
        self.digest.update(&self.out);
        Ok(self.digest.digest128())
    }

    fn close_block(&mut self) -> Result<()> {
        let start = self.out.len();
        if self.group.message.blocks.is_empty() {
            self.group.start = self.stored_bytes();
        }
        put_block(
            &mut self.out,
            FrameKind::Entries,
            self.compression,
            &self.block,
        )?;
        let stored = self.out.get(start..).unwrap_or_default();
        let block = BlockMessage {
            separator: std::mem::take(&mut self.separator),
            stored_bytes: stored.len() as u64,
            hash: xxh3_64(stored),
        };
        self.group.index_bytes += block.encoded_len();
        self.group.message.blocks.push(block);
        self.totals.payload_bytes += self.block.len() as u64;
        if self.block.capacity() > 2 * BLOCK_BYTES {
            // Gives back the memory of one large entry.
            self.block = Vec::new();
        }
        self.block.clear();
        if self.group.hashes.len() >= GROUP_KEYS || self.group.index_bytes >= GROUP_INDEX_BYTES {
            self.close_group()?;
        }
        Ok(())
    }

    fn close_group(&mut self) -> Result<()> {
        let OpenGroup {
            mut message,
            start: entries_offset,
            hashes,
            ..
        } = std::mem::take(&mut self.group);
        message.filter = filter_of(hashes);
        let frames = &mut self.section.frames;
        let start = frames.len();
        let body = message.encode_to_vec();
        put_block(frames, FrameKind::Group, self.compression, &body)?;
        let stored = frames.get(start..).unwrap_or_default();
        let separator = message
            .blocks
            .into_iter()
            .next()
            .map(|block| block.separator);
        self.directory.groups.push(GroupEntry {
            separator: separator.unwrap_or_default(),
            entries_offset,
            // Within its section, until the section is written.
            offset: start as u64,
            stored_bytes: stored.len() as u64,
            hash: xxh3_64(stored),
        });
        self.section.entries.end += 1;
        if self.section.frames.len() >= SECTION_BYTES {
            self.close_section();
        }
        Ok(())
    }

    fn close_section(&mut self) {
        let base = self.stored_bytes();
        let entries = &mut self.section.entries;
        let groups = self.directory.groups.get_mut(entries.clone());
        for group in groups.unwrap_or_default() {
            group.offset += base;
        }
        entries.start = entries.end;
        self.out.append(&mut self.section.frames);
    }
}
