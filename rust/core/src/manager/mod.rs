//! The snapshot manager: packs the segments of one executor into files, and keeps the files alive
//! for as long as they are needed.

mod claim;
mod notices;
mod recent;
mod registry;
mod restore;
mod snapshot_manager;
mod status;
mod table;
mod table_calls;
mod table_copies;
mod table_work;
mod tables;
mod upkeep;

pub(crate) use claim::create_claim;

pub use crate::liveness::{Fallbacks, PostponedCheckpoints, RestoredCheckpoint, Retained};
pub use registry::EarlierManagers;
pub use snapshot_manager::{ManagerOptions, SnapshotManager};
pub use status::{FileStatus, ManagerStats, SegmentStatus};
pub use table_calls::{TableAnswer, TableCall, TableCommit};
pub use table_copies::{ChooseRows, read_table};
