//! Writing segments into merged files, and keeping the files alive for as long as they are needed.

mod observer;
mod open_file;
mod writer;

pub use writer::{SegmentWriter, WriterOptions, WriterStats};
