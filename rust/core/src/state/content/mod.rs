//! The content of a store: column families, how segments become content, and content segments.

pub(crate) mod changes;
pub(crate) mod families;
pub(crate) mod family;
pub(crate) mod hydration;
pub(crate) mod inspect;
pub(crate) mod journal;
pub(crate) mod load;
pub(crate) mod merge_task;
pub(crate) mod scan;
