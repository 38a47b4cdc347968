//! Claims on a folder, by managers that mint their terms themselves.
//!
//! A claim is an empty physical file with the number 0. The manager that creates its name has the
//! term. The first change of a manager deletes the claims of older terms, whose managers find that
//! out before their next change. Managers that get their terms from a driver have no claim.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::error::{Error, ErrorKind, Result};
use crate::format::list_files;
use crate::ids::{CLAIM_SEQ, FileId, Term};
use crate::reclaim::newest_term;
use crate::storage::Storage;

/// Number of terms to try before a manager that cannot write counts as a reader.
const TRIES: u32 = 8;

#[derive(Debug)]
enum ClaimState {
    /// The claim could not be written: the manager can only read, until it can write one.
    Unclaimed,
    /// The manager has changed nothing yet, and may be a reader.
    Opened,
    TakenOver,
    /// A newer manager took the folder over; the message of the error.
    Fenced(String),
}

#[derive(Debug)]
pub(super) struct Claim {
    storage: Arc<dyn Storage>,
    pub term: Term,
    state: Mutex<ClaimState>,
    /// The process that made it: a child must not delete it.
    process: u32,
}

impl Claim {
    /// Mints a term that is newer than every other in `storage`, and at least `not_before`.
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
            let state = match create_claim(storage.as_ref(), term) {
                Ok(()) => ClaimState::Opened,
                // Another manager was quicker, or a failed call left a file in the way of a retry.
                Err(e) if e.kind() == ErrorKind::AlreadyExists || failed < TRIES => {
                    failed += u32::from(e.kind() != ErrorKind::AlreadyExists);
                    not_before = term.0 + 1;
                    continue;
                }
                Err(_) => ClaimState::Unclaimed,
            };
            let claimed = matches!(state, ClaimState::Opened);
            // If a newer manager deleted this claim in between, two can make it: the newer claim
            // shows it.
            if claimed && newest_term(storage.as_ref())?.is_some_and(|newest| newest > term) {
                let _ = storage.delete(&name(term));
                continue;
            }
            return Ok(Self {
                storage,
                term,
                state: Mutex::new(state),
                process: std::process::id(),
            });
        }
    }

    /// Takes the folder over before a change; `Fenced`, every time, once a newer manager has it.
    pub fn check(&self) -> Result<()> {
        let mut state = self.state.lock();
        if let ClaimState::Fenced(why) = &*state {
            return Err(Error::new(ErrorKind::Fenced, why.as_str()));
        }
        let storage = self.storage.as_ref();
        let there = match storage.len(&name(self.term)) {
            Ok(_) => true,
            Err(e) if e.kind() == ErrorKind::NotFound => false,
            Err(e) => return Err(e),
        };
        let unclaimed = matches!(*state, ClaimState::Unclaimed);
        let newer = match (there, unclaimed) {
            (true, false) => None,
            // Another manager made this very claim while this one could not.
            (true, true) => Some(self.term),
            (false, _) => claims(storage)?.max().filter(|newest| *newest > self.term),
        };
        if let Some(newer) = newer {
            let why = format!(
                "{}: a manager with the newer term {newer} took this folder over, this one has term \
                 {}. Stop one of the two, or open a new manager to take over again",
                storage.location(),
                self.term
            );
            *state = ClaimState::Fenced(why.clone());
            return Err(Error::new(ErrorKind::Fenced, why));
        }
        if !there {
            // It could not be made before, or the folder was emptied by hand.
            create_claim(storage, self.term).map_err(|e| e.context("writing to this folder"))?;
        }
        if unclaimed {
            *state = ClaimState::Opened;
        }
        if matches!(*state, ClaimState::Opened) {
            for older in claims(storage)?.filter(|term| *term < self.term) {
                storage.delete(&name(older))?;
            }
            *state = ClaimState::TakenOver;
        }
        Ok(())
    }

    /// Deletes the claim of a closed manager, if no other manager can get its term without it.
    pub fn release(&self) {
        if self.process == std::process::id() && self.is_dispensable() {
            // The next manager that writes deletes a claim that is left.
            let _ = self.storage.delete(&name(self.term));
        }
    }

    /// Returns whether the term is safe without it: nothing was written under it, or a file has it.
    fn is_dispensable(&self) -> bool {
        match &*self.state.lock() {
            ClaimState::Opened => true,
            ClaimState::Unclaimed | ClaimState::Fenced(_) => false,
            ClaimState::TakenOver => files(self.storage.as_ref()).is_ok_and(|mut files| {
                files.any(|file| file.term >= self.term && !file.is_claim())
            }),
        }
    }
}

fn name(term: Term) -> String {
    let seq = CLAIM_SEQ;
    FileId { term, seq }.file_name()
}

/// Creates the empty file that is the claim of a term.
pub(crate) fn create_claim(storage: &dyn Storage, term: Term) -> Result<()> {
    let name = name(term);
    let made = storage.create(&name).and_then(|claim| claim.finish());
    match made {
        Err(e) if e.kind() == ErrorKind::AlreadyExists => Err(e),
        // A call that failed may have made it nevertheless.
        Err(_) if storage.len(&name).is_ok() => Ok(()),
        made => made.inspect_err(|_| {
            // Frees the name for a retry.
            let _ = storage.delete(&name);
        }),
    }
}

/// Files of terms that a manager can have.
fn files(storage: &dyn Storage) -> Result<impl Iterator<Item = FileId> + use<>> {
    let files = list_files(storage)?.map(|(file, _)| file);
    Ok(files.filter(|file| file.term.can_be_given()))
}

fn claims(storage: &dyn Storage) -> Result<impl Iterator<Item = Term> + use<>> {
    let claims = files(storage)?.filter(|file| file.is_claim());
    Ok(claims.map(|file| file.term))
}
