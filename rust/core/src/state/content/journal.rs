//! Every operation of a commit, in order, for readers that want more than the last change of each
//! key. Stores record operations only on request. A journal is a segment of entries like a
//! changelog, whose keys begin with the number of the operation. So the code that verifies segments
//! also verifies journals. Loads do not read them.

use prost::bytes::{Buf, BufMut};

use super::families::SessionChanges;
use crate::error::{Error, Result};
use crate::format::{JournalPart, Segment, SegmentHead, put_entry, read_segment};
use crate::ids::SegmentRef;
use crate::state::runs::entries::{Change, ChangeKind, ChangeReader};
use crate::storage::Storage;

/// First bytes of a key, big-endian: number of the operation 8, of its family 2, kind 1.
const PREFIX_BYTES: usize = 11;

#[derive(Debug, Default)]
pub(crate) struct Journal {
    entries: Vec<u8>,
    operations: u64,
    /// Parts that were written already, oldest first, and the number of operations in them.
    parts: Vec<SegmentRef>,
    of_parts: u64,
    pub(crate) of_lists: bool,
}

impl Journal {
    pub fn push(&mut self, family: u32, kind: ChangeKind, key: &[u8], value: &[u8]) {
        let mut prefix = [0; PREFIX_BYTES];
        let mut rest = prefix.as_mut_slice();
        rest.put_u64(self.operations);
        rest.put_u16(family as u16);
        rest.put_u8(kind.tag());
        let value = (kind != ChangeKind::Remove).then_some(value);
        put_entry(&mut self.entries, &prefix, key, value);
        self.operations += 1;
    }

    pub fn last_part(&self) -> JournalPart<'_> {
        JournalPart {
            payload: &self.entries,
            operations: self.operations - self.of_parts,
            before: &self.parts,
        }
    }

    pub fn leave(&mut self, part: SegmentRef) {
        self.parts.push(part);
        self.of_parts = self.operations;
        self.entries = Vec::new();
    }

    /// False if a changelog shows all operations: each changed a key, and no two the same key.
    pub fn tells_more_than(&self, changes: Option<&SessionChanges>) -> bool {
        let shown = changes.map_or(0, SessionChanges::of_keys);
        let is_parted = !self.parts.is_empty();
        self.operations > 0 && (self.of_lists || is_parted || self.operations != shown)
    }

    pub fn memory_bytes(&self) -> usize {
        self.entries.capacity()
    }
}

/// `None` if the commit has none. The last part, just before the changelog, names the others.
pub(crate) fn read_journal(
    storage: &dyn Storage,
    changelog: &SegmentRef,
    head: &SegmentHead,
) -> Result<Option<Vec<Segment>>> {
    let Some(journal) = head.journal else {
        return Ok(None);
    };
    let last = read_segment(storage, &journal.before(changelog)?, &head.owner)?;
    let parts = last.head.lineage.iter();
    let mut parts = parts
        .map(|part| read_segment(storage, part, &head.owner))
        .collect::<Result<Vec<_>>>()?;
    parts.push(last);
    Ok(Some(parts))
}

/// `next` is the number of the part's first operation, and afterwards of the next part's first one.
pub(crate) fn for_each_operation(
    payload: &[u8],
    next: &mut u64,
    family: u32,
    mut act: impl FnMut(ChangeKind, &[u8], &[u8]),
) -> Result<()> {
    let mut reader = ChangeReader::new(payload);
    while let Some((key, change)) = reader.next()? {
        let number = *next;
        let wrong = |what: &str| Error::corrupt(format!("operation {number} of a journal: {what}"));
        let Some((prefix, key)) = key.split_first_chunk::<PREFIX_BYTES>() else {
            return Err(wrong("its key is cut"));
        };
        let mut prefix = prefix.as_slice();
        let (found, of_family, kind) = (prefix.get_u64(), prefix.get_u16(), prefix.get_u8());
        if found != number {
            return Err(wrong("it has another number"));
        }
        let (kind, value) = match (ChangeKind::from_tag(kind), change) {
            (Some(ChangeKind::Remove), Change::Remove) => (ChangeKind::Remove, [].as_slice()),
            (Some(kind @ (ChangeKind::Put | ChangeKind::Append)), Change::Put(value)) => {
                (kind, value)
            }
            _ => {
                return Err(wrong(&format!(
                    "there is no kind {kind}, or not with this value"
                )));
            }
        };
        if u32::from(of_family) == family {
            act(kind, key, value);
        }
        *next += 1;
    }
    Ok(())
}

#[cfg(test)]
#[path = "journal_tests.rs"]
mod tests;
