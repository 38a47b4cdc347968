//! A table in memory: its keys, their records, and the keys that may leave.

pub(crate) mod arena;
pub(crate) mod eviction;
pub(crate) mod order;
pub(crate) mod slot;
pub(crate) mod table;
