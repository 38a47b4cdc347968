//! The thin layer that lists, asks [`plan`](super::plan), and deletes.

use std::collections::HashSet;

use super::{FileFacts, IndexCache, Space, plan, space};
use crate::error::{Error, ErrorKind, Result};
use crate::format::{read_index, read_sealed_index};
use crate::ids::{CheckpointId, FileId, Owner, Term};
use crate::storage::{ObjectMeta, Storage};

/// Bound on the bytes of closed files divided by those that are needed of them: above it, the most
/// wasteful files are named to be emptied.
const MAX_SPACE_AMPLIFICATION: f64 = 2.0;

/// What a reclaim did.
#[derive(Debug, Default)]
pub struct ReclaimReport {
    /// Files deleted.
    pub deleted: Vec<FileId>,
    /// Their size in bytes.
    pub deleted_bytes: u64,
    /// Files that are needed, or may be.
    pub kept: Vec<FileId>,
    /// Files kept because their segments cannot be listed, or not all of them, and why.
    pub unreadable: Vec<(FileId, Error)>,
    /// Files that may go but could not be deleted, and why. The next reclaim tries them again.
    pub failed: Vec<(FileId, Error)>,
    /// What the files that are kept take.
    pub space: Space,
}

/// Deletes the files of `storage` that may go, see [`plan`]. Objects that are no physical files are
/// left alone. A file is opened at most once, and not at all if `indexes` knows it as a sealed one
/// from an earlier pass.
///
/// `may_append` must be true for every term that was handed out and is not known to be dead;
/// `newest_term` is the newest of all that were handed out before this call.
///
/// # Errors
/// Those of listing; `Fenced` when a file carries a newer term, so that somebody else looks after
/// these files now. Nothing was deleted then.
pub fn reclaim(
    storage: &dyn Storage,
    indexes: &mut IndexCache,
    floor_of: &dyn Fn(&Owner) -> Option<CheckpointId>,
    may_append: &dyn Fn(Term) -> bool,
    newest_term: Term,
) -> Result<ReclaimReport> {
    let location = storage.location();
    let files = physical_files(storage.list()?);
    if let Some((file, _)) = files.iter().find(|(file, _)| file.term > newest_term) {
        return Err(Error::new(
            ErrorKind::Fenced,
            format!(
                "{location}/{file} has term {}, newer than {newest_term}: another application took over",
                file.term
            ),
        ));
    }
    let mut report = ReclaimReport::default();
    let mut facts = Vec::new();
    for (file, listed_bytes) in files {
        let known = match indexes.find(&location, file, listed_bytes) {
            Some(known) => Ok(known),
            None => classify(storage, indexes, file, listed_bytes, may_append),
        };
        match known {
            Ok(known) => {
                if known.damaged {
                    let message = "some of its bytes do not verify: it may hold more segments";
                    report
                        .unreadable
                        .push((file, Error::corrupt(format!("{file}: {message}"))));
                } else {
                    facts.push(known);
                }
            }
            // Somebody else deleted it meanwhile.
            Err(e) if e.kind() == ErrorKind::NotFound => {}
            Err(e) => report.unreadable.push((file, e)),
        }
    }
    // From here on, and not earlier, files are deleted.
    let going: HashSet<FileId> = plan(&facts, floor_of, may_append).into_iter().collect();
    let (going, staying): (Vec<_>, Vec<_>) = facts
        .into_iter()
        .partition(|facts| going.contains(&facts.file));
    for facts in going {
        match storage.delete(&facts.file.file_name()) {
            Ok(()) => {
                report.deleted_bytes += facts.physical_bytes;
                report.deleted.push(facts.file);
            }
            Err(e) => report.failed.push((facts.file, e)),
        }
    }
    report.space = space(&staying, floor_of, may_append, MAX_SPACE_AMPLIFICATION);
    report.kept = staying.into_iter().map(|facts| facts.file).collect();
    let failed = report.failed.iter().map(|(file, _)| *file);
    let left = report.kept.iter().copied().chain(failed).collect();
    indexes.keep_only(&location, &left);
    Ok(report)
}

/// The physical files of a listing and their listed sizes. Strays are not among them.
fn physical_files(listed: Vec<ObjectMeta>) -> Vec<(FileId, u64)> {
    listed
        .into_iter()
        .filter_map(|object| Some((FileId::parse(&object.name)?, object.len)))
        .filter(|(file, _)| file.term.can_be_given())
        .collect()
}

/// Reads what a file holds. It is opened once.
fn classify(
    storage: &dyn Storage,
    indexes: &mut IndexCache,
    file: FileId,
    listed_bytes: u64,
    may_append: &dyn Fn(Term) -> bool,
) -> Result<FileFacts> {
    let index = if may_append(file.term) {
        read_sealed_index(storage, file)?
    } else {
        Some(read_index(storage, file)?)
    };
    Ok(match index {
        Some(index) => indexes.learn(&storage.location(), index),
        // It stays whatever it holds: no need to scan what somebody is writing.
        None => FileFacts {
            file,
            sealed: false,
            damaged: false,
            physical_bytes: listed_bytes,
            segments: [].into(),
        },
    })
}
