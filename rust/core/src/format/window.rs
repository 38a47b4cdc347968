//! Reads a part of a file from front to back, with bounded memory.

use super::frame::{self, HEADER_BYTES, MAX_BODY_BYTES};
use crate::error::Result;
use crate::storage::ReadFile;

/// Read-ahead. A frame (1 MiB and its header) always fits.
pub(super) const WINDOW_BYTES: u64 = 4 << 20;
const MAX_FRAME_BYTES: u64 = (HEADER_BYTES + MAX_BODY_BYTES) as u64;

pub(super) struct Window<'a> {
    input: &'a dyn ReadFile,
    end: u64,
    start: u64,
    bytes: Vec<u8>,
}

impl<'a> Window<'a> {
    /// A window over the bytes before `end`, which must be inside the file.
    pub fn new(input: &'a dyn ReadFile, end: u64) -> Self {
        Self::filled(input, end, 0, Vec::new())
    }

    /// Like [`Window::new`], with the `bytes` from `start`, which were read already.
    pub fn filled(input: &'a dyn ReadFile, end: u64, start: u64, bytes: Vec<u8>) -> Self {
        Self {
            input,
            end,
            start,
            bytes,
        }
    }

    /// The bytes from `position`: to the end, or at least a whole frame.
    pub fn bytes_at(&mut self, position: u64) -> Result<&[u8]> {
        let window_end = self.start.saturating_add(self.bytes.len() as u64);
        let wanted_end = position.saturating_add(MAX_FRAME_BYTES).min(self.end);
        if position < self.start || wanted_end > window_end {
            let len = WINDOW_BYTES.min(self.end.saturating_sub(position));
            self.bytes = self.input.read(position, len)?;
            self.start = position;
        }
        let skip = usize::try_from(position - self.start).unwrap_or(usize::MAX);
        Ok(self.bytes.get(skip..).unwrap_or_default())
    }
}

/// Reads `len` bytes from `offset`, which should be frames. A sparse file can claim any size, so
/// this takes memory only for a window, and for bytes that look like frames.
pub(crate) fn read_frames(input: &dyn ReadFile, offset: u64, len: u64) -> Result<Vec<u8>> {
    if len <= WINDOW_BYTES {
        return input.read(offset, len);
    }
    // The whole range, before any of it is read.
    input.read(offset.saturating_add(len), 0)?;
    let mut bytes = Vec::new();
    let mut walked = 0;
    while (bytes.len() as u64) < len {
        let at = bytes.len() as u64;
        bytes.extend(input.read(offset + at, WINDOW_BYTES.min(len - at))?);
        loop {
            let rest = bytes.get(walked..).unwrap_or_default();
            if rest.len() < HEADER_BYTES {
                break;
            }
            let frame_bytes = frame::peek_len(rest)
                .map_err(|e| e.context(format!("frame {walked} bytes behind its beginning")))?;
            if rest.len() < frame_bytes {
                break;
            }
            walked += frame_bytes;
        }
    }
    Ok(bytes)
}
