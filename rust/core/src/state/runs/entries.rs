//! Entries of changelogs, base images and runs, sorted by key: merges stream, neighbours compress.

use crate::error::{Error, Result};
use crate::format::{parse_entry, put_entry};

/// Least size of an entry: two lengths.
pub(crate) const MIN_ENTRY_BYTES: usize = 2;

/// The change of a commit to one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change<'a> {
    /// The key has this value now.
    Put(&'a [u8]),
    /// The key is gone.
    Remove,
}

impl<'a> Change<'a> {
    pub(crate) fn value(self) -> Option<&'a [u8]> {
        match self {
            Self::Put(value) => Some(value),
            Self::Remove => None,
        }
    }
}

/// The kind of an operation on a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    /// It has this value now; in a family with several values, this first value.
    Put = 0,
    /// It is gone, with all its values.
    Remove = 1,
    /// This value was put after the others.
    Append = 2,
}

impl ChangeKind {
    /// Stable number of the kind, as stored and for Java.
    pub fn tag(self) -> u8 {
        self as u8
    }

    /// Inverse of [`ChangeKind::tag`].
    pub fn from_tag(tag: u8) -> Option<Self> {
        let kinds = [Self::Put, Self::Remove, Self::Append];
        kinds.into_iter().find(|kind| kind.tag() == tag)
    }
}

/// Builds encoded entries.
#[derive(Debug, Default)]
pub struct ChangeWriter {
    bytes: Vec<u8>,
    entries: u64,
}

impl ChangeWriter {
    /// Appends an entry with the key `prefix`, then `key`. Keys ascend, each at most once.
    pub fn push(&mut self, prefix: &[u8], key: &[u8], change: Change<'_>) {
        put_entry(&mut self.bytes, prefix, key, change.value());
        self.entries += 1;
    }

    /// Number of entries so far.
    pub fn entries(&self) -> u64 {
        self.entries
    }

    /// The encoded entries.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

/// Reads encoded entries.
#[derive(Clone, Debug)]
pub struct ChangeReader<'a> {
    payload: &'a [u8],
    at: usize,
}

impl<'a> ChangeReader<'a> {
    /// Reads from `payload`, the content of a changelog, base image or run.
    pub fn new(payload: &'a [u8]) -> Self {
        Self { payload, at: 0 }
    }

    /// The next entry, `None` at the end.
    ///
    /// # Errors
    /// `Corrupt` when the bytes are not encoded entries.
    #[allow(clippy::should_implement_trait)] // the error is in the outer layer on purpose
    pub fn next(&mut self) -> Result<Option<(&'a [u8], Change<'a>)>> {
        if self.at == self.payload.len() {
            return Ok(None);
        }
        let entry =
            parse_entry(self.payload, self.at).ok_or_else(|| past_the_end(self.at as u64))?;
        self.at = entry.end;
        let bytes = |range| self.payload.get(range).unwrap_or_default();
        let change = entry
            .value
            .map_or(Change::Remove, |at| Change::Put(bytes(at)));
        Ok(Some((bytes(entry.key), change)))
    }
}

pub(crate) fn past_the_end(at: u64) -> Error {
    Error::corrupt(format!(
        "state entry at payload offset {at} runs past the end"
    ))
}

#[cfg(test)]
#[path = "entries_tests.rs"]
mod tests;
