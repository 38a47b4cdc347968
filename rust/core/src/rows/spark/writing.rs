//! Keys of columns as rows: the bytes that Spark's projections write.

use super::hash::{SEED, hash_value, shortest};
use super::reading::null_bytes;
use super::types::SparkType;
use crate::error::Result;
use crate::rows::Column;

/// A column of keys. A struct has its fields as children, as many values each.
#[derive(Clone, Debug)]
pub struct KeyColumn<'a> {
    /// Type of its values. Lists, maps, intervals and variants are in no key.
    pub kind: SparkType,
    /// Its values; only nulls if the values are in children.
    pub column: Column<'a>,
    /// Fields of a struct.
    pub children: Vec<KeyColumn<'a>>,
}

impl<'a> KeyColumn<'a> {
    fn cell(&self, row: usize) -> Result<Option<&'a [u8]>> {
        let cell = self.column.cell(row)?;
        Ok(cell.filter(|_| self.kind != SparkType::Null))
    }
}

/// Keys as bytes, with Spark's hash of each.
#[derive(Debug, Default)]
pub struct RowKeys {
    bytes: Vec<u8>,
    ends: Vec<usize>,
    /// The hashes, for [`partition_of`](super::partition_of).
    pub hashes: Vec<u32>,
}

impl RowKeys {
    /// The key of a row; empty for a row that is not there.
    pub fn key(&self, row: usize) -> &[u8] {
        let before = row.checked_sub(1).and_then(|before| self.ends.get(before));
        let range = before.copied().unwrap_or(0)..self.ends.get(row).copied().unwrap_or(0);
        self.bytes.get(range).unwrap_or_default()
    }
}

/// The keys of `rows`, see [`RowColumns::prefix`](super::RowColumns::prefix). The first `hashed` columns say in which partition a key is.
///
/// # Errors
/// `InvalidInput` for offsets of a column that lie beyond its values.
pub fn write_keys(
    columns: &[KeyColumn<'_>],
    rows: usize,
    prefix: Option<usize>,
    hashed: usize,
) -> Result<RowKeys> {
    let mut keys = RowKeys::default();
    for row in 0..rows {
        let out = &mut keys.bytes;
        match prefix {
            None => push_row(columns, row, out)?,
            Some(count) => {
                push_prefix(columns.get(..count).unwrap_or(columns), row, out)?;
                out.push(0);
                push_row(columns.get(count..).unwrap_or_default(), row, out)?;
            }
        }
        keys.ends.push(keys.bytes.len());
        keys.hashes
            .push(hash(columns.iter().take(hashed), row, SEED)?);
    }
    Ok(keys)
}

/// The beginning of all keys with these columns as their prefix, and its hash.
///
/// # Errors
/// Errors of [`write_keys`].
pub fn write_prefix(columns: &[KeyColumn<'_>]) -> Result<(Vec<u8>, u32)> {
    let mut out = Vec::new();
    push_prefix(columns, 0, &mut out)?;
    Ok((out, hash(columns.iter(), 0, SEED)?))
}

fn push_prefix(columns: &[KeyColumn<'_>], row: usize, out: &mut Vec<u8>) -> Result<()> {
    let start = out.len();
    // The length of the version of Spark's encoding, which is 0, and of the row.
    out.extend_from_slice(&[0; 5]);
    push_row(columns, row, out)?;
    let len = (out.len() - start - 4) as u32;
    put(out, start, &len.to_le_bytes());
    Ok(())
}

fn push_row(columns: &[KeyColumn<'_>], row: usize, out: &mut Vec<u8>) -> Result<()> {
    let start = out.len();
    let slots = start + null_bytes(columns.len());
    out.resize(slots + columns.len() * 8, 0);
    for (number, column) in columns.iter().enumerate() {
        let slot = slots + number * 8;
        let Some(cell) = column.cell(row)? else {
            if let Some(byte) = out.get_mut(start + number / 8) {
                *byte |= 1 << (number % 8);
            }
            if column.kind == SparkType::LongDecimal {
                // Spark keeps room for a value.
                let at = out.len();
                out.resize(at + 16, 0);
                point(out, start, slot, at, 0);
            }
            continue;
        };
        let at = out.len();
        match &column.kind {
            SparkType::Struct(_) => {
                push_row(&column.children, row, out)?;
                let len = out.len() - at;
                point(out, start, slot, at, len);
            }
            SparkType::Text | SparkType::Binary => {
                out.extend_from_slice(cell);
                out.resize(at + cell.len().next_multiple_of(8), 0);
                point(out, start, slot, at, cell.len());
            }
            SparkType::LongDecimal => {
                let bytes: Vec<u8> = cell.iter().rev().copied().collect();
                let bytes = shortest(&bytes);
                out.extend_from_slice(bytes);
                out.resize(at + 16, 0);
                point(out, start, slot, at, bytes.len());
            }
            kind => {
                let value = normal(kind, cell);
                put(out, slot, value.get(..8).unwrap_or(&value));
            }
        }
    }
    Ok(())
}

fn hash<'a>(
    columns: impl Iterator<Item = &'a KeyColumn<'a>>,
    row: usize,
    seed: u32,
) -> Result<u32> {
    let mut hash_so_far = seed;
    for column in columns {
        let Some(cell) = column.cell(row)? else {
            continue;
        };
        hash_so_far = match column.kind {
            SparkType::Struct(_) => hash(column.children.iter(), row, hash_so_far)?,
            _ => hash_value(&column.kind, &normal(&column.kind, cell), hash_so_far),
        };
    }
    Ok(hash_so_far)
}

/// Spark groups by numbers that are equal: -0.0 is 0.0, and every NaN is the same one.
fn normal<'a>(kind: &SparkType, cell: &'a [u8]) -> std::borrow::Cow<'a, [u8]> {
    match (kind, cell) {
        (SparkType::Float(_), [a, b, c, d]) => {
            let value = f32::from_le_bytes([*a, *b, *c, *d]);
            let value = if value.is_nan() {
                f32::NAN
            } else {
                value + 0.0
            };
            value.to_le_bytes().to_vec().into()
        }
        (SparkType::Float(_), cell) => {
            let value = f64::from_le_bytes(cell.first_chunk().copied().unwrap_or_default());
            let value = if value.is_nan() {
                f64::NAN
            } else {
                value + 0.0
            };
            value.to_le_bytes().to_vec().into()
        }
        _ => cell.into(),
    }
}

fn point(out: &mut [u8], start: usize, slot: usize, at: usize, len: usize) {
    let pointer = ((at - start) as u64) << 32 | len as u64;
    put(out, slot, &pointer.to_le_bytes());
}

fn put(out: &mut [u8], at: usize, bytes: &[u8]) {
    if let Some(to) = out.get_mut(at..at + bytes.len()) {
        to.copy_from_slice(bytes);
    }
}
