//! The leases of a folder, for a clean-up.

use super::records::Lease;
use crate::error::{ErrorKind, Result};
use crate::storage::Storage;

const LEASE: &str = ".lease";
const HELD: &str = ".held";

/// Reads all leases. Ignores one that is cut and not held: its command died before it looked whether
/// the batch was still there. Call it after the oldest entry of the commit log was read.
///
/// # Errors
/// `Corrupt`, `Newer` and `Unsupported` for a lease that is held and cannot be read, with its place;
/// errors of storage. Nothing may be deleted then.
pub fn read_leases(folder: &dyn Storage) -> Result<Vec<Lease>> {
    let listed = folder.list()?;
    let mut leases = Vec::new();
    for object in &listed {
        let Some(name) = object.name.strip_suffix(LEASE) else {
            continue;
        };
        let read = folder.open(&object.name).and_then(|file| {
            // It may have been listed while it was written.
            let bytes = file.read(0, file.size_bytes())?;
            Lease::from_bytes(&bytes)
        });
        match read {
            Ok(lease) => leases.push(lease),
            Err(e) if e.kind() == ErrorKind::NotFound => {}
            Err(e) if is_held(name, listed.iter().map(|object| object.name.as_str())) => {
                return Err(e.context(format!("{}/{}", folder.location(), object.name)));
            }
            Err(e) if e.kind() == ErrorKind::Storage => return Err(e),
            Err(_) => {}
        }
    }
    Ok(leases)
}

fn is_held<'a>(lease: &str, mut names: impl Iterator<Item = &'a str>) -> bool {
    names.any(|name| {
        let id = name
            .strip_suffix(HELD)
            .and_then(|name| name.strip_prefix(lease));
        id.is_some_and(|id| id.starts_with('.'))
    })
}
