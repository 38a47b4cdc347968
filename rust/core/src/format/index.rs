//! What a file holds: from its footer, or by scanning its frames.

use super::FileIndex;
use super::footer::read_footer;
use super::scan::Scan;
use crate::error::Result;
use crate::ids::FileId;
use crate::storage::Storage;

/// Lists the segments of a file: from the footer when it is sealed, else by scanning and verifying
/// its frames.
///
/// # Errors
/// `NotFound` when the file is missing, `Corrupt` when it is no physical file or another one's
/// copy, `Unsupported` when a newer version wrote it.
pub fn read_index(storage: &dyn Storage, file: FileId) -> Result<FileIndex> {
    let read = || {
        let file_bytes = storage.len(&file.file_name())?;
        match read_footer(storage, file, file_bytes)? {
            Some(index) => Ok(index),
            None => Scan::new(storage, file, file_bytes).run(),
        }
    };
    read().map_err(|e| e.context(format!("index of {}/{file}", storage.location())))
}
