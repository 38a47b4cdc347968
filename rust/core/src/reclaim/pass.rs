//! A pass over a folder: it lists files, has them judged, and deletes.

use std::collections::HashSet;

use super::IndexCache;
use crate::error::{Error, ErrorKind, Result};
use crate::format::{list_files, read_index, read_sealed_index};
use crate::ids::{FileId, Term};
use crate::liveness::{ClosedSpace, Evidence, ListedFile, sort_out};
use crate::storage::Storage;

/// Bound on bytes of closed files divided by needed bytes, above which files are wasteful.
const MAX_SPACE_AMPLIFICATION: f64 = 2.0;

/// Report of a reclaim.
#[derive(Debug, Default)]
pub struct ReclaimReport {
    /// Files deleted.
    pub deleted: Vec<FileId>,
    /// Their size in bytes.
    pub deleted_bytes: u64,
    /// Files that are needed, or may be.
    pub kept: Vec<FileId>,
    /// Files kept because not all of their segments can be listed, with the error.
    pub unreadable: Vec<(FileId, Error)>,
    /// Files that could not be deleted, with the error. The next reclaim tries again.
    pub failed: Vec<(FileId, Error)>,
    /// Size of all files that are kept, in bytes.
    pub kept_bytes: u64,
    /// Space of the closed files in `kept`.
    pub space: ClosedSpace,
}

impl ReclaimReport {
    /// A line for the log; empty if nothing was done and nothing failed.
    pub fn summary(&self) -> String {
        let mut said = Vec::new();
        if !self.deleted.is_empty() {
            let (files, bytes) = (self.deleted.len(), self.deleted_bytes);
            said.push(format!("deleted {files} files of {bytes} bytes"));
        }
        for (what, list) in [
            ("kept unreadable", &self.unreadable),
            ("could not delete", &self.failed),
        ] {
            let files = list.iter();
            said.extend(files.map(|(file, error)| format!("{what} {file}: {error}")));
        }
        said.join("; ")
    }
}

/// Tells the files of an application that takes over from all others. The newest own term is no
/// measure: a term without a file yet would hide an application that took over below it.
#[derive(Clone, Debug)]
pub struct KnownTerms {
    /// Terms up to this one are older than the application.
    pub older: Term,
    /// Terms that this application gave.
    pub own: HashSet<Term>,
}

impl KnownTerms {
    fn is_foreign(&self, term: Term) -> bool {
        term > self.older && !self.own.contains(&term)
    }
}

impl From<Term> for KnownTerms {
    fn from(older: Term) -> Self {
        let own = HashSet::new();
        Self { older, own }
    }
}

/// Deletes the files of `storage` that may go by their own indexes, see [`sort_out`]. Ignores
/// claims of managers, and objects that are no physical files. Opens each file at most once, and no
/// sealed file that `indexes` knows from an earlier pass.
///
/// `may_append` must be true for every term that was handed out and is not known to be dead.
///
/// # Errors
/// Errors of listing; `Fenced` if a file has the term of another application, which
/// owns these files now. Nothing was deleted then.
pub fn reclaim(
    storage: &dyn Storage,
    indexes: &mut IndexCache,
    evidence: &dyn Evidence,
    may_append: &dyn Fn(Term) -> bool,
    terms: impl Into<KnownTerms>,
) -> Result<ReclaimReport> {
    let files = physical_files(storage, &terms.into())?;
    Ok(judge(storage, indexes, evidence, may_append, files, false))
}

/// Like [`reclaim`], where writers tell of the files that they finish. So it looks only at the files
/// that `indexes` knows, unless it is given `terms`. Then it also lists, which finds files that
/// nobody told of.
///
/// # Errors
/// Errors of [`reclaim`], if it lists.
pub fn reclaim_told(
    storage: &dyn Storage,
    indexes: &mut IndexCache,
    evidence: &dyn Evidence,
    may_append: &dyn Fn(Term) -> bool,
    terms: Option<KnownTerms>,
) -> Result<ReclaimReport> {
    let files = match terms {
        Some(terms) => physical_files(storage, &terms)?,
        None => indexes.known(&storage.location()),
    };
    Ok(judge(storage, indexes, evidence, may_append, files, true))
}

fn judge(
    storage: &dyn Storage,
    indexes: &mut IndexCache,
    evidence: &dyn Evidence,
    may_append: &dyn Fn(Term) -> bool,
    files: Vec<(FileId, u64)>,
    told: bool,
) -> ReclaimReport {
    let location = storage.location();
    let mut report = ReclaimReport::default();
    let mut facts = Vec::new();
    for (file, listed_bytes) in files {
        let known = match indexes.find(&location, file, listed_bytes) {
            Some(known) => Ok(known),
            // Its writer tells of it before the next list, or it is read then.
            None if told && may_append(file.term) && indexes.awaits(&location, file) => {
                Ok(unopened(file, listed_bytes))
            }
            None => classify(storage, indexes, file, listed_bytes, may_append),
        };
        match known {
            Ok(known) => {
                if known.damaged {
                    let error = Error::corrupt(format!(
                        "{file}: some of its bytes do not verify: it may hold more segments"
                    ));
                    report.unreadable.push((file, error));
                } else {
                    facts.push(known);
                }
            }
            // Another process deleted it.
            Err(e) if e.kind() == ErrorKind::NotFound => {}
            Err(e) => report.unreadable.push((file, e)),
        }
    }
    carry_out(storage, facts, evidence, may_append, &mut report);
    let failed = report.failed.iter().map(|(file, _)| *file);
    let left: HashSet<FileId> = report.kept.iter().copied().chain(failed).collect();
    indexes.keep_only(&location, &left);
    report
}

/// Judges all files, then deletes those that may go.
pub(super) fn carry_out(
    storage: &dyn Storage,
    facts: Vec<ListedFile>,
    evidence: &dyn Evidence,
    may_append: &dyn Fn(Term) -> bool,
    report: &mut ReclaimReport,
) {
    let sorted = sort_out(facts, evidence, may_append, MAX_SPACE_AMPLIFICATION);
    // Deletes begin here.
    let names: Vec<_> = (sorted.going.iter())
        .map(|facts| facts.file.file_name())
        .collect();
    let deleted = storage.delete_all(&names);
    for (facts, deleted) in sorted.going.into_iter().zip(deleted) {
        match deleted {
            Ok(()) => {
                report.deleted_bytes += facts.physical_bytes;
                report.deleted.push(facts.file);
            }
            Err(e) => report.failed.push((facts.file, e)),
        }
    }
    report.space = sorted.space;
    report.kept_bytes = (sorted.staying.iter())
        .map(|facts| facts.physical_bytes)
        .sum();
    report.kept = sorted.staying.into_iter().map(|facts| facts.file).collect();
}

/// Without strays and claims: only the manager that takes the folder over deletes claims.
pub(super) fn physical_files(
    storage: &dyn Storage,
    terms: &KnownTerms,
) -> Result<Vec<(FileId, u64)>> {
    let files: Vec<_> = list_files(storage)?
        .filter(|(file, _)| file.term.can_be_given() && !file.is_claim())
        .collect();
    match files.iter().find(|(file, _)| terms.is_foreign(file.term)) {
        None => Ok(files),
        Some((file, _)) => Err(Error::new(
            ErrorKind::Fenced,
            format!(
                "{}/{file} has term {}, newer than {} and none of this application: another \
                 application took over",
                storage.location(),
                file.term,
                terms.older
            ),
        )),
    }
}

/// The newest term of a file or claim. Ignores terms that no manager can have.
pub fn newest_term(storage: &dyn Storage) -> Result<Option<Term>> {
    let terms = list_files(storage)?.map(|(file, _)| file.term);
    Ok(terms.filter(|term| term.can_be_given()).max())
}

fn classify(
    storage: &dyn Storage,
    indexes: &mut IndexCache,
    file: FileId,
    listed_bytes: u64,
    may_append: &dyn Fn(Term) -> bool,
) -> Result<ListedFile> {
    let index = if may_append(file.term) {
        read_sealed_index(storage, file)?
    } else {
        Some(read_index(storage, file)?)
    };
    Ok(match index {
        Some(index) => indexes.learn(&storage.location(), index),
        // It stays in any case, so an open file need not be scanned.
        None => unopened(file, listed_bytes),
    })
}

fn unopened(file: FileId, listed_bytes: u64) -> ListedFile {
    ListedFile {
        file,
        sealed: false,
        damaged: false,
        physical_bytes: listed_bytes,
        segments: [].into(),
    }
}
