//! Sessions that change more than memory holds: they write runs before they end, and only their
//! own commit names these.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::common::{Entries, faulty, parse, plain};
use holdfast_core::format::read_head;
use holdfast_core::liveness::Floors;
use holdfast_core::reclaim::{IndexCache, reclaim};
use holdfast_core::segment::{SegmentWriter, WriterOptions};
use holdfast_core::state::{
    ChangeKind, Changes, CommitId, FIRST_FAMILY, FamilyOfInterest, FamilyOptions, KeyLayout,
    KeyRange, MemoryBudget, ScanOf, SharedStore, StateStore, StoreFolder, read_changes,
};
use holdfast_core::{Error, ErrorKind, Owner, Term};
use holdfast_sim::{FaultyStorage, Operation};

const MIB: u64 = 1 << 20;

struct World {
    dir: tempfile::TempDir,
    storage: Arc<FaultyStorage>,
    folder: Arc<StoreFolder>,
    budget: Arc<MemoryBudget>,
}

fn world(target: u64) -> World {
    let (dir, storage) = faulty();
    let writer = SegmentWriter::open(storage.clone(), Term(1), WriterOptions::default());
    let budget = Arc::new(MemoryBudget::unlimited());
    budget.set_target_bytes(Some(target));
    World {
        dir,
        storage: storage.clone(),
        folder: StoreFolder::new(storage, Some(writer)),
        budget,
    }
}

fn owner() -> Owner {
    Owner::new("", "0", "7", "default")
}

fn key(n: u64) -> [u8; 8] {
    n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()
}

/// 96 bytes that do not compress.
fn value(n: u64) -> Vec<u8> {
    (0..12u64)
        .flat_map(|i| {
            (n ^ (i << 40))
                .wrapping_mul(0xbf58_476d_1ce4_e5b9)
                .to_le_bytes()
        })
        .collect()
}

impl World {
    fn store(&self, layout: KeyLayout) -> SharedStore {
        let state = StateStore::within(owner(), layout, Arc::clone(&self.budget));
        SharedStore::new(Arc::clone(&self.folder), state)
    }

    fn opened(&self, layout: KeyLayout, id: Option<&CommitId>) -> SharedStore {
        let store = self.store(layout);
        store.open(id.map_or(0, |id| id.version), id).unwrap();
        store
    }

    fn writer(&self) -> &SegmentWriter {
        self.folder.writer().unwrap()
    }

    /// Bytes of all files.
    fn bytes_on_disk(&self) -> u64 {
        let files = std::fs::read_dir(self.dir.path().join("root")).unwrap();
        files
            .map(|file| file.unwrap().metadata().unwrap().len())
            .sum()
    }
}

fn put(store: &SharedStore, n: u64, with: u64) -> Result<(), Error> {
    store.call(|store| store.put(FIRST_FAMILY, &key(n), &value(with)))
}

fn get(store: &SharedStore, n: u64) -> Option<Vec<u8>> {
    let found = store.call(|store| Ok(store.get(FIRST_FAMILY, &key(n))?.map(<[u8]>::to_vec)));
    found.unwrap()
}

/// All entries, by a scan that is read in small pieces.
fn scan(store: &SharedStore) -> Entries {
    let (mut out, mut entries) = (Vec::new(), Entries::new());
    let all = ScanOf::Keys(KeyRange::All);
    let mut next = store
        .call(|store| store.scan(FIRST_FAMILY, all, 4096, &mut out))
        .unwrap()
        .scan;
    while let Some(scan) = next {
        next = store
            .call(|store| store.scan_on(scan, 4096, &mut out))
            .unwrap()
            .scan;
    }
    parse(&out, &mut entries);
    entries.sort();
    entries
}

#[test]
fn a_session_that_changes_more_than_memory_holds_keeps_to_the_target() {
    static GIVEN_BACK: AtomicUsize = AtomicUsize::new(0);
    let target = 8 * MIB;
    let keys = 300_000;
    let world = world(target);
    world.budget.give_back_by(|_| {
        GIVEN_BACK.fetch_add(1, Ordering::Relaxed);
    });
    let store = world.opened(plain(), None);
    store.begin().unwrap();
    let mut most = 0;
    for n in 0..keys {
        put(&store, n, n).unwrap();
        most = most.max(world.budget.used_bytes());
    }
    // Some are changed again, or removed, long after they were written.
    for n in (0..keys).step_by(10) {
        put(&store, n, n + 1).unwrap();
        most = most.max(world.budget.used_bytes());
    }
    for n in (5..keys).step_by(10) {
        assert!(
            store
                .call(|store| store.remove(FIRST_FAMILY, &key(n)))
                .unwrap()
        );
        most = most.max(world.budget.used_bytes());
    }
    assert_eq!(store.lock().families().keys(), keys - keys / 10);
    let id = store.commit().unwrap();
    let changed = keys * 104;
    assert!(changed > 3 * target);
    assert!(GIVEN_BACK.load(Ordering::Relaxed) > 3);
    assert!(most < target + target / 4, "{most}");
    assert!(
        world.budget.used_bytes() <= target,
        "{}",
        world.budget.used_bytes()
    );
    let written = world.bytes_on_disk() as f64 / changed as f64;
    assert!(written < 2.5, "{written}");
    let reported = store.lock().stats().written_bytes;
    assert!((changed..changed * 5 / 4).contains(&reported), "{reported}");

    // Another process finds what this one has.
    let other = world.opened(plain(), Some(&id));
    assert_eq!(other.lock().families().keys(), keys - keys / 10);
    for store in [&store, &other] {
        for n in (0..keys).step_by(997) {
            let expected = match n % 10 {
                0 => Some(value(n + 1)),
                5 => None,
                _ => Some(value(n)),
            };
            assert_eq!(get(store, n), expected, "{n}");
        }
    }
    // Merges continue above such runs, and commits above the merged runs.
    world.writer().sync().unwrap();
    assert!(store.maintain(1, &HashSet::new()).unwrap().is_some());
    world.writer().sync().unwrap();
    store.begin().unwrap();
    put(&store, 3, 0).unwrap();
    let id = store.commit().unwrap();
    let other = world.opened(plain(), Some(&id));
    assert_eq!(get(&other, 3), Some(value(0)));
    assert_eq!(get(&other, 4), Some(value(4)));
}

#[test]
fn reading_more_than_memory_holds_keeps_to_the_target() {
    let target = 4 * MIB;
    let keys = 200_000;
    let world = world(target);
    let store = world.opened(plain(), None);
    store.begin().unwrap();
    (0..keys).for_each(|n| put(&store, n, n).unwrap());
    let id = store.commit().unwrap();
    let store = world.opened(plain(), Some(&id));
    store.begin().unwrap();
    let mut most = 0;
    for n in 0..keys {
        assert_eq!(get(&store, n), Some(value(n)));
        most = most.max(world.budget.used_bytes());
    }
    assert!(most < target + target / 2, "{most}");
    let before = world.bytes_on_disk();
    assert_eq!(
        store.commit().unwrap().segment.map(|s| s.file),
        id.segment.map(|s| s.file)
    );
    assert!(world.bytes_on_disk() - before < 4096, "nothing was changed");
}

#[test]
fn a_session_that_spilled_and_is_taken_back_leaves_garbage_that_reclaim_takes() {
    let world = world(2 * MIB);
    let store = world.opened(plain(), None);
    store.begin().unwrap();
    (0..1000).for_each(|n| put(&store, n, n).unwrap());
    let id = store.commit().unwrap();
    world.writer().sync().unwrap();
    store.begin().unwrap();
    for n in 0..100_000 {
        put(&store, n, n + 1).unwrap();
    }
    let spilled = world.bytes_on_disk();
    assert!(spilled > 6 * MIB, "{spilled}");
    store.lock().abort();
    store.open(1, Some(&id)).unwrap();
    assert_eq!(scan(&store).len(), 1000);
    assert_eq!(get(&store, 3), Some(value(3)));

    // The batch again, as small as now, and more. The garbage is of its version: it goes once
    // a base image is newer.
    let mut id = id;
    for n in 3..6 {
        store.begin().unwrap();
        put(&store, n, 0).unwrap();
        id = store.commit().unwrap();
        world.writer().seal().unwrap();
        let head = read_head(world.storage.as_ref(), &id.segment.unwrap(), &owner()).unwrap();
        let files = head.lineage.iter().map(|segment| segment.file);
        store.maintain(1, &files.collect()).unwrap();
        world.writer().seal().unwrap();
    }
    let mut floors = Floors::default();
    floors.add(id.owner, id.floor, id.deltas);
    reclaim(
        world.storage.as_ref(),
        &mut IndexCache::default(),
        &floors,
        &|_| true,
        Term(1),
    )
    .unwrap();
    assert!(
        world.bytes_on_disk() < spilled / 4,
        "{} of {spilled}",
        world.bytes_on_disk()
    );
    let other = world.opened(plain(), Some(&id));
    assert_eq!(scan(&other).len(), 1000);
}

#[test]
fn a_scan_goes_on_with_what_it_began_with_while_its_session_spills() {
    let world = world(64 * MIB);
    let store = world.opened(plain(), None);
    store.begin().unwrap();
    (0..2000).for_each(|n| put(&store, n, n).unwrap());
    store.lock().spill(world.writer()).unwrap();
    (0..500).for_each(|n| put(&store, n, n + 1).unwrap());
    let (mut out, mut found) = (Vec::new(), Entries::new());
    let all = ScanOf::Keys(KeyRange::All);
    let mut next = store
        .call(|store| store.scan(FIRST_FAMILY, all, 256, &mut out))
        .unwrap()
        .scan;
    let mut n = 0;
    while let Some(scan) = next {
        // Removes each key that the scan is at, like Spark's eviction by watermark.
        store
            .call(|store| store.remove(FIRST_FAMILY, &key(n)))
            .unwrap();
        put(&store, n + 5000, 0).unwrap();
        n += 1;
        if n % 50 == 0 {
            store.lock().spill(world.writer()).unwrap();
        }
        next = store
            .call(|store| store.scan_on(scan, 256, &mut out))
            .unwrap()
            .scan;
    }
    parse(&out, &mut found);
    found.sort();
    let mut expected: Entries = (0..2000)
        .map(|n| (key(n).to_vec(), value(if n < 500 { n + 1 } else { n })))
        .collect();
    expected.sort();
    assert!(n > 900);
    assert!(found == expected, "{} and {}", found.len(), expected.len());
    assert_eq!(store.lock().families().keys(), 2000);
    let id = store.commit().unwrap();
    assert_eq!(scan(&world.opened(plain(), Some(&id))).len(), 2000);
}

#[test]
fn damage_in_a_spilled_run_is_named_and_never_passed_over() {
    let world = world(64 * MIB);
    let store = world.opened(plain(), None);
    store.begin().unwrap();
    (0..100).for_each(|n| put(&store, n, n).unwrap());
    store.commit().unwrap();
    world.writer().seal().unwrap();
    store.begin().unwrap();
    for n in 0..100_000 {
        put(&store, n, n + 1).unwrap();
        if n % 30_000 == 29_999 {
            store.lock().spill(world.writer()).unwrap();
        }
    }
    let id = store.commit().unwrap();
    world.writer().seal().unwrap();
    let newest = id.segment.unwrap();
    let head = read_head(world.storage.as_ref(), &newest, &owner()).unwrap();
    assert_eq!(
        head.lineage.len(),
        4,
        "a base image and three runs of the session"
    );
    // All keys of the base image were changed, so nothing is read of it.
    for segment in head.lineage[1..].iter().chain([&newest]) {
        let path = world.dir.path().join("root").join(segment.file.file_name());
        let good = std::fs::read(&path).unwrap();
        let mut bad = good.clone();
        bad[(segment.offset + segment.len / 2) as usize] ^= 0xff;
        std::fs::write(&path, &bad).unwrap();
        let reader = world.store(plain());
        let read = reader.open(id.version, Some(&id)).and_then(|()| {
            (0..100_000).try_for_each(|n| {
                let found = reader
                    .call(|store| Ok(store.get(FIRST_FAMILY, &key(n))?.map(<[u8]>::to_vec)))?;
                assert_eq!(found, Some(value(n + 1)), "{n}");
                Ok(())
            })
        });
        std::fs::write(&path, &good).unwrap();
        let error = read.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
        let place = format!("offset {}", segment.offset);
        assert!(error.to_string().contains(&place), "{error}");
    }
    assert_eq!(get(&world.opened(plain(), Some(&id)), 7), Some(value(8)));
}

#[test]
fn a_full_disk_while_a_session_spills_leaves_the_session_as_it_was() {
    let world = world(2 * MIB);
    let store = world.opened(plain(), None);
    store.begin().unwrap();
    let mut n = 0;
    world.storage.fail_nth(Operation::Append, 1);
    let error = loop {
        if let Err(error) = put(&store, n, n) {
            break error;
        }
        n += 1;
    };
    assert_eq!(error.kind(), ErrorKind::Storage, "{error}");
    world.storage.heal();
    // The key was put, and a caller that ignores the error continues.
    (n + 1..60_000).for_each(|n| put(&store, n, n).unwrap());
    let id = store.commit().unwrap();
    let other = world.opened(plain(), Some(&id));
    assert_eq!(other.lock().families().keys(), 60_000);
    assert_eq!(get(&other, n), Some(value(n)));
}

#[test]
fn a_reader_of_changes_is_told_of_lists_that_were_removed_in_one_run_and_begun_in_another() {
    let world = world(64 * MIB);
    let store = world.opened(KeyLayout::Columns, None);
    let lists = FamilyOptions {
        several_values: true,
        ..FamilyOptions::default()
    };
    let spill = || store.lock().spill(world.writer()).unwrap();
    store.begin().unwrap();
    let family = store.lock().open_family("lists", lists).unwrap();
    store.lock().append(family, b"kept", &[b"1"]).unwrap();
    store.lock().append(family, b"back", &[b"1", b"2"]).unwrap();
    store.commit().unwrap();
    store.begin().unwrap();
    assert!(store.lock().remove(family, b"back").unwrap());
    // More runs than there is place for, so that they are merged.
    for n in 0..20u8 {
        store.lock().append(family, &[n], &[&[n]]).unwrap();
        spill();
        if n == 10 {
            store.lock().append(family, b"back", &[b"3"]).unwrap();
            store.lock().append(family, b"kept", &[b"2"]).unwrap();
        }
    }
    let id = store.commit().unwrap();
    let changes = read_changes(world.storage.as_ref(), &owner(), 2, &[id])
        .unwrap()
        .unwrap();
    let Changes::OfKeys(segments) = &changes else {
        panic!("{changes:?}");
    };
    assert!(
        segments.len() > 2 && segments.len() < 10,
        "{}",
        segments.len()
    );
    let interest = FamilyOfInterest {
        number: family,
        several_values: true,
    };
    let mut told = Vec::new();
    let tell = |kind, key: &[u8], value: &[u8]| told.push((kind, key.to_vec(), value.to_vec()));
    changes
        .for_each(KeyLayout::Columns, interest, tell)
        .unwrap();
    let of = |key: &[u8]| {
        let of_key = told.iter().filter(|(_, told, _)| told == key);
        of_key
            .map(|(kind, _, value)| (*kind, value.clone()))
            .collect::<Vec<_>>()
    };
    assert_eq!(of(b"kept"), [(ChangeKind::Append, b"2".to_vec())]);
    assert_eq!(
        of(b"back"),
        [
            (ChangeKind::Remove, vec![]),
            (ChangeKind::Append, b"3".to_vec())
        ]
    );
}

#[test]
fn a_batch_that_reads_before_its_session_keeps_to_a_limit_that_its_state_exceeds() {
    let limit = 4 * MIB;
    let world = world(u64::MAX);
    world.budget.limit(Some(limit), None);
    let mut id = None;
    for round in 0..3u64 {
        let store = world.opened(plain(), id.as_ref());
        let large = |n: u64, round: u64| (n + round).to_le_bytes().repeat(512);
        // Reads the keys of a batch, like Spark's aggregations.
        for n in 0..3000 {
            let found =
                store.call(|store| Ok(store.get(FIRST_FAMILY, &key(n))?.map(<[u8]>::to_vec)));
            assert_eq!(
                found.unwrap(),
                round.checked_sub(1).map(|before| large(n, before))
            );
        }
        store.begin().unwrap();
        for n in 0..3000 {
            store
                .call(|store| store.put(FIRST_FAMILY, &key(n), &large(n, round)))
                .unwrap();
        }
        id = Some(store.commit().unwrap());
        assert!(world.budget.used_bytes() <= limit);
    }
}
