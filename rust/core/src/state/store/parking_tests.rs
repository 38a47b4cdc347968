#![allow(clippy::unwrap_used, clippy::indexing_slicing)]
use super::*;
use crate::error::ErrorKind;
use crate::ids::Term;
use crate::segment::{SegmentWriter, WriterOptions};
use crate::state::{KeyLayout, StateStore};
use crate::storage::LocalStorage;

fn store(max_file_bytes: u64) -> (tempfile::TempDir, SharedStore) {
    let dir = tempfile::tempdir().unwrap();
    let storage = Arc::new(LocalStorage::new(dir.path()));
    let options = WriterOptions {
        max_file_bytes,
        ..WriterOptions::default()
    };
    let writer = SegmentWriter::open(storage.clone(), Term(1), options);
    let owner = Owner::new("", "0", "7", "default");
    let state = StateStore::new(
        owner,
        KeyLayout::Plain(crate::state::FamilyOptions::default()),
    );
    (
        dir,
        SharedStore::new(StoreFolder::new(storage, Some(writer)), state),
    )
}

fn parking(store: &SharedStore, piece_bytes: usize) -> Parking {
    Parking {
        piece_bytes,
        ..store.park(0, None).unwrap()
    }
}

#[test]
fn input_comes_back_in_pieces_however_it_was_handed_over() {
    let (_dir, store) = store(1 << 20);
    let input: Vec<u8> = (0..=250).collect();
    for piece_bytes in [1, 2, 100, 251, 252] {
        for chunk in [1, 3, 251] {
            let mut parking = parking(&store, piece_bytes);
            let chunks = input.chunks(chunk);
            chunks.for_each(|chunk| parking.append(chunk).unwrap());
            let id = parking.finish(250).unwrap();
            let mut found = store.pending_input(&id, 1).unwrap();
            assert_eq!((found.rows(), found.bytes().unwrap()), (250, 251));
            let mut read = Vec::new();
            for most in [1, usize::MAX].into_iter().cycle() {
                let bytes = found.read(most).unwrap();
                assert!(bytes.len() <= piece_bytes.min(most));
                if bytes.is_empty() {
                    break;
                }
                read.extend_from_slice(bytes);
            }
            assert_eq!(read, input);
        }
    }
}

#[test]
fn input_beyond_the_bound_is_refused() {
    let (_dir, store) = store(1 << 20);
    let mut parking = parking(&store, 2);
    parking.append(&[7; 2 * MAX_PIECES]).unwrap();
    let error = parking.append(b"!").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(
        error.to_string().contains("256 pieces of 2 bytes"),
        "{error}"
    );
    let id = parking.finish(0).unwrap();
    assert_eq!(store.pending_input(&id, 1).unwrap().bytes().unwrap(), 512);
}

#[test]
fn every_file_of_an_input_is_durable_or_named_by_the_id() {
    // Every segment is in a file of its own.
    let (_dir, store) = store(1);
    let mut parking = parking(&store, 1);
    parking.append(b"abc").unwrap();
    let id = parking.finish(0).unwrap();
    let writer = store.folder().writer().unwrap();
    let pieces = store.pending_input(&id, 1).unwrap().pieces;
    let last = id.pending[0].segment;
    assert_eq!(pieces.len(), 3);
    for piece in pieces.iter().filter(|piece| **piece != last) {
        assert_eq!(
            writer.durability(piece),
            crate::segment::Durability::Durable
        );
    }
}
