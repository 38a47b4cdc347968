//! The simulated storage keeps the contract of every backend.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use holdfast_core::ErrorKind;
use holdfast_core::storage::Storage;
use holdfast_sim::conformance;
use holdfast_sim::{Rng, SimStorage};

#[test]
fn simulated_storage_conforms() {
    for durable_append in [false, true] {
        conformance::run(|| Arc::new(SimStorage::new(durable_append)));
    }
}

#[test]
fn a_dead_process_keeps_bytes_and_loses_handles() {
    let storage = SimStorage::new(true);
    let mut file = storage.create("a").unwrap();
    file.append(b"123").unwrap();
    storage.kill_process();
    assert_eq!(storage.read("a", 0, 3).unwrap(), b"123");
    assert_eq!(file.append(b"4").unwrap_err().kind(), ErrorKind::Storage);
}

#[test]
fn a_crash_keeps_what_was_synced() {
    let mut lost = false;
    for seed in 0..20 {
        let storage = SimStorage::new(true);
        let mut file = storage.create("a").unwrap();
        file.append(b"123").unwrap();
        file.sync().unwrap();
        file.append(b"456").unwrap();
        storage.crash_machine(&mut Rng::new(seed));
        let len = storage.len("a").unwrap();
        assert!((3..=6).contains(&len));
        lost |= len < 6;
    }
    assert!(lost);
}

#[test]
fn an_unfinished_object_is_lost_without_durable_appends() {
    let storage = SimStorage::new(false);
    let mut file = storage.create("a").unwrap();
    file.append(b"123").unwrap();
    assert_eq!(
        storage.read("a", 0, 1).unwrap_err().kind(),
        ErrorKind::NotFound
    );
    storage.kill_process();
    assert!(storage.list().unwrap().is_empty());
    storage.create("a").unwrap();
}
