//! Every operation of a commit, in its order, for readers of changes that want more than what became
//! of each key in the end. A store records them only where it is told to.
//!
//! A journal is a segment of entries like a changelog, whose keys begin with the number of the
//! operation: so whatever verifies segments verifies journals. Loads do not read it.

use super::changes::ChangeKind;
use super::content::SessionChanges;
use super::entries::{Change, ChangeReader};
use super::store::StateStore;
use crate::error::{Error, Result};
use crate::format::{Segment, SegmentHead, put_entry, read_segment};
use crate::ids::SegmentRef;
use crate::storage::Storage;

/// First bytes of a key: number of the operation 8, of its family 2, kind 1. The first two are
/// big-endian, so that operations follow each other in their order.
const PREFIX_BYTES: usize = 11;

/// What the open session did so far.
#[derive(Debug, Default)]
pub(super) struct Journal {
    entries: Vec<u8>,
    operations: u64,
    /// Some of them were on lists.
    of_lists: bool,
}

impl Journal {
    /// Adds an operation. `value` is that of a put or an append.
    fn push(&mut self, family: u32, kind: ChangeKind, key: &[u8], value: &[u8]) {
        let mut prefix = [0; PREFIX_BYTES];
        let parts: [&[u8]; 3] = [
            &self.operations.to_be_bytes(),
            &(family as u16).to_be_bytes(),
            &[kind.tag()],
        ];
        for (place, byte) in prefix.iter_mut().zip(parts.into_iter().flatten()) {
            *place = *byte;
        }
        let value = (kind != ChangeKind::Remove).then_some(value);
        put_entry(&mut self.entries, &prefix, key, value);
        self.operations += 1;
    }

    /// Number of operations.
    pub fn operations(&self) -> u64 {
        self.operations
    }

    /// The operations as the payload of a segment.
    pub fn payload(&self) -> &[u8] {
        &self.entries
    }

    /// Whether a changelog of `changes` alone would not show every operation. It does where each was
    /// the only one on its key and changed it.
    pub fn tells_more_than(&self, changes: Option<&SessionChanges>) -> bool {
        let shown = changes.map_or(0, SessionChanges::of_keys);
        self.operations > 0 && (self.of_lists || self.operations != shown)
    }

    /// Bytes taken from the allocator.
    pub fn memory_bytes(&self) -> usize {
        self.entries.capacity()
    }
}

impl StateStore {
    /// Says whether sessions record every put, append and removal: also those that a later one of the
    /// same session replaces, and those that change nothing. They are part of what
    /// [`read_changes`](super::read_changes) finds then. Takes effect when the next session begins.
    pub fn record_operations(&mut self, record: bool) {
        self.records = record;
    }

    /// A session begins or ends: what was recorded goes.
    pub(super) fn turn_journal(&mut self, begins: bool) {
        self.journal = (begins && self.records).then(Journal::default);
    }

    /// Records that the values of a key were set, or added to; setting none removes the key.
    pub(super) fn record(
        &mut self,
        family: u32,
        first: ChangeKind,
        key: &[u8],
        values: &[&[u8]],
    ) -> Result<()> {
        if first == ChangeKind::Put && values.is_empty() {
            return self.record_removal(family, key);
        }
        let kinds = std::iter::once(first).chain(std::iter::repeat(ChangeKind::Append));
        self.push(family, |journal| {
            for (kind, value) in kinds.zip(values) {
                journal.push(family, kind, key, value);
            }
        })
    }

    /// Records that a key was removed, or was to be removed and is not there.
    pub(super) fn record_removal(&mut self, family: u32, key: &[u8]) -> Result<()> {
        self.push(family, |journal| {
            journal.push(family, ChangeKind::Remove, key, &[]);
        })
    }

    /// Records that a family is removed, and so its keys.
    pub(super) fn record_removal_of(&mut self, name: &str) -> Result<()> {
        if self.journal.is_none() {
            return Ok(());
        }
        let Some(number) = self.families.find(name)? else {
            return Ok(());
        };
        let keys = self.families.family_mut(number)?.keys();
        for key in self.trust(keys)? {
            self.record_removal(number, &key)?;
        }
        Ok(())
    }

    fn push(&mut self, family: u32, act: impl FnOnce(&mut Journal)) -> Result<()> {
        let Some(journal) = &mut self.journal else {
            return Ok(());
        };
        let options = self.families.family(family)?.options();
        journal.of_lists |= options.several_values;
        let before = journal.memory_bytes();
        act(journal);
        if journal.memory_bytes() == before {
            return Ok(());
        }
        self.count_memory()
    }
}

/// The journal of a changelog, whose head this is; `None` where its commit recorded none.
///
/// # Errors
/// As [`read_segment`].
pub(super) fn read_journal(
    storage: &dyn Storage,
    changelog: &SegmentRef,
    head: &SegmentHead,
) -> Result<Option<Segment>> {
    let Some(journal) = head.journal else {
        return Ok(None);
    };
    let journal = journal.before(changelog)?;
    read_segment(storage, &journal, &head.owner).map(Some)
}

/// Calls `act` for every operation on one family in the payload of a journal.
///
/// # Errors
/// `Corrupt` when the payload is no journal.
pub(super) fn for_each_operation(
    payload: &[u8],
    family: u32,
    mut act: impl FnMut(ChangeKind, &[u8], &[u8]),
) -> Result<()> {
    let mut reader = ChangeReader::new(payload);
    let mut number = 0u64;
    while let Some((key, change)) = reader.next()? {
        let wrong = |what: &str| Error::corrupt(format!("operation {number} of a journal: {what}"));
        let (found, key) = key
            .split_first_chunk::<8>()
            .ok_or_else(|| wrong("its key is cut"))?;
        let (of_family, key) = key
            .split_first_chunk::<2>()
            .ok_or_else(|| wrong("its key is cut"))?;
        let (kind, key) = key.split_first().ok_or_else(|| wrong("its key is cut"))?;
        if u64::from_be_bytes(*found) != number {
            return Err(wrong("it has another number"));
        }
        let (kind, value) = match (ChangeKind::from_tag(*kind), change) {
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
        if u32::from(u16::from_be_bytes(*of_family)) == family {
            act(kind, key, value);
        }
        number += 1;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::*;
    use crate::error::ErrorKind;
    use proptest::prelude::*;

    fn journal() -> Vec<u8> {
        let mut journal = Journal::default();
        journal.push(1, ChangeKind::Put, b"key", b"value");
        journal.push(1, ChangeKind::Append, b"key", b"");
        journal.push(1, ChangeKind::Remove, b"key", b"");
        journal.payload().to_vec()
    }

    fn read(payload: &[u8]) -> Result<usize> {
        let mut seen = 0;
        for_each_operation(payload, 1, |_, _, _| seen += 1)?;
        Ok(seen)
    }

    fn refused(payload: &[u8]) -> String {
        let error = read(payload).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        error.to_string()
    }

    #[test]
    fn entries_that_are_no_operations_are_refused() {
        assert_eq!(read(&journal()).unwrap(), 3);
        let mut first = Vec::new();
        put_entry(&mut first, &[0; 10], b"", Some(b"value"));
        assert!(refused(&first).contains("cut"));
        for (number, kind, value, said) in [
            (1, 0, Some(b"value".as_slice()), "another number"),
            (0, 3, Some(b"value"), "no kind 3"),
            (0, 0, None, "not with this value"),
            (0, 1, Some(b"value"), "not with this value"),
            (0, 2, None, "not with this value"),
        ] {
            let mut payload = Vec::new();
            let prefix = [0, 0, 0, 0, 0, 0, 0, number, 0, 1, kind];
            put_entry(&mut payload, &prefix, b"key", value);
            let text = refused(&payload);
            assert!(
                text.contains(said) && text.contains("operation 0"),
                "{text}"
            );
        }
    }

    #[test]
    fn a_journal_that_was_cut_is_refused_unless_an_operation_ends_there() {
        let whole = journal();
        let readable = (0..whole.len()).filter(|cut| read(&whole[..*cut]).is_ok());
        assert_eq!(readable.count(), 3, "before each of the operations");
    }

    proptest! {
        #[test]
        fn garbage_never_panics(
            entries in prop::collection::vec(
                (prop::collection::vec(0u8..3, 0..14), prop::option::of(prop::collection::vec(any::<u8>(), 0..5))),
                0..5),
            rest in prop::collection::vec(any::<u8>(), 0..30),
        ) {
            let mut payload = Vec::new();
            for (key, value) in &entries {
                put_entry(&mut payload, &[], key, value.as_deref());
            }
            let _ = read(&payload);
            payload.extend(rest);
            let _ = read(&payload);
        }
    }
}
