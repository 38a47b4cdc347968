//! Writing segments into physical files. State stores write theirs without a snapshot manager. A
//! manager observes its writer and decides how long files live.

mod observer;
mod open_file;
mod run_files;
mod run_writer;
mod stats;
mod writer;

pub use open_file::Durability;
pub use run_writer::RunWriter;
pub use stats::WriterStats;
pub use writer::{DEFAULT_MAX_FILE_BYTES, SegmentWriter, WriterOptions};

pub(crate) use observer::{FileChange, Observer};
