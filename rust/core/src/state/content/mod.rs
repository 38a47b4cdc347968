//! The content of a store: column families, and how they are read and written as segments.

pub(crate) mod changes;
pub(crate) mod families;
pub(crate) mod family;
pub(crate) mod hydration;
pub(crate) mod inspect;
pub(crate) mod journal;
pub(crate) mod load;
pub(crate) mod merge_task;
pub(crate) mod scan;
