//! The thin layer that lists, asks [`plan`](super::plan), and deletes.

use std::collections::HashSet;

use super::{FileFacts, SegmentFacts, Space, plan, space};
use crate::error::{Error, ErrorKind, Result};
use crate::format::{FileIndex, read_index, read_sealed_index};
use crate::ids::{CheckpointId, FileId, Owner, Term};
use crate::storage::Storage;

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
/// left alone.
///
/// `may_append` must be true for every term that was handed out and is not known to be dead;
/// `newest_term` is the newest of all that were handed out before this call.
///
/// # Errors
/// Those of listing; `Fenced` when a file carries a newer term, so that somebody else looks after
/// these files now. Nothing was deleted then.
pub fn reclaim(
    storage: &dyn Storage,
    floor_of: &dyn Fn(&Owner) -> Option<CheckpointId>,
    may_append: &dyn Fn(Term) -> bool,
    newest_term: Term,
) -> Result<ReclaimReport> {
    let mut report = ReclaimReport::default();
    let mut facts = Vec::new();
    for object in storage.list()? {
        let Some(file) = FileId::parse(&object.name) else {
            continue;
        };
        if file.term > newest_term {
            return Err(Error::new(
                ErrorKind::Fenced,
                format!(
                    "{}/{file} has term {}, newer than {newest_term}: another application took over",
                    storage.location(),
                    file.term
                ),
            ));
        }
        match classify(storage, file, object.len, may_append) {
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
    Ok(report)
}

fn classify(
    storage: &dyn Storage,
    file: FileId,
    physical_bytes: u64,
    may_append: &dyn Fn(Term) -> bool,
) -> Result<FileFacts> {
    if let Some(index) = read_sealed_index(storage, file)? {
        return Ok(facts(index, physical_bytes));
    }
    if may_append(file.term) {
        // It stays whatever it holds: no need to scan what somebody is writing.
        return Ok(FileFacts {
            file,
            sealed: false,
            damaged: false,
            physical_bytes,
            segments: Vec::new(),
        });
    }
    read_index(storage, file).map(|index| facts(index, physical_bytes))
}

fn facts(index: FileIndex, physical_bytes: u64) -> FileFacts {
    let segments = index.segments.into_iter().map(|entry| SegmentFacts {
        owner: entry.owner,
        created: entry.created,
        len: entry.reference.len,
    });
    FileFacts {
        file: index.file,
        sealed: index.sealed,
        damaged: index.damaged_bytes > 0,
        physical_bytes,
        segments: segments.collect(),
    }
}
