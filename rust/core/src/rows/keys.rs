//! Keys as bytes whose order is the order of the columns, from the first one on.
//!
//! | type | bytes |
//! |---|---|
//! | bit | one byte, 0 or 1 |
//! | unsigned | big-endian |
//! | signed | big-endian, the sign bit flipped |
//! | float | big-endian; positive numbers with the sign bit flipped, negative ones with all bits flipped |
//! | byte string | 0x00 as 0x00 0xFF, then 0x00 0x01 after the last byte |
//!
//! No key is the beginning of another one of the same columns. Floats are equal as Spark compares
//! them: -0.0 is 0.0, and every NaN is the same one, above all numbers.

use super::column::{BuiltColumn, Column, ColumnType};
use crate::error::{Error, Result};

const ESCAPED: [u8; 2] = [0x00, 0xFF];
const END: [u8; 2] = [0x00, 0x01];

pub(super) fn push_key(columns: &[Column<'_>], row: usize, out: &mut Vec<u8>) -> Result<()> {
    for column in columns {
        let cell = column.cell(row)?.ok_or_else(|| {
            Error::invalid_input(format!(
                "column {:?} is null in row {row}, and keys have no nulls: filter such rows, or replace \
                 the nulls",
                column.name
            ))
        })?;
        push_cell(column.layout, cell, out);
    }
    Ok(())
}

fn push_cell(layout: ColumnType, cell: &[u8], out: &mut Vec<u8>) {
    match layout {
        ColumnType::Bits => out.extend_from_slice(cell),
        ColumnType::Bytes => push_string(cell, out),
        ColumnType::Unsigned(_) => out.extend(cell.iter().rev()),
        ColumnType::Signed(_) => {
            let sign = out.len();
            out.extend(cell.iter().rev());
            if let Some(first) = out.get_mut(sign) {
                *first ^= 0x80;
            }
        }
        ColumnType::Float(4) => {
            let value = f32::from_le_bytes(cell.first_chunk().copied().unwrap_or_default());
            let normal = if value.is_nan() {
                f32::NAN
            } else {
                value + 0.0
            };
            let bits = normal.to_bits();
            let flipped = if bits >> 31 == 0 { 1 << 31 } else { u32::MAX };
            out.extend_from_slice(&(bits ^ flipped).to_be_bytes());
        }
        ColumnType::Float(_) => {
            let value = f64::from_le_bytes(cell.first_chunk().copied().unwrap_or_default());
            let normal = if value.is_nan() {
                f64::NAN
            } else {
                value + 0.0
            };
            let bits = normal.to_bits();
            let flipped = if bits >> 63 == 0 { 1 << 63 } else { u64::MAX };
            out.extend_from_slice(&(bits ^ flipped).to_be_bytes());
        }
    }
}

fn push_string(mut rest: &[u8], out: &mut Vec<u8>) {
    while let Some(zero) = rest.iter().position(|byte| *byte == 0) {
        let (before, after) = rest.split_at(zero);
        out.extend_from_slice(before);
        out.extend_from_slice(&ESCAPED);
        rest = after.get(1..).unwrap_or_default();
    }
    out.extend_from_slice(rest);
    out.extend_from_slice(&END);
}

pub(super) fn pull_key(
    columns: &mut [BuiltColumn],
    layouts: &[ColumnType],
    mut key: &[u8],
    cell: &mut Vec<u8>,
) -> Result<()> {
    for (column, layout) in columns.iter_mut().zip(layouts) {
        cell.clear();
        key = pull_cell(*layout, key, cell).ok_or_else(damaged)?;
        column.push(Some(cell))?;
    }
    if key.is_empty() {
        Ok(())
    } else {
        Err(damaged())
    }
}

fn pull_cell<'k>(layout: ColumnType, key: &'k [u8], cell: &mut Vec<u8>) -> Option<&'k [u8]> {
    let width = match layout {
        ColumnType::Bytes => return pull_string(key, cell),
        ColumnType::Bits => 1,
        _ => layout.width()?,
    };
    let (encoded, rest) = key.split_at_checked(width)?;
    cell.extend(encoded.iter().rev());
    let sign = cell.last_mut()?;
    match layout {
        ColumnType::Signed(_) => *sign ^= 0x80,
        ColumnType::Float(_) if *sign & 0x80 != 0 => *sign ^= 0x80,
        ColumnType::Float(_) => cell.iter_mut().for_each(|byte| *byte = !*byte),
        _ => {}
    }
    Some(rest)
}

fn pull_string<'k>(mut key: &'k [u8], cell: &mut Vec<u8>) -> Option<&'k [u8]> {
    loop {
        let zero = key.iter().position(|byte| *byte == 0)?;
        let (before, after) = key.split_at(zero);
        cell.extend_from_slice(before);
        let (mark, rest) = after.split_first_chunk::<2>()?;
        key = rest;
        match *mark {
            END => return Some(rest),
            ESCAPED => cell.push(0),
            _ => return None,
        }
    }
}

fn damaged() -> Error {
    Error::corrupt("a key of a table has other columns than the table")
}
