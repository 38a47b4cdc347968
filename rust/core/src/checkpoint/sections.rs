//! Frames of a metadata file: header, regions, coordinators, trailer. `FORMAT.md` is the text.

use std::borrow::Borrow;
use std::collections::BTreeMap;

use prost::Message;
use prost::bytes::{Buf, BufMut, Bytes};
use xxhash_rust::xxh3::xxh3_128;

use super::encoding::RegionMessage;
use super::outline::Outline;
use super::region::RegionEntry;
use crate::error::{Error, Result};
use crate::format::frame::{self, Frame, FrameKind, split};
use crate::format::{Compression, decode};

/// Version of the content of the frames.
pub(super) const VERSION: u32 = 1;

/// Size of the frames into which records are cut, so that one record may be larger than a frame.
const FRAME_BYTES: usize = 512 << 10;

/// Body of the trailer: regions 8, coordinators 8, bytes before the trailer 8, their digest 16.
const TRAILER_BODY_BYTES: usize = 40;

#[derive(Clone, PartialEq, Message)]
pub(super) struct HeaderMessage {
    #[prost(uint32, tag = "1")]
    pub version: u32,
    #[prost(uint64, tag = "2")]
    pub id: u64,
    #[prost(sint64, tag = "3")]
    pub batch_id: i64,
    #[prost(uint32, tag = "4")]
    pub kind: u32,
    #[prost(uint64, tag = "5")]
    pub created_ms: u64,
    #[prost(bytes = "vec", tag = "6")]
    pub topology: Vec<u8>,
    #[prost(uint64, tag = "7")]
    pub consecutive_regional: u64,
    #[prost(bool, tag = "8")]
    pub force_global: bool,
    #[prost(string, repeated, tag = "9")]
    pub finished_operators: Vec<String>,
    #[prost(btree_map = "string, string", tag = "10")]
    pub properties: BTreeMap<String, String>,
    #[prost(message, optional, tag = "11")]
    pub base: Option<BaseMessage>,
    #[prost(string, repeated, tag = "12")]
    pub gone: Vec<String>,
    #[prost(uint64, tag = "13")]
    pub regions: u64,
    #[prost(message, optional, tag = "14")]
    pub outline: Option<Outline>,
}

/// The file with the regions from which a checkpoint differs.
#[derive(Clone, PartialEq, Message)]
pub(super) struct BaseMessage {
    #[prost(uint64, tag = "1")]
    pub id: u64,
    #[prost(bytes = "vec", tag = "2")]
    pub digest: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct CoordinatorMessage {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(bytes = "vec", tag = "2")]
    pub snapshot: Vec<u8>,
}

/// Appends records, each as its length as a varint and its message. Returns how many.
fn put_records<M: Message, R: Borrow<M>>(
    out: &mut Vec<u8>,
    kind: FrameKind,
    records: impl Iterator<Item = R>,
) -> Result<usize> {
    let (mut pending, mut count) = (Vec::new(), 0);
    for record in records {
        record
            .borrow()
            .encode_length_delimited(&mut pending)
            .map_err(|e| Error::invalid_input(format!("a {kind:?} record: {e}")))?;
        count += 1;
        let full = pending.len() / FRAME_BYTES * FRAME_BYTES;
        let frames = pending.get(..full).unwrap_or_default();
        for body in frames.chunks(FRAME_BYTES) {
            frame::put(out, kind, Compression::Lz4, body)?;
        }
        pending.drain(..full);
    }
    if !pending.is_empty() {
        frame::put(out, kind, Compression::Lz4, &pending)?;
    }
    Ok(count)
}

/// All bytes of a file.
pub(super) fn put<'a>(
    header: &HeaderMessage,
    entries: impl Iterator<Item = &'a RegionEntry>,
    coordinators: &BTreeMap<String, Vec<u8>>,
) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    frame::put_raw(
        &mut out,
        FrameKind::CheckpointHeader,
        &header.encode_to_vec(),
    )?;
    let entries = entries.map(RegionEntry::message);
    let regions = put_records::<RegionMessage, _>(&mut out, FrameKind::Regions, entries)?;
    let snapshots = coordinators
        .iter()
        .map(|(name, snapshot)| CoordinatorMessage {
            name: name.clone(),
            snapshot: snapshot.clone(),
        });
    put_records::<CoordinatorMessage, _>(&mut out, FrameKind::Coordinators, snapshots)?;
    let mut trailer = Vec::with_capacity(TRAILER_BODY_BYTES);
    for count in [regions, coordinators.len(), out.len()] {
        trailer.put_u64_le(count as u64);
    }
    trailer.put_u128_le(xxh3_128(&out));
    frame::put_raw(&mut out, FrameKind::CheckpointTrailer, &trailer)?;
    Ok(out)
}

/// Decodes the regions of a file that only has regions.
pub(super) fn base_entries(bytes: &[u8]) -> Result<Vec<RegionEntry>> {
    let mut frames = Frames::of(bytes);
    frames.header()?;
    let regions = frames.section(FrameKind::Regions)?;
    entries(regions, &frames.trailer()?)
}

pub(super) fn entries(section: Bytes, trailer: &Trailer) -> Result<Vec<RegionEntry>> {
    let records = records(section, trailer.regions, "regions")?.into_iter();
    let entry = |record| decode("entry of a region", record).map(RegionEntry::from_message);
    records.map(entry).collect()
}

/// Walks the frames of a file and verifies each.
pub(super) struct Frames<'a> {
    bytes: &'a [u8],
    position: usize,
}

pub(super) struct Trailer {
    regions: u64,
    pub coordinators: u64,
}

impl<'a> Frames<'a> {
    pub fn of(bytes: &'a [u8]) -> Self {
        Self { bytes, position: 0 }
    }

    fn at<T>(&self, result: Result<T>) -> Result<T> {
        result.map_err(|e| e.context(format!("frame at offset {}", self.position)))
    }

    fn peek(&self) -> Result<Frame<'a>> {
        let rest = self.bytes.get(self.position..).unwrap_or_default();
        self.at(frame::parse(rest))
    }

    /// # Errors
    /// `Newer` when a newer version wrote it.
    pub fn header(&mut self) -> Result<HeaderMessage> {
        let frame = self.peek()?;
        let header: HeaderMessage = self.at(frame
            .expect(FrameKind::CheckpointHeader)
            .and_then(body)
            .and_then(|body| decode("header", body.as_slice())))?;
        if header.version > VERSION {
            let what = "version of checkpoint metadata";
            return Err(Error::newer(what, VERSION, header.version));
        }
        self.position += frame.stored_len();
        Ok(header)
    }

    /// The joined bodies of the next frames, as long as they have this type.
    pub fn section(&mut self, kind: FrameKind) -> Result<Bytes> {
        let mut joined = Vec::new();
        loop {
            let frame = self.peek()?;
            if frame.kind != kind {
                return Ok(joined.into());
            }
            self.at(frame.decode_into(&mut joined))?;
            self.position += frame.stored_len();
        }
    }

    /// The trailer, which must be the last frame and agree with the bytes before it.
    pub fn trailer(&self) -> Result<Trailer> {
        let frame = self.peek()?;
        self.at(frame
            .expect(FrameKind::CheckpointTrailer)
            .and_then(|frame| self.check_trailer(frame)))
    }

    fn check_trailer(&self, frame: Frame<'_>) -> Result<Trailer> {
        let (fields, _) = split::<TRAILER_BODY_BYTES>(&body(frame)?)?;
        let mut fields = fields.as_slice();
        let trailer = Trailer {
            regions: fields.get_u64_le(),
            coordinators: fields.get_u64_le(),
        };
        let before = fields.get_u64_le();
        let found = self.bytes.get(..self.position).unwrap_or_default();
        let end = self.position + frame.stored_len();
        if before != found.len() as u64 || end != self.bytes.len() {
            return Err(Error::corrupt(format!(
                "length: expected {before} bytes and a trailer of {}, found {} bytes altogether",
                frame.stored_len(),
                self.bytes.len()
            )));
        }
        let (expected, found) = (fields.get_u128_le(), xxh3_128(found));
        if expected != found {
            return Err(Error::corrupt(format!(
                "xxh3-128 digest of all bytes before: expected {expected:032x}, found {found:032x}"
            )));
        }
        Ok(trailer)
    }
}

fn body(frame: Frame<'_>) -> Result<Vec<u8>> {
    let mut body = Vec::new();
    frame.decode_into(&mut body)?;
    Ok(body)
}

/// Cuts a section into its records. They share its memory.
pub(super) fn records(mut section: Bytes, count: u64, what: &str) -> Result<Vec<Bytes>> {
    let mut found = Vec::new();
    while section.has_remaining() {
        let len = prost::decode_length_delimiter(&mut section)
            .map_err(|e| Error::corrupt(format!("length of a record of the {what}: {e}")))?;
        if len > section.len() {
            return Err(Error::corrupt(format!(
                "a record of the {what}: expected {len} bytes, found {}",
                section.len()
            )));
        }
        found.push(section.split_to(len));
    }
    if found.len() as u64 != count {
        return Err(Error::corrupt(format!(
            "number of {what}: expected {count}, found {}",
            found.len()
        )));
    }
    Ok(found)
}
