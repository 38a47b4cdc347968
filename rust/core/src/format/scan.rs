//! Rebuilds the index of a file without a footer by walking its frames.

use xxhash_rust::xxh3::Xxh3;

use super::frame::{self, FrameKind, HEADER_BYTES, MAGIC, MAX_BODY_BYTES};
use super::message::{FileHeaderMessage, check_file, decode};
use super::segment::{encode_file_header, split_head};
use super::{FileIndex, IndexEntry};
use crate::error::{Error, ErrorKind, Result};
use crate::ids::{FileId, SegmentRef};
use crate::storage::ReadFile;

/// Read-ahead. A frame (1 MiB and its header) always fits.
const WINDOW_BYTES: u64 = 4 << 20;
const MAX_FRAME_BYTES: u64 = (HEADER_BYTES + MAX_BODY_BYTES) as u64;

/// One pass over a file, with a window of read-ahead.
pub(super) struct Scan<'a> {
    input: &'a dyn ReadFile,
    file: FileId,
    file_bytes: u64,
    window_start: u64,
    window: Vec<u8>,
}

impl<'a> Scan<'a> {
    pub fn new(input: &'a dyn ReadFile, file: FileId) -> Self {
        Self {
            input,
            file,
            file_bytes: input.size_bytes(),
            window_start: 0,
            window: Vec::new(),
        }
    }

    /// Walks the whole file. Damage is stepped over: the walk goes on at the next segment that
    /// verifies, so that damage in one place never hides a segment elsewhere.
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
                Some(found) => Some((position, found)),
                None => self.next_segment(position + 1)?,
            };
            let Some((start, (entry, end))) = found else {
                index.torn_bytes = self.file_bytes - position;
                break;
            };
            index.damaged_bytes += start - position;
            index.segments.push(entry);
            position = end;
        }
        Ok(index)
    }

    /// Length of the header frame; `None` when the file ends inside it.
    fn file_header(&mut self) -> Result<Option<u64>> {
        let file = self.file;
        let expected = encode_file_header(file)?;
        let bytes = self.bytes_at(0)?;
        if bytes.len() < expected.len() && expected.starts_with(bytes) {
            return Ok(None);
        }
        let frame = frame::parse(bytes).map_err(|e| e.context("file header"))?;
        let header: FileHeaderMessage = decode(frame, FrameKind::FileHeader)?;
        check_file(file, header.term, header.seq)?;
        Ok(Some(frame.stored_len() as u64))
    }

    /// First whole segment at or after `from`.
    fn next_segment(&mut self, from: u64) -> Result<Option<(u64, (IndexEntry, u64))>> {
        let mut position = from;
        while position < self.file_bytes {
            let bytes = self.bytes_at(position)?;
            let at_magic = bytes.windows(MAGIC.len()).position(|four| four == MAGIC);
            let Some(skip) = at_magic else {
                // Keep the last bytes: the magic may lie across the border of the window.
                position += (bytes.len().saturating_sub(MAGIC.len() - 1)).max(1) as u64;
                continue;
            };
            position += skip as u64;
            if let Some(found) = self.segment_at(position)? {
                return Ok(Some((position, found)));
            }
            position += 1;
        }
        Ok(None)
    }

    /// The segment that starts at `start` and its end; `None` when there is no whole one.
    fn segment_at(&mut self, start: u64) -> Result<Option<(IndexEntry, u64)>> {
        match self.verified_segment(start) {
            Ok(found) => Ok(Some(found)),
            Err(e) if e.kind() == ErrorKind::Corrupt => Ok(None),
            Err(e) => Err(e),
        }
    }

    fn verified_segment(&mut self, start: u64) -> Result<(IndexEntry, u64)> {
        let file = self.file;
        let mut digest = Xxh3::new();
        let bytes = self.bytes_at(start)?;
        let (head, rest) = split_head(bytes)?;
        let head_len = bytes.len() - rest.len();
        digest.update(bytes.get(..head_len).unwrap_or_default());
        let mut end = start + head_len as u64;
        let mut payload_bytes = 0u64;
        while payload_bytes < head.payload_bytes {
            let bytes = self.bytes_at(end)?;
            let frame = frame::parse(bytes)?.expect(FrameKind::Data)?;
            if frame.raw_len == 0 {
                return Err(Error::corrupt("an empty data frame"));
            }
            payload_bytes += frame.raw_len as u64;
            digest.update(bytes.get(..frame.stored_len()).unwrap_or_default());
            end += frame.stored_len() as u64;
        }
        if payload_bytes != head.payload_bytes {
            return Err(Error::corrupt(format!(
                "payload: expected {} bytes, found {payload_bytes}",
                head.payload_bytes
            )));
        }
        let reference = SegmentRef {
            file,
            offset: start,
            len: end - start,
            digest: digest.digest128(),
        };
        let entry = IndexEntry {
            reference,
            owner: head.owner,
            created: head.created,
            kind: head.kind,
        };
        Ok((entry, end))
    }

    /// The bytes from `position` on: to the end of the file, or at least a whole frame.
    fn bytes_at(&mut self, position: u64) -> Result<&[u8]> {
        let window_end = self.window_start + self.window.len() as u64;
        let wanted_end = position
            .saturating_add(MAX_FRAME_BYTES)
            .min(self.file_bytes);
        if position < self.window_start || wanted_end > window_end {
            let len = WINDOW_BYTES.min(self.file_bytes.saturating_sub(position));
            self.window = self.input.read(position, len)?;
            self.window_start = position;
        }
        let skip = usize::try_from(position - self.window_start).unwrap_or(usize::MAX);
        Ok(self.window.get(skip..).unwrap_or_default())
    }
}
