//! Files of large runs: stores share them, one after the other, and what happens to a later run does not
//! touch the ones before.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::collections::{BTreeSet, HashSet};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Barrier};

use crate::common::{append, faulty, options, owner, payload, plain};
use holdfast_core::format::{Compression, NewSegment, SegmentKind, read_index, read_segment};
use holdfast_core::segment::{Durability, RunWriter, SegmentWriter};
use holdfast_core::state::{CommitId, FIRST_FAMILY, SharedStore, StateStore, StoreFolder};
use holdfast_core::storage::{
    AppendFile, Capabilities, LocalStorage, ObjectMeta, ReadFile, Storage,
};
use holdfast_core::{CheckpointId, Error, ErrorKind, FileId, Result, SegmentRef, Term};
use holdfast_sim::{FaultyStorage, Operation};

/// Like an object store: an object is there, whole, once it is finished.
#[derive(Debug)]
struct Objects(LocalStorage);

#[derive(Debug)]
struct NewObject {
    storage: LocalStorage,
    name: String,
    bytes: Vec<u8>,
}

impl Storage for Objects {
    fn location(&self) -> String {
        self.0.location()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::default()
    }

    fn create(&self, name: &str) -> Result<Box<dyn AppendFile>> {
        Ok(Box::new(NewObject {
            storage: self.0.clone(),
            name: name.to_owned(),
            bytes: Vec::new(),
        }))
    }

    fn open(&self, name: &str) -> Result<Box<dyn ReadFile>> {
        self.0.open(name)
    }

    fn len(&self, name: &str) -> Result<u64> {
        self.0.len(name)
    }

    fn sync(&self, name: &str) -> Result<()> {
        self.0.sync(name)
    }

    fn delete(&self, name: &str) -> Result<()> {
        self.0.delete(name)
    }

    fn list(&self) -> Result<Vec<ObjectMeta>> {
        self.0.list()
    }
}

impl AppendFile for NewObject {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    fn sync(&mut self) -> Result<()> {
        Err(Error::new(ErrorKind::Unsupported, "it is not finished"))
    }

    fn finish(self: Box<Self>) -> Result<()> {
        let mut file = self.storage.create(&self.name)?;
        file.append(&self.bytes)?;
        file.finish()
    }
}

fn objects() -> (tempfile::TempDir, Arc<Objects>) {
    let dir = tempfile::tempdir().unwrap();
    let local = LocalStorage::new(dir.path().join("root"));
    (dir, Arc::new(Objects(local)))
}

/// Runs of more than 32 KiB are large.
fn small_files(storage: Arc<dyn Storage>) -> SegmentWriter {
    SegmentWriter::open(storage, Term(1), options(256 << 10, Compression::None))
}

fn names(storage: &dyn Storage) -> BTreeSet<String> {
    let listed = storage.list().unwrap().into_iter();
    listed.map(|object| object.name).collect()
}

fn begin<'w>(writer: &'w SegmentWriter, region: &str) -> RunWriter<'w> {
    let owner = owner(region);
    let new = NewSegment {
        owner: &owner,
        created: CheckpointId(1),
        kind: SegmentKind::Run,
        lineage: &[],
        replaced: None,
        entries: 0,
        tables: &[],
        runs: 0,
    };
    writer.begin_run(&new).unwrap()
}

/// About as many KiB.
fn fill(run: &mut RunWriter<'_>, kib: u64) -> Result<()> {
    for number in 0..kib {
        run.push(b"", &number.to_be_bytes(), Some(&payload(number, 1000)))?;
    }
    Ok(())
}

fn run_of(writer: &SegmentWriter, region: &str, kib: u64) -> Result<SegmentRef> {
    let mut run = begin(writer, region);
    fill(&mut run, kib)?;
    run.finish()
}

fn assert_whole(storage: &dyn Storage, run: &SegmentRef, region: &str, kib: u64) {
    let found = read_segment(storage, run, &owner(region)).unwrap();
    assert_eq!(found.head.entries, kib);
}

/// Stores with 5 MiB each, of which everything changes in every batch.
struct Stores {
    storage: Arc<dyn Storage>,
    folder: Arc<StoreFolder>,
    stores: Vec<SharedStore>,
}

const STORES: usize = 6;

impl Stores {
    /// Files are full at 1 GiB, so that what is counted is not that they are.
    fn new(storage: Arc<dyn Storage>) -> Self {
        let options = options(1 << 30, Compression::None);
        let writer = SegmentWriter::open(storage.clone(), Term(1), options);
        let folder = StoreFolder::new(storage.clone(), Some(writer));
        let store = |number: usize| {
            let state = StateStore::new(owner(&number.to_string()), plain());
            let store = SharedStore::new(Arc::clone(&folder), state);
            store.open(0, None).unwrap();
            store
        };
        let stores = (0..STORES).map(store).collect();
        Self {
            storage,
            folder,
            stores,
        }
    }

    fn writer(&self) -> &SegmentWriter {
        self.folder.writer().unwrap()
    }

    /// The segments of the batch's ids are durable then, as when the driver commits it.
    fn batch(&self, seed: u64) -> Vec<CommitId> {
        let commit = |store: &SharedStore| {
            store.begin().unwrap();
            for key in 0..5_200u64 {
                let value = payload(seed + key, 1000);
                store
                    .call(|state| state.put(FIRST_FAMILY, &key.to_be_bytes(), &value))
                    .unwrap();
            }
            store.commit().unwrap()
        };
        let ids: Vec<_> = self.stores.iter().map(commit).collect();
        let files = ids.iter().filter_map(|id| Some(id.segment?.file));
        self.writer().sync_files(&files.collect()).unwrap();
        ids
    }

    /// Maintenance of all stores, by so many threads at once. Returns how many files it took.
    fn pass(&self, threads: usize) -> u64 {
        let before = self.writer().stats();
        let together = Barrier::new(threads);
        let share = self.stores.len() / threads;
        std::thread::scope(|scope| {
            for stores in self.stores.chunks(share) {
                let together = &together;
                scope.spawn(move || {
                    for store in stores {
                        together.wait();
                        store.maintain(1, &HashSet::new()).unwrap();
                    }
                });
            }
        });
        let after = self.writer().stats();
        let runs = after.segments - before.segments;
        assert_eq!(runs, STORES as u64, "half of the state changed");
        after.files_created - before.files_created
    }

    fn assert_loads(&self, ids: &[CommitId]) {
        for (number, id) in ids.iter().enumerate() {
            let mut store = StateStore::new(owner(&number.to_string()), plain());
            store
                .open(self.storage.as_ref(), id.version, Some(id))
                .unwrap();
            assert_eq!(store.take_warning(), None);
            assert_eq!(store.families().keys(), 5_200);
        }
    }
}

#[test]
fn a_pass_over_many_stores_makes_one_file_for_each_thread_that_writes() {
    let (_dir, storage) = faulty();
    let stores = Stores::new(storage.clone());
    stores.batch(0);
    stores.batch(1);
    assert_eq!(stores.pass(1), 1, "of {STORES} large runs");
    assert!(
        !stores.writer().has_pending_runs(),
        "each is durable at once"
    );
    stores.batch(2);
    let second = stores.pass(3);
    stores.batch(3);
    let made = 1 + second + stores.pass(3);
    assert!(made <= 3, "as many as are written at the same time: {made}");
    let ids = stores.batch(4);
    let commits = 1;
    assert_eq!(names(storage.as_ref()).len() as u64, made + commits);
    stores.assert_loads(&ids);
    stores.writer().seal().unwrap();
    stores.assert_loads(&ids);
    for name in names(storage.as_ref()) {
        let index = read_index(storage.as_ref(), FileId::parse(&name).unwrap()).unwrap();
        assert!(index.sealed && index.segments.len() >= 2, "{name}");
    }
}

#[test]
fn a_pass_on_an_object_store_is_one_object_that_is_there_when_it_is_over() {
    for threads in [1, 3] {
        let (_dir, storage) = objects();
        let stores = Stores::new(storage.clone());
        stores.batch(0);
        stores.batch(1);
        let before = names(storage.as_ref());
        let made = stores.pass(threads);
        assert!((1..=threads as u64).contains(&made), "{made} objects");
        assert!(stores.writer().has_pending_runs());
        // Commits continue, and nothing refers to runs that may never be there.
        let ids = stores.batch(2);
        stores.assert_loads(&ids);
        let commits = 1;
        assert_eq!(names(storage.as_ref()).len(), before.len() + commits);
        stores.writer().seal_pending_runs().unwrap();
        assert!(!stores.writer().has_pending_runs());
        assert_eq!(
            names(storage.as_ref()).len(),
            before.len() + commits + made as usize
        );
        // The next batch builds on them.
        for store in &stores.stores {
            let mut state = store.lock();
            assert_eq!(state.unmerged(), 3);
            state.mend(stores.writer()).unwrap();
            assert_eq!(state.unmerged(), 1, "what was committed since");
        }
        let ids = stores.batch(3);
        stores.assert_loads(&ids);
    }
}

#[test]
fn runs_that_no_pass_sealed_wait_for_the_next_one_at_most() {
    let (_dir, storage) = objects();
    let writer = small_files(storage.clone());
    let mut store = StateStore::new(owner("a"), plain());
    store.open(storage.as_ref(), 0, None).unwrap();
    store.begin().unwrap();
    for key in 0..80u64 {
        let value = payload(key, 1000);
        store.put(FIRST_FAMILY, &key.to_be_bytes(), &value).unwrap();
    }
    store.commit(&writer).unwrap();
    writer.seal().unwrap();
    let starved = HashSet::from([FileId::parse(names(storage.as_ref()).first().unwrap()).unwrap()]);
    let task = store.merge_task(&writer, 1, &starved).unwrap();
    store.accept(task.run(storage.as_ref(), &writer).unwrap());
    let file = store.overdue_run(&writer).expect("it waited for a pass");
    // Another run that is written to the file is neither cut nor waited for.
    let mut other = begin(&writer, "b");
    fill(&mut other, 60).unwrap();
    writer.sync_soon(file).unwrap();
    assert!(writer.has_pending_runs());
    let other = other.finish().unwrap();
    assert_eq!(other.file, file);
    assert!(!writer.has_pending_runs());
    assert_eq!(writer.durability(&other), Durability::Durable);
    assert_eq!(store.overdue_run(&writer), None, "the store builds on it");
    assert_eq!(store.unmerged(), 0);
    assert_whole(storage.as_ref(), &other, "b", 60);
}

#[test]
fn a_sync_that_must_close_a_file_waits_for_the_run_that_is_written_to_it() {
    let (_dir, storage) = objects();
    let writer = small_files(storage.clone());
    let first = run_of(&writer, "a", 60).unwrap();
    let mut run = begin(&writer, "b");
    fill(&mut run, 60).unwrap();
    std::thread::scope(|scope| {
        let synced = scope.spawn(|| writer.sync_files(&BTreeSet::from([first.file])));
        let second = run.finish().unwrap();
        synced.join().unwrap().unwrap();
        assert_eq!(second.file, first.file);
        assert_eq!(writer.durability(&first), Durability::Durable);
    });
    assert_whole(storage.as_ref(), &first, "a", 60);
}

#[test]
fn a_run_that_must_be_durable_at_once_is() {
    let (_dir, faulty) = faulty();
    let (_dir, objects) = objects();
    for storage in [faulty as Arc<dyn Storage>, objects] {
        let writer = small_files(storage.clone());
        let waiting = run_of(&writer, "a", 60).unwrap();
        for kib in [60, 20] {
            let mut run = begin(&writer, "b");
            fill(&mut run, kib).unwrap();
            let run = run.finish_durable().unwrap();
            assert_eq!(writer.durability(&run), Durability::Durable);
            assert_whole(storage.as_ref(), &run, "b", kib);
            assert_eq!(run.file == waiting.file, kib == 60);
        }
    }
}

#[test]
fn a_full_file_is_sealed_and_one_run_that_fills_a_file_is_alone_in_it() {
    let (_dir, storage) = faulty();
    let writer = small_files(storage.clone());
    let runs: Vec<_> = (0..6).map(|_| run_of(&writer, "a", 80).unwrap()).collect();
    let files: Vec<_> = runs.iter().map(|run| run.file.seq).collect();
    assert_eq!(files, [1, 1, 1, 1, 2, 2], "full after 320 KiB");
    assert!(read_index(storage.as_ref(), runs[0].file).unwrap().sealed);
    let mut large = begin(&writer, "b");
    large.expect_bytes(400 << 10);
    fill(&mut large, 400).unwrap();
    let large = large.finish().unwrap();
    assert_eq!(large.file.seq, 3);
    assert!(read_index(storage.as_ref(), large.file).unwrap().sealed);
    assert_eq!(run_of(&writer, "a", 80).unwrap().file.seq, 2);
}

#[test]
fn sealing_all_files_waits_for_no_run_and_leaves_none_open() {
    let (_dir, storage) = faulty();
    let writer = small_files(storage.clone());
    let first = run_of(&writer, "a", 60).unwrap();
    let mut run = begin(&writer, "b");
    let mut other = begin(&writer, "c");
    fill(&mut run, 60).unwrap();
    fill(&mut other, 60).unwrap();
    writer.seal().unwrap();
    let (run, other) = (run.finish().unwrap(), other.finish().unwrap());
    assert_eq!(run.file, first.file);
    assert_ne!(other.file, first.file);
    for file in [run.file, other.file] {
        assert!(read_index(storage.as_ref(), file).unwrap().sealed);
    }
    let next = run_of(&writer, "a", 60).unwrap();
    assert!(next.file > other.file, "a new file");
}

/// The commit that needs `first` does not wait for the run that another store merges.
#[test]
fn a_file_that_a_commit_needs_is_durable_while_a_run_is_written_to_it() {
    let (_dir, storage) = faulty();
    let writer = small_files(storage.clone());
    let first = run_of(&writer, "a", 60).unwrap();
    let mut run = begin(&writer, "b");
    fill(&mut run, 60).unwrap();
    let syncs = storage.calls(Operation::Sync);
    writer.sync_files(&BTreeSet::from([first.file])).unwrap();
    writer.seal_files(&BTreeSet::from([first.file])).unwrap();
    assert_eq!(storage.calls(Operation::Sync), syncs, "nothing to wait for");
    assert_eq!(writer.durability(&first), Durability::Durable);
    let run = run.finish().unwrap();
    assert!(read_index(storage.as_ref(), run.file).unwrap().sealed);
    assert_whole(storage.as_ref(), &first, "a", 60);
}

#[test]
fn a_run_that_fails_spares_those_before_it_in_its_file() {
    // The parts of 32 KiB of a run of 180 KiB, and what is left.
    for nth in 1..=3 {
        for (cuts, full) in [(true, true), (true, false), (false, true), (false, false)] {
            let (_dir, storage) = faulty();
            let writer = small_files(storage.clone());
            let first = run_of(&writer, "a", 60).unwrap();
            if full {
                storage.full_append_nth(nth, 1000);
            } else {
                storage.short_append_nth(nth, 1000);
            }
            if !cuts {
                storage.fail_nth(Operation::Cut, 1);
            }
            let error = run_of(&writer, "b", 180).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Storage, "{error}");
            assert_eq!(writer.lost_files(), []);
            let index = read_index(storage.as_ref(), first.file).unwrap();
            let found: Vec<_> = index.segments.iter().map(|s| s.reference).collect();
            assert_eq!(found, [first], "append {nth}");
            // A file that could be cut back takes others, if the disk was only full.
            assert_eq!(index.sealed, !(cuts && full));
            let next = run_of(&writer, "b", 60).unwrap();
            assert_eq!(next.file == first.file, cuts && full);
            writer.seal().unwrap();
            assert_whole(storage.as_ref(), &first, "a", 60);
            assert_whole(storage.as_ref(), &next, "b", 60);
        }
    }
}

#[test]
fn a_run_that_is_given_up_leaves_its_file_to_the_next() {
    let (_dir, faulty) = faulty();
    let (_dir, objects) = objects();
    let cuts = faulty.clone();
    for storage in [faulty as Arc<dyn Storage>, objects] {
        let writer = small_files(storage.clone());
        let first = run_of(&writer, "a", 60).unwrap();
        let mut run = begin(&writer, "b");
        fill(&mut run, 80).unwrap();
        drop(run);
        let next = run_of(&writer, "b", 60).unwrap();
        let can_cut = cuts.calls(Operation::Cut) == 1 && storage.capabilities().durable_append;
        assert_eq!(next.file == first.file, can_cut);
        writer.seal().unwrap();
        assert_whole(storage.as_ref(), &first, "a", 60);
        assert_whole(storage.as_ref(), &next, "b", 60);
    }
}

#[test]
fn a_failed_sync_poisons_the_file_and_loses_no_run_that_was_there() {
    let (_dir, storage) = faulty();
    let writer = small_files(storage.clone());
    let first = run_of(&writer, "a", 60).unwrap();
    storage.fail_nth(Operation::Sync, 1);
    let error = run_of(&writer, "b", 60).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Storage, "{error}");
    assert_eq!(writer.durability(&first), Durability::Durable);
    assert_eq!(writer.lost_files(), []);
    assert_whole(storage.as_ref(), &first, "a", 60);
    let next = run_of(&writer, "b", 60).unwrap();
    assert_ne!(next.file, first.file);
    // A file that has nothing else is not left.
    let before = names(storage.as_ref());
    let mut other = begin(&writer, "c");
    other.expect_bytes(1 << 20);
    fill(&mut other, 60).unwrap();
    storage.fail_nth(Operation::Sync, 1);
    other.finish().unwrap_err();
    assert_eq!(names(storage.as_ref()), before);
}

#[test]
fn runs_leave_a_file_that_was_deleted() {
    let (dir, storage) = faulty();
    let writer = small_files(storage.clone());
    let first = run_of(&writer, "a", 60).unwrap();
    let delete = |run: &SegmentRef| {
        std::fs::remove_file(dir.path().join("root").join(run.file.file_name())).unwrap();
    };
    delete(&first);
    writer.leave_deleted().unwrap();
    let second = run_of(&writer, "a", 60).unwrap();
    assert_ne!(second.file, first.file);
    // Or as late as when the next run ends.
    let mut run = begin(&writer, "b");
    fill(&mut run, 60).unwrap();
    delete(&second);
    assert_eq!(run.finish().unwrap_err().kind(), ErrorKind::NotFound);
    let third = run_of(&writer, "a", 60).unwrap();
    assert_whole(storage.as_ref(), &third, "a", 60);
}

#[test]
fn whatever_is_left_of_a_later_run_the_ones_before_are_found() {
    let (dir, storage) = faulty();
    let writer = small_files(storage.clone());
    let runs = [("a", 55), ("b", 54)];
    let [first, second] = runs.map(|(region, kib)| run_of(&writer, region, kib).unwrap());
    assert_eq!(first.file, second.file);
    let path = dir.path().join("root").join(first.file.file_name());
    let bytes = std::fs::read(&path).unwrap();
    let whole = (second.offset + second.len) as usize;
    assert_eq!(bytes.len(), whole, "no footer");
    let torn = dir.path().join("torn");
    std::fs::create_dir(&torn).unwrap();
    let copy = torn.join(first.file.file_name());
    let left = LocalStorage::new(&torn);
    std::fs::write(&copy, &bytes).unwrap();
    let file = std::fs::OpenOptions::new().write(true).open(&copy).unwrap();
    for end in (0..=whole).rev() {
        file.set_len(end as u64).unwrap();
        let expected: Vec<_> = [first, second]
            .into_iter()
            .filter(|run| (run.offset + run.len) as usize <= end)
            .collect();
        match read_index(&left, first.file) {
            Ok(index) => {
                let found: Vec<_> = index.segments.iter().map(|s| s.reference).collect();
                assert_eq!(found, expected, "cut to {end} bytes");
                assert!(!index.sealed);
            }
            Err(e) => assert!(expected.is_empty(), "cut to {end} bytes: {e}"),
        }
    }
}

const FOLDER: &str = "HOLDFAST_TEST_RUN_FILES";

/// In the process that is killed: a run, which its standard output names, and a part of another.
fn write_until_killed(folder: &Path) {
    let writer = small_files(Arc::new(LocalStorage::new(folder)));
    append(&writer, &owner("a"), 1, b"changes").unwrap();
    let first = run_of(&writer, "a", 72).unwrap();
    let mut run = begin(&writer, "b");
    fill(&mut run, 180).unwrap();
    println!("\nwritten {} {}", first.offset + first.len, first.file.seq);
    std::thread::park();
    unreachable!("nothing wakes this thread: {run:?}");
}

#[test]
fn a_process_killed_in_the_middle_of_a_later_run_leaves_the_ones_before() {
    if let Some(folder) = std::env::var_os(FOLDER) {
        write_until_killed(Path::new(&folder));
    }
    let dir = tempfile::tempdir().unwrap();
    let this = "run_files::a_process_killed_in_the_middle_of_a_later_run_leaves_the_ones_before";
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", this, "--nocapture"])
        .env(FOLDER, dir.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let said = lines
        .find_map(|line| line.unwrap().strip_prefix("written ").map(str::to_owned))
        .expect("the child says what it wrote");
    child.kill().unwrap();
    child.wait().unwrap();
    let (end, seq) = said.split_once(' ').unwrap();
    let file = FileId {
        term: Term(1),
        seq: seq.parse().unwrap(),
    };
    let storage = LocalStorage::new(dir.path());
    assert!(storage.len(&file.file_name()).unwrap() > end.parse().unwrap());
    let index = read_index(&storage, file).unwrap();
    assert!(!index.sealed);
    let [first] = index.segments.as_slice() else {
        panic!("expected one run, found {:?}", index.segments);
    };
    assert_whole(&storage, &first.reference, "a", 72);
    // Its successor has another term, and so other names.
    let next = SegmentWriter::open(
        Arc::new(storage.clone()),
        Term(2),
        options(256 << 10, Compression::None),
    );
    let run = run_of(&next, "a", 72).unwrap();
    assert_whole(&storage, &run, "a", 72);
    assert_whole(&storage, &first.reference, "a", 72);
}

/// Numbers that follow from a seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 33) % end
    }
}

/// The work of one thread: it finishes or drops runs, and closes files while others do the same.
fn work(writer: &SegmentWriter, dice: &mut Dice, region: &str) -> Vec<(SegmentRef, u64)> {
    let mut made = Vec::new();
    for _ in 0..60 {
        let kib = 1 + dice.below(150);
        let mut run = begin(writer, region);
        let filled = fill(&mut run, kib);
        let ended = match dice.below(4) {
            0 => continue,
            1 => filled.and_then(|()| run.finish_durable()),
            _ => filled.and_then(|()| run.finish()),
        };
        let Ok(reference) = ended else {
            continue;
        };
        made.push((reference, kib));
        let any = made[dice.below(made.len() as u64) as usize].0.file;
        // After a failure these may report it, to any thread.
        let _ = match dice.below(12) {
            0 => writer.seal(),
            1 => writer.sync(),
            2 => writer.seal_pending_runs(),
            3 => writer.sync_soon(any),
            4 => writer.sync_files(&BTreeSet::from([any])),
            5 => writer.seal_files(&BTreeSet::from([any])),
            _ => append(writer, &owner(region), 1, b"changes").map(drop),
        };
    }
    made
}

#[test]
fn whatever_threads_do_at_once_runs_are_whole_or_known_to_be_lost() {
    for seed in 0..12 {
        let (_dir, faulty) = faulty();
        let (_dir, objects) = objects();
        let storage = if seed % 2 == 0 {
            faulty
        } else {
            Arc::new(FaultyStorage::new(objects))
        };
        let fails = seed % 3 == 0;
        let mut dice = Dice(seed);
        for _ in 0..if fails { 20 } else { 0 } {
            match dice.below(4) {
                0 => storage.fail_nth(Operation::Sync, 1 + dice.below(150)),
                1 => storage.short_append_nth(1 + dice.below(500), 1000),
                2 => storage.full_append_nth(1 + dice.below(500), 1000),
                _ => storage.fail_nth(Operation::Cut, 1 + dice.below(20)),
            }
        }
        let writer = small_files(storage.clone());
        let regions = ["a", "b", "c", "d"];
        let made: Vec<_> = std::thread::scope(|scope| {
            let threads = regions.map(|region| {
                let (writer, mut dice) = (&writer, Dice(dice.below(1 << 30)));
                scope.spawn(move || work(writer, &mut dice, region))
            });
            threads.map(|thread| thread.join().unwrap()).into()
        });
        storage.heal();
        let sealed = writer.seal();
        assert!(fails || sealed.is_ok(), "seed {seed}: {sealed:?}");
        assert!(!writer.has_pending_runs());
        for (region, made) in regions.iter().zip(made) {
            assert!(made.len() > 10, "seed {seed}");
            for (run, kib) in made {
                match writer.durability(&run) {
                    Durability::Durable => assert_whole(storage.as_ref(), &run, region, kib),
                    found => assert!(fails && found == Durability::Lost, "seed {seed}: {found:?}"),
                }
            }
        }
    }
}
