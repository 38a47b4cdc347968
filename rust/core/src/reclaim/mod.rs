//! Reclaims files that no manager looks after: those of dead executors, and, for the state store
//! plugin, every file whose checkpoints the driver stopped retaining.
//!
//! Everything is classified before anything is deleted, and protection wins: what is unknown,
//! unreadable or damaged stays and is reported.

mod index_cache;
mod orphans;
mod pass;

pub use index_cache::IndexCache;
pub use orphans::reclaim_orphans;
pub use pass::{ReclaimReport, newest_term, reclaim};
