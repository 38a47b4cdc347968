//! Writing segments into merged files, and keeping the files alive for as long as they are needed.

mod claim;
mod messages;
mod observer;
mod open_file;
mod registry;
mod restore;
mod snapshot_manager;
mod status;
mod upkeep;
mod writer;
mod writer_stats;

pub use crate::liveness::{Fallbacks, RestoredCheckpoint, Retained};
pub use open_file::Durability;
pub use snapshot_manager::{ManagerOptions, SnapshotManager};
pub use status::{FileStatus, ManagerStats, SegmentStatus};
pub use writer::{SegmentWriter, WriterOptions};
pub use writer_stats::WriterStats;
