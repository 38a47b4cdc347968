//! Metadata files on storage that loses what was not synced, and on object stores.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeMap;
use std::sync::Arc;

use holdfast_core::checkpoint::{CheckpointFacts, CheckpointKind, Metadata, list, read, write};
use holdfast_core::{CheckpointId, ErrorKind};
use holdfast_sim::{FaultyStorage, Operation};
use holdfast_sim::{Rng, SimStorage};

const ID: CheckpointId = CheckpointId(7);

fn metadata() -> Metadata {
    let facts = CheckpointFacts {
        id: ID,
        batch_id: 3,
        kind: CheckpointKind::Checkpoint,
        created_ms: 1,
        topology: vec![1; 1000],
        coordinators: BTreeMap::from([("source".to_owned(), vec![7; 1000])]),
        consecutive_regional: 0,
        force_global: false,
        finished_operators: Vec::new(),
        properties: BTreeMap::new(),
    };
    Metadata::new(facts, Vec::new()).unwrap()
}

#[test]
fn after_a_crash_of_the_machine_a_file_is_whole_or_absent() {
    for durable_append in [false, true] {
        let steps = [
            Operation::List,
            Operation::Create,
            Operation::Append,
            Operation::Sync,
            Operation::Rename,
        ];
        for (step, seed) in steps.into_iter().flat_map(|s| (0..20).map(move |n| (s, n))) {
            let memory = SimStorage::new(durable_append);
            let storage = FaultyStorage::new(Arc::new(memory.clone()));
            storage.fail_nth(step, 1);
            storage.fail_nth(Operation::Delete, 1);
            let written = write(&storage, &metadata());
            let renamed = step == Operation::Rename && !durable_append;
            assert_eq!(written.is_ok(), renamed, "an object store has no rename");
            memory.crash_machine(&mut Rng::new(seed));
            let expected: &[_] = if renamed { &[ID] } else { &[] };
            assert_eq!(list(&memory).unwrap(), expected);
            if !renamed {
                write(&memory, &metadata()).unwrap();
            }
            memory.crash_machine(&mut Rng::new(seed));
            assert_eq!(read(&memory, ID).unwrap(), metadata());
            let again = write(&memory, &metadata()).unwrap_err();
            assert_eq!(again.kind(), ErrorKind::AlreadyExists);
        }
    }
}
