//! Types of the fields of a row.

use crate::error::{Error, Result};
use crate::rows::ColumnType;

/// A named field of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Its name, for errors.
    pub name: String,
    /// Type of its values.
    pub kind: SparkType,
}

/// How a row has a value. A date and an `int` have the same form, and differ for callers only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SparkType {
    /// Nothing but null.
    Null,
    /// A byte, 0 or 1.
    Boolean,
    /// A signed integer of 1, 2, 4 or 8 bytes.
    Integer(u8),
    /// A floating point number of 4 or 8 bytes.
    Float(u8),
    /// A decimal number of up to 18 digits.
    Decimal,
    /// A decimal number of up to 38 digits.
    LongDecimal,
    /// Text in UTF-8.
    Text,
    /// Bytes.
    Binary,
    /// An interval of months. In arrays, an interval of months, days and nanoseconds.
    Months,
    /// An interval of months, days and microseconds. In arrays like [`SparkType::Months`].
    Interval,
    /// A variant. In arrays, a struct of its value and its metadata.
    Variant,
    /// A row in a row.
    Struct(Vec<SparkType>),
    /// A list of values.
    List(Box<[SparkType; 1]>),
    /// A map. In arrays, a list of structs of key and value.
    Map(Box<[SparkType; 2]>),
    /// All bytes of a key or a value that is no row. It is the only column then.
    Whole,
}

impl SparkType {
    /// The type with this code: `n`, `b`, `i1`, `i2`, `i4`, `i8`, `f4`, `f8`, `d`, `D`, `s`, `x`,
    /// `m`, `c` or `v`, in the order of the variants. Codes of inner types follow as in `r(si4)` for
    /// a struct, `l(s)` for a list and `p(si4)` for a map. `w` is [`SparkType::Whole`].
    ///
    /// ```
    /// use holdfast_core::rows::spark::SparkType;
    /// # fn main() -> holdfast_core::Result<()> {
    /// let text = SparkType::List(Box::new([SparkType::Text]));
    /// assert_eq!(SparkType::parse("r(i4l(s))")?, SparkType::Struct(vec![SparkType::Integer(4), text]));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `InvalidInput` for another code.
    pub fn parse(code: &str) -> Result<Self> {
        if code == "w" {
            return Ok(Self::Whole);
        }
        let mut rest = code.as_bytes();
        let parsed = next(&mut rest).filter(|_| rest.is_empty());
        parsed.ok_or_else(|| Error::invalid_input(format!("a row cannot have the type {code:?}")))
    }

    /// The layout of its values in an array. Those of inner types are in other arrays.
    pub fn column(&self) -> ColumnType {
        match self {
            Self::Boolean => ColumnType::Bits,
            Self::Integer(width) => ColumnType::Signed(*width),
            Self::Float(width) => ColumnType::Float(*width),
            Self::Decimal | Self::LongDecimal | Self::Months | Self::Interval => {
                ColumnType::Signed(16)
            }
            Self::Text | Self::Binary | Self::List(_) | Self::Map(_) | Self::Whole => {
                ColumnType::Bytes
            }
            Self::Null | Self::Variant | Self::Struct(_) => ColumnType::Signed(0),
        }
    }

    /// Size of an element in an array of a row.
    pub(super) fn element_bytes(&self) -> usize {
        match self {
            Self::Boolean => 1,
            Self::Integer(width) | Self::Float(width) => usize::from(*width),
            Self::Months => 4,
            _ => 8,
        }
    }
}

fn next(code: &mut &[u8]) -> Option<SparkType> {
    let (first, rest) = code.split_first()?;
    *code = rest;
    Some(match first {
        b'n' => SparkType::Null,
        b'b' => SparkType::Boolean,
        b'i' => SparkType::Integer(width(code, &[1, 2, 4, 8])?),
        b'f' => SparkType::Float(width(code, &[4, 8])?),
        b'd' => SparkType::Decimal,
        b'D' => SparkType::LongDecimal,
        b's' => SparkType::Text,
        b'x' => SparkType::Binary,
        b'm' => SparkType::Months,
        b'c' => SparkType::Interval,
        b'v' => SparkType::Variant,
        b'r' => SparkType::Struct(inner(code)?),
        b'l' => SparkType::List(Box::new(inner(code)?.try_into().ok()?)),
        b'p' => SparkType::Map(Box::new(inner(code)?.try_into().ok()?)),
        _ => return None,
    })
}

fn width(code: &mut &[u8], known: &[u8]) -> Option<u8> {
    let (digit, rest) = code.split_first()?;
    *code = rest;
    let width = digit.wrapping_sub(b'0');
    known.contains(&width).then_some(width)
}

fn inner(code: &mut &[u8]) -> Option<Vec<SparkType>> {
    let mut types = Vec::new();
    *code = code.strip_prefix(b"(")?;
    while code.first()? != &b')' {
        types.push(next(code)?);
    }
    *code = code.get(1..)?;
    Some(types)
}
