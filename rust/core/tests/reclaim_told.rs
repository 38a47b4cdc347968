//! Clean-ups of an object store, where executors tell the driver of the files that they finish.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use std::sync::Arc;

use crate::common::{append, owner};
use holdfast_core::format::{FileIndex, IndexEntry, SegmentKind};
use holdfast_core::liveness::Floors;
use holdfast_core::reclaim::{
    IndexCache, KnownTerms, ReclaimReport, catalog_name, encode_finished, read_catalogs,
    reclaim_told, write_catalog,
};
use holdfast_core::segment::{SegmentWriter, WriterOptions};
use holdfast_core::state::DeltaMarks;
use holdfast_core::storage::Storage;
use holdfast_core::{CheckpointId, ErrorKind, FileId, Owner, SegmentRef, Term};
use holdfast_sim::{FaultyStorage, Operation, SimStorage};

/// Executors with the terms from 1 on, and their driver.
struct Query {
    storage: Arc<FaultyStorage>,
    executors: Vec<SegmentWriter>,
    indexes: IndexCache,
}

impl Query {
    fn new(executors: u64) -> Self {
        let storage = Arc::new(FaultyStorage::new(Arc::new(SimStorage::new(false))));
        let options = WriterOptions {
            tells: true,
            ..WriterOptions::default()
        };
        let open = |term| SegmentWriter::open(storage.clone(), Term(term), options.clone());
        Self {
            executors: (1..=executors).map(open).collect(),
            indexes: IndexCache::default(),
            storage,
        }
    }

    /// Every executor writes a file, and tells of it.
    fn batch(&mut self, batch: u64) {
        for told in self.write(batch) {
            self.indexes.learn_told("memory", &told).unwrap();
        }
    }

    fn write(&self, batch: u64) -> Vec<Vec<u8>> {
        let write = |(place, executor): (usize, &SegmentWriter)| {
            let region = place.to_string();
            append(executor, &owner(&region), batch, b"state").unwrap();
            executor.seal().unwrap();
            encode_finished(executor.take_finished()).unwrap()
        };
        self.executors.iter().enumerate().map(write).collect()
    }

    /// A clean-up that takes state before this batch for dead.
    fn clean(&mut self, floor: u64, lists: bool) -> ReclaimReport {
        let mut floors = Floors::default();
        for place in 0..self.executors.len() {
            let tag = owner(&place.to_string()).tag();
            floors.add(tag, CheckpointId(floor), DeltaMarks::NONE);
        }
        let last = self.executors.len() as u64;
        let terms = lists.then(|| KnownTerms::from(Term(999)));
        let live = |term: Term| term.0 <= last;
        let storage = self.storage.as_ref();
        reclaim_told(storage, &mut self.indexes, &floors, &live, terms).unwrap()
    }

    fn calls(&self, operation: Operation) -> u64 {
        self.storage.calls(operation)
    }

    fn files(&self) -> usize {
        self.storage.list().unwrap().len()
    }
}

#[test]
fn a_clean_up_reads_no_file_that_it_was_told_of_and_lists_now_and_then() {
    let mut query = Query::new(100);
    let mut deleted = 0;
    for pass in 0..9 {
        for batch in 1..=3 {
            query.batch(3 * pass + batch);
        }
        let report = query.clean(3 * pass, pass % 8 == 0);
        assert!(report.failed.is_empty() && report.unreadable.is_empty());
        deleted += report.deleted.len();
    }
    assert_eq!(query.calls(Operation::List), 2);
    assert_eq!(
        query.calls(Operation::Open) + query.calls(Operation::Read),
        0
    );
    assert_eq!(deleted, 2300, "all but four of 27 batches");
    assert_eq!(query.files(), 400);
}

#[test]
fn a_file_of_which_nobody_told_is_found_by_a_list_and_read_once() {
    let mut query = Query::new(1);
    drop(query.write(1));
    assert!(query.clean(9, false).deleted.is_empty());
    // Its executor may be about to tell.
    assert_eq!(query.clean(9, true).kept.len(), 1);
    assert_eq!(query.calls(Operation::Open), 0);
    assert_eq!(query.clean(9, true).deleted.len(), 1);
    assert_eq!(query.calls(Operation::Open), 1);
}

#[test]
fn a_file_of_another_length_than_was_told_is_read() {
    let mut query = Query::new(1);
    let told = query.write(1).remove(0);
    query.indexes.learn_told("memory", &told).unwrap();
    let file = FileId {
        term: Term(1),
        seq: 1,
    };
    query.storage.delete(&file.file_name()).unwrap();
    let mut other = query.storage.create(&file.file_name()).unwrap();
    other.append(b"other bytes").unwrap();
    other.finish().unwrap();
    query.clean(9, true);
    assert_eq!(query.clean(9, true).kept, [file]);
    assert!(query.calls(Operation::Open) > 0);
}

#[test]
fn a_told_index_says_what_the_file_says() {
    let query = Query::new(3);
    let mut told = IndexCache::default();
    for finished in query.write(1) {
        told.learn_told("memory", &finished).unwrap();
    }
    let mut read = IndexCache::default();
    let (storage, floors) = (query.storage.as_ref(), Floors::default());
    let terms = || Some(KnownTerms::from(Term(3)));
    reclaim_told(storage, &mut read, &floors, &|_| false, terms()).unwrap();
    assert_eq!(read.files(), 3);
    let catalogs = [&told, &read].map(|indexes| {
        let mut again = IndexCache::default();
        again
            .learn_told("memory", &indexes.catalog("memory").unwrap())
            .unwrap();
        (again.files(), again.bytes())
    });
    assert_eq!(catalogs[0], catalogs[1]);
    assert_eq!(catalogs[0], (told.files(), told.bytes()));
}

#[test]
fn every_damage_of_told_facts_is_noticed() {
    let query = Query::new(1);
    let told = query.write(1).remove(0);
    for at in 0..told.len() {
        let mut flipped = told.clone();
        flipped[at] ^= 1;
        for damaged in [&flipped[..], &told[..at]] {
            let mut indexes = IndexCache::default();
            let learned = indexes.learn_told("memory", damaged);
            assert!(learned.is_err() || damaged.is_empty());
            assert_eq!(indexes.files(), 0);
        }
    }
}

#[test]
fn files_of_another_application_end_a_clean_up_that_lists() {
    let mut query = Query::new(2);
    query.batch(1);
    let (storage, floors) = (query.storage.clone(), Floors::default());
    let mut pass = |terms| {
        let storage = storage.as_ref();
        reclaim_told(storage, &mut query.indexes, &floors, &|_| false, terms)
    };
    let error = pass(Some(KnownTerms::from(Term(1)))).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Fenced);
    assert_eq!(pass(None).unwrap().kept.len(), 2);
}

/// The files of a batch of 1,000 executors, each of which writes 10 of 10,000 partitions.
fn finished(batch: u32) -> Vec<FileIndex> {
    let file = |executor: u32| {
        let file = FileId {
            term: Term(u64::from(executor)),
            seq: batch,
        };
        let entry = |place: u32| IndexEntry {
            reference: SegmentRef {
                file,
                offset: u64::from(place) * 50_000,
                len: 50_000,
                digest: 0,
            },
            owner: Owner::new("", "0", &(10 * executor + place).to_string(), "default"),
            created: CheckpointId(u64::from(batch)),
            kind: SegmentKind::Changelog,
        };
        FileIndex {
            file,
            sealed: true,
            file_bytes: 500_400,
            segments: (0..10).map(entry).collect(),
            torn_bytes: 0,
            damaged_bytes: 0,
        }
    };
    (0..1_000).map(file).collect()
}

#[test]
fn the_files_of_a_thousand_executors_fit_into_the_cache() {
    let mut indexes = IndexCache::default();
    for batch in 1..=130 {
        let told = encode_finished(finished(batch)).unwrap();
        indexes.learn_told("memory", &told).unwrap();
    }
    assert_eq!(indexes.files(), 130_000);
    assert!(indexes.bytes() < 80 << 20, "{}", indexes.bytes());
    let catalog = indexes.catalog("memory").unwrap();
    assert!(catalog.len() < 16 << 20, "{}", catalog.len());
    let mut again = IndexCache::default();
    again.learn_told("memory", &catalog).unwrap();
    assert_eq!(
        (again.files(), again.bytes()),
        (indexes.files(), indexes.bytes())
    );
    println!(
        "{} bytes in memory, {} in a catalog",
        again.bytes(),
        catalog.len()
    );
}

#[test]
fn a_driver_that_starts_reads_catalogs_instead_of_files() {
    let mut query = Query::new(40);
    let beside = Arc::new(FaultyStorage::new(Arc::new(SimStorage::new(false))));
    let mut names = Vec::new();
    for batch in 1..=3 {
        let told = query.write(batch).concat();
        let name = catalog_name(40, batch);
        write_catalog(beside.as_ref(), &name, &told, &[]).unwrap();
        names.push(name);
    }
    let found = read_catalogs(beside.as_ref(), "memory", &mut query.indexes).unwrap();
    assert_eq!(found, names);
    assert_eq!(query.indexes.files(), 120);
    // One has all of it, and replaces the others.
    let all = query.indexes.catalog("memory").unwrap();
    let name = catalog_name(41, 1);
    write_catalog(beside.as_ref(), &name, &all, &names).unwrap();
    query.indexes = IndexCache::default();
    let before = beside.calls(Operation::Read);
    let found = read_catalogs(beside.as_ref(), "memory", &mut query.indexes).unwrap();
    assert_eq!(found, [name]);
    assert_eq!(beside.calls(Operation::Read) - before, 1);
    assert_eq!(query.clean(3, false).deleted.len(), 80);
    assert_eq!(
        query.calls(Operation::Open) + query.calls(Operation::List),
        0
    );
}

#[test]
fn a_damaged_catalog_costs_the_reads_of_its_files_and_nothing_else() {
    let mut query = Query::new(2);
    let beside = SimStorage::new(false);
    let mut told = query.write(1);
    let half = told[1].len() / 2;
    told[1].truncate(half);
    write_catalog(&beside, &catalog_name(2, 1), &told.concat(), &[]).unwrap();
    write_catalog(&beside, &catalog_name(2, 2), b"no catalog", &[]).unwrap();
    let found = read_catalogs(&beside, "memory", &mut query.indexes).unwrap();
    assert_eq!((found.len(), query.indexes.files()), (2, 1));
    query.executors.pop();
    let report = query.clean(0, true);
    assert_eq!((report.kept.len(), query.indexes.files()), (2, 2));
    assert_eq!(query.calls(Operation::Open), 1);
}
