//! The file-merging snapshot manager.
