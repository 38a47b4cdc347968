//! Bytes of a metadata file: header, regions, coordinators, trailer. `FORMAT.md` is the text.

use std::collections::BTreeMap;

use prost::Message;
use prost::bytes::{Buf, BufMut, Bytes};
use xxhash_rust::xxh3::xxh3_128;

use super::encoding::{
    BaseMessage, CoordinatorMessage, HeaderMessage, OutlineMessage, decode_outline, encode_outline,
    number_of_regions,
};
use super::metadata::{CheckpointKind, NewMetadata};
use super::region::RegionEntry;
use super::regions::{BaseFile, Difference, Regions};
use crate::error::{Error, Result};
use crate::format::decode;
use crate::format::frame::{self, Frame, FrameKind, MAX_BODY_BYTES, split};
use crate::ids::CheckpointId;

/// Newest version that this build writes. Every older version stays readable.
pub const METADATA_VERSION: u32 = 3;

/// Version of files with all regions of a checkpoint.
const WHOLE: u32 = 1;

/// Version of files that name another one with regions, and of those files.
const DIFFERENCE: u32 = 2;

/// Version of these with an outline of the regions that they share.
const OUTLINED: u32 = 3;

/// Larger outlines are not written: the header has a bound.
const MOST_OUTLINE_BYTES: usize = 256 << 10;

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
        version: WHOLE,
        id: metadata.id.0,
        batch_id: metadata.batch_id,
        kind: metadata.kind.tag(),
        created_ms: metadata.created_ms,
        topology: metadata.topology.clone(),
        consecutive_regional: metadata.consecutive_regional,
        force_global: metadata.force_global,
        finished_operators: metadata.finished_operators.clone(),
        properties: metadata.properties.clone(),
        base: None,
        gone: Vec::new(),
        regions: None,
        outline: None,
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

/// All bytes of a file with all regions.
pub(super) fn encode(fields: &NewMetadata<Regions>) -> Result<Vec<u8>> {
    let header = header_message(fields);
    put(&header, fields.regions.iter()?, &fields.coordinators)
}

/// All bytes of a file with the regions that differ from those of `base`.
pub(super) fn encode_difference(
    fields: &NewMetadata<Regions>,
    difference: Difference<'_>,
    base: BaseFile,
) -> Result<Vec<u8>> {
    let outlined = outline_of(&fields.regions)?.is_some();
    let header = HeaderMessage {
        version: if outlined { OUTLINED } else { DIFFERENCE },
        base: Some(BaseMessage {
            id: base.id.0,
            digest: base.digest.to_le_bytes().to_vec(),
        }),
        gone: difference.gone,
        regions: outlined.then_some(fields.regions.len() as u64),
        ..header_message(fields)
    };
    let entries = difference.entries.into_iter();
    put(&header, entries, &fields.coordinators)
}

/// All bytes of a file with the base of `regions`.
pub(super) fn encode_base(id: CheckpointId, regions: &Regions) -> Result<(Vec<u8>, BaseFile)> {
    let outline = outline_of(regions)?;
    let base = regions.base();
    let header = HeaderMessage {
        version: outline.as_ref().map_or(DIFFERENCE, |_| OUTLINED),
        id: id.0,
        regions: outline.as_ref().map(|_| base.len() as u64),
        outline,
        ..HeaderMessage::default()
    };
    let bytes = put(&header, base.iter()?, &BTreeMap::new())?;
    let digest = xxh3_128(&bytes);
    Ok((bytes, BaseFile { id, digest }))
}

/// The outline of what checkpoints share, if its file has one.
fn outline_of(regions: &Regions) -> Result<Option<OutlineMessage>> {
    let outline = regions.outline_of_base()?.as_ref().map(encode_outline);
    Ok(outline.filter(|outline| outline.encoded_len() <= MOST_OUTLINE_BYTES))
}

fn put<'a>(
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
    let mut records = Records::new(&mut out, FrameKind::Regions);
    let mut regions = 0;
    for entry in entries {
        records.put(entry.message())?;
        regions += 1;
    }
    records.close()?;
    let mut records = Records::new(&mut out, FrameKind::Coordinators);
    for (name, snapshot) in coordinators {
        records.put(&CoordinatorMessage {
            name: name.clone(),
            snapshot: snapshot.clone(),
        })?;
    }
    records.close()?;
    let mut trailer = Vec::with_capacity(TRAILER_BODY_BYTES);
    for count in [regions, coordinators.len(), out.len()] {
        trailer.put_u64_le(count as u64);
    }
    trailer.put_u128_le(xxh3_128(&out));
    frame::put_raw(&mut out, FrameKind::CheckpointTrailer, &trailer)?;
    Ok(out)
}

/// A file that was verified and decoded. Where it names a base, it has only what differs from that.
pub(super) struct Decoded {
    pub fields: NewMetadata,
    pub base: Option<BaseFile>,
    pub gone: Vec<String>,
    /// Number of regions, if the file says it.
    pub regions: Option<usize>,
}

/// The file of regions that a file names, if it does.
///
/// # Errors
/// Errors of [`read`].
pub(super) fn base_of(bytes: &[u8]) -> Result<Option<BaseFile>> {
    base_in(&Frames::of(bytes).header()?)
}

fn base_in(header: &HeaderMessage) -> Result<Option<BaseFile>> {
    let base = header.base.as_ref().map(|base| {
        let digest = base.digest.as_slice().try_into();
        let digest = digest.map_err(|_| Error::corrupt("digest of a base: expected 16 bytes"))?;
        Ok(BaseFile {
            id: CheckpointId(base.id),
            digest: u128::from_le_bytes(digest),
        })
    });
    base.transpose()
}

/// Verifies a file that only has regions. Decodes them if it has no outline.
///
/// # Errors
/// Errors of [`read`], and `Corrupt` for another file than this one.
pub(super) fn read_base(bytes: Vec<u8>, file: BaseFile) -> Result<Regions> {
    let found = xxh3_128(&bytes);
    if found != file.digest {
        return Err(Error::corrupt(format!(
            "xxh3-128 digest of the whole file: expected {:032x}, found {found:032x}",
            file.digest
        )));
    }
    let header = Frames::of(&bytes).header()?;
    let regions = match (header.outline, header.regions) {
        (Some(outline), Some(len)) => Regions::of_file(bytes, decode_outline(outline, len)?),
        _ => Regions::new(base_entries(&bytes)?)?,
    };
    regions.note_filed(file);
    Ok(regions)
}

/// Decodes the regions of a file that only has regions.
///
/// # Errors
/// Errors of [`read`].
pub(super) fn base_entries(bytes: &[u8]) -> Result<Vec<RegionEntry>> {
    let mut frames = Frames::of(bytes);
    frames.header()?;
    let regions = frames.section(FrameKind::Regions)?;
    entries(regions, &frames.trailer()?)
}

fn entries(section: Bytes, trailer: &Trailer) -> Result<Vec<RegionEntry>> {
    let records = records(section, trailer.regions, "regions")?.into_iter();
    let entry = |record| decode("entry of a region", record).map(RegionEntry::from_message);
    records.map(entry).collect()
}

/// Verifies and decodes the frames of a file.
///
/// # Errors
/// `Newer` when a newer version wrote it, else `Corrupt` with the offset of the first bad frame.
pub(super) fn read(bytes: &[u8]) -> Result<Decoded> {
    let mut frames = Frames::of(bytes);
    let header = frames.header()?;
    let regions = frames.section(FrameKind::Regions)?;
    let coordinators = frames.section(FrameKind::Coordinators)?;
    let trailer = frames.trailer()?;
    let regions = entries(regions, &trailer)?;
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
    let base = base_in(&header)?;
    let fields = NewMetadata {
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
    };
    Ok(Decoded {
        fields,
        base,
        gone: header.gone,
        regions: header.regions.map(number_of_regions).transpose()?,
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
    fn of(bytes: &'a [u8]) -> Self {
        Self { bytes, position: 0 }
    }

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
