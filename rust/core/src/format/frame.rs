//! Frames: the only thing physical files and metadata files consist of. `FORMAT.md` is the text.

use super::Compression;
use crate::error::{Error, ErrorKind, Result};

/// First bytes of every frame.
pub(crate) const MAGIC: [u8; 4] = *b"HLDF";
/// Newest version written by this build. Every older version stays readable.
pub const FORMAT_VERSION: u16 = 2;
/// Version of every frame that has nothing to do with runs: older builds read it.
pub(crate) const VERSION_1: u16 = 1;
/// Version of the frames of a run, and of a footer that names one.
pub(crate) const VERSION_OF_RUNS: u16 = 2;
/// magic 4, version 2, type 1, codec 1, stored length 4, raw length 4, CRC32C 4.
pub(crate) const HEADER_BYTES: usize = 20;
/// Bound on a frame's body, stored and raw. It bounds every allocation that a length field drives.
pub(crate) const MAX_BODY_BYTES: usize = 1 << 20;
const CHECKED_BYTES: usize = HEADER_BYTES - 4;

/// What a frame holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FrameKind {
    FileHeader = 1,
    Head = 2,
    Data = 3,
    Footer = 4,
    Trailer = 5,
    CheckpointHeader = 6,
    Regions = 7,
    Coordinators = 8,
    CheckpointTrailer = 9,
    Entries = 10,
    Group = 11,
    Directory = 12,
    RunTrailer = 13,
}

impl FrameKind {
    fn from_tag(tag: u8) -> Option<Self> {
        [
            Self::FileHeader,
            Self::Head,
            Self::Data,
            Self::Footer,
            Self::Trailer,
            Self::CheckpointHeader,
            Self::Regions,
            Self::Coordinators,
            Self::CheckpointTrailer,
            Self::Entries,
            Self::Group,
            Self::Directory,
            Self::RunTrailer,
        ]
        .into_iter()
        .find(|kind| *kind as u8 == tag)
    }

    /// Newest version in which this build knows frames of this type.
    fn newest_version(self) -> u16 {
        match self {
            Self::FileHeader
            | Self::CheckpointHeader
            | Self::Regions
            | Self::Coordinators
            | Self::CheckpointTrailer => VERSION_1,
            Self::Head
            | Self::Data
            | Self::Footer
            | Self::Trailer
            | Self::Entries
            | Self::Group
            | Self::Directory
            | Self::RunTrailer => VERSION_OF_RUNS,
        }
    }
}

/// How the body of a frame is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Codec {
    Raw = 0,
    Lz4 = 1,
}

/// A frame whose checksum, version and bounds were verified.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame<'a> {
    pub kind: FrameKind,
    pub codec: Codec,
    pub raw_len: usize,
    pub body: &'a [u8],
}

impl<'a> Frame<'a> {
    /// Length of the frame in the file.
    pub fn stored_len(&self) -> usize {
        HEADER_BYTES + self.body.len()
    }

    /// The frame itself when it is of the expected type.
    pub fn expect(self, kind: FrameKind) -> Result<Self> {
        if self.kind == kind {
            return Ok(self);
        }
        Err(Error::corrupt(format!(
            "expected a {kind:?} frame, found a {:?} frame",
            self.kind
        )))
    }

    /// Appends the uncompressed body to `out`.
    pub fn decode_into(&self, out: &mut Vec<u8>) -> Result<()> {
        match self.codec {
            Codec::Raw => out.extend_from_slice(self.body),
            Codec::Lz4 => {
                let start = out.len();
                out.resize(start + self.raw_len, 0);
                let target = out.get_mut(start..).unwrap_or_default();
                let found = lz4_flex::block::decompress_into(self.body, target)
                    .map_err(|e| Error::corrupt(format!("LZ4 body cannot be decompressed: {e}")))?;
                if found != self.raw_len {
                    return Err(Error::corrupt(format!(
                        "LZ4 body: expected {} bytes, found {found}",
                        self.raw_len
                    )));
                }
            }
        }
        Ok(())
    }
}

/// Header of a frame, before its body is checked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FrameHeader {
    /// Length of the stored body.
    pub body_len: usize,
}

/// Reads the length of the frame that starts `bytes`, bounded, checksum not verified yet.
pub(crate) fn peek(bytes: &[u8]) -> Result<FrameHeader> {
    let header = bytes
        .first_chunk::<HEADER_BYTES>()
        .ok_or_else(|| truncated(HEADER_BYTES, bytes))?;
    let (magic, _) = split::<4>(header)?;
    if magic != MAGIC {
        return Err(Error::corrupt(format!(
            "frame magic: expected {MAGIC:02x?}, found {magic:02x?}"
        )));
    }
    let (_, lengths) = header.split_at(8);
    let (stored, rest) = split::<4>(lengths)?;
    let (raw, _) = split::<4>(rest)?;
    for (what, len) in [
        ("stored", u32::from_le_bytes(stored)),
        ("raw", u32::from_le_bytes(raw)),
    ] {
        if len as usize > MAX_BODY_BYTES {
            return Err(Error::corrupt(format!(
                "{what} length of a frame: expected at most {MAX_BODY_BYTES}, found {len}"
            )));
        }
    }
    Ok(FrameHeader {
        body_len: u32::from_le_bytes(stored) as usize,
    })
}

/// Verifies the frame that starts `bytes`.
///
/// # Errors
/// `Unsupported` for an intact frame of a newer version, else `Corrupt`.
pub(crate) fn parse(bytes: &[u8]) -> Result<Frame<'_>> {
    let FrameHeader { body_len } = peek(bytes)?;
    let end = HEADER_BYTES + body_len;
    let frame = bytes.get(..end).ok_or_else(|| truncated(end, bytes))?;
    let (header, body) = frame.split_at(HEADER_BYTES);
    let (checked, crc) = header.split_at(CHECKED_BYTES);
    let (crc, _) = split::<4>(crc)?;
    let expected = u32::from_le_bytes(crc);
    let found = crc32c::crc32c_append(crc32c::crc32c(checked), body);
    if expected != found {
        return Err(Error::corrupt(format!(
            "frame CRC32C: expected {expected:08x}, found {found:08x}"
        )));
    }
    let (_, rest) = split::<4>(checked)?;
    let (version, rest) = split::<2>(rest)?;
    let (tags, rest) = split::<2>(rest)?;
    let (_, rest) = split::<4>(rest)?;
    let (raw_len, _) = split::<4>(rest)?;
    let version = u16::from_le_bytes(version);
    let [kind, codec] = tags;
    let known = FrameKind::from_tag(kind);
    let newest = known.map_or(FORMAT_VERSION, FrameKind::newest_version);
    if version > newest {
        return Err(Error::new(
            ErrorKind::Unsupported,
            format!(
                "format version: this build reads up to {newest}, found {version}: a newer \
                 Holdfast wrote it"
            ),
        ));
    }
    let kind = known
        .ok_or_else(|| Error::corrupt(format!("frame type: expected 1 to 13, found {kind}")))?;
    let codec = match codec {
        0 => Codec::Raw,
        1 => Codec::Lz4,
        other => {
            return Err(Error::corrupt(format!(
                "frame codec: expected 0 or 1, found {other}"
            )));
        }
    };
    let raw_len = u32::from_le_bytes(raw_len) as usize;
    if codec == Codec::Raw && raw_len != body_len {
        return Err(Error::corrupt(format!(
            "raw frame: expected {raw_len} bytes, found {body_len}"
        )));
    }
    Ok(Frame {
        kind,
        codec,
        raw_len,
        body,
    })
}

/// Appends a frame of version 1 with an uncompressed body.
pub(crate) fn put_raw(out: &mut Vec<u8>, kind: FrameKind, body: &[u8]) -> Result<()> {
    put(out, VERSION_1, kind, Compression::None, body)
}

/// Appends a frame of version 1 with an LZ4 body, or a raw one when compression does not help.
pub(crate) fn put_lz4(out: &mut Vec<u8>, kind: FrameKind, body: &[u8]) -> Result<()> {
    put(out, VERSION_1, kind, Compression::Lz4, body)
}

/// Appends a frame. Its body is raw where compression is not asked for or does not help.
pub(crate) fn put(
    out: &mut Vec<u8>,
    version: u16,
    kind: FrameKind,
    compression: Compression,
    body: &[u8],
) -> Result<()> {
    let start = out.len();
    let body_start = start + HEADER_BYTES;
    if compression == Compression::Lz4 {
        out.resize(
            body_start + lz4_flex::block::get_maximum_output_size(body.len()),
            0,
        );
        let target = out.get_mut(body_start..).unwrap_or_default();
        if let Ok(stored) = lz4_flex::block::compress_into(body, target)
            && stored < body.len()
        {
            out.truncate(body_start + stored);
            return close(out, start, version, kind, Codec::Lz4, body.len());
        }
        out.truncate(start);
    }
    out.resize(body_start, 0);
    out.extend_from_slice(body);
    close(out, start, version, kind, Codec::Raw, body.len())
}

fn close(
    out: &mut [u8],
    start: usize,
    version: u16,
    kind: FrameKind,
    codec: Codec,
    raw_len: usize,
) -> Result<()> {
    let frame = out.get_mut(start..).unwrap_or_default();
    let Some((header, body)) = frame.split_first_chunk_mut::<HEADER_BYTES>() else {
        return Err(Error::invalid_input("a frame without a header"));
    };
    if raw_len > MAX_BODY_BYTES || body.len() > MAX_BODY_BYTES {
        return Err(Error::invalid_input(format!(
            "body of a {kind:?} frame: at most {MAX_BODY_BYTES} bytes, found {raw_len}"
        )));
    }
    let [v0, v1] = version.to_le_bytes();
    let [m0, m1, m2, m3] = MAGIC;
    let [s0, s1, s2, s3] = (body.len() as u32).to_le_bytes();
    let [r0, r1, r2, r3] = (raw_len as u32).to_le_bytes();
    let checked: [u8; CHECKED_BYTES] = [
        m0,
        m1,
        m2,
        m3,
        v0,
        v1,
        kind as u8,
        codec as u8,
        s0,
        s1,
        s2,
        s3,
        r0,
        r1,
        r2,
        r3,
    ];
    let crc = crc32c::crc32c_append(crc32c::crc32c(&checked), body).to_le_bytes();
    for (slot, byte) in header.iter_mut().zip(checked.iter().chain(&crc)) {
        *slot = *byte;
    }
    Ok(())
}

/// Splits a fixed number of bytes off the front.
pub(crate) fn split<const N: usize>(bytes: &[u8]) -> Result<([u8; N], &[u8])> {
    let (front, rest) = bytes
        .split_first_chunk::<N>()
        .ok_or_else(|| truncated(N, bytes))?;
    Ok((*front, rest))
}

fn truncated(expected: usize, bytes: &[u8]) -> Error {
    Error::corrupt(format!(
        "truncated: expected {expected} bytes, found {}",
        bytes.len()
    ))
}
