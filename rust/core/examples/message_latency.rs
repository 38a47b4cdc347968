//! Time that a manager takes for the messages and calls of one owner, next to 100,000 live segments:
//! `cargo run --release --example message_latency -p holdfast-core`. Medians and maxima in µs.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use std::sync::Arc;
use std::time::Instant;

use holdfast_core::format::{NewSegment, SegmentKind};
use holdfast_core::manager::{ManagerOptions, Retained, SnapshotManager};
use holdfast_core::storage::LocalStorage;
use holdfast_core::{CheckpointId, Owner, SegmentRef};

const OWNERS: u64 = 8_000;
const SEGMENTS: u64 = 100_000;
const ROUNDS: u64 = 100;

fn append(manager: &SnapshotManager, owner: &Owner, created: u64) -> SegmentRef {
    let new = NewSegment {
        owner,
        created: CheckpointId(created),
        kind: SegmentKind::Snapshot,
        lineage: &[],
        replaced: None,
        entries: 1,
        tables: &[],
        runs: 0,
    };
    manager.append(&new, &[7; 100]).unwrap()
}

fn retained(decided: u64, ids: &[u64]) -> Retained {
    Retained {
        decided: CheckpointId(decided),
        checkpoints: ids
            .iter()
            .map(|id| (CheckpointId(*id), Default::default()))
            .collect(),
    }
}

fn timed(times: &mut Vec<f64>, work: impl FnOnce()) {
    let start = Instant::now();
    work();
    times.push(start.elapsed().as_secs_f64() * 1e6);
}

fn main() {
    let dir = tempfile::tempdir().unwrap();
    let storage = Arc::new(LocalStorage::new(dir.path()));
    let options = ManagerOptions::default();
    let manager = SnapshotManager::open_next_term(storage, options, 1).unwrap();
    for number in 0..SEGMENTS {
        let owner = Owner::new("sales", "stats", &(number % OWNERS).to_string(), "default");
        append(&manager, &owner, 1);
    }
    manager.persist(CheckpointId(1)).unwrap();
    manager
        .completed(CheckpointId(1), &retained(1, &[1]))
        .unwrap();
    let owner = Owner::new("sales", "stats", "7", "default");
    let names = ["completed", "subsumed", "persist_segments", "release"];
    let mut times: [Vec<f64>; 4] = Default::default();
    for id in 2..2 + ROUNDS {
        let kept = append(&manager, &owner, id);
        let refused = append(&manager, &owner, id);
        let attempt = CheckpointId(id);
        timed(&mut times[3], || manager.release(&owner, &[refused]));
        timed(&mut times[2], || {
            manager.persist_segments(attempt, &owner, &[kept]).unwrap();
        });
        let view = retained(id, &[1, id - 1, id]);
        timed(&mut times[0], || manager.completed(attempt, &view).unwrap());
        let gone = CheckpointId(id - 1);
        if id > 2 {
            let view = retained(id, &[1, id]);
            timed(&mut times[1], || manager.subsumed(gone, &view).unwrap());
        }
    }
    println!("{} live segments", manager.stats().live_segments);
    for (name, times) in names.iter().zip(&mut times) {
        times.sort_by(f64::total_cmp);
        println!(
            "{name}: {:.0} median, {:.0} most",
            times[times.len() / 2],
            times[times.len() - 1]
        );
    }
}
