//! Sorted entries: of changelogs and runs, read one after the other or by key.

pub(crate) mod cursor;
pub(crate) mod entries;
pub(crate) mod entry_stream;
pub(crate) mod key_range;
pub(crate) mod merge;
pub(crate) mod stack;
