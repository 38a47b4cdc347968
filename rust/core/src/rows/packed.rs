//! Batches of rows in one buffer.

use super::column::{BuiltColumn, Column, ColumnType};
use super::keys::{pull_key, push_key};
use super::values::{pull_value, push_value};
use crate::error::{Error, Result};

/// In place of the length of a value: there is no such key.
pub const ABSENT: u32 = u32::MAX;

/// Packs the keys of rows.
///
/// ```
/// use holdfast_core::rows::{Column, ColumnType, encode_keys};
/// # fn main() -> holdfast_core::Result<()> {
/// let values = [7i32.to_le_bytes(), (-1i32).to_le_bytes()].concat();
/// let column = Column::new("id", ColumnType::Signed(4), 2, 0, [None, None, Some(&values)])?;
/// let keys = encode_keys(&[column])?;
/// assert_eq!(keys, [4, 0, 0, 0, 0x80, 0, 0, 7, 4, 0, 0, 0, 0x7f, 0xff, 0xff, 0xff]);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// `InvalidInput` for a null in a key, or columns of different lengths.
pub fn encode_keys(columns: &[Column<'_>]) -> Result<Vec<u8>> {
    let rows = rows_of(columns)?;
    let mut out = Vec::with_capacity(rows * 12);
    for row in 0..rows {
        let start = out.len();
        out.extend_from_slice(&[0; 4]);
        push_key(columns, row, &mut out)?;
        put_len(&mut out, start, start + 4)?;
    }
    Ok(out)
}

/// The bytes of the only row of `columns`: a prefix of all keys whose first columns are equal.
///
/// # Errors
/// `InvalidInput` for a null, or another number of rows.
pub fn encode_prefix(columns: &[Column<'_>]) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    let rows = rows_of(columns)?;
    if rows != 1 {
        return Err(Error::invalid_input(format!(
            "a bound of a scan has one row, found {rows}"
        )));
    }
    push_key(columns, 0, &mut out)?;
    Ok(out)
}

/// Packs rows as entries of key and value.
///
/// # Errors
/// `InvalidInput` for a null in a key, or columns of different lengths.
pub fn encode_entries(keys: &[Column<'_>], values: &[Column<'_>]) -> Result<Vec<u8>> {
    let rows = rows_of(keys)?;
    if let Some(other) = values.iter().find(|column| column.rows() != rows) {
        return Err(uneven(other, rows));
    }
    let mut out = Vec::with_capacity(rows * 24);
    for row in 0..rows {
        let start = out.len();
        out.extend_from_slice(&[0; 8]);
        push_key(keys, row, &mut out)?;
        put_len(&mut out, start, start + 8)?;
        let value = out.len();
        push_value(values, row, &mut out)?;
        put_len(&mut out, start + 4, value)?;
    }
    Ok(out)
}

/// The number of packed entries.
///
/// # Errors
/// `InvalidInput` for a buffer that ends within a row.
pub fn count_entries(entries: &[u8]) -> Result<usize> {
    let mut packed = Packed::of(entries);
    let mut rows = 0;
    while packed.entry()?.is_some() {
        rows += 1;
    }
    Ok(rows)
}

/// The columns of `rows` entries, keys and values.
///
/// # Errors
/// `Corrupt` for entries of other columns.
pub fn decode_entries(
    keys: &[ColumnType],
    values: &[ColumnType],
    rows: usize,
    entries: &[u8],
) -> Result<(Vec<BuiltColumn>, Vec<BuiltColumn>)> {
    let mut of_keys = build(keys, rows);
    let mut of_values = build(values, rows);
    let mut cell = Vec::new();
    let mut packed = Packed::of(entries);
    while let Some((key, value)) = packed.entry()? {
        pull_key(&mut of_keys, keys, key, &mut cell)?;
        pull_value(&mut of_values, values, value)?;
    }
    Ok((of_keys, of_values))
}

/// The columns of the keys of `rows` entries.
///
/// # Errors
/// `Corrupt` for entries of other columns.
pub fn decode_entry_keys(
    keys: &[ColumnType],
    rows: usize,
    entries: &[u8],
) -> Result<Vec<BuiltColumn>> {
    let mut of_keys = build(keys, rows);
    let mut cell = Vec::new();
    let mut packed = Packed::of(entries);
    while let Some((key, _)) = packed.entry()? {
        pull_key(&mut of_keys, keys, key, &mut cell)?;
    }
    Ok(of_keys)
}

/// The columns of `rows` found values, all null where there is no key.
///
/// # Errors
/// `Corrupt` for values of other columns.
pub fn decode_found(values: &[ColumnType], rows: usize, found: &[u8]) -> Result<Vec<BuiltColumn>> {
    let mut columns = build(values, rows);
    let mut packed = Packed::of(found);
    while let Some(value) = packed.found()? {
        match value {
            Some(value) => pull_value(&mut columns, values, value)?,
            None => columns
                .iter_mut()
                .try_for_each(|column| column.push(None))?,
        }
    }
    Ok(columns)
}

pub(crate) fn push_found(out: &mut Vec<u8>, value: Option<&[u8]>) -> Result<()> {
    let Some(value) = value else {
        out.extend_from_slice(&ABSENT.to_le_bytes());
        return Ok(());
    };
    out.extend_from_slice(&len_of(value.len())?.to_le_bytes());
    out.extend_from_slice(value);
    Ok(())
}

pub(crate) struct Packed<'a>(&'a [u8]);

impl<'a> Packed<'a> {
    pub fn of(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub fn key(&mut self) -> Result<Option<&'a [u8]>> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let len = self.len()?;
        self.take(len).map(Some)
    }

    pub fn entry(&mut self) -> Result<Option<(&'a [u8], &'a [u8])>> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let (key, value) = (self.len()?, self.len()?);
        Ok(Some((self.take(key)?, self.take(value)?)))
    }

    fn found(&mut self) -> Result<Option<Option<&'a [u8]>>> {
        if self.0.is_empty() {
            return Ok(None);
        }
        match self.len()? {
            ABSENT => Ok(Some(None)),
            len => Ok(Some(Some(self.take(len)?))),
        }
    }

    fn len(&mut self) -> Result<u32> {
        let (len, rest) = self.0.split_first_chunk::<4>().ok_or_else(cut)?;
        self.0 = rest;
        Ok(u32::from_le_bytes(*len))
    }

    fn take(&mut self, len: u32) -> Result<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len as usize).ok_or_else(cut)?;
        self.0 = rest;
        Ok(taken)
    }
}

fn cut() -> Error {
    Error::invalid_input("a batch of rows ends within a row")
}

fn build(layouts: &[ColumnType], rows: usize) -> Vec<BuiltColumn> {
    let columns = layouts.iter();
    columns
        .map(|layout| BuiltColumn::new(*layout, rows))
        .collect()
}

fn rows_of(columns: &[Column<'_>]) -> Result<usize> {
    let rows = columns.first().map_or(0, Column::rows);
    match columns.iter().find(|column| column.rows() != rows) {
        None => Ok(rows),
        Some(other) => Err(uneven(other, rows)),
    }
}

fn uneven(column: &Column<'_>, rows: usize) -> Error {
    Error::invalid_input(format!(
        "column {:?} has {} rows, the first one {rows}",
        column.name,
        column.rows()
    ))
}

fn put_len(out: &mut [u8], place: usize, start: usize) -> Result<()> {
    let len = len_of(out.len() - start)?;
    if let Some(to) = out.get_mut(place..place + 4) {
        to.copy_from_slice(&len.to_le_bytes());
    }
    Ok(())
}

fn len_of(bytes: usize) -> Result<u32> {
    let len = u32::try_from(bytes).ok().filter(|len| *len != ABSENT);
    len.ok_or_else(|| {
        Error::new(
            crate::error::ErrorKind::LimitExceeded,
            format!("a row of a table has less than 4 GiB, found {bytes} bytes"),
        )
    })
}
