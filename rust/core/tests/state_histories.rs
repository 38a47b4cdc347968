//! Stores of which most is not in memory, against maps, through everything that happens to them: merges
//! of any part of a lineage, stores that go back or are opened elsewhere at an older version, memory that
//! comes and goes, files that are reclaimed, damage while they are read, and batches whose input is parked.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::common::families::{Change, Model, apply, change, check, every_key, look_at};
use crate::common::{faulty, options};
use holdfast_core::format::{Compression, read_head};
use holdfast_core::liveness::Floors;
use holdfast_core::reclaim::{IndexCache, reclaim};
use holdfast_core::segment::SegmentWriter;
use holdfast_core::state::{
    CommitId, HydratedEntries, Hydration, KeyLayout, MemoryBudget, MergedRun, SharedStore,
    StateStore, StoreFolder, VersionId,
};
use holdfast_core::{Error, ErrorKind, FileId, Owner, SegmentRef, Term};
use holdfast_sim::FaultyStorage;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

/// Versions that stay loadable.
const RETAINED: usize = 6;

#[derive(Clone, Debug)]
enum Step {
    Change(Change),
    /// One key is read; nothing else comes into memory.
    Look(usize, u8),
    Check,
    /// The session writes what it changed so far.
    Spill,
    Commit,
    Abort,
    /// The session is dropped, and its input becomes pending; a later commit replays it.
    Park(Vec<u8>),
    /// Back by undo, as for a task that is tried again; perhaps after what comes before a session.
    Rewind {
        mended: bool,
    },
    /// On in another process.
    Load,
    /// The same store goes back so many versions.
    Back(usize),
    /// On in another process, so many versions before.
    LoadBack(usize),
    /// Another process puts so many changelogs on what it loads, as a reader that must not read a run.
    Replay(usize),
    /// The segments above so many of the lineage become a run.
    Merge(usize, When),
    Rest,
    /// So many KiB of memory for state; none is as much as there is.
    Memory(Option<u8>),
    /// Memory for all: what is loaded comes there step by step.
    Room,
    Reclaim,
    Damage(Damage),
}

/// When commits build on a run.
#[derive(Clone, Copy, Debug)]
enum When {
    Now,
    /// After the next commit.
    Late,
    /// At once, or after the next commit; but the version that it was made at is taken back first.
    TakenBack {
        late: bool,
    },
    /// Its file is lost with its executor.
    Never,
}

fn step() -> impl Strategy<Value = Step> {
    let when = prop_oneof![
        4 => Just(When::Now),
        2 => Just(When::Late),
        2 => any::<bool>().prop_map(|late| When::TakenBack { late }),
        1 => Just(When::Never),
    ];
    let key = (0usize..4, 0u8..24);
    prop_oneof![
        40 => change().prop_map(Step::Change),
        8 => key.prop_map(|(family, k)| Step::Look(family, k)),
        1 => Just(Step::Check),
        4 => Just(Step::Spill),
        10 => Just(Step::Commit),
        2 => Just(Step::Abort),
        4 => prop::collection::vec(any::<u8>(), 0..300).prop_map(Step::Park),
        3 => any::<bool>().prop_map(|mended| Step::Rewind { mended }),
        2 => Just(Step::Load),
        1 => (1usize..4).prop_map(Step::Back),
        1 => (1usize..4).prop_map(Step::LoadBack),
        1 => (1usize..4).prop_map(Step::Replay),
        10 => (0usize..8, when).prop_map(|(kept, when)| Step::Merge(kept, when)),
        2 => Just(Step::Rest),
        2 => prop::option::weighted(0.8, 0u8..8).prop_map(Step::Memory),
        2 => Just(Step::Room),
        2 => Just(Step::Reclaim),
        4 => damage().prop_map(Step::Damage),
    ]
}

/// A byte of a segment is another one, or its file is gone, while keys are read.
#[derive(Clone, Debug)]
struct Damage {
    segment: usize,
    place: prop::sample::Index,
    gone: bool,
    since: Since,
    reads: Vec<(usize, u8)>,
    /// The session that meets it continues, as far as it can.
    goes_around: bool,
}

/// The part of its runs that a store knows when one is damaged.
#[derive(Clone, Copy, Debug)]
enum Since {
    /// The part that the session needed so far.
    Session,
    /// Their directories: it was opened in another process.
    Opened,
    /// Nothing: it is opened next.
    Before,
}

fn damage() -> impl Strategy<Value = Damage> {
    let since = prop_oneof![
        Just(Since::Session),
        Just(Since::Opened),
        Just(Since::Before)
    ];
    let reads = prop::collection::vec((0usize..4, 0u8..24), 1..40);
    (
        0usize..8,
        any::<prop::sample::Index>(),
        prop::bool::weighted(0.2),
        since,
        reads,
        any::<bool>(),
    )
        .prop_map(|(segment, place, gone, since, reads, goes_around)| Damage {
            segment,
            place,
            gone,
            since,
            reads,
            goes_around,
        })
}

/// Counts of the events in the histories of a test.
#[derive(Debug, Default)]
struct Seen {
    cold_reads: AtomicU64,
    spilled: AtomicU64,
    stacks: AtomicU64,
    rewinds: AtomicU64,
    reported: AtomicU64,
    rebuilt: AtomicU64,
    gone_around: AtomicU64,
    hydrated: AtomicU64,
    beyond_repair: AtomicU64,
    reclaimed: AtomicU64,
    /// Parked versions that a store moved to without a load.
    followed: AtomicU64,
    replayed: AtomicU64,
}

impl Seen {
    fn count(what: &AtomicU64, more: u64) {
        what.fetch_add(more, Ordering::Relaxed);
    }

    fn assert_all(&self) {
        let all = [
            &self.cold_reads,
            &self.spilled,
            &self.stacks,
            &self.rewinds,
            &self.reported,
            &self.rebuilt,
            &self.gone_around,
            &self.hydrated,
            &self.beyond_repair,
            &self.reclaimed,
            &self.followed,
            &self.replayed,
        ];
        let all = all.map(|what| what.load(Ordering::Relaxed));
        assert!(all.iter().all(|seen| *seen > 0), "{self:?}");
    }
}

/// One history.
struct History<'a> {
    seen: &'a Seen,
    dir: tempfile::TempDir,
    storage: Arc<FaultyStorage>,
    folder: Arc<StoreFolder>,
    budget: Arc<MemoryBudget>,
    store: SharedStore,
    /// Versions that stay loadable, oldest first, and their content. The store stands at the last one.
    versions: Vec<(VersionId, Model)>,
    /// Input that was parked.
    inputs: HashMap<SegmentRef, Vec<u8>>,
    now: Model,
    /// The session has spilled, or the last one had.
    spilled: bool,
    late: Option<MergedRun>,
    /// Read of the runs in the step before, to be handed over whatever that did.
    held: Option<(Hydration, Result<HydratedEntries, Error>)>,
    max_bytes: usize,
}

fn owner() -> Owner {
    Owner::new("", "0", "7", "default")
}

fn shared(folder: &Arc<StoreFolder>, budget: &Arc<MemoryBudget>) -> SharedStore {
    let state = StateStore::within(owner(), KeyLayout::Columns, Arc::clone(budget));
    SharedStore::new(Arc::clone(folder), state)
}

impl<'a> History<'a> {
    /// Every key in a base image, memory for none, and a session.
    fn begin(max_bytes: usize, seen: &'a Seen) -> Self {
        let (dir, storage) = faulty();
        // Every segment has a file of its own: merges and reclaim take any of them.
        let options = options(1, Compression::None);
        let writer = SegmentWriter::open(storage.clone(), Term(1), options);
        let budget = Arc::new(MemoryBudget::unlimited());
        budget.set_target_bytes(Some(0));
        budget.set_load_bytes(0);
        let folder = StoreFolder::new(storage.clone(), Some(writer));
        let store = shared(&folder, &budget);
        let mut history = Self {
            seen,
            dir,
            storage,
            folder,
            budget,
            store,
            versions: Vec::new(),
            inputs: HashMap::new(),
            now: Model::new(),
            spilled: false,
            late: None,
            held: None,
            max_bytes,
        };
        history.store.open(0, None).unwrap();
        history.store.begin().unwrap();
        for change in every_key() {
            apply(&mut history.store.lock(), &mut history.now, &change);
        }
        history.commit();
        history.merge(0, When::Now);
        history.next_session();
        history
    }

    fn writer(&self) -> &SegmentWriter {
        self.folder.writer().unwrap()
    }

    fn newest(&self) -> VersionId {
        self.versions.last().unwrap().0.clone()
    }

    fn next_session(&mut self) {
        self.spilled = false;
        self.store.begin().unwrap();
        self.now = self.versions.last().unwrap().1.clone();
    }

    fn commit(&mut self) {
        self.replay_pending();
        let id = self.store.commit().unwrap();
        self.advance(id.into(), self.now.clone());
        if let Some(run) = self.late.take() {
            self.store.lock().accept(run);
        }
        if id.deltas.len() > 1 {
            Seen::count(&self.seen.stacks, 1);
        }
    }

    fn advance(&mut self, id: VersionId, content: Model) {
        self.writer().sync().unwrap();
        self.versions.push((id, content));
        let too_many = self.versions.len().saturating_sub(RETAINED);
        self.versions.drain(..too_many);
    }

    fn park(&mut self, input: &[u8]) {
        let (id, content) = self.versions.last().unwrap().clone();
        let mut parking = self.store.park(id.state.version, Some(&id)).unwrap();
        parking.append(input).unwrap();
        let parked = parking.finish(1).unwrap();
        let segment = parked.pending.last().unwrap().segment;
        self.inputs.insert(segment, input.to_vec());
        self.advance(parked, content);
        let loads = self.store.lock().stats().loads;
        self.open().unwrap();
        let followed = u64::from(self.store.lock().stats().loads == loads);
        Seen::count(&self.seen.followed, followed);
    }

    /// The session continues with the pending input, if there is some.
    fn replay_pending(&self) {
        let Some((id, _)) = self
            .versions
            .last()
            .filter(|(id, _)| !id.pending.is_empty())
        else {
            return;
        };
        let error = self.store.commit().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
        self.check_pending(id);
        self.store.lock().mark_replayed().unwrap();
        Seen::count(&self.seen.replayed, 1);
    }

    fn check_pending(&self, id: &VersionId) {
        for pending in &id.pending {
            let mut input = self.store.pending_input(id, pending.version).unwrap();
            let wanted = &self.inputs[&pending.segment];
            assert_eq!(input.bytes().unwrap(), wanted.len() as u64);
            assert_eq!(input.read(usize::MAX).unwrap(), wanted);
            assert_eq!(input.read(1).unwrap(), b"");
        }
    }

    fn other_store(&mut self) {
        Seen::count(&self.seen.cold_reads, self.store.lock().stats().cold_reads);
        self.store = shared(&self.folder, &self.budget);
        self.late = None;
    }

    /// The store opens the newest version.
    fn open(&mut self) -> Result<(), Error> {
        let id = self.newest();
        let opened = self.store.open_version(id.state.version, Some(&id));
        if opened.is_ok() {
            assert_eq!(self.store.lock().take_warning(), None, "nothing is damaged");
        }
        opened
    }

    fn forget_last(&mut self, versions: usize) {
        let left = self.versions.len().saturating_sub(versions).max(1);
        self.versions.truncate(left);
    }

    /// Everything that the newest version is made of.
    fn lineage(&self) -> Vec<SegmentRef> {
        let newest = self.newest().state.segment.unwrap();
        let head = read_head(self.storage.as_ref(), &newest, &owner()).unwrap();
        [head.lineage, vec![newest]].concat()
    }

    /// Makes a run of the segments above `kept` of the lineage, or of more.
    fn merge(&mut self, kept: usize, when: When) {
        let lineage = self.lineage();
        let first = lineage[kept.min(lineage.len() - 1)];
        let wasteful = HashSet::from([first.file]);
        if let When::Now | When::TakenBack { late: false } = when {
            self.store.maintain(1, &wasteful).unwrap();
            return self.writer().sync().unwrap();
        }
        // The parts of that, with time between them.
        let task = self.store.lock().merge_task(self.writer(), 1, &wasteful);
        let run = task.map(|task| task.run(self.storage.as_ref(), self.writer()).unwrap());
        if let When::Late | When::TakenBack { .. } = when {
            self.late = run;
        }
    }

    fn replay(&mut self, versions: usize) {
        let from = self.versions.len().saturating_sub(1 + versions);
        let versions = self.versions[from..].iter();
        let ids: Vec<CommitId> = versions.map(|(id, _)| id.state).collect();
        self.other_store();
        let (first, last) = (&ids[0], &self.newest());
        self.store
            .lock()
            .replay(
                self.storage.as_ref(),
                (first.version, Some(first)),
                last,
                &ids[1..],
            )
            .unwrap();
    }

    fn reclaim(&mut self) {
        let mut floors = Floors::default();
        floors.add_version("0/7", &self.versions[0].0);
        let mut indexes = IndexCache::default();
        let report = reclaim(
            self.storage.as_ref(),
            &mut indexes,
            &floors,
            &|_| true,
            Term(1),
        );
        let report = report.unwrap();
        Seen::count(&self.seen.reclaimed, report.deleted.len() as u64);
        for (id, content) in &self.versions {
            let mut store =
                StateStore::within(owner(), KeyLayout::Columns, Arc::clone(&self.budget));
            store
                .open_version(self.storage.as_ref(), id.state.version, Some(id))
                .unwrap();
            assert_eq!(store.take_warning(), None, "nothing is damaged");
            check(&mut store, content, self.max_bytes);
            self.check_pending(id);
        }
    }

    fn path(&self, file: FileId) -> PathBuf {
        self.dir.path().join("root").join(file.file_name())
    }

    /// Reads are right or fail and say where; the task that is tried again finds a way around the damage,
    /// or none; once all is there again the store is what it was.
    fn damage(&mut self, damage: &Damage) {
        if !matches!(damage.since, Since::Session) {
            self.store.lock().abort();
            self.other_store();
        }
        if let Since::Opened = damage.since {
            self.open().unwrap();
            self.next_session();
        }
        let lineage = self.lineage();
        let segment = lineage[damage.segment % lineage.len()];
        let path = self.path(segment.file);
        let good = std::fs::read(&path).unwrap();
        let mut bad = good.clone();
        bad[segment.offset as usize + damage.place.index(segment.len as usize)] ^= 0xff;
        if damage.gone {
            std::fs::remove_file(&path).unwrap();
        } else {
            std::fs::write(&path, &bad).unwrap();
        }
        let is_standing = match damage.since {
            Since::Before => self.is_opened_or_reported(damage, &segment),
            _ => self.is_read_or_reported(damage, &segment),
        };
        self.is_merged_or_reported(damage.segment, &segment);
        std::fs::write(&path, good).unwrap();
        if !is_standing {
            self.other_store();
            self.open().unwrap();
            let content = self.versions.last().unwrap().1.clone();
            check(&mut self.store.lock(), &content, self.max_bytes);
            self.next_session();
        }
    }

    /// Reads are right until one says where the damage is; then the task that is tried again opens the store.
    /// Returns whether there is a session in the end.
    fn is_read_or_reported(&mut self, damage: &Damage, segment: &SegmentRef) -> bool {
        if damage.goes_around {
            return self.is_read_around_or_reported(damage, segment);
        }
        let read = damage
            .reads
            .iter()
            .try_for_each(|(family, k)| look_at(&mut self.store.lock(), &self.now, *family, *k));
        let Err(error) = read else {
            return true;
        };
        self.assert_names(&error, segment);
        self.store.lock().abort();
        self.is_opened_or_reported(damage, segment)
    }

    /// Reads are right; the session continues with all that it did so far, or is over. Returns whether
    /// there is a session in the end.
    fn is_read_around_or_reported(&mut self, damage: &Damage, segment: &SegmentRef) -> bool {
        // A call spills where there is no memory.
        self.spilled = true;
        for (family, k) in &damage.reads {
            let read = self
                .store
                .call(|store| look_at(store, &self.now, *family, *k));
            if let Err(error) = read {
                Seen::count(&self.seen.beyond_repair, 1);
                self.assert_names(&error, segment);
                self.store.lock().abort();
                return false;
            }
            let warning = self.store.lock().take_warning();
            if let Some(warning) = warning {
                Seen::count(&self.seen.gone_around, 1);
                self.assert_damage(&warning, segment);
                let place = format!("offset {}", segment.offset);
                assert!(damage.gone || warning.contains(&place), "{warning}");
                check(&mut self.store.lock(), &self.now, self.max_bytes);
                return true;
            }
        }
        true
    }

    /// Opens the newest version: unchanged, rebuilt around the damage, or not at all. Returns whether
    /// there is a session in the end.
    fn is_opened_or_reported(&mut self, damage: &Damage, segment: &SegmentRef) -> bool {
        let (id, content) = self.versions.last().unwrap().clone();
        if let Err(error) = self.store.open_version(id.state.version, Some(&id)) {
            Seen::count(&self.seen.beyond_repair, 1);
            self.assert_names(&error, segment);
            return false;
        }
        let warning = self.store.lock().take_warning();
        self.next_session();
        let Some(warning) = warning else {
            return self.is_read_or_reported(damage, segment);
        };
        Seen::count(&self.seen.rebuilt, 1);
        assert!(warning.contains(&segment.file.to_string()), "{warning}");
        check(&mut self.store.lock(), &content, self.max_bytes);
        true
    }

    /// A merge makes of damaged segments no run.
    fn is_merged_or_reported(&mut self, kept: usize, segment: &SegmentRef) {
        let Ok(head) = read_head(self.storage.as_ref(), segment, &owner()) else {
            return;
        };
        let lineage = [head.lineage, vec![*segment]].concat();
        let wasteful = HashSet::from([lineage[kept % lineage.len()].file]);
        let task = self.store.lock().merge_task(self.writer(), 1, &wasteful);
        if let Some(task) = task
            && let Err(error) = task.run(self.storage.as_ref(), self.writer())
        {
            self.assert_names(&error, segment);
        }
    }

    fn assert_names(&self, error: &Error, segment: &SegmentRef) {
        let text = error.to_string();
        let kinds = [ErrorKind::Corrupt, ErrorKind::NotFound];
        assert!(kinds.contains(&error.kind()), "{text}");
        self.assert_damage(&text, segment);
        if error.kind() == ErrorKind::Corrupt {
            assert!(
                text.contains(&format!("offset {}", segment.offset)),
                "{text}"
            );
        }
    }

    fn assert_damage(&self, text: &str, segment: &SegmentRef) {
        Seen::count(&self.seen.reported, 1);
        assert!(text.contains(&segment.file.to_string()), "{text}");
        assert!(text.contains("partition 7"), "{text}");
    }

    fn take(&mut self, step: &Step) {
        if let Some((hydration, read)) = self.held.take() {
            self.store.lock().hydrate(hydration, read).unwrap();
        }
        let hydration = self.store.lock().take_hydration();
        self.held = hydration.map(|mut hydration| {
            Seen::count(&self.seen.hydrated, 1);
            let read = hydration.read(self.max_bytes);
            (hydration, read)
        });
        match step {
            Step::Change(change) => return apply(&mut self.store.lock(), &mut self.now, change),
            Step::Look(family, k) => {
                return look_at(&mut self.store.lock(), &self.now, *family, *k).unwrap();
            }
            Step::Check => return check(&mut self.store.lock(), &self.now, self.max_bytes),
            Step::Damage(damage) => return self.damage(damage),
            Step::Spill => {
                Seen::count(&self.seen.spilled, 1);
                self.spilled = true;
                return self.store.lock().spill(self.writer()).unwrap();
            }
            Step::Abort => {
                self.store.lock().abort();
                self.open().unwrap();
            }
            Step::Park(input) => {
                self.store.lock().abort();
                self.park(input);
            }
            _ => self.commit(),
        }
        match step {
            Step::Rewind { mended } => {
                if *mended {
                    self.store.lock().mend(self.writer()).unwrap();
                }
                // The segments that its runs replaced in memory are gone.
                let spilled = self.spilled;
                let rewinds = self.store.lock().stats().rewinds;
                let last = self.versions.len();
                self.forget_last(1);
                self.open().unwrap();
                if last > 1 && !mended && !spilled {
                    assert_eq!(self.store.lock().stats().rewinds, rewinds + 1);
                    Seen::count(&self.seen.rewinds, 1);
                }
            }
            Step::Load => {
                self.other_store();
                self.open().unwrap();
            }
            Step::Back(versions) => {
                self.forget_last(*versions);
                self.open().unwrap();
            }
            Step::LoadBack(versions) => {
                self.forget_last(*versions);
                self.other_store();
                self.open().unwrap();
            }
            Step::Replay(versions) => self.replay(*versions),
            Step::Merge(kept, when) => {
                self.merge(*kept, *when);
                if let When::TakenBack { .. } = when {
                    self.forget_last(1);
                    self.open().unwrap();
                }
            }
            Step::Rest => (0..3).for_each(|_| {
                self.store.maintain(usize::MAX, &HashSet::new()).unwrap();
            }),
            Step::Memory(kib) => {
                let bytes = kib.map(|kib| u64::from(kib) << 10);
                self.budget.set_target_bytes(bytes);
            }
            Step::Room => self.budget.set_target_bytes(Some(1 << 30)),
            Step::Reclaim => self.reclaim(),
            _ => {}
        }
        self.next_session();
    }

    fn end(mut self) {
        check(&mut self.store.lock(), &self.now, self.max_bytes);
        self.store.lock().abort();
        for (id, content) in &self.versions.clone() {
            self.other_store();
            self.store.open_version(id.state.version, Some(id)).unwrap();
            check(&mut self.store.lock(), content, self.max_bytes);
            self.check_pending(id);
        }
        Seen::count(&self.seen.cold_reads, self.store.lock().stats().cold_reads);
    }
}

fn play(histories: u32) {
    let seen = Seen::default();
    let steps = (prop::collection::vec(step(), 1..160), 16usize..400);
    let mut runner = TestRunner::new(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(histories)
    });
    let played = runner.run(&steps, |(steps, max_bytes)| {
        let mut history = History::begin(max_bytes, &seen);
        for step in &steps {
            history.take(step);
        }
        history.end();
        Ok(())
    });
    if let Err(failed) = played {
        panic!("{failed}");
    }
    seen.assert_all();
    println!("{seen:?}");
}

#[test]
fn the_content_equals_maps_through_everything() {
    play(100);
}

/// `cargo test --release -p holdfast-core --test all state_histories -- --ignored` takes minutes.
#[test]
#[ignore = "10,000 histories"]
fn the_content_equals_maps_through_everything_in_many_histories() {
    play(10_000);
}
