//! Encoding of changelogs and base images: entries sorted by key.
//!
//! An entry is `varint key_len, key, varint tag, value`, where tag 0 is a removal (no value
//! follows) and tag n is a value of n - 1 bytes. Sorted input makes merging a streaming pass and
//! lets the compressor see neighbouring keys together.

use crate::error::{Error, Result};

/// The least an entry takes: two lengths.
pub(super) const MIN_ENTRY_BYTES: usize = 2;

/// What a commit did to one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change<'a> {
    /// The key has this value now.
    Put(&'a [u8]),
    /// The key is gone.
    Remove,
}

/// Builds an encoded run of entries.
#[derive(Debug, Default)]
pub struct ChangeWriter {
    bytes: Vec<u8>,
    entries: u64,
}

impl ChangeWriter {
    /// Appends one entry, whose key is `prefix` and then `key`. Keys must arrive in ascending order,
    /// each at most once.
    pub fn push(&mut self, prefix: &[u8], key: &[u8], change: Change<'_>) {
        put_varint(&mut self.bytes, (prefix.len() + key.len()) as u64);
        self.bytes.extend_from_slice(prefix);
        self.bytes.extend_from_slice(key);
        match change {
            Change::Put(value) => {
                put_varint(&mut self.bytes, value.len() as u64 + 1);
                self.bytes.extend_from_slice(value);
            }
            Change::Remove => put_varint(&mut self.bytes, 0),
        }
        self.entries += 1;
    }

    /// Number of entries so far.
    pub fn entries(&self) -> u64 {
        self.entries
    }

    /// The encoded run.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

/// Reads an encoded run of entries.
#[derive(Clone, Debug)]
pub struct ChangeReader<'a> {
    rest: &'a [u8],
    total: usize,
}

impl<'a> ChangeReader<'a> {
    /// Reads from `payload`, the content of a changelog or base image segment.
    pub fn new(payload: &'a [u8]) -> Self {
        Self {
            rest: payload,
            total: payload.len(),
        }
    }

    /// The next entry, `None` at the end.
    ///
    /// # Errors
    /// `Corrupt` when the bytes are not a run of entries.
    #[allow(clippy::should_implement_trait)] // the error is in the outer layer on purpose
    pub fn next(&mut self) -> Result<Option<(&'a [u8], Change<'a>)>> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let at = self.total - self.rest.len();
        self.entry().map(Some).ok_or_else(|| {
            Error::corrupt(format!(
                "state entry at payload offset {at} runs past the end"
            ))
        })
    }

    fn entry(&mut self) -> Option<(&'a [u8], Change<'a>)> {
        let key_len = self.varint()?;
        let key = self.take(key_len)?;
        let change = match self.varint()? {
            0 => Change::Remove,
            n => Change::Put(self.take(n - 1)?),
        };
        Some((key, change))
    }

    fn take(&mut self, len: u64) -> Option<&'a [u8]> {
        let (head, rest) = self.rest.split_at_checked(usize::try_from(len).ok()?)?;
        self.rest = rest;
        Some(head)
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.rest.split_first()?;
            self.rest = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }
}

fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value as u8) | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_run_reads_back(entries in prop::collection::vec(
            (prop::collection::vec(any::<u8>(), 0..200), prop::option::of(prop::collection::vec(any::<u8>(), 0..300))), 0..40)
        ) {
            let mut writer = ChangeWriter::default();
            for (key, value) in &entries {
                writer.push(&[], key, value.as_deref().map_or(Change::Remove, Change::Put));
            }
            prop_assert_eq!(writer.entries(), entries.len() as u64);
            let bytes = writer.into_bytes();
            let mut reader = ChangeReader::new(&bytes);
            for (key, value) in &entries {
                let (k, c) = reader.next().unwrap().unwrap();
                prop_assert_eq!(k, key.as_slice());
                prop_assert_eq!(c, value.as_deref().map_or(Change::Remove, Change::Put));
            }
            prop_assert!(reader.next().unwrap().is_none());
        }

        #[test]
        fn garbage_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut reader = ChangeReader::new(&bytes);
            while let Ok(Some(_)) = reader.next() {}
        }
    }

    #[test]
    fn a_cut_run_is_reported_with_its_offset() {
        let mut writer = ChangeWriter::default();
        writer.push(b"", b"a", Change::Put(b"1"));
        writer.push(b"b", b"", Change::Put(b"22"));
        let bytes = writer.into_bytes();
        let mut reader = ChangeReader::new(&bytes[..bytes.len() - 1]);
        assert!(reader.next().unwrap().is_some());
        let error = reader.next().unwrap_err();
        assert!(error.to_string().contains("offset 4"), "{error}");
    }
}
