//! Entries of a segment, one after the other, with one page in memory.

use std::ops::Range;

use super::entries::{Change, MIN_ENTRY_BYTES, past_the_end};
use crate::error::{Error, Result};
use crate::format::{EntryAt, SegmentHead, SegmentKind, SegmentStream, parse_entry};

/// Reads entries in ascending order of their keys. Memory: one page (a block of a run, or a frame
/// of 1 MiB), the entry that crosses into it, and the read-ahead. `next` is an offset in the page.
pub(crate) struct EntryStream {
    stream: SegmentStream,
    page: Vec<u8>,
    next: usize,
    before: u64,
    current: EntryAt,
    /// Key of the entry before the current one, unless the page still has it.
    last_key: Vec<u8>,
    last: Last,
    entries: u64,
}

enum Last {
    None,
    InPage(Range<usize>),
    Kept,
}

impl EntryStream {
    pub fn new(stream: SegmentStream) -> Self {
        Self {
            stream,
            page: Vec::new(),
            next: 0,
            before: 0,
            current: EntryAt {
                key: 0..0,
                value: None,
                end: 0,
            },
            last_key: Vec::new(),
            last: Last::None,
            entries: 0,
        }
    }

    pub fn head(&self) -> &SegmentHead {
        &self.stream.head
    }

    /// Number of entries to make room for. The head is not verified yet, so the bytes at hand bound
    /// the allocation: keys differ, so each entry takes more than a byte, even compressed.
    pub fn expected(&self) -> usize {
        let head = self.head();
        let by_bytes = head.payload_bytes / MIN_ENTRY_BYTES as u64;
        let expected = by_bytes.min(head.entries).min(self.stream.reference.len);
        usize::try_from(expected).unwrap_or(0)
    }

    /// Returns false at the end, when the whole segment is verified.
    pub fn advance(&mut self) -> Result<bool> {
        loop {
            if let Some(entry) = parse_entry(&self.page, self.next) {
                let key = self.page.get(entry.key.clone()).unwrap_or_default();
                check_order(self.last_key(), key)?;
                self.last = Last::InPage(entry.key.clone());
                self.next = entry.end;
                self.current = entry;
                self.entries += 1;
                return Ok(true);
            }
            if !self.turn_page()? {
                return Ok(false);
            }
        }
    }

    pub fn key(&self) -> &[u8] {
        self.page.get(self.current.key.clone()).unwrap_or_default()
    }

    pub fn change(&self) -> Change<'_> {
        let value = self.current.value.clone();
        value.map_or(Change::Remove, |at| {
            Change::Put(self.page.get(at).unwrap_or_default())
        })
    }

    /// Calls `act` for all other entries, which is faster than [`EntryStream::advance`].
    pub fn for_each(&mut self, mut act: impl FnMut(&[u8], Change<'_>) -> Result<()>) -> Result<()> {
        loop {
            let page = self.page.as_slice();
            let bytes = |at| page.get(at).unwrap_or_default();
            let mut last = self.last_key();
            let (mut next, mut key_at, mut entries) = (self.next, None, 0);
            while let Some(EntryAt { key, value, end }) = parse_entry(page, next) {
                let found = bytes(key.clone());
                check_order(last, found)?;
                act(
                    found,
                    value.map_or(Change::Remove, |at| Change::Put(bytes(at))),
                )?;
                (next, last, key_at) = (end, Some(found), Some(key));
                entries += 1;
            }
            if let Some(key) = key_at {
                self.last = Last::InPage(key);
            }
            self.next = next;
            self.entries += entries;
            if !self.turn_page()? {
                return Ok(());
            }
        }
    }

    fn last_key(&self) -> Option<&[u8]> {
        match &self.last {
            Last::None => None,
            Last::InPage(range) => self.page.get(range.clone()),
            Last::Kept => Some(self.last_key.as_slice()),
        }
    }

    fn turn_page(&mut self) -> Result<bool> {
        if let Last::InPage(range) = &self.last {
            let key = self.page.get(range.clone()).unwrap_or_default();
            self.last_key.clear();
            self.last_key.extend_from_slice(key);
            self.last = Last::Kept;
        }
        let left = self.page.len() - self.next;
        let cut = past_the_end(self.before + self.next as u64);
        if left > 0 && self.stream.head.kind == SegmentKind::Run {
            return Err(Error::corrupt("an entry crosses the end of a block"));
        }
        self.before += self.next as u64;
        self.page.drain(..self.next);
        self.next = 0;
        if self.stream.next_page(&mut self.page)? {
            return Ok(true);
        }
        if left > 0 {
            return Err(cut);
        }
        let head = &self.stream.head;
        if head.kind == SegmentKind::Run && head.entries != self.entries {
            return Err(Error::corrupt(format!(
                "entries of a run: expected {}, found {}",
                head.entries, self.entries
            )));
        }
        Ok(false)
    }
}

#[inline]
fn check_order(last: Option<&[u8]>, key: &[u8]) -> Result<()> {
    if last.is_some_and(|last| last >= key) {
        return Err(Error::corrupt("state entries are not in ascending order"));
    }
    Ok(())
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "for tests")]
pub(crate) fn written(changes: super::entries::ChangeWriter) -> EntryStream {
    use std::sync::Arc;

    use crate::format::{NewSegment, SegmentReader};
    use crate::ids::{CheckpointId, Owner, Term};
    use crate::segment::{SegmentWriter, WriterOptions};

    let folder = tempfile::tempdir().unwrap();
    let storage = Arc::new(crate::storage::LocalStorage::new(folder.path()));
    let writer = SegmentWriter::open(storage.clone(), Term(1), WriterOptions::default());
    let owner = Owner::new("query", "0", "0", "default");
    let new = NewSegment {
        entries: changes.entries(),
        ..NewSegment::of(&owner, CheckpointId(1), SegmentKind::Changelog)
    };
    let written = writer.append(&new, &changes.into_bytes()).unwrap();
    let mut segments = SegmentReader::new(storage.as_ref());
    EntryStream::new(segments.stream(&written, &owner, 1 << 20).unwrap())
}
