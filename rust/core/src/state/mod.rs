//! State tables: the content of one state store, and how it is saved and loaded.
//!
//! A [`StateStore`] is one owner's content at one version. A commit writes only what changed (a
//! changelog segment); maintenance merges changelogs, from files, into runs: delta runs, and at times
//! with all of these a new base image. The head of every segment names the segments it builds on
//! (its lineage), so the id of one segment is enough to load a version.
//!
//! The content is one or more column families ([`Family`]) of tables: a hash index for single keys,
//! and where scans by prefix or range are wanted the order of the keys.

mod arena;
mod below;
mod changes;
mod commit_id;
mod content;
mod delta_runs;
mod entries;
mod entry_stream;
mod eviction;
mod family;
mod hydration;
mod images;
mod inspect;
mod journal;
mod load;
mod memory;
mod merge;
mod merge_task;
mod open_run;
mod open_scans;
mod order;
mod position;
mod recovery;
mod run_cursor;
mod run_stack;
mod scan;
mod session;
mod slot;
mod store;
mod table;

pub use arena::Release;
pub use changes::{
    ChangeKind, Changes, FamilyOfInterest, find_own, for_each_change, read_changelog, read_changes,
};
pub use commit_id::CommitId;
pub use content::{FIRST_FAMILY, Families, Layout};
pub use delta_runs::DeltaRuns;
pub use entries::{Change, ChangeReader, ChangeWriter};
pub use family::{Family, FamilyOptions};
pub use hydration::{HYDRATION_BYTES, HydratedEntries, Hydration, NextHydration};
pub use inspect::{RunIndex, SegmentReport, inspect_segment};
pub use memory::MemoryBudget;
pub use merge_task::{MergeTask, MergedRun};
pub use open_scans::{ScanBatch, ScanOf};
pub use order::KeyRange;
pub use store::{StateStore, StoreStats};
