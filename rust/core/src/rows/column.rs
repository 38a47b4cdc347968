//! Columns in the memory layout of Arrow arrays.

use crate::error::{Error, Result};

/// Memory layout of values. A timestamp and an `i8` have the same one, and differ for callers only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ColumnType {
    /// One bit for each value.
    Bits,
    /// Signed integers of so many bytes: 1, 2, 4, 8 or 16.
    Signed(u8),
    /// Unsigned integers of so many bytes: 1, 2, 4 or 8.
    Unsigned(u8),
    /// Floating point numbers of 4 or 8 bytes.
    Float(u8),
    /// Byte strings, with offsets of 4 bytes.
    Bytes,
}

impl ColumnType {
    /// The type with this code: `b1`, `i1` to `i16`, `u1` to `u8`, `f4`, `f8` or `s`.
    ///
    /// # Errors
    /// `InvalidInput` for another code.
    pub fn parse(code: &str) -> Result<Self> {
        Ok(match code {
            "b1" => Self::Bits,
            "i1" => Self::Signed(1),
            "i2" => Self::Signed(2),
            "i4" => Self::Signed(4),
            "i8" => Self::Signed(8),
            "i16" => Self::Signed(16),
            "u1" => Self::Unsigned(1),
            "u2" => Self::Unsigned(2),
            "u4" => Self::Unsigned(4),
            "u8" => Self::Unsigned(8),
            "f4" => Self::Float(4),
            "f8" => Self::Float(8),
            "s" => Self::Bytes,
            _ => {
                return Err(Error::invalid_input(format!(
                    "a column of a table cannot have the layout {code:?}"
                )));
            }
        })
    }

    pub(super) fn width(self) -> Option<usize> {
        match self {
            Self::Signed(width) | Self::Unsigned(width) | Self::Float(width) => {
                Some(usize::from(width))
            }
            Self::Bits | Self::Bytes => None,
        }
    }
}

/// A column of rows, borrowed.
#[derive(Clone, Copy, Debug)]
pub struct Column<'a> {
    pub(super) name: &'a str,
    pub(super) layout: ColumnType,
    rows: usize,
    /// Values before the first one, in all buffers.
    offset: usize,
    validity: Option<&'a [u8]>,
    offsets: &'a [u8],
    values: &'a [u8],
}

pub(super) type Cell<'a> = Option<&'a [u8]>;

impl<'a> Column<'a> {
    /// `rows` values after `offset` others, a validity bit each; only byte strings have `offsets`.
    ///
    /// # Errors
    /// `InvalidInput` for a buffer that is too short.
    pub fn new(
        name: &'a str,
        layout: ColumnType,
        rows: usize,
        offset: usize,
        [validity, offsets, values]: [Option<&'a [u8]>; 3],
    ) -> Result<Self> {
        let column = Self {
            name,
            layout,
            rows,
            offset,
            validity,
            offsets: offsets.unwrap_or_default(),
            values: values.unwrap_or_default(),
        };
        let end = offset.checked_add(rows).filter(|end| *end < 1 << 40);
        let end =
            end.ok_or_else(|| Error::invalid_input(format!("column {name:?} is too long")))?;
        let bits = end.div_ceil(8);
        let offset_bytes = if rows == 0 { 0 } else { (end + 1) * 4 };
        let values = match layout {
            ColumnType::Bytes => 0,
            ColumnType::Bits => bits,
            _ => end * layout.width().unwrap_or_default(),
        };
        let needs = [
            ("validity", column.validity.map_or(bits, <[u8]>::len), bits),
            ("values", column.values.len(), values),
            match layout {
                ColumnType::Bytes => ("offsets", column.offsets.len(), offset_bytes),
                _ => ("offsets", 0, 0),
            },
        ];
        for (what, found, needed) in needs {
            if found < needed {
                return Err(Error::invalid_input(format!(
                    "column {name:?}: expected {needed} bytes of {what}, found {found}"
                )));
            }
        }
        Ok(column)
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// `None` for null. Little-endian as in Arrow; a single byte 0 or 1 for a bit.
    pub(super) fn cell(&self, row: usize) -> Result<Cell<'a>> {
        let at = self.offset + row;
        if self.validity.is_some_and(|validity| !bit(validity, at)) {
            return Ok(None);
        }
        let found = match self.layout {
            ColumnType::Bits => Some(if bit(self.values, at) {
                &[1][..]
            } else {
                &[0][..]
            }),
            ColumnType::Bytes => {
                let offset = |at: usize| {
                    let bytes = self.offsets.get(at * 4..)?.first_chunk::<4>()?;
                    usize::try_from(i32::from_le_bytes(*bytes)).ok()
                };
                let range = offset(at).zip(offset(at + 1));
                range.and_then(|(from, to)| self.values.get(from..to))
            }
            _ => {
                let width = self.layout.width().unwrap_or_default();
                self.values.get(at * width..(at + 1) * width)
            }
        };
        let found = found.ok_or_else(|| {
            Error::invalid_input(format!(
                "column {:?}: the offsets of row {row} lie beyond its values",
                self.name
            ))
        })?;
        Ok(Some(found))
    }
}

fn bit(bits: &[u8], at: usize) -> bool {
    bits.get(at / 8)
        .is_some_and(|byte| byte >> (at % 8) & 1 == 1)
}

/// A column that is built value by value, in the buffers of an Arrow array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BuiltColumn {
    layout: ColumnType,
    rows: usize,
    /// Number of nulls.
    pub nulls: usize,
    /// A bit for each value.
    pub validity: Vec<u8>,
    /// Offsets of byte strings, 4 bytes each.
    pub offsets: Vec<u8>,
    /// Values.
    pub values: Vec<u8>,
}

impl BuiltColumn {
    pub(super) fn new(layout: ColumnType, rows: usize) -> Self {
        let width = layout.width().unwrap_or_default();
        let is_bytes = layout == ColumnType::Bytes;
        let mut offsets = Vec::with_capacity(if is_bytes { (rows + 1) * 4 } else { 0 });
        if is_bytes {
            offsets.extend_from_slice(&0i32.to_le_bytes());
        }
        Self {
            layout,
            rows: 0,
            nulls: 0,
            validity: Vec::with_capacity(rows.div_ceil(8)),
            offsets,
            values: Vec::with_capacity(rows * width),
        }
    }

    /// Number of values.
    pub fn rows(&self) -> usize {
        self.rows
    }

    pub(super) fn push(&mut self, cell: Cell<'_>) -> Result<()> {
        let at = self.rows;
        self.rows += 1;
        push_bit(&mut self.validity, at, cell.is_some());
        self.nulls += usize::from(cell.is_none());
        match self.layout {
            ColumnType::Bits => {
                let set = cell.is_some_and(|value| value.first() == Some(&1));
                push_bit(&mut self.values, at, set);
            }
            ColumnType::Bytes => {
                self.values.extend_from_slice(cell.unwrap_or_default());
                self.push_offset(self.values.len())?;
            }
            _ => match cell {
                Some(value) => self.values.extend_from_slice(value),
                None => {
                    let width = self.layout.width().unwrap_or_default();
                    self.values.resize(self.values.len() + width, 0);
                }
            },
        }
        Ok(())
    }

    /// A list that ends at this element of another column; none is null.
    pub(super) fn push_end(&mut self, end: Option<usize>) -> Result<()> {
        push_bit(&mut self.validity, self.rows, end.is_some());
        self.rows += 1;
        self.nulls += usize::from(end.is_none());
        match end {
            Some(end) => self.push_offset(end),
            None => {
                let last = self.offsets.len().saturating_sub(4);
                self.offsets.extend_from_within(last..);
                Ok(())
            }
        }
    }

    fn push_offset(&mut self, end: usize) -> Result<()> {
        let end = i32::try_from(end).map_err(|_| {
            Error::new(
                crate::error::ErrorKind::LimitExceeded,
                "a column of a batch has at most 2 GiB: ask for fewer keys at once",
            )
        })?;
        self.offsets.extend_from_slice(&end.to_le_bytes());
        Ok(())
    }
}

fn push_bit(bits: &mut Vec<u8>, at: usize, set: bool) {
    if at.is_multiple_of(8) {
        bits.push(0);
    }
    if let Some(last) = bits.last_mut() {
        *last |= u8::from(set) << (at % 8);
    }
}
