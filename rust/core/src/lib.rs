//! Core of Holdfast: packs the state snapshots of all partitions of one executor into a few
//! physical files. Keeps these files for exactly as long as a retained checkpoint needs them.
//!
//! It is a pure library: no JVM, no Python, no other process, no async runtime. It is *not* a
//! general key-value database and not a stream processor; Spark (or the regional runtime) decides
//! when a checkpoint starts and whether it completed.
#![forbid(unsafe_code)]

mod error;
mod ids;

pub mod bad_rows;
pub mod checkpoint;
pub mod commits;
pub mod digest;
pub mod format;
pub mod isolation;
pub mod leases;
pub mod liveness;
pub mod manager;
pub mod reclaim;
pub mod rows;
pub mod segment;
pub mod state;
pub mod storage;
pub mod terms;

pub use error::{Error, ErrorKind, Result};
pub use ids::{CheckpointId, FileId, Owner, OwnerTag, SEGMENT_REF_BYTES, SegmentRef, Term};
