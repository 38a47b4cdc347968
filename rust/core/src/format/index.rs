//! What a file holds: from its footer, or by scanning its frames.

use super::FileIndex;
use super::footer::read_footer;
use super::scan::Scan;
use crate::error::{Error, Result};
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
        let input = storage.open(&file.file_name())?;
        match read_footer(input.as_ref(), file)? {
            Some(index) => Ok(index),
            None => Scan::new(input.as_ref(), file).run(),
        }
    };
    read().map_err(|e| context(storage, file, e))
}

/// Lists the segments of a file from its footer; `None` when it has no valid one. Never scans, so
/// it is cheap also for a large file that is still being written.
///
/// # Errors
/// `NotFound` when the file is missing, `Unsupported` when a newer version wrote its footer.
pub fn read_sealed_index(storage: &dyn Storage, file: FileId) -> Result<Option<FileIndex>> {
    storage
        .open(&file.file_name())
        .and_then(|input| read_footer(input.as_ref(), file))
        .map_err(|e| context(storage, file, e))
}

fn context(storage: &dyn Storage, file: FileId, error: Error) -> Error {
    error.context(format!("index of {}/{file}", storage.location()))
}
