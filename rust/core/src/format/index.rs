//! The index of a file: from its footer, or by a scan of its frames.

use super::FileIndex;
use super::footer::read_footer;
use super::scan::Scan;
use crate::error::{Error, Result};
use crate::ids::FileId;
use crate::storage::Storage;

/// The physical files of a folder and their listed sizes, claims and strays included.
pub(crate) fn list_files(
    storage: &dyn Storage,
) -> Result<impl Iterator<Item = (FileId, u64)> + use<>> {
    let objects = storage.list()?.into_iter();
    Ok(objects.filter_map(|object| Some((FileId::parse(&object.name)?, object.len))))
}

/// Lists the segments of a file: from its footer, or else by a scan that verifies all frames.
///
/// # Errors
/// `NotFound`; `Corrupt` if it is no physical file, or the copy of another one; `Newer` if a newer
/// version wrote it.
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

/// Lists the segments of a file from its footer; `None` without a valid one. It never scans, so it
/// is cheap for a large open file, too.
///
/// # Errors
/// `NotFound`; `Newer` if a newer version wrote the footer.
pub fn read_sealed_index(storage: &dyn Storage, file: FileId) -> Result<Option<FileIndex>> {
    storage
        .open(&file.file_name())
        .and_then(|input| read_footer(input.as_ref(), file))
        .map_err(|e| context(storage, file, e))
}

fn context(storage: &dyn Storage, file: FileId, error: Error) -> Error {
    error.context(format!("index of {}/{file}", storage.location()))
}
