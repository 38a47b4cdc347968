//! Segments: a head frame and the data frames of one owner's payload.

use std::sync::Arc;

use prost::Message;
use xxhash_rust::xxh3::xxh3_128;

use super::bodies::{FileHeaderMessage, HeadMessage, check_owner, decode, journal_bytes};
use super::frame::{self, FrameKind, HEADER_BYTES, MAX_BODY_BYTES};
use super::run::{Event, RunReader, RunWalk};
use super::stream::SegmentStream;
use super::{Compression, JournalRef, NewSegment, Segment, SegmentHead, SegmentKind, read_frames};
use crate::error::{Error, ErrorKind, Result};
use crate::ids::{FileId, Owner, SegmentRef};
use crate::storage::{ReadAhead, ReadFile, Storage};

/// What `read_head` reads at first: a head without lineage fits by far.
const HEAD_GUESS_BYTES: u64 = 1024;

/// A segment ready to be appended.
pub(crate) struct EncodedSegment {
    pub bytes: Vec<u8>,
    pub digest: u128,
}

/// First frame of a physical file.
pub(crate) fn encode_file_header(file: FileId) -> Result<Vec<u8>> {
    let message = FileHeaderMessage {
        term: file.term.0,
        seq: file.seq,
    };
    let mut out = Vec::new();
    frame::put_raw(&mut out, FrameKind::FileHeader, &message.encode_to_vec())?;
    Ok(out)
}

/// All frames of a segment, and their digest.
pub(crate) fn encode_segment(
    new: &NewSegment<'_>,
    payload: &[u8],
    compression: Compression,
) -> Result<EncodedSegment> {
    encode_behind(None, new, payload, compression)
}

/// A journal with `operations` entries, and the changelog `new` that names it. To be stored one behind
/// the other, in this order.
pub(crate) fn encode_with_journal(
    new: &NewSegment<'_>,
    payload: &[u8],
    (journal, operations): (&[u8], u64),
    compression: Compression,
) -> Result<(EncodedSegment, EncodedSegment)> {
    let of_journal = NewSegment {
        lineage: &[],
        replaced: None,
        entries: operations,
        tables: &[],
        runs: 0,
        ..*new
    };
    let journal = encode_segment(&of_journal, journal, compression)?;
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
    let head = encode_head(new, journal, payload.len() as u64, new.entries)?;
    let room = match compression {
        Compression::None => payload.len(),
        Compression::Lz4 => payload.len() / 2,
    };
    let mut bytes = Vec::with_capacity(head.len() + room + 4 * HEADER_BYTES);
    frame::put_raw(&mut bytes, FrameKind::Head, &head)
        .map_err(|e| e.context(format!("head of a segment of {}", new.owner)))?;
    for chunk in payload.chunks(MAX_BODY_BYTES) {
        match compression {
            Compression::None => frame::put_raw(&mut bytes, FrameKind::Data, chunk)?,
            Compression::Lz4 => frame::put_lz4(&mut bytes, FrameKind::Data, chunk)?,
        }
    }
    let digest = xxh3_128(&bytes);
    Ok(EncodedSegment { bytes, digest })
}

/// Body of the head of a segment.
pub(super) fn encode_head(
    new: &NewSegment<'_>,
    journal: Option<JournalRef>,
    payload_bytes: u64,
    entries: u64,
) -> Result<Vec<u8>> {
    check_owner(new.owner)?;
    let head = HeadMessage {
        owner: Some(new.owner.clone()),
        created: new.created.0,
        kind: u32::from(new.kind.tag()),
        lineage: new.lineage.iter().map(|r| r.to_bytes().to_vec()).collect(),
        payload_bytes,
        entries,
        replaced: new
            .replaced
            .map_or_else(Vec::new, |r| r.to_bytes().to_vec()),
        journal: journal_bytes(journal),
        tables: new.tables.to_vec(),
        runs: new.runs,
    };
    Ok(head.encode_to_vec())
}

/// Reads a segment and verifies all of it: digest, checksums, owner.
///
/// # Errors
/// `NotFound` when the file is missing, `Unsupported` when a newer version wrote it, `Corrupt` for
/// every other difference. The message names file, offset, owner, expected and found values.
pub fn read_segment(
    storage: &dyn Storage,
    reference: &SegmentRef,
    owner: &Owner,
) -> Result<Segment> {
    SegmentReader::new(storage).read(reference, owner)
}

/// Reads several segments. The file of the last one stays open: the segments of a state lie in few
/// files, and on remote storage every opening is a round trip.
#[derive(Debug)]
pub struct SegmentReader<'a> {
    storage: &'a dyn Storage,
    open: Option<(FileId, Arc<dyn ReadFile>)>,
    /// Small segments are read together with those around them.
    reads_ahead: bool,
    /// Every file that is read has at least so many bytes.
    known_bytes: u64,
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

    /// A reader of segments that may be small and lie near each other, in a file of at least `known_bytes`
    /// bytes. It goes on with a file of the same storage that such a one had open already.
    pub(super) fn reading_ahead(
        storage: &'a dyn Storage,
        open: Option<(FileId, Arc<dyn ReadFile>)>,
        known_bytes: u64,
    ) -> Self {
        Self {
            storage,
            open,
            reads_ahead: true,
            known_bytes,
        }
    }

    /// The file of the last segment, if it could be read.
    pub(super) fn into_open(self) -> Option<(FileId, Arc<dyn ReadFile>)> {
        self.open
    }

    /// As [`read_segment`].
    ///
    /// # Errors
    /// As [`read_segment`].
    pub fn read(&mut self, reference: &SegmentRef, owner: &Owner) -> Result<Segment> {
        let found = self
            .bytes(reference)
            .map_err(|e| e.context(describe(self.storage, reference, owner)))
            .and_then(|bytes| decode_segment(self.storage, &bytes, reference, owner));
        let is_corrupt = |e: &Error| e.kind() == ErrorKind::Corrupt;
        if self.reads_ahead && found.as_ref().is_err_and(is_corrupt) {
            // It may have been read ahead before its writer took back what was there.
            self.open = None;
            return SegmentReader::new(self.storage).read(reference, owner);
        }
        found
    }

    /// Begins to read a segment page by page, with at most `ahead_bytes` of it, or one frame, in
    /// memory. Its head is verified, the rest as it is read.
    ///
    /// # Errors
    /// As [`read_segment`].
    pub(crate) fn stream(
        &mut self,
        reference: &SegmentRef,
        owner: &Owner,
        ahead_bytes: u64,
    ) -> Result<SegmentStream> {
        let open = |input: &Arc<dyn ReadFile>| {
            SegmentStream::open(Arc::clone(input), *reference, owner, ahead_bytes)
        };
        match self.with_input(reference, open) {
            Ok(stream) => Ok(stream.located(self.storage.location())),
            Err(e) => Err(e.context(describe(self.storage, reference, owner))),
        }
    }

    /// Opens a run, of which groups and blocks are read one by one.
    ///
    /// # Errors
    /// As [`read_segment`].
    pub(crate) fn open_run(&self, reference: &SegmentRef, owner: &Owner) -> Result<RunReader> {
        RunReader::open(self.storage, reference, owner)
    }

    /// As [`SegmentReader::open_run`], of a run that is only looked at.
    ///
    /// # Errors
    /// As [`read_segment`].
    pub(crate) fn look_at_run(&self, reference: &SegmentRef, owner: &Owner) -> Result<RunReader> {
        RunReader::look_at(self.storage, reference, owner)
    }

    fn bytes(&mut self, reference: &SegmentRef) -> Result<Vec<u8>> {
        self.with_input(reference, |input| {
            read_frames(input.as_ref(), reference.offset, reference.len)
        })
    }

    /// Calls `act` with the file of a segment, and keeps it open where that succeeds.
    fn with_input<T>(
        &mut self,
        reference: &SegmentRef,
        act: impl Fn(&Arc<dyn ReadFile>) -> Result<T>,
    ) -> Result<T> {
        let end = reference.offset.saturating_add(reference.len);
        // A file that was open when the segment was appended is too short as it was opened.
        let open = self
            .open
            .take()
            .filter(|(file, input)| *file == reference.file && input.size_bytes() >= end);
        // What it was opened with may be gone since, such as a connection: opened again it may be
        // read all the same.
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

/// As [`read_segment`], of a segment whose bytes are at hand.
///
/// # Errors
/// As [`read_segment`].
pub(crate) fn decode_segment(
    storage: &dyn Storage,
    bytes: &[u8],
    reference: &SegmentRef,
    owner: &Owner,
) -> Result<Segment> {
    verify(bytes, reference, owner).map_err(|e| e.context(describe(storage, reference, owner)))
}

/// Reads the head of a segment only. Its checksum and owner are verified, the payload is not.
///
/// # Errors
/// As [`read_segment`].
pub fn read_head(
    storage: &dyn Storage,
    reference: &SegmentRef,
    owner: &Owner,
) -> Result<SegmentHead> {
    read_head_frame(storage, reference)
        .and_then(|head| check_head_owner(head, owner))
        .map_err(|e| e.context(describe(storage, reference, owner)))
}

/// Like [`read_head`], of a segment of any owner.
///
/// # Errors
/// As [`read_segment`].
pub fn read_any_head(storage: &dyn Storage, reference: &SegmentRef) -> Result<SegmentHead> {
    read_head_frame(storage, reference)
        .map_err(|e| e.context(format!("{}/{reference}", storage.location())))
}

fn describe(storage: &dyn Storage, reference: &SegmentRef, owner: &Owner) -> String {
    describe_at(&storage.location(), reference, owner)
}

/// What errors about a segment say of it.
pub(super) fn describe_at(location: &str, reference: &SegmentRef, owner: &Owner) -> String {
    let SegmentRef {
        file, offset, len, ..
    } = reference;
    format!("segment {location}/{file} at offset {offset} ({len} bytes) of {owner}")
}

fn verify(bytes: &[u8], reference: &SegmentRef, owner: &Owner) -> Result<Segment> {
    if let Ok((head, data)) = split_head(bytes)
        && head.kind == SegmentKind::Run
    {
        return verify_run(bytes, head, data, reference, owner);
    }
    let found = xxh3_128(bytes);
    if found != reference.digest {
        return Err(digest_error(reference, bytes, found));
    }
    let (head, data) = split_head(bytes).map_err(|e| at(reference, 0, e))?;
    let head = check_head_owner(head, owner)?;
    // The payload length is verified only by reading on: it must not drive an allocation larger
    // than what LZ4 can make of the bytes at hand (a factor of 255).
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
    if payload.len() as u64 != head.payload_bytes {
        return Err(Error::corrupt(format!(
            "payload: expected {} bytes, found {}",
            head.payload_bytes,
            payload.len()
        )));
    }
    Ok(Segment { head, payload })
}

/// The entries of a run whose frames behind the head are `data`.
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

/// Checks what is known once the last frame of a run was read.
pub(super) fn check_end(reference: &SegmentRef, digest: u128, rest_bytes: u64) -> Result<()> {
    if digest != reference.digest {
        return Err(Error::corrupt(format!(
            "xxh3-128 digest: expected {:032x}, found {digest:032x}; every block fits its index, so \
             other bytes were referenced",
            reference.digest
        )));
    }
    if rest_bytes > 0 {
        return Err(Error::corrupt(format!(
            "a run of {} bytes: expected its trailer at the end, found {rest_bytes} bytes behind it",
            reference.len
        )));
    }
    Ok(())
}

fn read_head_frame(storage: &dyn Storage, reference: &SegmentRef) -> Result<SegmentHead> {
    let input = storage.open_near(&reference.file.file_name())?;
    let guess = reference.len.min(HEAD_GUESS_BYTES);
    let mut bytes = input.read(reference.offset, guess)?;
    let needed = (HEADER_BYTES
        + frame::peek(&bytes)
            .map_err(|e| at(reference, 0, e))?
            .body_len) as u64;
    if needed > guess {
        bytes = input.read(reference.offset, needed.min(reference.len))?;
    }
    let (head, _) = split_head(&bytes).map_err(|e| at(reference, 0, e))?;
    Ok(head)
}

/// The head that starts `bytes`, and the data frames behind it.
pub(super) fn split_head(bytes: &[u8]) -> Result<(SegmentHead, &[u8])> {
    let frame = frame::parse(bytes)?;
    let head: HeadMessage = decode(frame, FrameKind::Head)?;
    Ok((
        head.try_into()?,
        bytes.get(frame.stored_len()..).unwrap_or_default(),
    ))
}

pub(super) fn check_head_owner(head: SegmentHead, owner: &Owner) -> Result<SegmentHead> {
    if head.owner == *owner {
        return Ok(head);
    }
    Err(Error::corrupt(format!(
        "owner: expected {owner}, found {}",
        head.owner
    )))
}

/// A wrong digest says that something is wrong; the frames often say where.
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

pub(super) fn at(reference: &SegmentRef, offset: usize, error: Error) -> Error {
    error.context(format!(
        "frame at offset {}",
        reference.offset.saturating_add(offset as u64)
    ))
}
