//! A store whose merges make delta runs: every version that is retained loads, whatever was reclaimed,
//! and what is written and kept follows what changes.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::Arc;

use crate::common::{content, faulty, options, plain};
use holdfast_core::format::{Compression, SegmentKind, read_head};
use holdfast_core::liveness::Floors;
use holdfast_core::reclaim::{IndexCache, reclaim};
use holdfast_core::segment::SegmentWriter;
use holdfast_core::state::{
    CommitId, DeltaMarks, FIRST_FAMILY, MemoryBudget, StateStore, VersionId,
};
use holdfast_core::storage::Storage;
use holdfast_core::{CheckpointId, FileId, Owner, Term};
use holdfast_sim::FaultyStorage;
use proptest::prelude::*;

type Content = BTreeMap<String, String>;

struct World {
    storage: Arc<FaultyStorage>,
    writer: SegmentWriter,
    budget: Arc<MemoryBudget>,
    _dir: tempfile::TempDir,
}

/// Files are full after 8 KiB. `evicts` says that keys leave memory as soon as runs have them.
fn world(evicts: bool) -> World {
    let (dir, storage) = faulty();
    let writer = SegmentWriter::open(
        storage.clone(),
        Term(1),
        options(8 << 10, Compression::None),
    );
    let budget = Arc::new(MemoryBudget::unlimited());
    budget.set_target_bytes(evicts.then_some(0));
    World {
        storage,
        writer,
        budget,
        _dir: dir,
    }
}

fn owner() -> Owner {
    Owner::new("", "0", "7", "default")
}

impl World {
    fn store(&self) -> StateStore {
        StateStore::within(owner(), plain(), Arc::clone(&self.budget))
    }

    fn load(&self, id: &CommitId) -> StateStore {
        let mut store = self.store();
        store
            .open(self.storage.as_ref(), id.version, Some(id))
            .unwrap();
        assert_eq!(store.take_warning(), None, "nothing is damaged");
        store
    }

    /// The store with 400 keys in a base image, and these keys.
    fn filled(&self) -> (StateStore, Content) {
        let mut store = self.store();
        store.open(self.storage.as_ref(), 0, None).unwrap();
        let all: Content = (0..400).map(|n| (key(n), "x".repeat(50))).collect();
        let puts: Vec<_> = all.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        self.commit(&mut store, &puts, &[]);
        self.writer.seal().unwrap();
        self.merge(&mut store, &self.files()).unwrap();
        (store, all)
    }

    fn commit(&self, store: &mut StateStore, puts: &[(&str, &str)], removals: &[&str]) -> CommitId {
        store.mend(&self.writer).unwrap();
        store.begin().unwrap();
        for (key, value) in puts {
            store
                .put(FIRST_FAMILY, key.as_bytes(), value.as_bytes())
                .unwrap();
        }
        for key in removals {
            store.remove(FIRST_FAMILY, key.as_bytes()).unwrap();
        }
        let id = store.commit(&self.writer).unwrap();
        self.writer.sync().unwrap();
        id
    }

    fn files(&self) -> HashSet<FileId> {
        let listed = self.storage.list().unwrap().into_iter();
        listed.filter_map(|o| FileId::parse(&o.name)).collect()
    }

    /// Merges what is due; says whether that made a base image.
    fn merge(&self, store: &mut StateStore, wasteful: &HashSet<FileId>) -> Option<bool> {
        let task = store.merge_task(&self.writer, 1, wasteful)?;
        let is_base = task.makes_base_image();
        store.accept(task.run(self.storage.as_ref(), &self.writer).unwrap());
        self.writer.sync().unwrap();
        Some(is_base)
    }

    /// Deletes files that are not needed from `oldest` on. Returns the bytes of the closed files that are
    /// left, and how many of these bytes are needed.
    fn reclaim(&self, oldest: &CommitId) -> (u64, u64, HashSet<FileId>) {
        let mut floors = Floors::default();
        floors.add(oldest.owner, oldest.floor, oldest.deltas);
        let mut indexes = IndexCache::default();
        let (storage, term) = (self.storage.as_ref(), Term(1));
        let report = reclaim(storage, &mut indexes, &floors, &|_| true, term).unwrap();
        let space = report.space;
        let wasteful = space.wasteful.into_iter().collect();
        (space.physical_bytes, space.needed_bytes, wasteful)
    }

    fn lineage(&self, id: &CommitId) -> Vec<SegmentKind> {
        let newest = id.segment.unwrap();
        let head = |segment| read_head(self.storage.as_ref(), segment, &owner()).unwrap();
        let lineage = head(&newest).lineage;
        lineage
            .iter()
            .chain([&newest])
            .map(|s| head(s).kind)
            .collect()
    }
}

fn key(number: u32) -> String {
    format!("key-{number:04}")
}

#[test]
fn what_changes_becomes_delta_runs_that_double_and_then_a_base_image() {
    for evicts in [false, true] {
        let world = world(evicts);
        let (mut store, mut all) = world.filled();
        let mut shapes = Vec::new();
        let mut bases = 0;
        for batch in 0..400 {
            let (changed, gone) = (key(batch * 7 % 400), key(batch * 11 % 400));
            let value = format!("{batch:050}");
            let id = world.commit(&mut store, &[(&changed, &value)], &[&gone]);
            all.insert(changed, value);
            all.remove(&gone);
            bases += u32::from(world.merge(&mut store, &HashSet::new()) == Some(true));
            if batch % 25 == 0 {
                assert_eq!(content(&mut world.load(&id)), all);
                assert_eq!(world.load(&id).families().keys(), all.len() as u64);
            }
            assert_eq!(store.families().keys(), all.len() as u64);
            let lineage = world.lineage(&id);
            let runs = lineage
                .iter()
                .take_while(|k| **k == SegmentKind::Run)
                .count();
            assert!(lineage[runs..].iter().all(|k| *k == SegmentKind::Changelog));
            assert_eq!(id.deltas.len(), runs - 1);
            shapes.push(runs - 1);
        }
        assert!(shapes.iter().any(|deltas| *deltas > 1), "{shapes:?}");
        assert!((1..20).contains(&bases), "{bases} base images");
        assert_eq!(content(&mut store), all);
    }
}

#[test]
fn a_store_that_rests_on_a_delta_run_names_it() {
    let world = world(false);
    let (mut store, mut all) = world.filled();
    for batch in 0..4 {
        world.commit(&mut store, &[("new", &batch.to_string())], &["key-0001"]);
    }
    assert_eq!(world.merge(&mut store, &HashSet::new()), Some(false));
    let idle = world.commit(&mut store, &[], &[]);
    let shape = [SegmentKind::Run, SegmentKind::Run, SegmentKind::Changelog];
    assert_eq!(world.lineage(&idle), shape);
    assert_eq!(idle.deltas.len(), 1);
    assert_eq!((store.merged_runs(), store.unmerged()), (2, 1));
    let longer = world.commit(&mut store, &[], &[]);
    assert_eq!(longer.segment, idle.segment, "one changelog names the run");
    let idle = longer;
    assert_eq!(idle.to_string().parse::<VersionId>().unwrap(), idle.into());
    all.insert("new".into(), "3".into());
    all.remove("key-0001");
    assert_eq!(content(&mut world.load(&idle)), all);
    // A store that was loaded from it continues with the same runs.
    let before = store.stored_bytes();
    assert!(before > 0);
    let mut store = world.load(&idle);
    assert_eq!(store.stored_bytes(), before);
    let next = world.commit(&mut store, &[("new", "4")], &[]);
    assert_eq!((store.merged_runs(), store.unmerged()), (2, 2));
    assert_eq!(next.deltas, idle.deltas);
    assert_eq!(next.floor, idle.floor);
}

#[test]
fn a_store_leaves_a_wasteful_file_with_what_lies_in_it_and_above() {
    let world = world(false);
    let (mut store, _) = world.filled();
    for batch in 0..4 {
        world.commit(&mut store, &[("new", &batch.to_string())], &[]);
    }
    world.merge(&mut store, &HashSet::new());
    let base = world.files();
    let id = world.commit(&mut store, &[("other", "1")], &[]);
    let delta = read_head(world.storage.as_ref(), &id.segment.unwrap(), &owner()).unwrap();
    let delta = HashSet::from([delta.lineage[1].file]);
    assert_eq!(
        world.merge(&mut store, &delta),
        Some(false),
        "the base image stays"
    );
    let next = world.commit(&mut store, &[("other", "2")], &[]);
    assert_eq!((next.floor, next.deltas.len()), (id.floor, 1));
    assert!(next.deltas.newest() > id.deltas.newest());
    assert_eq!(world.merge(&mut store, &base), Some(true), "everything");
    let next = world.commit(&mut store, &[("other", "3")], &[]);
    assert_eq!(next.deltas, DeltaMarks::NONE);
    assert!(next.floor > id.floor);
}

#[derive(Clone, Debug)]
enum Step {
    Batch(Vec<(u32, Option<u8>)>),
    /// A batch whose changes are lost with its executor; another one continues.
    Lost(Vec<(u32, Option<u8>)>),
    Merge,
    /// A merge that is taken over after the next batch.
    MergeLate,
    Rest,
    Reclaim,
    /// Continues in another process.
    Load,
}

fn step() -> impl Strategy<Value = Step> {
    let changes = prop::collection::vec((0u32..420, prop::option::of(any::<u8>())), 0..8);
    prop_oneof![
        12 => changes.clone().prop_map(Step::Batch),
        1 => changes.prop_map(Step::Lost),
        5 => Just(Step::Merge),
        2 => Just(Step::MergeLate),
        1 => Just(Step::Rest),
        3 => Just(Step::Reclaim),
        2 => Just(Step::Load),
    ]
}

/// One history. After each reclaim every retained version loads and is what it was.
fn play(steps: &[Step], retained: usize, evicts: bool) {
    let world = world(evicts);
    let (mut store, mut all) = world.filled();
    let first = world.commit(&mut store, &[], &[]);
    let mut versions = VecDeque::from([(first, all.clone())]);
    let mut wasteful = HashSet::new();
    let mut late = None;
    let change = |store: &mut StateStore, changes: &[(u32, Option<u8>)], all: &mut Content| {
        let texts = changes
            .iter()
            .map(|(n, v)| (key(*n), v.map(|v| v.to_string())));
        store.mend(&world.writer).unwrap();
        store.begin().unwrap();
        for (key, value) in texts {
            match value {
                Some(value) => {
                    store
                        .put(FIRST_FAMILY, key.as_bytes(), value.as_bytes())
                        .unwrap();
                    all.insert(key, value);
                }
                None => {
                    let there = all.remove(&key).is_some();
                    assert_eq!(store.remove(FIRST_FAMILY, key.as_bytes()).unwrap(), there);
                }
            }
        }
        let id = store.commit(&world.writer).unwrap();
        world.writer.sync().unwrap();
        id
    };
    for step in steps {
        let newest = versions.back().unwrap().0;
        match step {
            Step::Batch(changes) => {
                let id = change(&mut store, changes, &mut all);
                assert_eq!(store.families().keys(), all.len() as u64);
                versions.push_back((id, all.clone()));
                while versions.len() > retained {
                    versions.pop_front();
                }
                if let Some(run) = late.take() {
                    store.accept(run);
                }
            }
            Step::Lost(changes) => {
                change(&mut store, changes, &mut all.clone());
                store = world.load(&newest);
            }
            Step::Merge => {
                world.merge(&mut store, &wasteful);
            }
            Step::MergeLate => {
                if let Some(task) = store.merge_task(&world.writer, 1, &wasteful) {
                    late = Some(task.run(world.storage.as_ref(), &world.writer).unwrap());
                    world.writer.sync().unwrap();
                }
            }
            Step::Rest => {
                for _ in 0..2 {
                    store.rest(&world.writer).unwrap();
                }
            }
            Step::Load => store = world.load(&newest),
            Step::Reclaim => {
                wasteful = world.reclaim(&versions[0].0).2;
                for (id, expected) in &versions {
                    let mut loaded = world.load(id);
                    assert_eq!(loaded.families().keys(), expected.len() as u64);
                    assert_eq!(&content(&mut loaded), expected);
                }
            }
        }
    }
    assert_eq!(content(&mut store), all);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    #[test]
    fn retained_versions_load_whatever_was_reclaimed(
        steps in prop::collection::vec(step(), 1..150), retained in 1usize..12, evicts in any::<bool>()
    ) {
        play(&steps, retained, evicts);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10_000))]
    /// `cargo test -p holdfast-core --test all state_delta_runs -- --ignored` takes minutes.
    #[test]
    #[ignore = "10,000 histories"]
    fn retained_versions_load_whatever_was_reclaimed_in_many_histories(
        steps in prop::collection::vec(step(), 1..150), retained in 1usize..12, evicts in any::<bool>()
    ) {
        play(&steps, retained, evicts);
    }
}

#[test]
fn what_delta_runs_stand_for_is_reclaimed() {
    let world = world(false);
    let (mut store, _) = world.filled();
    let mut ids = VecDeque::new();
    let mut most = 0.0f64;
    for batch in 0..600u32 {
        let (changed, value) = (key(batch * 7 % 400), batch.to_string());
        ids.push_back(world.commit(&mut store, &[(&changed, &value)], &[]));
        if ids.len() > 5 {
            ids.pop_front();
        }
        let (physical, needed, wasteful) = world.reclaim(&ids[0]);
        world.merge(&mut store, &wasteful);
        if batch > 50 {
            most = most.max(physical as f64 / needed as f64);
        }
        for id in &ids {
            world.load(id);
        }
    }
    // Bytes between a reclaim and the merge that empties a file add to the factor 2.
    assert!(most < 3.0, "{most} times what is needed");
    let oldest = ids[0];
    assert!(
        oldest.floor < CheckpointId(oldest.version - 30),
        "{oldest:?}"
    );
    assert!(!oldest.deltas.is_empty());
}

#[test]
fn changelogs_that_no_maintenance_merges_are_counted_and_bounded_by_a_commit_that_writes_all() {
    for evicts in [false, true] {
        let world = world(evicts);
        let (mut store, mut all) = world.filled();
        let mut wrote_all = Vec::new();
        for number in 0..600u32 {
            let (key, value) = (key(number % 400), format!("value {number}"));
            let before = world.writer.stats().segments;
            let id = world.commit(&mut store, &[(&key, &value)], &[]);
            all.insert(key, value);
            if world.writer.stats().segments - before > 1 {
                wrote_all.push(id.version);
                assert_eq!(store.unmerged(), 0, "the next commit builds on the image");
            }
            assert!(store.unmerged() < 256, "{}", store.unmerged());
            let newest = id.segment.unwrap();
            let head = read_head(world.storage.as_ref(), &newest, &owner()).unwrap();
            assert!(head.lineage.len() <= 256, "{} segments", head.lineage.len());
            if number % 100 == 99 {
                assert_eq!(content(&mut world.load(&id)), all);
            }
        }
        assert_eq!(wrote_all, [257, 513]);
    }
}
