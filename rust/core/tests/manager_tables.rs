//! Tables of a manager against a map: random histories of attempts that complete, fall back, are
//! aborted or lost, with restarts, and with regions that move to another executor.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use holdfast_core::format::read_segment;
use holdfast_core::manager::{
    EarlierManagers, Fallbacks, ManagerOptions, RestoredCheckpoint, Retained, SnapshotManager,
    TableAnswer, TableCall, TableCommit,
};
use holdfast_core::reclaim::reclaim_orphans;
use holdfast_core::rows::ABSENT;
use holdfast_core::state::{KeyRange, MemoryBudget};
use holdfast_core::storage::{LocalStorage, Storage};
use holdfast_core::{CheckpointId, ErrorKind, FileId, Owner, Term};
use holdfast_sim::SimStorage;
use proptest::prelude::*;

use crate::common::parse;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn packed(keys: &[Vec<u8>]) -> Vec<u8> {
    let with_len = |key: &Vec<u8>| [&(key.len() as u32).to_le_bytes()[..], key].concat();
    keys.iter().flat_map(with_len).collect()
}

fn entries(entries: &Model) -> Vec<u8> {
    let with_len = |(key, value): (&Vec<u8>, &Vec<u8>)| {
        let [key_len, value_len] = [key, value].map(|bytes| (bytes.len() as u32).to_le_bytes());
        [&key_len[..], &value_len, key, value].concat()
    };
    entries.iter().flat_map(with_len).collect()
}

fn content(manager: &SnapshotManager, session: u64) -> Model {
    let mut found = Vec::new();
    let (range, max_bytes) = (KeyRange::All, 256);
    let mut call = TableCall::Scan { range, max_bytes };
    loop {
        let answer = manager.table(session, &call).unwrap();
        let before = found.len() as u64;
        parse(&answer.bytes, &mut found);
        assert_eq!(found.len() as u64 - before, answer.rows);
        match answer.scan {
            Some(scan) => call = TableCall::ScanOn { scan, max_bytes },
            None => break,
        }
    }
    assert!(found.is_sorted(), "a scan is in the order of the keys");
    found.into_iter().collect()
}

fn key(number: u16) -> Vec<u8> {
    number.to_be_bytes().to_vec()
}

fn changes(keys: std::ops::Range<u16>, value: u8) -> Model {
    keys.map(|number| (key(number), vec![value; 20])).collect()
}

/// The state of one region in a checkpoint.
#[derive(Clone, Debug, Default)]
struct State {
    origin: u64,
    commit: Option<TableCommit>,
    model: Model,
}

/// One region, its checkpoints, and two executors.
struct World {
    _dir: tempfile::TempDir,
    storage: Arc<dyn Storage>,
    owner: Owner,
    budget: Arc<MemoryBudget>,
    managers: Vec<SnapshotManager>,
    terms: u64,
    /// Files of ended managers that waste too much, if a driver deletes such files.
    driver: Option<BTreeSet<FileId>>,
    retained: BTreeMap<u64, State>,
    attempt: u64,
    at: usize,
    /// See [`ManagerOptions::large_table_bytes`].
    large_table_bytes: u64,
}

impl World {
    fn new(target: Option<u64>) -> Self {
        Self::of(target, None, false)
    }

    /// Executors whose files a driver deletes when they have ended.
    fn with_driver(target: Option<u64>) -> Self {
        Self::of(target, Some(BTreeSet::new()), false)
    }

    /// With `objects`, files are there once they are finished.
    fn of(target: Option<u64>, driver: Option<BTreeSet<FileId>>, objects: bool) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let storage: Arc<dyn Storage> = match objects {
            true => Arc::new(SimStorage::new(false)),
            false => Arc::new(LocalStorage::new(dir.path().join("segments"))),
        };
        let budget = Arc::new(MemoryBudget::unlimited());
        budget.set_target_bytes(target);
        budget.set_load_bytes(0);
        let mut world = Self {
            _dir: dir,
            storage,
            owner: Owner::new("pipeline", "count", "bern", "totals"),
            budget,
            managers: Vec::new(),
            terms: 0,
            driver,
            retained: BTreeMap::new(),
            attempt: 0,
            at: 0,
            large_table_bytes: ManagerOptions::default().large_table_bytes,
        };
        world.begin_managers();
        world
    }

    fn begin_managers(&mut self) {
        self.managers.clear();
        while self.managers.len() < 2 {
            self.terms += 1;
            let earlier = self.driver.clone().map(|wasteful| EarlierManagers {
                live: self.live(),
                wasteful,
            });
            let options = ManagerOptions {
                background: false,
                tables: Arc::clone(&self.budget),
                large_table_bytes: self.large_table_bytes,
                earlier,
                ..ManagerOptions::default()
            };
            let storage = Arc::clone(&self.storage);
            let manager = SnapshotManager::open(storage, Term(self.terms), options).unwrap();
            self.managers.push(manager);
        }
    }

    /// Changes and merges of tables are large from so many bytes on.
    fn with_large(mut self, large_table_bytes: Option<u64>) -> Self {
        self.large_table_bytes = large_table_bytes.unwrap_or(self.large_table_bytes);
        self.restart();
        self
    }

    fn live(&self) -> BTreeSet<Term> {
        self.managers.iter().map(SnapshotManager::term).collect()
    }

    fn latest(&self) -> State {
        let latest = self.retained.last_key_value();
        latest.map(|(_, state)| state.clone()).unwrap_or_default()
    }

    /// Opens the table at the latest checkpoint, for the next attempt.
    fn begin(&mut self) -> (u64, Model) {
        self.attempt += 1;
        let base = self.latest();
        let id = base.commit.as_ref().map(|commit| &commit.id);
        let manager = &self.managers[self.at];
        let session = manager
            .open_table(&self.owner, CheckpointId(self.attempt), id)
            .unwrap();
        assert_eq!(
            content(manager, session),
            base.model,
            "attempt {}",
            self.attempt
        );
        (session, base.model)
    }

    fn call(&self, session: u64, call: TableCall<'_>) -> TableAnswer {
        self.managers[self.at].table(session, &call).unwrap()
    }

    fn change(&self, session: u64, model: &mut Model, puts: &Model, removed: &[Vec<u8>]) {
        self.call(session, TableCall::Put(&entries(puts)));
        model.extend(puts.clone());
        let was_there = self
            .call(session, TableCall::Remove(&packed(removed)))
            .bytes;
        assert_eq!(was_there.len(), removed.len());
        for (key, was_there) in removed.iter().zip(was_there) {
            assert_eq!(model.remove(key).is_some(), was_there == 1);
        }
    }

    /// Looks up some keys in one call.
    fn check(&self, session: u64, model: &Model) {
        let keys: Vec<_> = (0..64).map(key).collect();
        assert_eq!(self.call(session, TableCall::Len).rows, model.len() as u64);
        let expected = keys.iter().flat_map(|key| match model.get(key) {
            None => ABSENT.to_le_bytes().to_vec(),
            Some(value) => packed(std::slice::from_ref(value)),
        });
        let found = self.call(session, TableCall::Get(&packed(&keys))).bytes;
        assert_eq!(found, expected.collect::<Vec<u8>>());
        let expected: Vec<_> = keys
            .iter()
            .map(|k| u8::from(model.contains_key(k)))
            .collect();
        let found = self
            .call(session, TableCall::Contains(&packed(&keys)))
            .bytes;
        assert_eq!(found, expected);
    }

    fn commit(&self, session: u64, model: Model) -> State {
        let manager = &self.managers[self.at];
        let commit = manager.commit_table(session).unwrap();
        assert_eq!(commit.keys, model.len() as u64);
        let id = CheckpointId(self.attempt);
        manager
            .persist_segments(id, &self.owner, &commit.segments)
            .unwrap();
        State {
            origin: self.attempt,
            commit: Some(commit),
            model,
        }
    }

    /// The retained checkpoints, as managers learn of them when the attempt is decided.
    fn view(&self) -> Retained {
        let fallbacks = |id: u64, state: &State| match state.origin == id {
            true => Fallbacks::new(),
            false => [(self.owner.clone(), CheckpointId(state.origin))].into(),
        };
        Retained {
            decided: CheckpointId(self.attempt),
            checkpoints: self
                .retained
                .iter()
                .map(|(&id, state)| (CheckpointId(id), fallbacks(id, state)))
                .collect(),
        }
    }

    /// The attempt completes with this state; `keep` checkpoints are retained.
    fn complete(&mut self, state: State, keep: usize) {
        self.retained.insert(self.attempt, state);
        while self.retained.len() > keep {
            self.retained.pop_first();
        }
        let view = self.view();
        let id = CheckpointId(self.attempt);
        let own = &view.checkpoints[&id];
        for manager in &self.managers {
            manager.partially_completed(id, own, &view).unwrap();
            if self.large_table_bytes > 1_000 || !self.attempt.is_multiple_of(4) {
                // Otherwise merges continue during the next attempts.
                manager.wait_for_deletes();
            }
        }
        self.reclaim();
        self.check_files();
    }

    /// The driver deletes files of ended managers.
    fn reclaim(&mut self) {
        let (live, newest) = (self.live(), Term(self.terms));
        let retained = || Ok(self.restored());
        let may_append = |term| live.contains(&term);
        if self.driver.is_some() {
            let storage = self.storage.as_ref();
            let report = reclaim_orphans(storage, retained, &may_append, newest).unwrap();
            self.driver = Some(report.space.wasteful.into_iter().collect());
        }
    }

    fn aborted(&mut self) {
        let view = self.view();
        for manager in &self.managers {
            manager.aborted(CheckpointId(self.attempt), &view).unwrap();
            manager.wait_for_deletes();
        }
        self.check_files();
    }

    /// All that a retained checkpoint names is there.
    fn check_files(&self) {
        for state in self.retained.values() {
            for segment in state.commit.iter().flat_map(|commit| &commit.segments) {
                read_segment(self.storage.as_ref(), segment, &self.owner).unwrap();
            }
        }
    }

    /// Both executors die, and others take over, with what the metadata says.
    fn restart(&mut self) {
        self.begin_managers();
        self.at = 0;
        if self.driver.is_some() {
            self.reclaim();
        } else {
            // One of several executors takes the files over.
            self.managers[0].restore(&self.restored()).unwrap();
        }
        self.check_files();
    }

    fn restored(&self) -> Vec<RestoredCheckpoint> {
        let segments = |state: &State| -> Vec<_> {
            let named = state
                .commit
                .iter()
                .flat_map(|commit| commit.segments.clone());
            let origin = CheckpointId(state.origin);
            named
                .map(|segment| (self.owner.clone(), origin, segment))
                .collect()
        };
        self.retained
            .iter()
            .map(|(id, state)| RestoredCheckpoint {
                id: CheckpointId(*id),
                segments: segments(state),
            })
            .collect()
    }
}

#[derive(Clone, Debug)]
enum Step {
    Complete,
    FallBack { after_commit: bool },
    Abort { after_commit: bool },
    Idle,
    Restart,
    Move,
}

fn steps() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => Just(Step::Complete),
        1 => any::<bool>().prop_map(|after_commit| Step::FallBack { after_commit }),
        2 => any::<bool>().prop_map(|after_commit| Step::Abort { after_commit }),
        1 => Just(Step::Idle),
        1 => Just(Step::Restart),
        1 => Just(Step::Move),
    ]
}

type Batch = (u16, u16, u8, Vec<u16>);

fn batches() -> impl Strategy<Value = Batch> {
    let removed = prop::collection::vec(0..64u16, 0..6);
    (0..60u16, 0..5u16, any::<u8>(), removed)
}

fn run(world: &mut World, history: &[(Step, Batch, usize)]) {
    for (step, (first, some, value, removed), keep) in history {
        match step {
            Step::Restart => {
                if world.large_table_bytes < 1_000 {
                    // Executors may have another target than those before them.
                    let target = [1, 1 << 40][usize::from(*value) % 2];
                    world.budget.set_target_bytes(Some(target));
                }
                world.restart();
                continue;
            }
            Step::Move => {
                world.at = 1 - world.at;
                continue;
            }
            Step::Idle => {
                world.attempt += 1;
                let state = world.latest();
                if state.commit.is_some() {
                    world.complete(state, *keep);
                }
                continue;
            }
            _ => {}
        }
        let (session, mut model) = world.begin();
        let removed: Vec<_> = removed.iter().copied().map(key).collect();
        world.change(
            session,
            &mut model,
            &changes(*first..first + some, *value),
            &removed,
        );
        if value.is_multiple_of(3) {
            // A merge ends during the attempt.
            world.managers[world.at].wait_for_deletes();
        }
        world.check(session, &model);
        match step {
            Step::Complete => {
                let state = world.commit(session, model);
                world.complete(state, *keep);
            }
            Step::FallBack { after_commit } | Step::Abort { after_commit } => {
                if *after_commit {
                    world.commit(session, model);
                } else {
                    world.managers[world.at].close_table(session);
                }
                let state = world.latest();
                match step {
                    Step::FallBack { .. } if state.commit.is_some() => world.complete(state, *keep),
                    _ => world.aborted(),
                }
            }
            _ => unreachable!(),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]
    #[test]
    fn a_table_is_as_its_checkpoints_say(
        target in prop::option::of(prop_oneof![Just(1u64), Just(1 << 40)]),
        driver in prop::option::of(Just(BTreeSet::new())),
        objects in any::<bool>(),
        large in prop::option::of(prop_oneof![Just(1u64), Just(400)]),
        history in prop::collection::vec((steps(), batches(), 1..4usize), 1..60),
    ) {
        run(&mut World::of(target, driver, objects).with_large(large), &history);
    }
}

fn written_by_a_batch(world: &mut World, value: u8) -> u64 {
    let (session, mut model) = world.begin();
    world.change(session, &mut model, &changes(100..110, value), &[]);
    let state = world.commit(session, model);
    world.complete(state, 1);
    let managers = world.managers.iter();
    managers.map(|manager| manager.stats().physical_bytes).sum()
}

#[test]
fn executors_after_a_restart_refer_to_the_segments_of_those_before() {
    let mut world = World::with_driver(None);
    let all: Model = (0..20_000u16)
        .map(|n| (key(n), vec![n as u8; 20]))
        .collect();
    let (session, mut model) = world.begin();
    world.change(session, &mut model, &all, &[]);
    let state = world.commit(session, model);
    world.complete(state, 1);
    let whole = world.managers[0].stats().physical_bytes;
    assert!(whole > 100_000);
    for value in 0..4 {
        world.restart();
        assert!(written_by_a_batch(&mut world, value) < 10_000);
    }
    // The manager of another executor that lives may delete its files.
    world.at = 1;
    assert!(written_by_a_batch(&mut world, 7) > 100_000);
    world.restart();
    world.at = 1;
    assert!(written_by_a_batch(&mut world, 8) < 10_000);
    // The driver named files that waste too much.
    world.restart();
    let named = world.latest().commit.unwrap().segments;
    let files: BTreeSet<_> = named.iter().map(|segment| segment.file).collect();
    world.driver = Some(files.clone());
    world.restart();
    assert!(written_by_a_batch(&mut world, 9) > 100_000);
    for file in files {
        assert!(world.storage.len(&file.file_name()).is_err());
    }
}

#[test]
fn large_batches_are_opened_as_they_are_and_merged_beside_attempts() {
    let target = Some(1 << 40);
    let mut world = World::with_driver(target).with_large(Some(1_000));
    let all: u16 = 12 * 200;
    let big = |world: &mut World, batch: u16| {
        let (session, mut model) = world.begin();
        let own: Model = (0..200)
            .map(|n| (key(n * 12 + batch), vec![1; 20]))
            .collect();
        world.change(session, &mut model, &own, &[]);
        world.commit(session, model)
    };
    for batch in 0..12 {
        let state = big(&mut world, batch);
        world.complete(state, 1);
        world.restart();
    }
    // No commit has built on a merge.
    let State { commit, model, .. } = world.latest();
    assert_eq!(model.len(), usize::from(all));
    world.attempt += 1;
    let attempt = CheckpointId(world.attempt);
    let id = commit.as_ref().map(|commit| &commit.id);
    let session = world.managers[0]
        .open_table(&world.owner, attempt, id)
        .unwrap();
    let loaded = world.budget.used_bytes();
    assert_eq!(content(&world.managers[0], session), model);
    assert!(loaded < world.budget.used_bytes() / 10, "{loaded}");
    world.check(session, &model);
    world.managers[world.at].wait_for_deletes();
    // Without changes the checkpoint continues with the segments of the last one.
    let before = world.latest().commit.unwrap().segments;
    let state = world.commit(session, model);
    assert_eq!(state.commit.as_ref().unwrap().segments, before);
    assert!(before.len() > 12, "{}", before.len());
    world.complete(state, 1);
    // After an attempt that built on the merge and failed, too.
    let (session, mut model) = world.begin();
    world.change(session, &mut model, &changes(0..3, 8), &[]);
    world.commit(session, model);
    world.aborted();
    let (session, model) = world.begin();
    let state = world.commit(session, model);
    assert_eq!(state.commit.as_ref().unwrap().segments, before);
    world.complete(state, 1);
    world.managers[0].wait_for_deletes();
    let (session, mut model) = world.begin();
    world.change(session, &mut model, &changes(0..3, 9), &[]);
    let state = world.commit(session, model);
    assert_eq!(state.commit.as_ref().unwrap().segments.len(), 2);
    world.complete(state, 1);
    world.restart();
    world.begin();
}

#[test]
fn a_copy_of_a_table_goes_on_under_its_new_owner() {
    let mut world = World::new(None);
    for batch in 0..14u8 {
        let (session, mut model) = world.begin();
        let first = u16::from(batch) * 3;
        world.change(
            session,
            &mut model,
            &changes(first..first + 9, batch),
            &[key(first)],
        );
        let state = world.commit(session, model);
        world.complete(state, 1);
    }
    let state = world.latest();
    let copies = World::new(None);
    let owner = Owner::new("copy", "count", "bern", "totals");
    let from = (&world.owner, &state.commit.unwrap().id);
    let origin = CheckpointId(state.origin);
    let copy = copies.managers[0]
        .copy_table(world.storage.as_ref(), from, &owner, origin)
        .unwrap();
    assert_eq!(
        (copy.keys, copy.segments.len()),
        (state.model.len() as u64, 1)
    );
    let next = CheckpointId(state.origin + 1);
    let session = copies.managers[1]
        .open_table(&owner, next, Some(&copy.id))
        .unwrap();
    assert_eq!(content(&copies.managers[1], session), state.model);

    let empty = Owner::new("pipeline", "count", "bern", "nothing");
    let session = world.managers[0].open_table(&empty, next, None).unwrap();
    let commit = world.managers[0].commit_table(session).unwrap();
    let from = (&empty, &commit.id);
    let copy = copies.managers[0]
        .copy_table(world.storage.as_ref(), from, &owner, next)
        .unwrap();
    assert_eq!((copy.keys, copy.segments.len()), (0, 0));
}

#[test]
fn a_batch_writes_what_it_changed() {
    let mut world = World::new(None);
    let (session, mut model) = world.begin();
    let all: Model = (0..20_000u16)
        .map(|n| (key(n), vec![n as u8; 20]))
        .collect();
    world.change(session, &mut model, &all, &[]);
    let state = world.commit(session, model);
    world.complete(state, 1);
    for batch in 0..8u8 {
        let (session, mut model) = world.begin();
        world.change(session, &mut model, &changes(100..110, batch), &[]);
        let state = world.commit(session, model);
        let newest = *state.commit.as_ref().unwrap().segments.last().unwrap();
        assert!(newest.len < 1_000, "{newest}");
        world.complete(state, 1);
    }
}

#[test]
fn many_batches_leave_few_segments_and_files() {
    let mut world = World::new(None);
    for batch in 0..100u8 {
        let (session, mut model) = world.begin();
        world.change(session, &mut model, &changes(0..60, batch), &[]);
        let state = world.commit(session, model);
        assert!(state.commit.as_ref().unwrap().segments.len() < 50);
        world.complete(state, 1);
    }
    let stats = world.managers[0].stats();
    assert!(
        stats.space_amplification < 3.0 || stats.physical_bytes < 200_000,
        "{stats:?}"
    );
}

#[test]
fn a_session_ends_when_a_later_attempt_opens_the_table() {
    let mut world = World::new(None);
    let (first, _) = world.begin();
    let (second, mut model) = world.begin();
    let late = world.managers[0].table(first, &TableCall::Len);
    assert_eq!(late.unwrap_err().kind(), ErrorKind::AttemptEnded);
    assert_eq!(
        world.managers[0].commit_table(first).unwrap_err().kind(),
        ErrorKind::AttemptEnded
    );
    world.change(second, &mut model, &changes(0..3, 1), &[]);
    let state = world.commit(second, model);
    world.complete(state, 1);
    let decided = world.managers[0].open_table(&world.owner, CheckpointId(world.attempt), None);
    assert_eq!(decided.unwrap_err().kind(), ErrorKind::AttemptEnded);
}

#[test]
fn a_region_that_went_on_elsewhere_leaves_no_memory_and_no_files_behind() {
    let mut world = World::new(None);
    for at in [0, 1] {
        world.at = at;
        let (session, mut model) = world.begin();
        world.change(session, &mut model, &changes(0..60, at as u8), &[]);
        let state = world.commit(session, model);
        world.complete(state, 1);
    }
    world.managers[0].seal().unwrap();
    assert_eq!(world.managers[0].files(), []);
    let of_one = world.budget.used_bytes();
    world.managers.pop();
    assert!(of_one > 0 && world.budget.used_bytes() < of_one);
}

#[test]
fn a_table_that_rests_leaves_memory_while_it_is_short() {
    let mut world = World::new(None);
    let (session, mut model) = world.begin();
    world.change(session, &mut model, &changes(0..60, 1), &[]);
    let state = world.commit(session, model);
    world.complete(state.clone(), 1);
    let idle = |world: &mut World| {
        world.attempt += 1;
        world.complete(state.clone(), 1);
    };
    idle(&mut world);
    let taken = world.budget.used_bytes();
    assert!(taken > 0, "there is room");
    world.budget.set_target_bytes(Some(taken - 1));
    idle(&mut world);
    assert_eq!(world.budget.used_bytes(), 0);
    world.begin();
}
