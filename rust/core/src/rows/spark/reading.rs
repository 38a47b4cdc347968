//! Rows as columns. Every offset and length is checked, so forged bytes are an error.

use super::types::{Field, SparkType};
use crate::error::{Error, ErrorKind, Result};
use crate::rows::{BuiltColumn, ColumnType, Packed};

/// An array with the arrays inside of it, in the order of Arrow's children.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArrowArray {
    /// Its own buffers.
    pub own: BuiltColumn,
    /// Arrays of fields, elements or entries.
    pub children: Vec<ArrowArray>,
}

/// The columns of a store.
#[derive(Clone, Debug)]
pub struct RowColumns {
    /// Columns of its keys.
    pub keys: Vec<Field>,
    /// Columns of its values.
    pub values: Vec<Field>,
    /// So many key columns are by themselves, for scans: their length (u32, little-endian), a version
    /// byte of Spark's encoding and their row, then a version byte and the row of the others.
    pub prefix: Option<usize>,
    /// Before each value is Spark's checksum (CRC32-C, little-endian) of key and value.
    pub checksums: bool,
}

impl RowColumns {
    /// The columns of `rows` packed entries, keys and values.
    ///
    /// # Errors
    /// `Corrupt` for entries of other columns; `Unsupported` for text that is not UTF-8;
    /// `LimitExceeded` for a column of more than 2 GiB, and an interval beyond nanoseconds.
    pub fn read_entries(&self, rows: usize, entries: &[u8]) -> Result<Vec<ArrowArray>> {
        let mut keys = arrays(&self.keys, rows);
        let mut values = arrays(&self.values, rows);
        let mut packed = Packed::of(entries);
        while let Some((key, value)) = packed.entry()? {
            self.push_key(&mut keys, key)?;
            let value = self.row_of(key, value)?;
            push_row(&self.values, &mut values, value)?;
        }
        keys.append(&mut values);
        Ok(keys)
    }

    /// The columns of keys.
    ///
    /// # Errors
    /// Errors of [`RowColumns::read_entries`].
    pub fn read_keys<'a>(
        &self,
        keys: impl ExactSizeIterator<Item = &'a [u8]>,
    ) -> Result<Vec<ArrowArray>> {
        let mut arrays = arrays(&self.keys, keys.len());
        for key in keys {
            self.push_key(&mut arrays, key)?;
        }
        Ok(arrays)
    }

    /// The columns of the values that were found for keys: all null where there is none.
    ///
    /// # Errors
    /// Errors of [`RowColumns::read_entries`].
    pub fn read_values<'a>(
        &self,
        found: impl ExactSizeIterator<Item = (&'a [u8], Option<&'a [u8]>)>,
    ) -> Result<Vec<ArrowArray>> {
        let mut values = arrays(&self.values, found.len());
        for (key, value) in found {
            match value {
                Some(value) => push_row(&self.values, &mut values, self.row_of(key, value)?)?,
                None => {
                    for (array, field) in values.iter_mut().zip(&self.values) {
                        array.push_null(&field.kind)?;
                    }
                }
            }
        }
        Ok(values)
    }

    fn push_key(&self, arrays: &mut [ArrowArray], key: &[u8]) -> Result<()> {
        let Some(count) = self.prefix else {
            return push_row(&self.keys, arrays, key);
        };
        let split = || {
            let (len, rest) = key.split_first_chunk::<4>()?;
            let (prefix, rest) = rest.split_at_checked(u32::from_le_bytes(*len) as usize)?;
            let fields = self.keys.split_at_checked(count)?;
            Some((fields, prefix.strip_prefix(&[0])?, rest.strip_prefix(&[0])?))
        };
        let (fields, prefix, rest) = split()
            .ok_or_else(|| Error::corrupt("a key has no prefix of the columns to scan by"))?;
        let (of_prefix, others) = arrays.split_at_mut(count);
        push_row(fields.0, of_prefix, prefix)?;
        push_row(fields.1, others, rest)
    }

    fn row_of<'a>(&self, key: &[u8], value: &'a [u8]) -> Result<&'a [u8]> {
        if !self.checksums {
            return Ok(value);
        }
        let cut = || Error::corrupt("a value has no checksum of Spark");
        let (checksum, row) = value.split_first_chunk::<4>().ok_or_else(cut)?;
        let expected = u32::from_le_bytes(*checksum);
        let found = crc32c::crc32c_append(crc32c::crc32c(key), row);
        if expected == found {
            return Ok(row);
        }
        Err(Error::corrupt(format!(
            "Spark's checksum of a row: expected {expected:08x}, found {found:08x}"
        )))
    }
}

fn arrays(fields: &[Field], rows: usize) -> Vec<ArrowArray> {
    let arrays = fields.iter();
    arrays
        .map(|field| ArrowArray::new(&field.kind, rows))
        .collect()
}

fn push_row(fields: &[Field], arrays: &mut [ArrowArray], row: &[u8]) -> Result<()> {
    if let ([field], [array]) = (fields, &mut *arrays)
        && field.kind == SparkType::Whole
    {
        return array.own.push(Some(row));
    }
    let slots = null_bytes(fields.len());
    for (number, (field, array)) in fields.iter().zip(arrays).enumerate() {
        array
            .push(
                &field.kind,
                is_null(row, 0, number),
                row,
                slots + number * 8,
            )
            .map_err(|e| e.context(format!("column {:?}", field.name)))?;
    }
    Ok(())
}

/// Size of the bits for so many nulls.
pub(super) fn null_bytes(fields: usize) -> usize {
    fields.div_ceil(64) * 8
}

/// A row that is cut is not null: reading its slot fails.
fn is_null(bytes: &[u8], from: usize, number: usize) -> bool {
    let byte = bytes.get(from + number / 8);
    byte.is_some_and(|byte| byte >> (number % 8) & 1 == 1)
}

impl ArrowArray {
    fn new(kind: &SparkType, rows: usize) -> Self {
        let child = |kind| Self::new(kind, 0);
        let children = match kind {
            SparkType::Struct(kinds) => kinds.iter().map(|kind| Self::new(kind, rows)).collect(),
            SparkType::Variant => vec![Self::new(&SparkType::Binary, rows); 2],
            SparkType::List(kinds) => kinds.iter().map(child).collect(),
            SparkType::Map(kinds) => vec![Self {
                own: BuiltColumn::new(ColumnType::Signed(0), 0),
                children: kinds.iter().map(child).collect(),
            }],
            _ => Vec::new(),
        };
        Self {
            own: BuiltColumn::new(kind.column(), rows),
            children,
        }
    }

    /// A value in the slot at `slot` of `bytes`, from whose beginning its offset counts.
    fn push(&mut self, kind: &SparkType, is_null: bool, bytes: &[u8], slot: usize) -> Result<()> {
        if is_null || *kind == SparkType::Null {
            return self.push_null(kind);
        }
        let pointed = || pointed(bytes, slot).ok_or_else(cut);
        let number = |width: usize| bytes.get(slot..slot + width).ok_or_else(cut);
        match kind {
            SparkType::Null => Ok(()),
            SparkType::Boolean => self.own.push(Some(number(1)?)),
            SparkType::Integer(width) | SparkType::Float(width) => {
                self.own.push(Some(number(usize::from(*width))?))
            }
            SparkType::Decimal => self.own.push(Some(&wide(number(8)?.iter().rev()))),
            SparkType::LongDecimal => match pointed()? {
                [] => Err(cut()),
                value if value.len() > 16 => Err(cut()),
                value => self.own.push(Some(&wide(value.iter()))),
            },
            SparkType::Text => match pointed()? {
                text if std::str::from_utf8(text).is_ok() => self.own.push(Some(text)),
                _ => Err(Error::new(
                    ErrorKind::Unsupported,
                    "a text is not UTF-8, and Arrow has no other text",
                )),
            },
            SparkType::Binary | SparkType::Whole => self.own.push(Some(pointed()?)),
            SparkType::Months => {
                let months = number(4)?;
                self.own.push(Some(&[months, &[0; 12]].concat()))
            }
            SparkType::Interval => self.push_interval(pointed()?),
            SparkType::Variant => {
                let found = pointed()?;
                let (value, metadata) = variant(found).ok_or_else(cut)?;
                self.push_parts([value, metadata])
            }
            SparkType::Struct(kinds) => {
                let row = pointed()?;
                let slots = null_bytes(kinds.len());
                for (number, (kind, child)) in kinds.iter().zip(&mut self.children).enumerate() {
                    child.push(kind, self::is_null(row, 0, number), row, slots + number * 8)?;
                }
                self.own.push(Some(&[]))
            }
            SparkType::List(kinds) => {
                let list = pointed()?;
                let mut end = 0;
                for (child, kind) in self.children.iter_mut().zip(kinds.iter()) {
                    child.push_elements(kind, list)?;
                    end = child.own.rows();
                }
                self.own.push_end(Some(end))
            }
            SparkType::Map(kinds) => self.push_map(kinds, pointed()?),
        }
    }

    fn push_null(&mut self, kind: &SparkType) -> Result<()> {
        match kind {
            SparkType::List(_) | SparkType::Map(_) => return self.own.push_end(None),
            SparkType::Struct(kinds) => {
                for (kind, child) in kinds.iter().zip(&mut self.children) {
                    child.push_null(kind)?;
                }
            }
            SparkType::Variant => {
                for child in &mut self.children {
                    child.push_null(&SparkType::Binary)?;
                }
            }
            _ => {}
        }
        self.own.push(None)
    }

    fn push_parts(&mut self, parts: [&[u8]; 2]) -> Result<()> {
        for (part, child) in parts.into_iter().zip(&mut self.children) {
            child.own.push(Some(part))?;
        }
        self.own.push(Some(&[]))
    }

    fn push_interval(&mut self, value: &[u8]) -> Result<()> {
        let (days, micros) = value.split_at_checked(8).ok_or_else(cut)?;
        let micros = micros.first_chunk::<8>().ok_or_else(cut)?;
        let nanos = i64::from_le_bytes(*micros).checked_mul(1000);
        let nanos = nanos.ok_or_else(|| {
            Error::new(
                ErrorKind::LimitExceeded,
                "an interval has more nanoseconds than 8 bytes",
            )
        })?;
        self.own.push(Some(&[days, &nanos.to_le_bytes()].concat()))
    }

    fn push_map(&mut self, kinds: &[SparkType; 2], map: &[u8]) -> Result<()> {
        let split = || {
            let (keys, rest) = map.split_first_chunk::<8>()?;
            rest.split_at_checked(usize::try_from(u64::from_le_bytes(*keys)).ok()?)
        };
        let (keys, values) = split().ok_or_else(cut)?;
        let [entries] = self.children.as_mut_slice() else {
            return Err(cut());
        };
        let mut counts = [0; 2];
        let parts = entries.children.iter_mut().zip(kinds).zip([keys, values]);
        for (((child, kind), part), count) in parts.zip(&mut counts) {
            *count = child.push_elements(kind, part)?;
        }
        let [count, others] = counts;
        if count != others {
            return Err(cut());
        }
        for _ in 0..count {
            entries.own.push(Some(&[]))?;
        }
        self.own.push_end(Some(entries.own.rows()))
    }

    fn push_elements(&mut self, kind: &SparkType, array: &[u8]) -> Result<usize> {
        let (count, slots) = elements(array, kind).ok_or_else(cut)?;
        for number in 0..count {
            let slot = slots + number * kind.element_bytes();
            self.push(kind, is_null(array, 8, number), array, slot)?;
        }
        Ok(count)
    }
}

/// Number of elements and offset of the first.
fn elements(array: &[u8], kind: &SparkType) -> Option<(usize, usize)> {
    let count = usize::try_from(u64::from_le_bytes(*array.first_chunk::<8>()?)).ok()?;
    // More bits than bytes would be allocated for nothing.
    let slots = 8 + null_bytes(Some(count).filter(|count| *count <= array.len())?);
    let end = slots + count * kind.element_bytes();
    (end <= array.len()).then_some((count, slots))
}

/// The bytes whose offset and length are in a slot.
fn pointed(bytes: &[u8], slot: usize) -> Option<&[u8]> {
    let [a, b, c, d, e, f, g, h] = *bytes.get(slot..)?.first_chunk::<8>()?;
    let len = u32::from_le_bytes([a, b, c, d]) as usize;
    let at = u32::from_le_bytes([e, f, g, h]) as usize;
    bytes.get(at..at.checked_add(len)?)
}

fn variant(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (len, rest) = bytes.split_first_chunk::<4>()?;
    rest.split_at_checked(u32::from_le_bytes(*len) as usize)
}

/// A signed number of 16 bytes, little-endian, from the bytes of a shorter one, the highest first.
fn wide<'a>(bytes: impl DoubleEndedIterator<Item = &'a u8> + Clone) -> [u8; 16] {
    let sign = bytes.clone().next().is_some_and(|first| first >> 7 == 1);
    let mut out = [if sign { 0xFF } else { 0 }; 16];
    for (to, from) in out.iter_mut().zip(bytes.rev()) {
        *to = *from;
    }
    out
}

fn cut() -> Error {
    Error::corrupt("the bytes of a row are not those of this type")
}
