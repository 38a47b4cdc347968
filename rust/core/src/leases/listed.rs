//! The leases of a folder, for a clean-up.

use super::records::{Lease, Now};
use crate::error::{Error, ErrorKind, Result};
use crate::storage::{ObjectMeta, Storage};

const LEASE: &str = ".lease";
const HELD: &str = ".held";

/// Readings of the leases, before a clean-up leaves it to the next one.
const READINGS: usize = 8;

/// Reads all leases. Ignores one that is cut and not held: its command died before it looked whether
/// the batch was still there. Call it after the oldest entry of the commit log was read.
///
/// Reads them until two readings agree. Otherwise a branch of a tag could come after the list, and the
/// tag go before it is read. No id comes twice, so leases that agree were all there at one moment.
///
/// # Errors
/// `Corrupt`, `Newer` and `Unsupported` for a lease that is held and cannot be read, with its place;
/// `Storage` if no two readings agree; errors of storage. Nothing may be deleted then.
pub fn read_leases(now: Now, folder: &dyn Storage) -> Result<Vec<Lease>> {
    let mut before = None;
    for _ in 0..READINGS {
        let listed = folder.list()?;
        let read = read_listed(folder, &listed)?;
        match read {
            Some(leases)
                if leases_in(&listed).next().is_none() || before.as_ref() == Some(&leases) =>
            {
                return without_ended(now, folder, &listed, leases);
            }
            read => before = read,
        }
    }
    Err(Error::new(
        ErrorKind::Storage,
        format!(
            "{}: leases changed in each of {READINGS} readings: the next clean-up reads them again",
            folder.location()
        ),
    ))
}

/// Deletes leases that have ended, and then their marks.
fn without_ended(
    now: Now,
    folder: &dyn Storage,
    listed: &[ObjectMeta],
    leases: Vec<(String, Lease)>,
) -> Result<Vec<Lease>> {
    let (ended, rest): (Vec<_>, Vec<_>) = leases
        .into_iter()
        .partition(|(_, lease)| lease.has_ended(now));
    for (name, _) in ended {
        folder.delete(&format!("{name}{LEASE}"))?;
        let names = listed.iter().map(|object| &object.name);
        let marks = names.filter(|mark| is_mark(&name, mark)).cloned();
        let deleted = folder.delete_all(&marks.collect::<Vec<_>>());
        deleted.into_iter().collect::<Result<()>>()?;
    }
    Ok(rest.into_iter().map(|(_, lease)| lease).collect())
}

/// The names of leases.
fn leases_in(listed: &[ObjectMeta]) -> impl Iterator<Item = &str> {
    let names = listed.iter().map(|object| object.name.as_str());
    names.filter_map(|name| name.strip_suffix(LEASE))
}

/// `None` if one went after the list.
fn read_listed(
    folder: &dyn Storage,
    listed: &[ObjectMeta],
) -> Result<Option<Vec<(String, Lease)>>> {
    let mut leases = Vec::new();
    for name in leases_in(listed) {
        let file = format!("{name}{LEASE}");
        let read = folder.open(&file).and_then(|file| {
            // It may have been listed while it was written.
            let bytes = file.read(0, file.size_bytes())?;
            Lease::from_bytes(&bytes)
        });
        match read {
            Ok(lease) => leases.push((name.to_owned(), lease)),
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
            Err(e) if listed.iter().any(|mark| is_mark(name, &mark.name)) => {
                return Err(e.context(format!("{}/{file}", folder.location())));
            }
            Err(e) if e.kind() == ErrorKind::Storage => return Err(e),
            Err(_) => {}
        }
    }
    Ok(Some(leases))
}

fn is_mark(lease: &str, name: &str) -> bool {
    let id = name
        .strip_suffix(HELD)
        .and_then(|name| name.strip_prefix(lease));
    id.is_some_and(|id| id.starts_with('.'))
}
