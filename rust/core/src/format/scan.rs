//! The index of a file: from its footer, or by a walk over its frames.

use xxhash_rust::xxh3::Xxh3;

use super::bodies::{FileHeaderMessage, check_file, decode_body};
use super::footer::read_footer;
use super::frame::{self, FrameKind, HEADER_BYTES, MAGIC};
use super::head::{check_payload, split_head};
use super::run::{Event, RunWalk};
use super::segment::encode_file_header;
use super::window::{WINDOW_BYTES, Window};
use super::{FileIndex, IndexEntry, SegmentHead, SegmentKind};
use crate::error::{Error, ErrorKind, Result};
use crate::ids::{FileId, SegmentRef};
use crate::storage::{ReadFile, Storage};

/// Offset of the kind in a frame.
const KIND_OFFSET: usize = 6;

/// Bytes that a scan may read again in vain, for each byte of the file: a torn tail may be full of
/// bytes that look like heads of up to 1 MiB.
const MAX_VAIN_FACTOR: u64 = 16;

struct Scan<'a> {
    window: Window<'a>,
    file: FileId,
    file_bytes: u64,
    /// Bytes of frames that looked like heads and were none.
    vain_bytes: u64,
}

enum Found {
    Segment(IndexEntry, u64),
    /// None. No segment begins before this position: the frames before it belong to a cut one.
    NoneBefore(u64),
}

impl<'a> Scan<'a> {
    pub fn new(input: &'a dyn ReadFile, file: FileId) -> Self {
        let file_bytes = input.size_bytes();
        Self {
            window: Window::new(input, file_bytes),
            file,
            file_bytes,
            vain_bytes: 0,
        }
    }

    /// Walks the whole file. Continues after damage at the next segment that verifies, so that
    /// damage in one place never hides a segment elsewhere.
    pub fn run(mut self) -> Result<FileIndex> {
        let mut index = FileIndex {
            file: self.file,
            sealed: false,
            file_bytes: self.file_bytes,
            segments: Vec::new(),
            torn_bytes: 0,
            damaged_bytes: 0,
        };
        let Some(mut position) = self.file_header()? else {
            // Not even the header was written completely.
            index.torn_bytes = self.file_bytes;
            return Ok(index);
        };
        while position < self.file_bytes {
            let found = match self.segment_at(position)? {
                Found::Segment(entry, end) => Some((position, entry, end)),
                Found::NoneBefore(next) => self.next_segment(next.max(position + 1))?,
            };
            let Some((start, entry, end)) = found else {
                let rest = self.file_bytes - position;
                if self.gave_up() {
                    index.damaged_bytes += rest;
                } else {
                    index.torn_bytes = rest;
                }
                break;
            };
            index.damaged_bytes += start - position;
            index.segments.push(entry);
            position = end;
        }
        Ok(index)
    }

    /// Returns whether a search for more segments would take more than linear time. The rest counts
    /// as damaged then, so that nothing deletes it for want of segments.
    fn gave_up(&self) -> bool {
        self.vain_bytes / MAX_VAIN_FACTOR > self.file_bytes.max(WINDOW_BYTES)
    }

    /// Length of the header frame; `None` when the file ends inside it.
    fn file_header(&mut self) -> Result<Option<u64>> {
        let file = self.file;
        let expected = encode_file_header(file)?;
        let bytes = self.window.bytes_at(0)?;
        if bytes.len() < expected.len() && expected.starts_with(bytes) {
            return Ok(None);
        }
        let frame = frame::parse(bytes).map_err(|e| e.context("file header"))?;
        let header: FileHeaderMessage = decode_body(frame, FrameKind::FileHeader)?;
        check_file(file, header.term, header.seq)?;
        Ok(Some(frame.stored_len() as u64))
    }

    /// First whole segment at or after `from`: its start, entry and end.
    fn next_segment(&mut self, from: u64) -> Result<Option<(u64, IndexEntry, u64)>> {
        let mut position = from;
        while position < self.file_bytes && !self.gave_up() {
            let bytes = self.window.bytes_at(position)?;
            let at_magic = bytes.windows(MAGIC.len()).position(|four| four == MAGIC);
            let Some(skip) = at_magic else {
                // Keep the last bytes: the magic may cross the border of the window.
                position += (bytes.len().saturating_sub(MAGIC.len() - 1)).max(1) as u64;
                continue;
            };
            let is_head = bytes.get(skip + KIND_OFFSET) == Some(&(FrameKind::Head as u8));
            // Cut off by the border of the window: its own beginning is the next position.
            let is_cut = skip > 0 && bytes.len() < skip + KIND_OFFSET + 1;
            position += skip as u64;
            if is_head || is_cut {
                match self.segment_at(position)? {
                    Found::Segment(entry, end) => return Ok(Some((position, entry, end))),
                    Found::NoneBefore(next) => position = next.max(position + 1),
                }
            } else {
                position += 1;
            }
        }
        Ok(None)
    }

    fn segment_at(&mut self, start: u64) -> Result<Found> {
        let mut verified = start;
        match self.verified_segment(start, &mut verified) {
            Ok((entry, end)) => Ok(Found::Segment(entry, end)),
            Err(e) if e.kind() == ErrorKind::Corrupt => Ok(Found::NoneBefore(verified)),
            Err(e) => Err(e),
        }
    }

    /// Moves `verified` to the end of every frame that belongs to the segment.
    fn verified_segment(&mut self, start: u64, verified: &mut u64) -> Result<(IndexEntry, u64)> {
        let mut digest = Xxh3::new();
        let bytes = self.window.bytes_at(start)?;
        let split = split_head(bytes);
        if split.is_err() {
            self.vain_bytes += frame::peek_len(bytes).map_or(0, |len| (len - HEADER_BYTES) as u64);
        }
        let (head, rest) = split?;
        let head_len = bytes.len() - rest.len();
        let head_bytes = bytes.get(..head_len).unwrap_or_default();
        digest.update(head_bytes);
        *verified = start + head_len as u64;
        if head.kind == SegmentKind::Run {
            let walk = RunWalk::new(head_bytes);
            let digest = self.verified_run(walk, verified)?;
            return Ok(self.entry(head, start, *verified, digest));
        }
        let mut payload_bytes = 0u64;
        while payload_bytes < head.payload_bytes {
            let bytes = self.window.bytes_at(*verified)?;
            let frame = frame::parse(bytes)?.expect(FrameKind::Data)?;
            if frame.raw_len == 0 {
                return Err(Error::corrupt("an empty data frame"));
            }
            payload_bytes += frame.raw_len as u64;
            digest.update(bytes.get(..frame.stored_len()).unwrap_or_default());
            *verified += frame.stored_len() as u64;
        }
        check_payload(head.payload_bytes, payload_bytes)?;
        Ok(self.entry(head, start, *verified, digest.digest128()))
    }

    /// Walks over a run after its head; returns its digest.
    fn verified_run(&mut self, mut walk: RunWalk, verified: &mut u64) -> Result<u128> {
        loop {
            let bytes = self.window.bytes_at(*verified)?;
            let frame = frame::parse(bytes)?;
            let stored = bytes.get(..frame.stored_len()).unwrap_or_default();
            let event = walk.step(stored, &frame)?;
            *verified += stored.len() as u64;
            if let Event::End { digest, .. } = event {
                return Ok(digest);
            }
        }
    }

    fn entry(&self, head: SegmentHead, start: u64, end: u64, digest: u128) -> (IndexEntry, u64) {
        let reference = SegmentRef {
            file: self.file,
            offset: start,
            len: end - start,
            digest,
        };
        let entry = IndexEntry {
            reference,
            owner: head.owner,
            created: head.created,
            kind: head.kind,
        };
        (entry, end)
    }
}

/// The physical files of a folder and their listed sizes, claims and strays included.
pub(crate) fn list_files(
    storage: &dyn Storage,
) -> Result<impl Iterator<Item = (FileId, u64)> + use<>> {
    let objects = storage.list()?.into_iter();
    Ok(objects.filter_map(|object| Some((FileId::parse(&object.name)?, object.len))))
}

/// Lists the segments of a file: from its footer, or else by a scan that verifies all frames.
///
/// # Errors
/// `NotFound`; `Corrupt` for no physical file, or a copy of another; `Newer` for a newer version.
pub fn read_index(storage: &dyn Storage, file: FileId) -> Result<FileIndex> {
    let read = || {
        let input = storage.open(&file.file_name())?;
        match read_footer(input.as_ref(), file)? {
            Some(index) => Ok(index),
            None => scan_index(input.as_ref(), file),
        }
    };
    read().map_err(|e| context(storage, file, e))
}

/// Lists the segments of a file by a scan that verifies all frames.
pub(crate) fn scan_index(input: &dyn ReadFile, file: FileId) -> Result<FileIndex> {
    Scan::new(input, file).run()
}

/// Lists the segments of a file from its footer; `None` without a valid one. It never scans, so it
/// is cheap for a large open file, too.
///
/// # Errors
/// `NotFound`; `Newer` if a newer version wrote the footer.
pub fn read_sealed_index(storage: &dyn Storage, file: FileId) -> Result<Option<FileIndex>> {
    storage
        .open(&file.file_name())
        .and_then(|input| read_footer(input.as_ref(), file))
        .map_err(|e| context(storage, file, e))
}

fn context(storage: &dyn Storage, file: FileId, error: Error) -> Error {
    error.context(format!("index of {}/{file}", storage.location()))
}
