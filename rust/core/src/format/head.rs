//! The head of a stored segment, and the place of a segment in error messages.

use super::SegmentHead;
use super::bodies::{HeadMessage, decode_body};
use super::frame::{self, FrameKind};
use crate::error::{Error, Result};
use crate::ids::{Owner, SegmentRef};
use crate::storage::ReadFile;

/// Bytes that a reader of a head reads at first: a head without lineage fits by far.
const HEAD_GUESS_BYTES: u64 = 1024;

/// Reads the first frame of a segment, which should be its head, mostly with one read.
pub(super) fn read_first_frame(input: &dyn ReadFile, reference: &SegmentRef) -> Result<Vec<u8>> {
    let guess = reference.len.min(HEAD_GUESS_BYTES);
    let mut bytes = input.read(reference.offset, guess)?;
    let needed = frame::peek_len(&bytes).map_err(|e| at(reference, 0, e))?;
    if needed as u64 > guess {
        bytes = input.read(reference.offset, reference.len.min(needed as u64))?;
    }
    bytes.truncate(needed);
    Ok(bytes)
}

/// The head that starts `bytes`, and the data frames after it.
pub(super) fn split_head(bytes: &[u8]) -> Result<(SegmentHead, &[u8])> {
    let frame = frame::parse(bytes)?;
    let head: HeadMessage = decode_body(frame, FrameKind::Head)?;
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

pub(super) fn describe_at(location: &str, reference: &SegmentRef, owner: &Owner) -> String {
    let SegmentRef {
        file, offset, len, ..
    } = reference;
    format!("segment {location}/{file} at offset {offset} ({len} bytes) of {owner}")
}

pub(super) fn at(reference: &SegmentRef, offset: usize, error: Error) -> Error {
    error.context(format!(
        "frame at offset {}",
        reference.offset.saturating_add(offset as u64)
    ))
}

pub(super) fn check_end(reference: &SegmentRef, digest: u128, rest_bytes: u64) -> Result<()> {
    if !reference.has_digest(digest) {
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

pub(super) fn check_payload(expected: u64, found: u64) -> Result<()> {
    if found == expected {
        return Ok(());
    }
    Err(Error::corrupt(format!(
        "payload: expected {expected} bytes, found {found}"
    )))
}
