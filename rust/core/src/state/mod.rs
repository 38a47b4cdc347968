//! State tables: the content of one state store, and how it is saved and loaded.
//!
//! A [`StateStore`] is one owner's content at one version. A commit writes only the changes (a
//! changelog segment). Maintenance merges changelogs, from files, into delta runs, and at times all
//! of these into a new base image. Each head names the segments that its segment builds on (its
//! lineage), so the id of one segment is enough to load a version. The content is one or more
//! column families ([`Family`]): a hash index and, for scans, the order of the keys.

mod commit_id;
mod content;
mod delta_runs;
mod differences;
mod found_differences;
mod memory;
mod reading;
mod runs;
mod store;
mod tables;

pub use commit_id::{CommitId, MAX_PENDING, Pending, StoreId, VersionId, ViewId};
pub use content::changes::{Changes, FamilyOfInterest, find_own, for_each_change, read_changes};
pub use content::families::{FIRST_FAMILY, Families, KeyLayout};
pub use content::family::{Family, FamilyOptions};
pub use content::hydration::{HYDRATION_BYTES, HydratedEntries, Hydration};
pub use content::inspect::{RunIndex, SegmentReport, inspect_segment};
pub use content::merge_task::{MergeTask, MergedRun};
pub use delta_runs::{DeltaMarks, DeltaRuns};
pub use differences::StateDifferences;
pub use found_differences::FoundDifferences;
pub use memory::{GiveBack, MemoryBudget, Release};
pub use reading::{FoundRows, OperatorScan, OperatorState, RowsOf};
pub use runs::entries::{Change, ChangeKind, ChangeReader, ChangeWriter};
pub use runs::key_range::KeyRange;
pub(crate) use store::large_changes::LargeChanges;
pub use store::open_scans::{ScanBatch, ScanOf};
pub use store::parking::{Parking, PendingInput};
pub use store::shared_store::{Beside, Hydrated, SharedStore, StoreFolder};
pub use store::state_store::{StateStore, StoreStats};
