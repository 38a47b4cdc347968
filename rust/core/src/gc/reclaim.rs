//! The thin layer that lists, asks [`plan`](super::plan), and deletes.

use std::collections::{HashMap, HashSet};

use super::{FileFacts, plan};
use crate::error::{Error, ErrorKind, Result};
use crate::format::{FileIndex, read_index, read_sealed_index};
use crate::ids::{CheckpointId, FileId, Owner, Term};
use crate::storage::Storage;

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
    let mut sizes = HashMap::new();
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
        match classify(storage, file, may_append) {
            Ok(known) => {
                if known.damaged {
                    let message = "some of its bytes do not verify: it may hold more segments";
                    report
                        .unreadable
                        .push((file, Error::corrupt(format!("{file}: {message}"))));
                } else {
                    sizes.insert(file, object.len);
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
    for FileFacts { file, .. } in facts {
        if !going.contains(&file) {
            report.kept.push(file);
            continue;
        }
        match storage.delete(&file.file_name()) {
            Ok(()) => {
                report.deleted_bytes += sizes.get(&file).copied().unwrap_or(0);
                report.deleted.push(file);
            }
            Err(e) => report.failed.push((file, e)),
        }
    }
    Ok(report)
}

fn classify(
    storage: &dyn Storage,
    file: FileId,
    may_append: &dyn Fn(Term) -> bool,
) -> Result<FileFacts> {
    if let Some(index) = read_sealed_index(storage, file)? {
        return Ok(facts(index));
    }
    if may_append(file.term) {
        // It stays whatever it holds: no need to scan what somebody is writing.
        return Ok(FileFacts {
            file,
            sealed: false,
            damaged: false,
            segments: Vec::new(),
        });
    }
    read_index(storage, file).map(facts)
}

fn facts(index: FileIndex) -> FileFacts {
    FileFacts {
        file: index.file,
        sealed: index.sealed,
        damaged: index.damaged_bytes > 0,
        segments: index
            .segments
            .into_iter()
            .map(|entry| (entry.owner, entry.created))
            .collect(),
    }
}
