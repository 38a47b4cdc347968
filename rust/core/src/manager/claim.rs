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
use crate::ids::{CLAIM_SEQ, FileId, Term};
use crate::storage::Storage;

/// So many terms are tried before a manager that cannot write is one that can only read.
const TRIES: u32 = 8;

#[derive(Debug)]
enum Standing {
    /// The claim could not be written: the manager can read only, until it can.
    Unclaimed,
    /// Nothing was changed yet: the manager may be one that only reads.
    Opened,
    /// The folder is this manager's.
    TakenOver,
    /// A newer manager took the folder over, and what there is to say of it.
    Fenced(String),
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
        let mut not_before = not_before;
        let mut failed = 0;
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
                Err(e) if e.kind() == ErrorKind::AlreadyExists => {
                    not_before = term.0 + 1;
                    continue;
                }
                // What a failed call left behind may be in the way of another one.
                Err(_) if failed < TRIES => {
                    failed += 1;
                    not_before = term.0 + 1;
                    continue;
                }
                Err(_) => Standing::Unclaimed,
            };
            let claimed = matches!(standing, Standing::Opened);
            // A claim can be made twice if a newer manager deleted the first one in between. It
            // shows then.
            if claimed && newest_term(storage.as_ref())?.is_some_and(|newest| newest > term) {
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
        if let Standing::Fenced(why) = &*standing {
            return Err(Error::new(ErrorKind::Fenced, why.as_str()));
        }
        let storage = self.storage.as_ref();
        let there = match storage.len(&name(self.term)) {
            Ok(_) => true,
            Err(e) if e.kind() == ErrorKind::NotFound => false,
            Err(e) => return Err(e),
        };
        let unclaimed = matches!(*standing, Standing::Unclaimed);
        let newer = match (there, unclaimed) {
            (true, false) => None,
            // Another manager made this very claim while this one could not.
            (true, true) => Some(self.term),
            (false, _) => newest_claim(storage)?.filter(|newest| *newest > self.term),
        };
        if let Some(newer) = newer {
            let why = format!(
                "{}: a manager with the newer term {newer} took this folder over, this one has term \
                 {}. Stop one of the two, or open a new manager to take over again",
                storage.location(),
                self.term
            );
            *standing = Standing::Fenced(why.clone());
            return Err(Error::new(ErrorKind::Fenced, why));
        }
        if !there {
            // It could not be made before, or the folder was emptied by hand.
            create(storage, self.term).map_err(|e| e.context("writing to this folder"))?;
        }
        if unclaimed {
            *standing = Standing::Opened;
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
            Standing::Unclaimed | Standing::Fenced(_) => false,
            Standing::TakenOver => files(self.storage.as_ref()).is_ok_and(|mut files| {
                files.any(|file| file.term >= self.term && !file.is_claim())
            }),
        }
    }
}

fn name(term: Term) -> String {
    let seq = CLAIM_SEQ;
    FileId { term, seq }.file_name()
}

fn create(storage: &dyn Storage, term: Term) -> Result<()> {
    let name = name(term);
    let made = storage.create(&name).and_then(|claim| claim.finish());
    match made {
        Err(e) if e.kind() == ErrorKind::AlreadyExists => Err(e),
        // Storage may have done what it says it failed to do.
        Err(_) if storage.len(&name).is_ok() => Ok(()),
        made => made.inspect_err(|_| {
            // So that it can be made again.
            let _ = storage.delete(&name);
        }),
    }
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
    let claims = files(storage)?.filter(|file| file.is_claim());
    Ok(claims.map(|file| file.term))
}

fn newest_claim(storage: &dyn Storage) -> Result<Option<Term>> {
    Ok(claims(storage)?.max())
}
