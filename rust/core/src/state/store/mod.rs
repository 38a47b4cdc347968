//! A store: its version, sessions, runs, and keys in memory.

mod batches;
pub(crate) mod changing;
pub(crate) mod hydrating;
pub(crate) mod keeping;
pub(crate) mod large_changes;
pub(crate) mod maintaining;
pub(crate) mod merging;
pub(crate) mod open_scans;
pub(crate) mod parking;
pub(crate) mod position;
pub(crate) mod recovery;
pub(crate) mod residency;
pub(crate) mod session;
pub(crate) mod shared_store;
pub(crate) mod spilling;
pub(crate) mod standing;
pub(crate) mod state_store;
