//! The catalogs of a folder: files with facts about finished files, beside the markers of
//! applications. A driver that starts reads them, and so needs not read the index of each file.

use super::IndexCache;
use crate::error::{Error, ErrorKind, Result};
use crate::storage::Storage;

const SUFFIX: &str = ".files";

/// The name of a catalog. Names of a later term, and of a later number in a term, are greater.
pub fn catalog_name(term: u64, number: u64) -> String {
    format!("{term:016x}-{number:016x}{SUFFIX}")
}

/// Learns of all files in catalogs about the files of `location`. Ignores catalogs that are damaged or
/// gone: they are hints. Returns their names.
///
/// # Errors
/// Errors of storage.
pub fn read_catalogs(
    folder: &dyn Storage,
    location: &str,
    indexes: &mut IndexCache,
) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for object in folder.list()? {
        if object.name.ends_with(SUFFIX) {
            let read = folder.open_known(&object.name, object.len);
            let learned = read
                .and_then(|catalog| catalog.read(0, object.len))
                .and_then(|bytes| indexes.learn_told(location, &bytes));
            match learned {
                Err(e) if !is_hint_lost(&e) => return Err(e),
                _ => names.push(object.name),
            }
        }
    }
    Ok(names)
}

fn is_hint_lost(error: &Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::Corrupt | ErrorKind::Newer | ErrorKind::NotFound
    )
}

/// Writes a catalog, and then deletes those that it replaces.
///
/// # Errors
/// Errors of storage.
pub fn write_catalog(
    folder: &dyn Storage,
    name: &str,
    content: &[u8],
    replaced: &[String],
) -> Result<()> {
    let mut catalog = folder.create(name)?;
    catalog.append(content)?;
    catalog.finish()?;
    folder.delete_all(replaced).into_iter().collect()
}
