//! Reclaims files that no manager reclaims: files of dead executors, and, for the state store
//! plugin, every file whose checkpoints the driver stopped retaining.
//!
//! A pass classifies all files before it deletes any. Unknown, unreadable and damaged files stay,
//! and the report names them.

mod catalog;
mod catalogs;
mod index_cache;
mod orphans;
mod pass;

pub use catalog::encode_finished;
pub use catalogs::{catalog_name, read_catalogs, write_catalog};
pub use index_cache::IndexCache;
pub use orphans::reclaim_orphans;
pub use pass::{KnownTerms, ReclaimReport, newest_term, reclaim, reclaim_told};
