//! State tables: the content of one state store, and how it is saved and loaded.
//!
//! A [`StateStore`] is one owner's content at one version. A commit writes only what changed (a
//! changelog segment); maintenance merges the previous base image and the changelogs after it,
//! from files, into a new base image. The head of every segment names the segments it builds on
//! (its lineage), so the id of one segment is enough to load a version.

mod arena;
mod base_image;
mod commit_id;
mod entries;
mod restore;
mod store;
mod table;

pub use base_image::{BaseImage, BaseImageTask};
pub use commit_id::CommitId;
pub use entries::{Change, ChangeReader, ChangeWriter};
pub use store::{StateStore, StoreStats};
pub use table::{ScanBatch, Table};
