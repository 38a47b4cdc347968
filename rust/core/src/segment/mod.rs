//! Writing segments into physical files. State stores write theirs without a snapshot manager. A
//! manager observes its writer and decides how long files live.

mod copies;
mod large_runs;
mod observer;
mod open_file;
mod run_writer;
mod writer;

pub use copies::create_from_copies;
pub use open_file::Durability;
pub use run_writer::RunWriter;
pub use writer::{DEFAULT_MAX_FILE_BYTES, SegmentWriter, WriterOptions, WriterStats};

pub(crate) use observer::{FileChange, Observer};
