//! Frames: the only content of physical files and metadata files. `FORMAT.md` is the text.

use prost::Enumeration;
use prost::bytes::{Buf, BufMut};

use super::Compression;
use crate::error::{Error, Result};

pub(crate) const MAGIC: [u8; 4] = *b"HLDF";
const FORMAT_VERSION: u16 = 1;
/// magic 4, version 2, type 1, codec 1, stored length 4, raw length 4, CRC32C 4.
pub(crate) const HEADER_BYTES: usize = 20;
/// Bound on a frame's body, stored and raw, and so on each allocation that a length field drives.
pub(crate) const MAX_BODY_BYTES: usize = 1 << 20;
const CHECKED_BYTES: usize = HEADER_BYTES - 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Enumeration)]
#[repr(i32)]
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
    Catalog = 14,
}

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
    pub fn stored_len(&self) -> usize {
        HEADER_BYTES + self.body.len()
    }

    pub fn expect(self, kind: FrameKind) -> Result<Self> {
        if self.kind == kind {
            return Ok(self);
        }
        Err(Error::corrupt(format!(
            "expected a {kind:?} frame, found a {:?} frame",
            self.kind
        )))
    }

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

/// Header of a frame. Its magic and lengths were checked, and nothing else.
struct Header {
    version: u16,
    kind: u8,
    codec: u8,
    body_len: usize,
    raw_len: usize,
    crc: u32,
}

impl Header {
    fn read(bytes: &[u8]) -> Result<Self> {
        let (header, _) = split::<HEADER_BYTES>(bytes)?;
        let (magic, mut fields) = split::<4>(&header)?;
        if magic != MAGIC {
            return Err(Error::corrupt(format!(
                "frame magic: expected {MAGIC:02x?}, found {magic:02x?}"
            )));
        }
        let header = Self {
            version: fields.get_u16_le(),
            kind: fields.get_u8(),
            codec: fields.get_u8(),
            body_len: fields.get_u32_le() as usize,
            raw_len: fields.get_u32_le() as usize,
            crc: fields.get_u32_le(),
        };
        for (what, len) in [("stored", header.body_len), ("raw", header.raw_len)] {
            if len > MAX_BODY_BYTES {
                return Err(Error::corrupt(format!(
                    "{what} length of a frame: expected at most {MAX_BODY_BYTES}, found {len}"
                )));
            }
        }
        Ok(header)
    }
}

/// Length of the frame that starts `bytes`: bounded, but not verified.
pub(crate) fn peek_len(bytes: &[u8]) -> Result<usize> {
    Ok(HEADER_BYTES + Header::read(bytes)?.body_len)
}

/// Verifies the frame that starts `bytes`; `Newer` for an intact frame of a newer version.
pub(crate) fn parse(bytes: &[u8]) -> Result<Frame<'_>> {
    let header = Header::read(bytes)?;
    let end = HEADER_BYTES + header.body_len;
    let frame = bytes.get(..end).ok_or_else(|| truncated(end, bytes))?;
    let (checked, rest) = frame.split_at(CHECKED_BYTES);
    let (_, body) = split::<4>(rest)?;
    let found = crc32c::crc32c_append(crc32c::crc32c(checked), body);
    if header.crc != found {
        return Err(Error::corrupt(format!(
            "frame CRC32C: expected {:08x}, found {found:08x}",
            header.crc
        )));
    }
    if header.version > FORMAT_VERSION {
        return Err(Error::newer(
            "format version",
            FORMAT_VERSION,
            header.version,
        ));
    }
    let kind = FrameKind::try_from(i32::from(header.kind)).map_err(|_| {
        Error::corrupt(format!(
            "frame type: expected 1 to 14, found {}",
            header.kind
        ))
    })?;
    let codec = match header.codec {
        0 => Codec::Raw,
        1 => Codec::Lz4,
        other => {
            return Err(Error::corrupt(format!(
                "frame codec: expected 0 or 1, found {other}"
            )));
        }
    };
    let raw_len = header.raw_len;
    if codec == Codec::Raw && raw_len != body.len() {
        return Err(Error::corrupt(format!(
            "raw frame: expected {raw_len} bytes, found {}",
            body.len()
        )));
    }
    Ok(Frame {
        kind,
        codec,
        raw_len,
        body,
    })
}

pub(crate) fn put_raw(out: &mut Vec<u8>, kind: FrameKind, body: &[u8]) -> Result<()> {
    put(out, kind, Compression::None, body)
}

/// Appends a frame. Its body stays raw without compression, or if that does not help.
pub(crate) fn put(
    out: &mut Vec<u8>,
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
            return close(out, start, kind, Codec::Lz4, body.len());
        }
        out.truncate(start);
    }
    out.resize(body_start, 0);
    out.extend_from_slice(body);
    close(out, start, kind, Codec::Raw, body.len())
}

fn close(
    out: &mut [u8],
    start: usize,
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
    let (checked, mut crc) = header.split_at_mut(CHECKED_BYTES);
    let mut fields = &mut *checked;
    fields.put_slice(&MAGIC);
    fields.put_u16_le(FORMAT_VERSION);
    fields.put_u8(kind as u8);
    fields.put_u8(codec as u8);
    fields.put_u32_le(body.len() as u32);
    fields.put_u32_le(raw_len as u32);
    crc.put_u32_le(crc32c::crc32c_append(crc32c::crc32c(checked), body));
    Ok(())
}

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
