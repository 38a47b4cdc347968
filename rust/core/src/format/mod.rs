//! Bytes of physical files: frames, segments, footers. `FORMAT.md` beside this crate is the text;
//! a change here changes it, a fixture and the version.

mod bodies;
mod entry;
mod footer;
pub(crate) mod frame;
mod index;
mod opened;
mod run;
mod scan;
mod segment;
mod stream;
mod window;

use crate::error::{Error, Result};
use crate::ids::{CheckpointId, FileId, Owner, SegmentRef};

pub(crate) use entry::{EntryAt, parse_entry, put_entry, shared_bytes};
pub(crate) use footer::encode_footer;
pub use frame::FORMAT_VERSION;
pub use index::{read_index, read_sealed_index};
pub use opened::OpenedFiles;
pub(crate) use run::{Block, Group, RunEncoder, RunReader};
pub(crate) use segment::{
    EncodedSegment, decode_segment, encode_file_header, encode_segment, encode_with_journal,
};
pub use segment::{SegmentReader, read_any_head, read_head, read_segment};
pub(crate) use stream::SegmentStream;
pub(crate) use window::read_frames;

/// Bound on the segments of a file: its writer keeps their index in memory until it is sealed, and a
/// reader takes no longer footer. 65,536 entries of about 300 bytes are 20 MiB.
pub(crate) const MAX_SEGMENTS_PER_FILE: usize = 65_536;

/// What a segment holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SegmentKind {
    /// The changes of one commit.
    Changelog,
    /// Full content of a store at a version, as builds before runs wrote it.
    BaseImage,
    /// State of an operator at a checkpoint.
    Snapshot,
    /// Input rows that a checkpoint covers but the state does not reflect yet.
    InFlight,
    /// Full content of a store at a version, or what changed since the runs that it builds on, as
    /// blocks that are verified and found one by one.
    Run,
}

impl SegmentKind {
    /// Stable number of the kind, as stored.
    pub fn tag(self) -> u8 {
        match self {
            Self::Changelog => 1,
            Self::BaseImage => 2,
            Self::Snapshot => 3,
            Self::InFlight => 4,
            Self::Run => 5,
        }
    }

    /// Inverse of [`SegmentKind::tag`].
    pub fn from_tag(tag: u8) -> Option<Self> {
        [
            Self::Changelog,
            Self::BaseImage,
            Self::Snapshot,
            Self::InFlight,
            Self::Run,
        ]
        .into_iter()
        .find(|kind| kind.tag() == tag)
    }
}

/// How payloads are stored. A chunk that does not get smaller is stored as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compression {
    /// As they are.
    None,
    /// LZ4 blocks of at most 1 MiB.
    #[default]
    Lz4,
}

impl Compression {
    /// Stable number, for protocols.
    pub fn tag(self) -> u32 {
        match self {
            Self::None => 0,
            Self::Lz4 => 1,
        }
    }

    /// Inverse of [`Compression::tag`].
    pub fn from_tag(tag: u32) -> Option<Self> {
        [Self::None, Self::Lz4]
            .into_iter()
            .find(|compression| compression.tag() == tag)
    }
}

/// A segment to be written, without its payload.
#[derive(Clone, Copy, Debug)]
pub struct NewSegment<'a> {
    /// Whose state it is.
    pub owner: &'a Owner,
    /// Checkpoint it is written for.
    pub created: CheckpointId,
    /// What it holds.
    pub kind: SegmentKind,
    /// Segments it builds on, oldest first.
    pub lineage: &'a [SegmentRef],
    /// As [`SegmentHead::replaced`].
    pub replaced: Option<SegmentRef>,
    /// Number of entries in the payload, for display. That of a run is counted as it is written.
    pub entries: u64,
    /// As [`SegmentHead::tables`].
    pub tables: &'a [TableKeys],
    /// As [`SegmentHead::runs`].
    pub runs: u32,
}

/// How many keys begin so: those of one table of a store with column families, and all keys behind an
/// empty prefix.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct TableKeys {
    /// First bytes of the keys.
    #[prost(bytes = "vec", tag = "1")]
    pub prefix: Vec<u8>,
    /// Their number.
    #[prost(uint64, tag = "2")]
    pub keys: u64,
}

/// The journal of a changelog: a segment of its own, directly before it in the same file, with every
/// operation of the commit in its order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalRef {
    /// Length of its frames in bytes, as stored.
    pub len: u64,
    /// As [`SegmentRef::digest`].
    pub digest: u128,
}

impl JournalRef {
    /// Where the journal of a changelog lies.
    ///
    /// # Errors
    /// `Corrupt` for one that would begin before its file.
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
    /// Whose state it is.
    pub owner: Owner,
    /// Checkpoint it was written for.
    pub created: CheckpointId,
    /// What it holds.
    pub kind: SegmentKind,
    /// Segments it builds on, oldest first.
    pub lineage: Vec<SegmentRef>,
    /// Newest of the segments that the newest run stands for: this one if it is one, else the last of
    /// those in its lineage. Builds on the others, so the state can be rebuilt from it for as long as
    /// they are kept.
    pub replaced: Option<SegmentRef>,
    /// Of a changelog whose commit recorded every operation: where they are.
    pub journal: Option<JournalRef>,
    /// Size of the payload in bytes, uncompressed. The head of a run does not say, and has 0 where it
    /// was read alone.
    pub payload_bytes: u64,
    /// Number of entries in the payload, for display. As above.
    pub entries: u64,
    /// Of a changelog, or a run that builds on others: the keys of the version that it makes, by table,
    /// so that a store can be put over runs without looking for what the segments above change. A table
    /// without keys is not there. Empty where the commit did not say.
    pub tables: Vec<TableKeys>,
    /// Of a changelog: so many segments at the beginning of its lineage are runs, if there is more than
    /// one. 0 says that the first may be a base image and no other is.
    pub runs: u32,
}

/// A segment read back and verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Its header.
    pub head: SegmentHead,
    /// Its payload, uncompressed; of a run all its entries.
    pub payload: Vec<u8>,
}

/// A segment as a file's index knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexEntry {
    /// Where it is.
    pub reference: SegmentRef,
    /// Whose state it is.
    pub owner: Owner,
    /// Checkpoint it was written for.
    pub created: CheckpointId,
    /// What it holds.
    pub kind: SegmentKind,
}

/// Everything a physical file holds.
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
    /// Bytes after the last whole segment that belong to none: a write that was cut. For a file
    /// that is not sealed this is no error.
    pub torn_bytes: u64,
    /// Bytes that do not verify although whole segments follow: never the trace of a cut write,
    /// so something was damaged. Always 0 for a sealed file, whose index is not found by scanning.
    pub damaged_bytes: u64,
}
