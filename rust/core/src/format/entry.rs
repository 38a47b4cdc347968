//! An entry of a changelog, base image or run: `varint key_len, key, varint tag, value`, where tag 0
//! is a removal (no value follows) and tag n is a value of n - 1 bytes.

use std::ops::Range;

/// Most bytes of the two lengths of an entry.
pub(crate) const MAX_LENGTHS_BYTES: usize = 20;

/// The parts of an entry, as places in the bytes that it was parsed from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EntryAt {
    pub key: Range<usize>,
    /// `None` for a removal.
    pub value: Option<Range<usize>>,
    /// First byte after the entry.
    pub end: usize,
}

/// Appends an entry whose key is `prefix` and then `key`; `None` removes the key.
pub(crate) fn put_entry(out: &mut Vec<u8>, prefix: &[u8], key: &[u8], value: Option<&[u8]>) {
    put_varint(out, (prefix.len() + key.len()) as u64);
    out.extend_from_slice(prefix);
    out.extend_from_slice(key);
    match value {
        Some(value) => {
            put_varint(out, value.len() as u64 + 1);
            out.extend_from_slice(value);
        }
        None => put_varint(out, 0),
    }
}

/// The entry at `start` of `bytes`; `None` if it runs past their end.
#[inline]
pub(crate) fn parse_entry(bytes: &[u8], start: usize) -> Option<EntryAt> {
    let mut at = start;
    let key_len = varint(bytes, &mut at)?;
    let key = take(bytes, &mut at, key_len)?;
    let value = match varint(bytes, &mut at)? {
        0 => None,
        n => Some(take(bytes, &mut at, n - 1)?),
    };
    Some(EntryAt {
        key,
        value,
        end: at,
    })
}

/// Number of bytes with which both keys begin.
pub(crate) fn shared_bytes(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

#[inline]
fn take(bytes: &[u8], at: &mut usize, len: u64) -> Option<Range<usize>> {
    let start = *at;
    let end = start.checked_add(usize::try_from(len).ok()?)?;
    if end > bytes.len() {
        return None;
    }
    *at = end;
    Some(start..end)
}

#[inline]
fn varint(bytes: &[u8], at: &mut usize) -> Option<u64> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let byte = bytes.get(*at)?;
        *at += 1;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value as u8) | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}
