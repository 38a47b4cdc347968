//! Footer of a sealed file: its index, found from the end through a trailer of fixed size.
//!
//! The trailer has the length of the footer, not its place. So the writer can seal a file whose
//! last append failed, although it does not know how much garbage that append left.

use std::ops::Range;

use prost::Message;
use prost::bytes::Buf;

use super::bodies::{FooterMessage, check_file, decode_body, entry_from, entry_message};
use super::frame::{self, FrameKind, HEADER_BYTES, split};
use super::window::Window;
use super::{Compression, FileIndex, IndexEntry, MAX_SEGMENTS_PER_FILE};
use crate::error::{Error, ErrorKind, Result};
use crate::ids::FileId;
use crate::storage::ReadFile;

/// Body of the trailer: footer length 8, number of segments 8.
const TRAILER_BODY_BYTES: usize = 16;
const TRAILER_BYTES: usize = HEADER_BYTES + TRAILER_BODY_BYTES;
/// A footer frame closes beyond this. With one more entry (5 KiB) it stays below 1 MiB.
const FOOTER_FRAME_BYTES: usize = 512 << 10;
/// First read, from the end. An entry has some 30 bytes compressed: 2,000 segments cost one read.
const TAIL_GUESS_BYTES: u64 = 64 << 10;

/// Footer frames and trailer of `file`, whose last good byte is just before `data_end`.
pub(crate) fn encode_footer(
    file: FileId,
    data_end: u64,
    entries: &[IndexEntry],
) -> Result<Vec<u8>> {
    let empty = || FooterMessage {
        term: file.term.0,
        seq: file.seq,
        data_end,
        entries: Vec::new(),
    };
    let mut out = Vec::new();
    let put = |out: &mut Vec<u8>, message: FooterMessage| {
        let body = message.encode_to_vec();
        frame::put(out, FrameKind::Footer, Compression::Lz4, &body)
    };
    let (mut message, mut message_bytes) = (empty(), 0);
    for entry in entries {
        let entry = entry_message(entry);
        message_bytes += entry.encoded_len();
        message.entries.push(entry);
        if message_bytes > FOOTER_FRAME_BYTES {
            let full = std::mem::replace(&mut message, empty());
            put(&mut out, full)?;
            message_bytes = 0;
        }
    }
    // The last frame may have no entry: a sealed file always has at least one footer frame.
    put(&mut out, message)?;
    let mut trailer = (out.len() as u64).to_le_bytes().to_vec();
    trailer.extend_from_slice(&(entries.len() as u64).to_le_bytes());
    frame::put_raw(&mut out, FrameKind::Trailer, &trailer)?;
    Ok(out)
}

/// The index in the footer; `None` without a valid one, but `Newer` for a newer version.
pub(super) fn read_footer(input: &dyn ReadFile, file: FileId) -> Result<Option<FileIndex>> {
    match read_strict(input, file) {
        Ok(index) => Ok(Some(index)),
        Err(e) if e.kind() == ErrorKind::Corrupt => Ok(None),
        Err(e) => Err(e),
    }
}

fn read_strict(input: &dyn ReadFile, file: FileId) -> Result<FileIndex> {
    let file_bytes = input.size_bytes();
    let tail_bytes = file_bytes.min(TAIL_GUESS_BYTES);
    let tail_start = file_bytes - tail_bytes;
    let tail = input.read(tail_start, tail_bytes)?;
    let (_, trailer) = tail
        .split_last_chunk::<TRAILER_BYTES>()
        .ok_or_else(|| Error::corrupt(format!("{file_bytes} bytes have no room for a trailer")))?;
    let trailer = frame::parse(trailer)?.expect(FrameKind::Trailer)?;
    let (fields, _) = split::<TRAILER_BODY_BYTES>(trailer.body)?;
    let mut fields = fields.as_slice();
    let (footer_bytes, segments) = (fields.get_u64_le(), fields.get_u64_le());
    if segments > MAX_SEGMENTS_PER_FILE as u64 {
        return Err(Error::corrupt(format!(
            "segments: expected at most {MAX_SEGMENTS_PER_FILE}, found {segments}"
        )));
    }
    let footer_end = file_bytes - TRAILER_BYTES as u64;
    let footer_start = footer_end.checked_sub(footer_bytes).ok_or_else(|| {
        Error::corrupt(format!(
            "a footer of {footer_bytes} bytes in a file of {file_bytes}"
        ))
    })?;
    let window = Window::filled(input, footer_end, tail_start, tail);
    let (entries, data_end) = parse_entries(file, window, footer_start..footer_end, segments)?;
    if entries.len() as u64 != segments || data_end > footer_start {
        return Err(Error::corrupt("footer and trailer disagree"));
    }
    check_order(&entries, data_end)?;
    Ok(FileIndex {
        file,
        sealed: true,
        file_bytes,
        segments: entries,
        torn_bytes: footer_start - data_end,
        damaged_bytes: 0,
    })
}

/// The entries of all footer frames, one frame in memory at a time.
fn parse_entries(
    file: FileId,
    mut window: Window<'_>,
    footer: Range<u64>,
    segments: u64,
) -> Result<(Vec<IndexEntry>, u64)> {
    let mut entries = Vec::new();
    let mut data_end = 0;
    let mut position = footer.start;
    while position < footer.end {
        let rest = window.bytes_at(position)?;
        let rest_bytes = usize::try_from(footer.end - position).unwrap_or(usize::MAX);
        let frame = frame::parse(rest.get(..rest_bytes).unwrap_or(rest))?;
        let message: FooterMessage = decode_body(frame, FrameKind::Footer)?;
        check_file(file, message.term, message.seq)?;
        data_end = message.data_end;
        if (entries.len() + message.entries.len()) as u64 > segments {
            return Err(Error::corrupt("footer and trailer disagree"));
        }
        for entry in message.entries {
            entries.push(entry_from(file, entry)?);
        }
        position += frame.stored_len() as u64;
    }
    Ok((entries, data_end))
}

/// Segments never overlap and end before the footer.
fn check_order(entries: &[IndexEntry], data_end: u64) -> Result<()> {
    let mut end = 0;
    for IndexEntry { reference, .. } in entries {
        let next = reference.offset.checked_add(reference.len);
        match next {
            Some(next) if reference.offset >= end && next <= data_end => end = next,
            _ => {
                return Err(Error::corrupt(format!(
                    "segments overlap in the footer: {reference}"
                )));
            }
        }
    }
    Ok(())
}
