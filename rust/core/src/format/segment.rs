//! Segments: a head frame and the data frames of one owner's payload.

use std::sync::Arc;

use prost::Message;
use xxhash_rust::xxh3::xxh3_128;

use super::bodies::{FileHeaderMessage, HeadMessage, check_owner};
use super::frame::{self, FrameKind, HEADER_BYTES, MAX_BODY_BYTES};
use super::head::{
    at, check_end, check_head_owner, check_payload, describe_at, read_first_frame, split_head,
};
use super::run::{Event, RunWalk};
use super::stream::SegmentStream;
use super::{
    Compression, JournalPart, JournalRef, NewSegment, Segment, SegmentHead, SegmentKind,
    read_frames,
};
use crate::error::{Error, ErrorKind, Result};
use crate::ids::{FileId, Owner, SegmentRef};
use crate::storage::{ReadAhead, ReadFile, Storage};

pub(crate) struct EncodedSegment {
    pub bytes: Vec<u8>,
    pub digest: u128,
}

pub(crate) fn encode_file_header(file: FileId) -> Result<Vec<u8>> {
    let message = FileHeaderMessage {
        term: file.term.0,
        seq: file.seq,
    };
    let mut out = Vec::new();
    frame::put_raw(&mut out, FrameKind::FileHeader, &message.encode_to_vec())?;
    Ok(out)
}

pub(crate) fn encode_segment(
    new: &NewSegment<'_>,
    payload: &[u8],
    compression: Compression,
) -> Result<EncodedSegment> {
    encode_behind(None, new, payload, compression)
}

/// A journal, and the changelog `new` that names it, to be stored directly after it.
pub(crate) fn encode_with_journal(
    new: &NewSegment<'_>,
    payload: &[u8],
    journal: &JournalPart<'_>,
    compression: Compression,
) -> Result<(EncodedSegment, EncodedSegment)> {
    let of_journal = NewSegment {
        lineage: journal.before,
        replaced: None,
        entries: journal.operations,
        tables: &[],
        runs: 0,
        ..*new
    };
    let journal = encode_segment(&of_journal, journal.payload, compression)?;
    let reference = JournalRef {
        len: journal.bytes.len() as u64,
        digest: journal.digest,
    };
    let changelog = encode_behind(Some(reference), new, payload, compression)?;
    Ok((journal, changelog))
}

fn encode_behind(
    journal: Option<JournalRef>,
    new: &NewSegment<'_>,
    payload: &[u8],
    compression: Compression,
) -> Result<EncodedSegment> {
    if new.kind == SegmentKind::Run {
        return Err(Error::invalid_input(
            "a run is written entry by entry, not as a payload",
        ));
    }
    let head = encode_head(new, journal, payload.len() as u64)?;
    let room = match compression {
        Compression::None => payload.len(),
        Compression::Lz4 => payload.len() / 2,
    };
    let mut bytes = Vec::with_capacity(head.len() + room + 4 * HEADER_BYTES);
    frame::put_raw(&mut bytes, FrameKind::Head, &head)
        .map_err(|e| e.context(format!("head of a segment of {}", new.owner)))?;
    for chunk in payload.chunks(MAX_BODY_BYTES) {
        frame::put(&mut bytes, FrameKind::Data, compression, chunk)?;
    }
    let digest = xxh3_128(&bytes);
    Ok(EncodedSegment { bytes, digest })
}

pub(super) fn encode_head(
    new: &NewSegment<'_>,
    journal: Option<JournalRef>,
    payload_bytes: u64,
) -> Result<Vec<u8>> {
    check_owner(new.owner)?;
    Ok(HeadMessage::of(new, journal, payload_bytes).encode_to_vec())
}

/// Reads a segment and verifies all of it: digest, checksums, owner.
///
/// # Errors
/// `NotFound` when the file is missing, `Newer` when a newer version wrote it, else `Corrupt`. The
/// message names file, offset, owner, expected and found values.
pub fn read_segment(
    storage: &dyn Storage,
    reference: &SegmentRef,
    owner: &Owner,
) -> Result<Segment> {
    SegmentReader::new(storage).read(reference, owner)
}

/// Reads several segments and keeps the file of the last one open: the segments of a state are in
/// few files, and on remote storage every opening is a round trip.
#[derive(Debug)]
pub struct SegmentReader<'a> {
    pub(super) storage: &'a dyn Storage,
    /// The file of the last segment, if it could be read.
    pub(super) open: Option<(FileId, Arc<dyn ReadFile>)>,
    /// It reads small segments together with those around them.
    pub(super) reads_ahead: bool,
    /// Every file has at least so many bytes.
    pub(super) known_bytes: u64,
}

impl<'a> SegmentReader<'a> {
    /// A reader that has nothing open yet.
    pub fn new(storage: &'a dyn Storage) -> Self {
        Self {
            storage,
            open: None,
            reads_ahead: false,
            known_bytes: 0,
        }
    }

    /// Like [`read_segment`].
    pub fn read(&mut self, reference: &SegmentRef, owner: &Owner) -> Result<Segment> {
        let read = |input: &Arc<dyn ReadFile>| {
            read_frames(input.as_ref(), reference.offset, reference.len)
        };
        let found = self
            .with_input(reference, read)
            .map_err(|e| e.context(describe(self.storage, reference, owner)))
            .and_then(|bytes| decode_segment(self.storage, &bytes, reference, owner));
        let is_corrupt = |e: &Error| e.kind() == ErrorKind::Corrupt;
        if self.reads_ahead && found.as_ref().is_err_and(is_corrupt) {
            // The read ahead may be older than a cut by the writer.
            self.open = None;
            return SegmentReader::new(self.storage).read(reference, owner);
        }
        found
    }

    /// Verifies the head. The caller reads with at most `ahead_bytes`, or one frame, in memory.
    pub(crate) fn stream(
        &mut self,
        reference: &SegmentRef,
        owner: &Owner,
        ahead_bytes: u64,
    ) -> Result<SegmentStream> {
        let location = self.storage.location();
        let open = |input: &Arc<dyn ReadFile>| {
            let (input, location) = (Arc::clone(input), location.clone());
            SegmentStream::open(input, *reference, owner, ahead_bytes, location)
        };
        self.with_input(reference, open)
            .map_err(|e| e.context(describe_at(&location, reference, owner)))
    }

    pub(crate) fn storage(&self) -> &'a dyn Storage {
        self.storage
    }

    /// Calls `act` with the file of a segment, and keeps the file open if that succeeds.
    fn with_input<T>(
        &mut self,
        reference: &SegmentRef,
        act: impl Fn(&Arc<dyn ReadFile>) -> Result<T>,
    ) -> Result<T> {
        let end = reference.end();
        // A file that was opened before the segment was appended seems too short.
        let open = self
            .open
            .take()
            .filter(|(file, input)| *file == reference.file && input.size_bytes() >= end);
        // Its connection may be broken by now: a new one may still read it.
        if let Some((file, input)) = open
            && let Ok(found) = act(&input)
        {
            self.open = Some((file, input));
            return Ok(found);
        }
        let name = reference.file.file_name();
        let input: Arc<dyn ReadFile> = if self.reads_ahead {
            let file = if self.known_bytes >= end {
                self.storage.open_known(&name, self.known_bytes)?
            } else {
                self.storage.open(&name)?
            };
            Arc::new(ReadAhead::new(file))
        } else {
            self.storage.open_near(&name)?
        };
        let found = act(&input)?;
        self.open = Some((reference.file, input));
        Ok(found)
    }
}

/// Like [`read_segment`], from its stored bytes.
pub(crate) fn decode_segment(
    storage: &dyn Storage,
    bytes: &[u8],
    reference: &SegmentRef,
    owner: &Owner,
) -> Result<Segment> {
    verify(bytes, reference, owner).map_err(|e| e.context(describe(storage, reference, owner)))
}

/// Reads the head of a segment and verifies its checksum and owner.
pub fn read_head(
    storage: &dyn Storage,
    reference: &SegmentRef,
    owner: &Owner,
) -> Result<SegmentHead> {
    read_head_frame(storage, reference)
        .and_then(|head| check_head_owner(head, owner))
        .map_err(|e| e.context(describe(storage, reference, owner)))
}

/// Like [`read_head`], for any owner.
pub fn read_any_head(storage: &dyn Storage, reference: &SegmentRef) -> Result<SegmentHead> {
    read_head_frame(storage, reference)
        .map_err(|e| e.context(format!("{}/{reference}", storage.location())))
}

fn describe(storage: &dyn Storage, reference: &SegmentRef, owner: &Owner) -> String {
    describe_at(&storage.location(), reference, owner)
}

fn verify(bytes: &[u8], reference: &SegmentRef, owner: &Owner) -> Result<Segment> {
    if let Ok((head, data)) = split_head(bytes)
        && head.kind == SegmentKind::Run
    {
        return verify_run(bytes, head, data, reference, owner);
    }
    let found = xxh3_128(bytes);
    if !reference.has_digest(found) {
        return Err(digest_error(reference, bytes, found));
    }
    let (head, data) = split_head(bytes).map_err(|e| at(reference, 0, e))?;
    let head = check_head_owner(head, owner)?;
    // The payload length is not verified yet. It must not drive a larger allocation than LZ4 can
    // fill with these bytes (a factor of 255).
    let room = (data.len() as u64)
        .saturating_mul(255)
        .min(head.payload_bytes);
    let mut payload = Vec::with_capacity(usize::try_from(room).unwrap_or(0));
    let mut rest = data;
    while !rest.is_empty() {
        let offset = bytes.len() - rest.len();
        let frame = frame::parse(rest)
            .and_then(|frame| frame.expect(FrameKind::Data))
            .and_then(|frame| frame.decode_into(&mut payload).map(|()| frame))
            .map_err(|e| at(reference, offset, e))?;
        rest = rest.get(frame.stored_len()..).unwrap_or_default();
    }
    check_payload(head.payload_bytes, payload.len() as u64)?;
    Ok(Segment { head, payload })
}

/// Verifies a run, whose frames after the head are `data`.
fn verify_run(
    bytes: &[u8],
    head: SegmentHead,
    data: &[u8],
    reference: &SegmentRef,
    owner: &Owner,
) -> Result<Segment> {
    let mut head = check_head_owner(head, owner)?;
    let mut walk = RunWalk::new(bytes.get(..bytes.len() - data.len()).unwrap_or_default());
    let mut payload = Vec::new();
    let mut rest = data;
    loop {
        let offset = bytes.len() - rest.len();
        let step = frame::parse(rest).and_then(|frame| {
            let stored = rest.get(..frame.stored_len()).unwrap_or_default();
            let event = walk.step(stored, &frame)?;
            if let Event::Entries { .. } = event {
                frame.decode_into(&mut payload)?;
            }
            Ok((event, frame.stored_len()))
        });
        let (event, stored_len) = step.map_err(|e| at(reference, offset, e))?;
        rest = rest.get(stored_len..).unwrap_or_default();
        if let Event::End { digest, totals } = event {
            check_end(reference, digest, rest.len() as u64)?;
            head.payload_bytes = totals.payload_bytes;
            head.entries = totals.entries;
            return Ok(Segment { head, payload });
        }
    }
}

fn read_head_frame(storage: &dyn Storage, reference: &SegmentRef) -> Result<SegmentHead> {
    let input = storage.open_near(&reference.file.file_name())?;
    let frame = read_first_frame(input.as_ref(), reference)?;
    let (head, _) = split_head(&frame).map_err(|e| at(reference, 0, e))?;
    Ok(head)
}

/// A wrong digest says that something is wrong. The frames often say where.
fn digest_error(reference: &SegmentRef, bytes: &[u8], found: u128) -> Error {
    let message = format!(
        "xxh3-128 digest: expected {:032x}, found {found:032x}",
        reference.digest
    );
    let mut rest = bytes;
    while !rest.is_empty() {
        match frame::parse(rest) {
            Ok(frame) => rest = rest.get(frame.stored_len()..).unwrap_or_default(),
            Err(e) => {
                let offset = reference.offset + (bytes.len() - rest.len()) as u64;
                return Error::corrupt(format!(
                    "{message}; first bad frame at offset {offset}: {e}"
                ));
            }
        }
    }
    Error::corrupt(format!(
        "{message}; every frame is intact, so other bytes were referenced"
    ))
}
