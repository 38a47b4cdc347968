//! Rows of Spark (`UnsafeRow`) as columns in the memory layout of Arrow arrays, and keys back.
//!
//! A row is a bit for each null, in words of 8 bytes, then a slot of 8 bytes for each field, then
//! the values that do not fit a slot. The slot of such a value has its offset in the row and its
//! length, 4 bytes each. The layouts are those of Spark's `UnsafeRow`, `UnsafeArrayData` and
//! `UnsafeMapData`, the hash is that of its `Murmur3Hash`.

mod hash;
mod reading;
mod types;
mod writing;

pub use hash::partition_of;
pub use reading::{ArrowArray, RowColumns};
pub use types::{Field, SparkType};
pub use writing::{KeyColumn, RowKeys, write_keys, write_prefix};
