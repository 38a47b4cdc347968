//! Values as bytes: a bit for each column that is not null, then these columns. Numbers are
//! little-endian, a bit is one byte. A byte string follows its length, in 7-bit groups from the
//! lowest on, as in protobuf.

use super::column::{BuiltColumn, Column, ColumnType};
use crate::error::{Error, Result};

pub(super) fn push_value(columns: &[Column<'_>], row: usize, out: &mut Vec<u8>) -> Result<()> {
    let flags = out.len();
    out.resize(flags + columns.len().div_ceil(8), 0);
    for (number, column) in columns.iter().enumerate() {
        let Some(cell) = column.cell(row)? else {
            continue;
        };
        if let Some(byte) = out.get_mut(flags + number / 8) {
            *byte |= 1 << (number % 8);
        }
        if column.layout == ColumnType::Bytes {
            prost::encode_length_delimiter(cell.len(), out)
                .map_err(|e| Error::invalid_input(e.to_string()))?;
        }
        out.extend_from_slice(cell);
    }
    Ok(())
}

pub(super) fn pull_value(
    columns: &mut [BuiltColumn],
    layouts: &[ColumnType],
    value: &[u8],
) -> Result<()> {
    let split = value.split_at_checked(layouts.len().div_ceil(8));
    let (flags, mut rest) = split.ok_or_else(damaged)?;
    for (number, (column, layout)) in columns.iter_mut().zip(layouts).enumerate() {
        let flag = flags.get(number / 8).copied().unwrap_or_default();
        if flag >> (number % 8) & 1 == 0 {
            column.push(None)?;
            continue;
        }
        let width = match layout {
            ColumnType::Bits => 1,
            ColumnType::Bytes => {
                prost::decode_length_delimiter(&mut rest).map_err(|_| damaged())?
            }
            _ => layout.width().unwrap_or_default(),
        };
        let (cell, after) = rest.split_at_checked(width).ok_or_else(damaged)?;
        column.push(Some(cell))?;
        rest = after;
    }
    if rest.is_empty() {
        Ok(())
    } else {
        Err(damaged())
    }
}

fn damaged() -> Error {
    Error::corrupt("a value of a table has other columns than the table")
}
