//! Whose folder it is, where managers mint their terms themselves.
//!
//! A claim is an empty physical file with the number 0, which no segment is ever written to:
//! creating its name is what makes a term one manager's. The first change that a manager makes takes
//! the folder over: it deletes the claims of older terms, and a manager whose claim is gone finds
//! out before its next change. Managers that get their terms from a driver have no claim.

use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::error::{Error, ErrorKind, Result};
use crate::ids::{FileId, Term};
use crate::storage::Storage;

/// Number of the file that is a claim; files with segments begin at 1.
const CLAIM_SEQ: u32 = 0;

/// Whether a file is a claim.
pub(super) fn is_claim(file: FileId) -> bool {
    file.seq == CLAIM_SEQ
}

#[derive(Debug)]
enum Standing {
    /// Nothing was changed yet: the manager may be one that only reads.
    Opened,
    /// The folder is this manager's.
    TakenOver,
    /// It cannot be, and why.
    Refused(ErrorKind, String),
}

/// The claim of one manager.
pub(super) struct Claim {
    storage: Arc<dyn Storage>,
    term: Term,
    standing: Mutex<Standing>,
    /// The process that made it: a child must not remove it.
    process: u32,
}

impl fmt::Debug for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Claim").field(&self.term).finish()
    }
}

impl Claim {
    /// Mints a term that is newer than every other in `storage`, and at least `not_before`. Where
    /// nothing can be written the manager can read only.
    ///
    /// # Errors
    /// Those of listing.
    pub fn next(storage: Arc<dyn Storage>, not_before: u64) -> Result<Self> {
        loop {
            let next = newest_term(storage.as_ref())?.map_or(0, |newest| newest.0 + 1);
            let term = Term(next.max(not_before));
            if !term.can_be_given() {
                let location = storage.location();
                return Err(Error::invalid_input(format!(
                    "{location} has no terms left"
                )));
            }
            let standing = match create(storage.as_ref(), term) {
                Ok(()) => Standing::Opened,
                // Another manager was quicker.
                Err(e) if e.kind() == ErrorKind::AlreadyExists => continue,
                Err(e) => Standing::Refused(e.kind(), format!("writing to this folder: {e}")),
            };
            let unclaimed = matches!(standing, Standing::Refused(..));
            // A claim can be made twice if a newer manager deleted the first one in between. It
            // shows then.
            if !unclaimed && newest_term(storage.as_ref())?.is_some_and(|newest| newest > term) {
                let _ = storage.delete(&name(term));
                continue;
            }
            return Ok(Self {
                storage,
                term,
                standing: Mutex::new(standing),
                process: std::process::id(),
            });
        }
    }

    pub fn term(&self) -> Term {
        self.term
    }

    /// To be called before every change: takes the folder over, or finds that a newer manager did.
    ///
    /// # Errors
    /// `Fenced` then, every time; those of storage.
    pub fn check(&self) -> Result<()> {
        let mut standing = self.standing.lock();
        if let Standing::Refused(kind, why) = &*standing {
            return Err(Error::new(*kind, why.as_str()));
        }
        match self.storage.len(&name(self.term)) {
            Ok(_) => {}
            Err(e) if e.kind() == ErrorKind::NotFound => {
                if let Some(newer) = newest_claim(self.storage.as_ref())?.filter(|t| *t > self.term)
                {
                    let why = format!(
                        "{}: a manager with the newer term {newer} took this folder over, this one \
                         has term {}. Stop one of the two, or open a new manager to take over again",
                        self.storage.location(),
                        self.term
                    );
                    let error = Error::new(ErrorKind::Fenced, why.as_str());
                    *standing = Standing::Refused(ErrorKind::Fenced, why);
                    return Err(error);
                }
                // The folder was emptied by hand: it is nobody else's.
                create(self.storage.as_ref(), self.term)?;
            }
            Err(e) => return Err(e),
        }
        if matches!(*standing, Standing::Opened) {
            for older in claims(self.storage.as_ref())?.filter(|term| *term < self.term) {
                self.storage.delete(&name(older))?;
            }
            *standing = Standing::TakenOver;
        }
        Ok(())
    }

    /// The manager is closed: removes the claim, if its term cannot be given again without it.
    pub fn release(&self) {
        if self.process == std::process::id() && self.is_dispensable() {
            // One that stays is removed by the next manager that writes.
            let _ = self.storage.delete(&name(self.term));
        }
    }

    /// Whether the term cannot be given again without the claim: nothing was written under it, or a
    /// file shows it.
    fn is_dispensable(&self) -> bool {
        match &*self.standing.lock() {
            Standing::Opened => true,
            Standing::TakenOver => files(self.storage.as_ref())
                .is_ok_and(|mut files| files.any(|file| file.term >= self.term && !is_claim(file))),
            Standing::Refused(..) => false,
        }
    }
}

fn name(term: Term) -> String {
    let seq = CLAIM_SEQ;
    FileId { term, seq }.file_name()
}

fn create(storage: &dyn Storage, term: Term) -> Result<()> {
    storage.create(&name(term))?.finish()
}

/// Files of terms that can be a manager's.
fn files(storage: &dyn Storage) -> Result<impl Iterator<Item = FileId> + use<>> {
    let objects = storage.list()?.into_iter();
    let files = objects.filter_map(|object| FileId::parse(&object.name));
    Ok(files.filter(|file| file.term.can_be_given()))
}

fn newest_term(storage: &dyn Storage) -> Result<Option<Term>> {
    Ok(files(storage)?.map(|file| file.term).max())
}

fn claims(storage: &dyn Storage) -> Result<impl Iterator<Item = Term> + use<>> {
    let claims = files(storage)?.filter(|file| is_claim(*file));
    Ok(claims.map(|file| file.term))
}

fn newest_claim(storage: &dyn Storage) -> Result<Option<Term>> {
    Ok(claims(storage)?.max())
}
