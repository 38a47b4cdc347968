//! How the driver gives terms to the managers of executors. [`next_step`] is pure, as in
//! [`commits`](crate::commits): the driver carries out the step, adds what it learned to the
//! [`Facts`] and asks again. The model in rust/sim/models/commits asks the same function.
//!
//! A *marker* is an empty file in a small folder of its own. Its term says which application took
//! over last, so that an application finds that out without listing all files.

use std::collections::HashSet;

use crate::error::Result;
use crate::format::list_files;
use crate::ids::Term;
use crate::manager::create_claim;
use crate::storage::Storage;

/// Knowledge about a folder in a run of a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// The newest term of another application when the run began, of a file or a marker. `None`
    /// before the look.
    pub older: Option<Term>,
    /// The newest marker of this application that is in the folder; 0 without one.
    pub marker: Term,
    /// This application runs a query here. The marker of a mere reader would stop the query of another
    /// application.
    pub runs: bool,
    /// The newest term that this application has used; 0 without one.
    pub newest: Term,
    /// The term of the open manager that asks; 0 without one.
    pub held: Term,
    /// The time. No term is given again after all of its files were deleted.
    pub clock: Term,
}

/// A step of the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// List the files and the markers.
    Look,
    /// Make a marker of this term durable.
    Mark(Term),
    /// The manager keeps its term.
    Keep,
    /// Give this term.
    Give(Term),
}

/// Returns what the driver does next for a manager that asks.
pub fn next_step(facts: &Facts) -> Step {
    let Some(older) = facts.older else {
        return Step::Look;
    };
    let newest = older.max(facts.newest);
    let above = Term(newest.0 + 1).max(facts.clock);
    if facts.runs && facts.marker <= older {
        // Other applications stop before a file of this one appears.
        return Step::Mark(above);
    }
    // Files of an older term would not stop an application of an older Holdfast.
    match facts.held > older {
        true => Step::Keep,
        false => Step::Give(above),
    }
}

/// The newest terms of the files or markers in a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewestTerms {
    /// Of other applications; 0 without any.
    pub foreign: Term,
    /// Of this application; 0 without any.
    pub own: Term,
}

/// Lists a folder. Ignores terms that no manager can have.
///
/// # Errors
/// Errors of listing.
pub fn newest_terms(storage: &dyn Storage, own: &HashSet<Term>) -> Result<NewestTerms> {
    let (mine, others): (Vec<_>, Vec<_>) = list_files(storage)?
        .map(|(file, _)| file.term)
        .filter(|term| term.can_be_given())
        .partition(|term| own.contains(term));
    let newest = |terms: Vec<Term>| terms.into_iter().max().unwrap_or(Term(0));
    Ok(NewestTerms {
        foreign: newest(others),
        own: newest(mine),
    })
}

/// Makes a marker durable in a folder of markers, and then deletes all markers of older terms.
///
/// # Errors
/// Errors of storage.
pub fn mark(markers: &dyn Storage, term: Term) -> Result<()> {
    create_claim(markers, term)?;
    let older = list_files(markers)?.filter(|(marker, _)| marker.term < term);
    let names: Vec<_> = older.map(|(marker, _)| marker.file_name()).collect();
    markers.delete_all(&names).into_iter().collect()
}
