//! Bytes of physical files: frames, segments, footers. `FORMAT.md` is the text; a change here also
//! changes it, a fixture and the version.

mod bodies;
mod entry;
mod footer;
pub(crate) mod frame;
mod head;
mod opened;
mod run;
mod scan;
mod segment;
mod stream;
mod window;

use crate::error::{Error, Result};
use crate::ids::{CheckpointId, FileId, Owner, SegmentRef};

pub(crate) use bodies::{decode, decode_body};
pub(crate) use entry::{EntryAt, parse_entry, put_entry, shared_bytes};
pub(crate) use footer::encode_footer;
pub use opened::OpenedFiles;
pub(crate) use run::{Block, Group, RunEncoder, RunReader};
pub(crate) use scan::{list_files, scan_index};
pub use scan::{read_index, read_sealed_index};
pub(crate) use segment::{
    EncodedSegment, decode_segment, encode_file_header, encode_segment, encode_with_journal,
};
pub use segment::{SegmentReader, read_any_head, read_head, read_segment};
pub(crate) use stream::SegmentStream;
pub(crate) use window::read_frames;

/// Bound on the segments of a file. The writer keeps their index in memory until it seals the file,
/// and readers refuse a longer footer. 65,536 entries of about 300 bytes are 20 MiB.
pub(crate) const MAX_SEGMENTS_PER_FILE: usize = 65_536;

/// The content of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SegmentKind {
    /// The changes of one commit.
    Changelog = 1,
    /// State of an operator at a checkpoint.
    Snapshot = 3,
    /// Pending rows: a checkpoint covers them, but its state does not reflect them yet.
    InFlight = 4,
    /// Full content of a store at a version, or the changes since the runs that it builds on.
    /// Readers find and verify its blocks one by one.
    Run = 5,
}

impl SegmentKind {
    /// Stable number of the kind, as stored.
    pub fn tag(self) -> u8 {
        self as u8
    }

    /// Inverse of [`SegmentKind::tag`].
    pub fn from_tag(tag: u8) -> Option<Self> {
        use SegmentKind::{Changelog, InFlight, Run, Snapshot};
        let kinds = [Changelog, Snapshot, InFlight, Run];
        kinds.into_iter().find(|kind| kind.tag() == tag)
    }
}

/// Compression of payloads. A chunk that does not get smaller stays uncompressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compression {
    /// No compression.
    None = 0,
    /// LZ4 blocks of at most 1 MiB.
    #[default]
    Lz4 = 1,
}

impl Compression {
    /// Stable number, for protocols.
    pub fn tag(self) -> u32 {
        self as u32
    }

    /// Inverse of [`Compression::tag`].
    pub fn from_tag(tag: u32) -> Option<Self> {
        let known = [Self::None, Self::Lz4];
        known.into_iter().find(|known| known.tag() == tag)
    }
}

/// A segment to be written, without its payload.
#[derive(Clone, Copy, Debug)]
pub struct NewSegment<'a> {
    /// Owner of the state.
    pub owner: &'a Owner,
    /// Checkpoint it is written for.
    pub created: CheckpointId,
    /// Its content.
    pub kind: SegmentKind,
    /// Segments it builds on, oldest first.
    pub lineage: &'a [SegmentRef],
    /// Like [`SegmentHead::replaced`].
    pub replaced: Option<SegmentRef>,
    /// Number of entries in the payload, for display. Ignored for a run, which counts its entries.
    pub entries: u64,
    /// Like [`SegmentHead::tables`].
    pub tables: &'a [TableKeys],
    /// Like [`SegmentHead::runs`].
    pub runs: u32,
}

impl<'a> NewSegment<'a> {
    /// A segment without lineage, counts and replaced segments.
    pub fn of(owner: &'a Owner, created: CheckpointId, kind: SegmentKind) -> Self {
        Self {
            owner,
            created,
            kind,
            lineage: &[],
            replaced: None,
            entries: 0,
            tables: &[],
            runs: 0,
        }
    }
}

/// Number of keys of one table of a store, by their prefix. A store without column families has one
/// table with an empty prefix.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct TableKeys {
    /// First bytes of the keys.
    #[prost(bytes = "vec", tag = "1")]
    pub prefix: Vec<u8>,
    /// Number of keys.
    #[prost(uint64, tag = "2")]
    pub keys: u64,
}

/// The journal of a changelog: a segment of its own, directly before it in the same file, with every
/// operation of the commit in its order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalRef {
    /// Length of its frames in bytes, as stored.
    pub len: u64,
    /// Like [`SegmentRef::digest`].
    pub digest: u128,
}

impl JournalRef {
    /// The reference to the journal of this changelog.
    ///
    /// # Errors
    /// `Corrupt` if it would begin before its file.
    pub fn before(self, changelog: &SegmentRef) -> Result<SegmentRef> {
        let Self { len, digest } = self;
        let offset = changelog.offset.checked_sub(len).ok_or_else(|| {
            Error::corrupt(format!(
                "journal of {changelog}: expected at most {} bytes before it, found {len}",
                changelog.offset
            ))
        })?;
        Ok(SegmentRef {
            file: changelog.file,
            offset,
            len,
            digest,
        })
    }
}

/// Header of a stored segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentHead {
    /// Owner of the state.
    pub owner: Owner,
    /// Checkpoint it was written for.
    pub created: CheckpointId,
    /// Its content.
    pub kind: SegmentKind,
    /// Segments it builds on, oldest first.
    pub lineage: Vec<SegmentRef>,
    /// Newest of the segments that the newest run replaced: this run, or the last one in the
    /// lineage. The state can be rebuilt from the replaced segments while their files are kept.
    pub replaced: Option<SegmentRef>,
    /// The journal of a changelog whose commit recorded every operation.
    pub journal: Option<JournalRef>,
    /// Size of the payload in bytes, uncompressed. 0 for a run of which only the head was read.
    pub payload_bytes: u64,
    /// Number of entries in the payload, for display. 0 for a run of which only the head was read.
    pub entries: u64,
    /// Number of keys of each table in the version that this changelog or delta run makes. With it
    /// a store opens over runs without reading the segments above. Tables without keys are left
    /// out. Empty if the commit did not count.
    pub tables: Vec<TableKeys>,
    /// Number of runs at the beginning of a changelog's lineage, if there is more than one. With 0
    /// only the first segment may be a base image.
    pub runs: u32,
}

impl SegmentHead {
    /// Number of the oldest segments of its version that may be runs.
    pub(crate) fn most_runs(&self) -> usize {
        match self.kind {
            SegmentKind::Run => self.lineage.len() + 1,
            // At least the first, which may be the newest itself.
            _ => (self.runs as usize).clamp(1, self.lineage.len().max(1)),
        }
    }
}

/// A journal to be written directly before a changelog.
#[derive(Clone, Copy, Debug)]
pub struct JournalPart<'a> {
    /// Its operations.
    pub payload: &'a [u8],
    /// Their number.
    pub operations: u64,
    /// The parts before it, oldest first.
    pub before: &'a [SegmentRef],
}

/// A segment read back and verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The header.
    pub head: SegmentHead,
    /// The payload, uncompressed: all entries of a run.
    pub payload: Vec<u8>,
}

/// A segment as a file's index knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexEntry {
    /// The reference to it.
    pub reference: SegmentRef,
    /// Owner of the state.
    pub owner: Owner,
    /// Checkpoint it was written for.
    pub created: CheckpointId,
    /// Its content.
    pub kind: SegmentKind,
}

/// The content of a physical file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileIndex {
    /// The file.
    pub file: FileId,
    /// It has a valid footer. Without one the index was rebuilt by scanning.
    pub sealed: bool,
    /// Size of the file in bytes.
    pub file_bytes: u64,
    /// Whole segments, by offset.
    pub segments: Vec<IndexEntry>,
    /// Bytes after the last whole segment: a cut write, which is no error in a file that is open.
    pub torn_bytes: u64,
    /// Bytes that do not verify although whole segments follow. No cut write leaves them, so the
    /// file is damaged. 0 for a sealed file, which is not scanned.
    pub damaged_bytes: u64,
}
