//! Bytes of a metadata file: header, regions, coordinators, trailer. `FORMAT.md` is the text.

use std::collections::BTreeMap;

use prost::Message;
use prost::bytes::{Buf, BufMut, Bytes};
use xxhash_rust::xxh3::xxh3_128;

use super::encoding::{CoordinatorMessage, HeaderMessage};
use super::metadata::{CheckpointKind, NewMetadata};
use super::region::RegionEntry;
use super::regions::Regions;
use crate::error::{Error, Result};
use crate::format::decode;
use crate::format::frame::{self, Frame, FrameKind, MAX_BODY_BYTES, split};
use crate::ids::CheckpointId;

/// Version that this build writes. Every older version stays readable.
pub const METADATA_VERSION: u32 = 1;

/// Size of the frames into which records are cut, so that one record may be larger than a frame.
const FRAME_BYTES: usize = 512 << 10;

/// Body of the trailer: regions 8, coordinators 8, bytes before the trailer 8, their digest 16.
const TRAILER_BODY_BYTES: usize = 40;

/// A region or a coordinator: its length as a varint, then its message.
struct Records<'a> {
    out: &'a mut Vec<u8>,
    kind: FrameKind,
    pending: Vec<u8>,
}

impl<'a> Records<'a> {
    fn new(out: &'a mut Vec<u8>, kind: FrameKind) -> Self {
        Self {
            out,
            kind,
            pending: Vec::new(),
        }
    }

    fn put(&mut self, record: &impl Message) -> Result<()> {
        record
            .encode_length_delimited(&mut self.pending)
            .map_err(|e| Error::invalid_input(format!("a {:?} record: {e}", self.kind)))?;
        let frames = self.pending.chunks_exact(FRAME_BYTES);
        let rest = frames.remainder().len();
        for body in frames {
            frame::put_lz4(self.out, self.kind, body)?;
        }
        let cut = self.pending.len() - rest;
        self.pending.drain(..cut);
        Ok(())
    }

    fn close(self) -> Result<()> {
        if self.pending.is_empty() {
            return Ok(());
        }
        frame::put_lz4(self.out, self.kind, &self.pending)
    }
}

fn header_message<R>(metadata: &NewMetadata<R>) -> HeaderMessage {
    HeaderMessage {
        version: METADATA_VERSION,
        id: metadata.id.0,
        batch_id: metadata.batch_id,
        kind: metadata.kind.tag(),
        created_ms: metadata.created_ms,
        topology: metadata.topology.clone(),
        consecutive_regional: metadata.consecutive_regional,
        force_global: metadata.force_global,
        finished_operators: metadata.finished_operators.clone(),
        properties: metadata.properties.clone(),
    }
}

/// Refuses metadata whose header does not fit one frame.
pub(super) fn check_header<R>(metadata: &NewMetadata<R>) -> Result<()> {
    let found = header_message(metadata).encoded_len();
    if found <= MAX_BODY_BYTES {
        return Ok(());
    }
    Err(Error::invalid_input(format!(
        "topology, finished operators and properties: expected at most {MAX_BODY_BYTES} bytes \
         together, found {found}"
    )))
}

/// All bytes of the file.
pub(super) fn encode(fields: &NewMetadata<Regions>) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    let header = header_message(fields).encode_to_vec();
    frame::put_raw(&mut out, FrameKind::CheckpointHeader, &header)?;
    let mut records = Records::new(&mut out, FrameKind::Regions);
    for entry in fields.regions.iter() {
        records.put(entry.message())?;
    }
    records.close()?;
    let mut records = Records::new(&mut out, FrameKind::Coordinators);
    for (name, snapshot) in &fields.coordinators {
        records.put(&CoordinatorMessage {
            name: name.clone(),
            snapshot: snapshot.clone(),
        })?;
    }
    records.close()?;
    let mut trailer = Vec::with_capacity(TRAILER_BODY_BYTES);
    for count in [fields.regions.len(), fields.coordinators.len(), out.len()] {
        trailer.put_u64_le(count as u64);
    }
    trailer.put_u128_le(xxh3_128(&out));
    frame::put_raw(&mut out, FrameKind::CheckpointTrailer, &trailer)?;
    Ok(out)
}

/// Verifies and decodes the frames of a file.
///
/// # Errors
/// `Newer` when a newer version wrote it, else `Corrupt` with the offset of the first bad frame.
pub(super) fn read(bytes: &[u8]) -> Result<NewMetadata> {
    let mut frames = Frames { bytes, position: 0 };
    let header = frames.header()?;
    let regions = frames.section(FrameKind::Regions)?;
    let coordinators = frames.section(FrameKind::Coordinators)?;
    let trailer = frames.trailer()?;
    let entry = |record| decode("entry of a region", record).map(RegionEntry::from_message);
    let regions = records(regions, trailer.regions, "regions")?.into_iter();
    let regions = regions.map(entry).collect::<Result<Vec<_>>>()?;
    let mut snapshots = BTreeMap::new();
    for record in records(coordinators, trailer.coordinators, "coordinators")? {
        let message: CoordinatorMessage = decode("snapshot of a coordinator", record)?;
        if let Some(twice) = snapshots.insert(message.name.clone(), message.snapshot) {
            return Err(Error::corrupt(format!(
                "coordinator {:?} occurs twice, first with {} bytes",
                message.name,
                twice.len()
            )));
        }
    }
    let kind = CheckpointKind::from_tag(header.kind).ok_or_else(|| {
        let found = header.kind;
        Error::corrupt(format!(
            "kind of a checkpoint: expected 1 to 3, found {found}"
        ))
    })?;
    Ok(NewMetadata {
        id: CheckpointId(header.id),
        batch_id: header.batch_id,
        kind,
        created_ms: header.created_ms,
        topology: header.topology,
        regions,
        coordinators: snapshots,
        consecutive_regional: header.consecutive_regional,
        force_global: header.force_global,
        finished_operators: header.finished_operators,
        properties: header.properties,
    })
}

/// Walks the frames of a file and verifies each.
struct Frames<'a> {
    bytes: &'a [u8],
    position: usize,
}

struct Trailer {
    regions: u64,
    coordinators: u64,
}

impl<'a> Frames<'a> {
    fn at<T>(&self, result: Result<T>) -> Result<T> {
        result.map_err(|e| e.context(format!("frame at offset {}", self.position)))
    }

    fn peek(&self) -> Result<Frame<'a>> {
        let rest = self.bytes.get(self.position..).unwrap_or_default();
        self.at(frame::parse(rest))
    }

    fn header(&mut self) -> Result<HeaderMessage> {
        let frame = self.peek()?;
        let header: HeaderMessage = self.at(frame
            .expect(FrameKind::CheckpointHeader)
            .and_then(body)
            .and_then(|body| decode("header", body.as_slice())))?;
        if header.version > METADATA_VERSION {
            let what = "version of checkpoint metadata";
            return Err(Error::newer(what, METADATA_VERSION, header.version));
        }
        self.position += frame.stored_len();
        Ok(header)
    }

    /// The joined bodies of the next frames, as long as they have this type.
    fn section(&mut self, kind: FrameKind) -> Result<Bytes> {
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
    fn trailer(&self) -> Result<Trailer> {
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
fn records(mut section: Bytes, count: u64, what: &str) -> Result<Vec<Bytes>> {
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
