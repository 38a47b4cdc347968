//! Files of an object store that are made from copies of what their writer appended.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use std::sync::Arc;

use crate::common::{append, owner, payload};
use holdfast_core::format::{read_index, read_segment};
use holdfast_core::segment::{SegmentWriter, WriterOptions, create_from_copies};
use holdfast_core::storage::Storage;
use holdfast_core::{ErrorKind, FileId, Term};
use holdfast_sim::SimStorage;

fn writer(storage: &SimStorage) -> SegmentWriter {
    let options = WriterOptions {
        copies: true,
        ..WriterOptions::default()
    };
    SegmentWriter::open(Arc::new(storage.clone()), Term(7), options)
}

/// The only file that has bytes without a copy, taken in pieces.
fn uncopied(writer: &SegmentWriter) -> (FileId, Vec<u8>) {
    const MAX: usize = 1000;
    let mut found: Option<(FileId, Vec<u8>)> = None;
    loop {
        let mut taken = writer.take_uncopied(MAX);
        let Some((file, bytes)) = taken.pop() else {
            return found.unwrap();
        };
        assert!(taken.is_empty() && bytes.len() <= MAX);
        let (known, all) = found.get_or_insert((file, Vec::new()));
        assert_eq!(*known, file);
        all.extend(bytes);
    }
}

#[test]
fn a_file_made_from_copies_has_its_segments_where_their_references_say() {
    let storage = SimStorage::new(false);
    let writer = writer(&storage);
    let first = append(&writer, &owner("a"), 1, &payload(1, 5000)).unwrap();
    let (file, mut copied) = uncopied(&writer);
    let second = append(&writer, &owner("b"), 1, &payload(2, 3000)).unwrap();
    copied.extend(uncopied(&writer).1);
    assert!(writer.take_uncopied(1).is_empty());
    assert_eq!(copied.len() as u64, second.end());

    storage.kill_process();
    assert_eq!(
        read_index(&storage, file).unwrap_err().kind(),
        ErrorKind::NotFound
    );
    create_from_copies(&storage, file, copied).unwrap();
    for (reference, region, bytes) in [
        (first, "a", payload(1, 5000)),
        (second, "b", payload(2, 3000)),
    ] {
        let segment = read_segment(&storage, &reference, &owner(region)).unwrap();
        assert_eq!(segment.payload, bytes);
    }
    let index = read_index(&storage, file).unwrap();
    assert!(index.sealed);
    let indexed: Vec<_> = index.segments.iter().map(|entry| entry.reference).collect();
    assert_eq!(indexed, [first, second]);
}

#[test]
fn a_writer_that_lives_finishes_the_same_bytes_and_its_file_stays() {
    let (ended, alive) = (SimStorage::new(false), SimStorage::new(false));
    let mut files = Vec::new();
    for storage in [&ended, &alive] {
        let writer = writer(storage);
        append(&writer, &owner("a"), 1, &payload(1, 5000)).unwrap();
        let (file, copied) = uncopied(&writer);
        if files.is_empty() {
            storage.kill_process();
            create_from_copies(storage, file, copied).unwrap();
        } else {
            writer.seal().unwrap();
            assert!(writer.take_uncopied(1).is_empty());
            let error = create_from_copies(storage, file, copied).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::AlreadyExists);
        }
        let name = file.file_name();
        let bytes = storage.len(&name).unwrap();
        files.push(storage.read(&name, 0, bytes).unwrap());
    }
    assert_eq!(files[0], files[1]);
}

#[test]
fn copies_that_end_within_a_segment_make_no_file() {
    let storage = SimStorage::new(false);
    let writer = writer(&storage);
    append(&writer, &owner("a"), 1, &payload(1, 5000)).unwrap();
    let (file, mut copied) = uncopied(&writer);
    storage.kill_process();
    copied.pop();
    let error = create_from_copies(&storage, file, copied).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(read_index(&storage, file).is_err());
}

#[test]
fn nothing_is_copied_where_appended_bytes_survive_their_writer() {
    let storage = SimStorage::new(true);
    let writer = writer(&storage);
    append(&writer, &owner("a"), 1, &payload(1, 5000)).unwrap();
    assert!(writer.take_uncopied(1).is_empty());
}
