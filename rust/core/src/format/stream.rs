//! Reads a segment page by page and verifies all of it, in bounded memory.

use std::sync::Arc;

use xxhash_rust::xxh3::Xxh3;

use super::frame::{self, FrameKind, HEADER_BYTES};
use super::head::{at, check_end, check_head_owner, check_payload, describe_at, split_head};
use super::run::{Event, RunWalk, TRAILER_BYTES, Totals};
use super::{SegmentHead, SegmentKind};
use crate::error::{Error, Result};
use crate::ids::{Owner, SegmentRef};
use crate::storage::ReadFile;

/// Reads a segment from its first byte to its last. Its pages are verified once it reports the end.
pub(crate) struct SegmentStream {
    ahead: ReadAhead,
    pub reference: SegmentRef,
    pub head: SegmentHead,
    position: u64,
    check: Check,
    over: bool,
    location: String,
}

enum Check {
    /// By the digest of all bytes and the length of the payload.
    Plain {
        digest: Box<Xxh3>,
        payload_bytes: u64,
    },
    Run(Box<RunWalk>),
}

impl SegmentStream {
    /// Reads and verifies the head; of a run also the trailer, which has its size.
    pub(super) fn open(
        input: Arc<dyn ReadFile>,
        reference: SegmentRef,
        owner: &Owner,
        ahead_bytes: u64,
        location: String,
    ) -> Result<Self> {
        let end = reference.end();
        let mut ahead = ReadAhead {
            input: Some(input),
            end,
            ahead_bytes,
            start: reference.offset,
            bytes: Vec::new(),
        };
        let first = ahead
            .frame_at(reference.offset)
            .map_err(|e| at(&reference, 0, e))?;
        let (head, rest) = split_head(first).map_err(|e| at(&reference, 0, e))?;
        let mut head = check_head_owner(head, owner)?;
        let head_bytes = first.get(..first.len() - rest.len()).unwrap_or_default();
        let position = reference.offset + head_bytes.len() as u64;
        let check = if head.kind == SegmentKind::Run {
            let walk = RunWalk::new(head_bytes);
            let totals = ahead.totals().map_err(|e| e.context("trailer of a run"))?;
            head.entries = totals.entries;
            head.payload_bytes = totals.payload_bytes;
            Check::Run(Box::new(walk))
        } else {
            let mut digest = Box::new(Xxh3::new());
            digest.update(head_bytes);
            Check::Plain {
                digest,
                payload_bytes: 0,
            }
        };
        Ok(Self {
            ahead,
            reference,
            head,
            position,
            check,
            over: false,
            location,
        })
    }

    /// Appends the next bytes of the payload to `out`: one block of a run, in which entries begin
    /// and end. False at the end, when all of the segment is verified.
    pub fn next_page(&mut self, out: &mut Vec<u8>) -> Result<bool> {
        if self.over {
            return Ok(false);
        }
        let before = out.len();
        loop {
            let whole = self.next_frame(out).map_err(|e| {
                self.over = true;
                e.context(describe_at(
                    &self.location,
                    &self.reference,
                    &self.head.owner,
                ))
            })?;
            if self.over || (whole && out.len() > before) {
                return Ok(!self.over);
            }
        }
    }

    /// Takes one frame; true if a page may end with it.
    fn next_frame(&mut self, out: &mut Vec<u8>) -> Result<bool> {
        let offset = (self.position - self.reference.offset) as usize;
        if let Check::Plain {
            digest,
            payload_bytes,
        } = &self.check
            && self.position == self.ahead.end
        {
            self.over = true;
            return check_plain(&self.reference, &self.head, digest, *payload_bytes).map(|()| true);
        }
        let end = self.ahead.end;
        let bytes = self.ahead.frame_at(self.position);
        let bytes = bytes.map_err(|e| at(&self.reference, offset, e))?;
        let step = frame::parse(bytes).and_then(|frame| {
            let stored = bytes.get(..frame.stored_len()).unwrap_or_default();
            match &mut self.check {
                Check::Plain {
                    digest,
                    payload_bytes,
                } => {
                    digest.update(stored);
                    *payload_bytes += frame.raw_len as u64;
                    frame.expect(FrameKind::Data)?.decode_into(out)?;
                    Ok((stored.len(), true))
                }
                Check::Run(walk) => match walk.step(stored, &frame)? {
                    Event::Entries { whole } => {
                        frame.decode_into(out)?;
                        Ok((stored.len(), whole))
                    }
                    Event::Index => Ok((stored.len(), false)),
                    Event::End { digest, .. } => {
                        let rest = end - self.position - stored.len() as u64;
                        check_end(&self.reference, digest, rest)?;
                        self.over = true;
                        Ok((stored.len(), true))
                    }
                },
            }
        });
        let (stored_len, whole) = step.map_err(|e| at(&self.reference, offset, e))?;
        self.position += stored_len as u64;
        Ok(whole)
    }
}

fn check_plain(
    reference: &SegmentRef,
    head: &SegmentHead,
    digest: &Xxh3,
    payload_bytes: u64,
) -> Result<()> {
    let found = digest.digest128();
    if !reference.has_digest(found) {
        return Err(Error::corrupt(format!(
            "xxh3-128 digest: expected {:032x}, found {found:032x}; every frame is intact, so other \
             bytes were referenced",
            reference.digest
        )));
    }
    check_payload(head.payload_bytes, payload_bytes)
}

struct ReadAhead {
    /// `None` once all was read, so that a merge of many small segments holds few files open.
    input: Option<Arc<dyn ReadFile>>,
    end: u64,
    ahead_bytes: u64,
    start: u64,
    bytes: Vec<u8>,
}

impl ReadAhead {
    /// At least a whole frame from `position`, or the rest of the segment. Positions ascend.
    fn frame_at(&mut self, position: u64) -> Result<&[u8]> {
        if self.held(position).len() < HEADER_BYTES {
            self.fill(position, HEADER_BYTES as u64)?;
        }
        let frame_bytes = frame::peek_len(self.held(position))?;
        if self.held(position).len() < frame_bytes {
            self.fill(position, frame_bytes as u64)?;
        }
        Ok(self.held(position))
    }

    fn totals(&self) -> Result<Totals> {
        let start = self.end.saturating_sub(TRAILER_BYTES as u64);
        if start >= self.start && self.start + self.bytes.len() as u64 == self.end {
            return Totals::parse(self.held(start));
        }
        let Some(input) = self.input.as_ref().filter(|_| start >= self.start) else {
            return Err(Error::corrupt(format!(
                "expected {TRAILER_BYTES} bytes, found a segment of {}",
                self.end - self.start
            )));
        };
        Totals::parse(&input.read(start, TRAILER_BYTES as u64)?)
    }

    fn held(&self, position: u64) -> &[u8] {
        let skip = usize::try_from(position - self.start).unwrap_or(usize::MAX);
        self.bytes.get(skip..).unwrap_or_default()
    }

    fn fill(&mut self, position: u64, need: u64) -> Result<()> {
        let Some(input) = &self.input else {
            return Ok(());
        };
        let left = self.end.saturating_sub(position);
        // Frees the old bytes before it reads new ones.
        self.bytes = Vec::new();
        self.start = position;
        self.bytes = input.read(position, need.max(self.ahead_bytes).min(left))?;
        if self.bytes.len() as u64 == left {
            self.input = None;
        }
        Ok(())
    }
}
