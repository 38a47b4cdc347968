//! Rows of tables as bytes: keys in an encoding that keeps their order, values in a compact one.
//!
//! Columns are laid out as in Arrow, so the core needs no Arrow library. A batch is one buffer:
//!
//! - keys: for each row the length of the key (u32, little-endian) and the key,
//! - entries: for each row the lengths of key and value (u32 each), then key and value, as scans of
//!   a [`StateStore`](crate::state::StateStore) return them,
//! - found values: for each row [`ABSENT`], or the length of the value (u32) and the value.
//!
//! `FORMAT.md` has the bytes of keys and values.

mod column;
mod keys;
mod packed;
mod values;

pub mod spark;

pub use column::{BuiltColumn, Column, ColumnType};
pub use packed::{
    ABSENT, count_entries, decode_entries, decode_entry_keys, decode_found, encode_entries,
    encode_keys, encode_prefix,
};
pub(crate) use packed::{Packed, push_found};
