//! How a driver gives terms, and the markers that tell applications apart.
#![allow(clippy::unwrap_used)]

use std::collections::HashSet;

use crate::common::faulty;
use holdfast_core::storage::Storage;
use holdfast_core::terms::{Facts, NewestTerms, Step, mark, newest_terms, next_step};
use holdfast_core::{ErrorKind, FileId, Term};
use holdfast_sim::{FaultyStorage, Operation};

const FACTS: Facts = Facts {
    older: Some(Term(7)),
    marker: Term(9),
    runs: true,
    newest: Term(9),
    held: Term(0),
    clock: Term(3),
};

fn create(storage: &FaultyStorage, term: u64, seq: u32) {
    let term = Term(term);
    let name = FileId { term, seq }.file_name();
    storage.create(&name).unwrap().finish().unwrap();
}

fn terms(storage: &FaultyStorage) -> Vec<u64> {
    let files = storage.list().unwrap();
    let ids = files.iter().filter_map(|file| FileId::parse(&file.name));
    ids.map(|id| id.term.0).collect()
}

#[test]
fn a_run_looks_then_marks_and_then_gives_terms() {
    let mut facts = Facts {
        older: None,
        marker: Term(0),
        ..FACTS
    };
    assert_eq!(next_step(&facts), Step::Look);
    facts.older = Some(Term(7));
    assert_eq!(next_step(&facts), Step::Mark(Term(10)));
    (facts.marker, facts.newest) = (Term(10), Term(10));
    assert_eq!(next_step(&facts), Step::Give(Term(11)));
    facts.clock = Term(50);
    assert_eq!(next_step(&facts), Step::Give(Term(50)));
}

#[test]
fn a_manager_keeps_its_term_unless_another_application_has_a_newer_one() {
    for (held, step) in [
        (9, Step::Keep),
        (8, Step::Keep),
        (7, Step::Give(Term(10))),
        (0, Step::Give(Term(10))),
    ] {
        let held = Term(held);
        assert_eq!(next_step(&Facts { held, ..FACTS }), step);
    }
}

#[test]
fn an_application_that_was_overtaken_marks_again_in_its_next_run() {
    let facts = Facts {
        older: Some(Term(9)),
        marker: Term(8),
        held: Term(8),
        ..FACTS
    };
    assert_eq!(next_step(&facts), Step::Mark(Term(10)));
}

#[test]
fn a_reader_gets_a_term_without_a_marker() {
    let facts = Facts {
        marker: Term(0),
        runs: false,
        ..FACTS
    };
    assert_eq!(next_step(&facts), Step::Give(Term(10)));
}

#[test]
fn a_marker_replaces_older_ones_and_no_newer_one() {
    let (_dir, storage) = faulty();
    for term in [3, 5, 9] {
        create(&storage, term, 0);
    }
    mark(storage.as_ref(), Term(7)).unwrap();
    assert_eq!(terms(&storage), [7, 9]);
    let taken = mark(storage.as_ref(), Term(9)).unwrap_err();
    assert_eq!(taken.kind(), ErrorKind::AlreadyExists);
}

#[test]
fn a_marker_that_cannot_be_made_removes_none() {
    let (_dir, storage) = faulty();
    create(&storage, 3, 0);
    storage.fail_nth(Operation::Create, 1);
    assert!(mark(storage.as_ref(), Term(7)).is_err());
    assert_eq!(terms(&storage), [3]);
}

#[test]
fn the_newest_terms_of_others_and_of_this_application_are_told_apart() {
    let (_dir, storage) = faulty();
    for (term, seq) in [(4, 1), (6, 0), (5, 2), (Term::END.0, 1)] {
        create(&storage, term, seq);
    }
    let found = |own: &[u64]| {
        let own: HashSet<Term> = own.iter().map(|term| Term(*term)).collect();
        let NewestTerms { foreign, own } = newest_terms(storage.as_ref(), &own).unwrap();
        (foreign.0, own.0)
    };
    assert_eq!(found(&[]), (6, 0));
    assert_eq!(found(&[6, 99]), (5, 6));
    assert_eq!(found(&[4, 5, 6]), (0, 6));
}
