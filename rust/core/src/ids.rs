//! Names of things: checkpoints, owners, terms, physical files and segments.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};

use prost::Message;
use prost::bytes::{Buf, BufMut};
use xxhash_rust::xxh3::xxh3_64;

use crate::error::{Error, Result};

/// Monotonic id of a checkpoint of one query or pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CheckpointId(pub u64);

impl fmt::Display for CheckpointId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Monotonic number of one manager incarnation. It is in every file name and fences older ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Term(pub u64);

impl Term {
    /// All terms of managers are below this. A clock in microseconds gets there in the year
    /// 148,000, and every language can add to it.
    pub const END: Term = Term(1 << 62);

    /// Returns whether a manager can have this term. A file with any other term in its name is a
    /// stray: it would fence every manager, and leave no newer term.
    pub fn can_be_given(self) -> bool {
        self < Self::END
    }
}

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// One unit of state: the owner of a segment. In files and between processes it is this message.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Message)]
pub struct Owner {
    /// Query or pipeline. Empty where the storage root already belongs to one query.
    #[prost(string, tag = "1")]
    pub pipeline: String,
    /// Operator id inside the query.
    #[prost(string, tag = "2")]
    pub operator: String,
    /// Partition number or region name.
    #[prost(string, tag = "3")]
    pub region: String,
    /// Store name, `default` for operators with a single store.
    #[prost(string, tag = "4")]
    pub store: String,
}

impl Owner {
    /// Builds an owner from its four parts.
    pub fn new(pipeline: &str, operator: &str, region: &str, store: &str) -> Self {
        Self {
            pipeline: pipeline.to_owned(),
            operator: operator.to_owned(),
            region: region.to_owned(),
            store: store.to_owned(),
        }
    }

    /// Its digest: the low 32 bits of the xxh3-64 of the four parts, each after its length in bytes
    /// (u64, little-endian).
    pub fn tag(&self) -> OwnerTag {
        let mut bytes = Vec::new();
        for part in self.parts() {
            bytes.put_u64_le(part.len() as u64);
            bytes.extend_from_slice(part.as_bytes());
        }
        OwnerTag(xxh3_64(&bytes) as u32)
    }

    pub(crate) fn parts(&self) -> [&String; 4] {
        [&self.pipeline, &self.operator, &self.region, &self.store]
    }
}

/// Takes the place of an [`Owner`] whose name would be too long, as in commit ids. Two owners may
/// have the same tag: segments have the owner itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OwnerTag(pub u32);

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The owners of state stores have no pipeline: a store belongs to a partition.
        let region = match self.pipeline.is_empty() {
            true => "partition",
            false => "region",
        };
        if !self.pipeline.is_empty() {
            write!(f, "pipeline {}, ", self.pipeline)?;
        }
        write!(
            f,
            "operator {}, {region} {}, store {}",
            self.operator, self.region, self.store
        )
    }
}

/// Identity of a physical file. Never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId {
    /// Incarnation that created the file.
    pub term: Term,
    /// Number of the file in its term, from 1.
    pub seq: u32,
}

const FILE_SUFFIX: &str = ".hf";

/// Number of the file that is a claim on the folder.
pub(crate) const CLAIM_SEQ: u32 = 0;

impl FileId {
    /// Returns whether the file is a manager's claim on the folder, which is always empty.
    pub fn is_claim(&self) -> bool {
        self.seq == CLAIM_SEQ
    }

    /// Name of the file inside its storage root, for example `000000000000002a-00000001.hf`.
    pub fn file_name(&self) -> String {
        format!("{}-{:08x}{FILE_SUFFIX}", self.term, self.seq)
    }

    /// Inverse of [`FileId::file_name`]; `None` for a name that is not a physical file's.
    pub fn parse(name: &str) -> Option<Self> {
        let (term, seq) = name.strip_suffix(FILE_SUFFIX)?.split_once('-')?;
        if term.len() != 16 || seq.len() != 8 {
            return None;
        }
        let id = Self {
            term: Term(u64::from_str_radix(term, 16).ok()?),
            seq: u32::from_str_radix(seq, 16).ok()?,
        };
        // `from_str_radix` takes signs and capitals: only the canonical spelling is a name.
        (id.file_name() == name).then_some(id)
    }
}

impl fmt::Display for FileId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file_name())
    }
}

/// Encoded size of a [`SegmentRef`]: term 8, seq 4, offset 8, len 8, digest 16.
pub const SEGMENT_REF_BYTES: usize = 44;

/// Reference to a segment: a byte range of a physical file and the digest of these bytes. The
/// digest is deliberately kept outside the file.
///
/// A reference that was read from a commit id has only the low half of the digest. It is equal to
/// the whole one. Half is enough against accidental damage.
#[derive(Clone, Copy, Debug)]
pub struct SegmentRef {
    /// File that holds the segment.
    pub file: FileId,
    /// First byte of the segment in the file.
    pub offset: u64,
    /// Length in bytes, all frames of the segment included.
    pub len: u64,
    /// xxh3-128 of the segment's bytes as stored; above its low half zeros, if only that is known.
    pub digest: u128,
}

impl SegmentRef {
    /// The part of a digest that every reference has.
    pub fn half(digest: u128) -> u64 {
        digest as u64
    }

    /// Returns whether this is the digest of its bytes.
    pub fn has_digest(&self, found: u128) -> bool {
        found == self.digest || u128::from(Self::half(found)) == self.digest
    }

    fn key(&self) -> (FileId, u64, u64, u64) {
        (self.file, self.offset, self.len, Self::half(self.digest))
    }

    /// First byte after the segment.
    pub fn end(&self) -> u64 {
        self.offset.saturating_add(self.len)
    }

    /// Fixed-size little-endian encoding.
    pub fn to_bytes(&self) -> [u8; SEGMENT_REF_BYTES] {
        let mut out = [0u8; SEGMENT_REF_BYTES];
        let mut rest = out.as_mut_slice();
        rest.put_u64_le(self.file.term.0);
        rest.put_u32_le(self.file.seq);
        rest.put_u64_le(self.offset);
        rest.put_u64_le(self.len);
        rest.put_u128_le(self.digest);
        out
    }

    /// Inverse of [`SegmentRef::to_bytes`].
    ///
    /// # Errors
    /// `InvalidInput` when `bytes` is not exactly [`SEGMENT_REF_BYTES`] long.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        if bytes.len() != SEGMENT_REF_BYTES {
            return Err(Error::invalid_input(format!(
                "a segment reference has {SEGMENT_REF_BYTES} bytes, found {}",
                bytes.len()
            )));
        }
        let mut rest = bytes;
        Ok(Self {
            file: FileId {
                term: Term(rest.get_u64_le()),
                seq: rest.get_u32_le(),
            },
            offset: rest.get_u64_le(),
            len: rest.get_u64_le(),
            digest: rest.get_u128_le(),
        })
    }
}

impl PartialEq for SegmentRef {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for SegmentRef {}

impl PartialOrd for SegmentRef {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for SegmentRef {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(&other.key())
    }
}

impl Hash for SegmentRef {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.key().hash(state);
    }
}

impl fmt::Display for SegmentRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} at offset {} ({} bytes)",
            self.file, self.offset, self.len
        )
    }
}
