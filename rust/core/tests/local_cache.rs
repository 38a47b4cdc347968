//! Remote storage with the local cache: reads return the stored bytes, whatever becomes of the cache.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::cell::Cell;
use std::env;
use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use holdfast_core::ErrorKind;
use holdfast_core::storage::{CachedStorage, LocalCache, LocalStorage, Storage};
use holdfast_sim::{FaultyStorage, Operation, conformance};
use proptest::prelude::*;

const PAGE: usize = 256 << 10;
const MIB: usize = 1 << 20;

struct Setup {
    dir: tempfile::TempDir,
    /// Takes the place of remote storage, and counts.
    remote: FaultyStorage,
    cache: Arc<LocalCache>,
    storage: CachedStorage,
}

fn setup(cache_bytes: usize) -> Setup {
    let dir = tempfile::tempdir().unwrap();
    let remote = FaultyStorage::new(Arc::new(LocalStorage::new(dir.path().join("remote"))));
    let cache = Arc::new(LocalCache::default());
    cache
        .keep_in(&dir.path().join("cache"), cache_bytes as u64)
        .unwrap();
    let storage = CachedStorage::new(Arc::new(remote.clone()), Arc::clone(&cache));
    Setup {
        dir,
        remote,
        cache,
        storage,
    }
}

impl Setup {
    fn cache_dir(&self) -> PathBuf {
        self.dir.path().join("cache")
    }

    fn reads(&self) -> u64 {
        self.remote.calls(Operation::Read)
    }

    /// Written without the cache, by another process as it were.
    fn foreign(&self, name: &str, bytes: &[u8]) {
        write(&self.remote, name, bytes);
    }
}

fn write(storage: &dyn Storage, name: &str, bytes: &[u8]) {
    let mut file = storage.create(name).unwrap();
    // Appends of many sizes, none of them a page's.
    for part in bytes.chunks(100_003) {
        file.append(part).unwrap();
    }
    file.finish().unwrap();
}

/// No two parts of it are equal.
fn content(len: usize) -> Vec<u8> {
    (0..len.div_ceil(8) as u64)
        .flat_map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes())
        .take(len)
        .collect()
}

/// The cache's file, which has no name.
fn nameless(cache_dir: &Path) -> Option<PathBuf> {
    let open = fs::read_dir("/proc/self/fd").unwrap();
    let mut links = open.filter_map(|entry| Some(entry.ok()?.path()));
    links.find(|link| fs::read_link(link).is_ok_and(|file| file.starts_with(cache_dir)))
}

#[test]
fn storage_behind_a_cache_conforms() {
    let dir = tempfile::tempdir().unwrap();
    let next = Cell::new(0);
    for cache_bytes in [0, PAGE, 64 * MIB] {
        let cache = Arc::new(LocalCache::default());
        cache.keep_in(dir.path(), cache_bytes as u64).unwrap();
        conformance::run(|| {
            next.set(next.get() + 1);
            let root = dir.path().join(next.get().to_string());
            let remote = Arc::new(LocalStorage::new(root));
            Arc::new(CachedStorage::new(remote, Arc::clone(&cache)))
        });
    }
}

#[test]
fn what_was_written_or_read_is_not_fetched_again() {
    let setup = setup(64 * MIB);
    let bytes = content(3 * MIB + 12_345);
    write(&setup.storage, "own", &bytes);
    let own = setup.storage.open("own").unwrap();
    assert_eq!(own.read(0, bytes.len() as u64).unwrap(), bytes);
    assert_eq!(setup.reads(), 0);
    setup.foreign("foreign", &bytes);
    let foreign = setup.storage.open("foreign").unwrap();
    for _ in 0..2 {
        assert_eq!(
            foreign.read(300_000, 1000).unwrap(),
            bytes[300_000..301_000]
        );
        assert_eq!(
            foreign.read(310_000, 1000).unwrap(),
            bytes[310_000..311_000]
        );
        assert_eq!(setup.reads(), 1);
    }
    assert_eq!(setup.cache.misses(), 1);
    assert!(setup.cache.hits() > 3);
}

#[test]
fn what_was_synced_of_an_object_that_grows_is_not_fetched() {
    let setup = setup(64 * MIB);
    let bytes = content(3 * PAGE);
    let mut file = setup.storage.create("a").unwrap();
    for part in bytes.chunks(50_000) {
        file.append(part).unwrap();
        file.sync().unwrap();
        let len = setup.remote.len("a").unwrap();
        let found = setup.storage.read("a", 0, len).unwrap();
        assert_eq!(found, bytes[..len as usize]);
    }
    assert_eq!(setup.reads(), 0);
}

#[test]
fn one_that_reads_on_fetches_more_at_a_time() {
    let setup = setup(64 * MIB);
    let bytes = content(16 * MIB);
    setup.foreign("a", &bytes);
    let file = setup.storage.open("a").unwrap();
    for start in (0..bytes.len()).step_by(16 << 10) {
        let end = start + (16 << 10);
        assert_eq!(
            file.read(start as u64, 16 << 10).unwrap(),
            bytes[start..end]
        );
    }
    // 1, 2, 4, 8 and then 16 pages, of 64.
    assert_eq!(setup.reads(), 8);
    // One that jumps about fetches a page each time.
    setup.foreign("b", &bytes);
    let file = setup.storage.open("b").unwrap();
    for page in [9, 50, 3, 40] {
        file.read((page * PAGE) as u64, 1).unwrap();
    }
    assert_eq!(setup.reads(), 12);
    assert_eq!(setup.cache.used_bytes(), (16 * MIB + 4 * PAGE) as u64);
}

#[test]
fn the_cache_stays_within_its_bound_and_keeps_what_is_used() {
    let setup = setup(4 * PAGE);
    let bytes = content(40 * PAGE);
    setup.foreign("a", &bytes);
    let file = setup.storage.open("a").unwrap();
    for page in 0..20 {
        // Backwards, so that nothing is read ahead.
        let start = (39 - page) * PAGE;
        assert_eq!(file.read(start as u64, 9).unwrap(), bytes[start..start + 9]);
        // Asked for all the time: fetched once.
        assert_eq!(file.read(7, 9).unwrap(), bytes[7..16]);
    }
    assert_eq!(setup.reads(), 21);
    assert_eq!(setup.cache.used_bytes(), (4 * PAGE) as u64);
    let on_disk = fs::metadata(nameless(&setup.cache_dir()).unwrap()).unwrap();
    assert!(on_disk.len() <= (4 * PAGE) as u64);
    // A smaller bound holds at once, and 0 turns the cache off.
    let dir = setup.cache_dir();
    setup.cache.keep_in(&dir, 2 * PAGE as u64).unwrap();
    assert!(setup.cache.used_bytes() <= (2 * PAGE) as u64);
    setup.cache.keep_in(&dir, 0).unwrap();
    assert_eq!(setup.cache.used_bytes(), 0);
    assert!(!setup.cache.is_on());
    assert_eq!(nameless(&dir), None);
    assert_eq!(file.read(7, 9).unwrap(), bytes[7..16]);
}

#[test]
fn no_file_is_left_where_the_cache_was() {
    let setup = setup(MIB);
    setup.foreign("a", &content(MIB));
    setup.storage.read("a", 0, 1).unwrap();
    let left = fs::read_dir(setup.cache_dir()).unwrap();
    assert_eq!(left.count(), 0);
}

/// A process that is killed while it makes the file would leave a name that it had for a moment.
#[test]
#[cfg(target_os = "linux")]
fn the_file_never_has_a_name() {
    let dir = tempfile::tempdir().unwrap();
    fs::File::open(dir.path())
        .and_then(|opened| opened.set_modified(UNIX_EPOCH))
        .unwrap();
    let cache = LocalCache::default();
    cache.keep_in(dir.path(), MIB as u64).unwrap();
    assert!(cache.is_on());
    let changed = fs::metadata(dir.path()).and_then(|found| found.modified());
    assert_eq!(changed.unwrap(), UNIX_EPOCH, "a name came and went");
}

/// Says to the process that this test starts where its full disk is.
const FULL_DISK: &str = "HOLDFAST_TEST_FULL_DISK";

/// On a file system of 1 MiB, in a namespace of its own.
#[test]
#[cfg(target_os = "linux")]
fn a_cache_whose_disk_is_full_gives_it_back_and_says_why() {
    if let Some(disk) = env::var_os(FULL_DISK) {
        return fill(Path::new(&disk));
    }
    let disk = tempfile::tempdir().unwrap();
    let in_namespace = |script: &str| {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--mount", "sh", "-c"]);
        command.arg(format!("mount -t tmpfs -o size=1m none \"$1\" && {script}"));
        command.arg("sh").arg(disk.path());
        command
    };
    if !in_namespace("true").status().is_ok_and(|s| s.success()) {
        eprintln!("skipped: a file system cannot be mounted here");
        return;
    }
    let mut test = in_namespace("exec \"$2\" --exact --nocapture \"$3\"");
    test.arg(env::current_exe().unwrap());
    test.arg("local_cache::a_cache_whose_disk_is_full_gives_it_back_and_says_why");
    let done = test.env(FULL_DISK, disk.path()).output().unwrap();
    let printed = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success(), "{done:?}");
    assert!(printed.contains("1 passed"), "{printed}");
}

#[cfg(target_os = "linux")]
fn fill(disk: &Path) {
    let setup = setup(0);
    setup.cache.keep_in(disk, 64 * MIB as u64).unwrap();
    // Three of four pages fit next to the pages of others.
    fs::write(disk.join("others"), content(PAGE / 2)).unwrap();
    let bytes = content(8 * PAGE);
    let mut file = setup.storage.create("own").unwrap();
    file.append(&bytes[..3 * PAGE]).unwrap();
    assert_eq!(setup.cache.used_bytes(), 3 * PAGE as u64);
    file.append(&bytes[3 * PAGE..]).unwrap();
    file.finish().unwrap();
    assert!(!setup.cache.is_on());
    assert_eq!(setup.cache.used_bytes(), 0);
    let failure = setup.cache.take_failure().unwrap();
    let said = failure.to_string();
    assert!(said.contains(&disk.display().to_string()), "{said}");
    assert!(said.contains("No space left"), "{said}");
    assert!(setup.cache.take_failure().is_none(), "said twice");
    // Others have all that it took, while it reads what is there.
    let own = setup.storage.open("own").unwrap();
    fs::write(disk.join("others"), content(MIB - PAGE / 4)).unwrap();
    assert_eq!(own.read(0, bytes.len() as u64).unwrap(), bytes);
    // It may begin again, and has nothing to complain of then.
    fs::write(disk.join("others"), b"").unwrap();
    setup.cache.keep_in(disk, PAGE as u64).unwrap();
    assert_eq!(setup.storage.read("own", 0, 9).unwrap(), bytes[..9]);
    assert_eq!(setup.cache.used_bytes(), PAGE as u64);
    assert!(setup.cache.take_failure().is_none());
}

#[test]
fn a_damaged_page_is_fetched_again() {
    let setup = setup(64 * MIB);
    let bytes = content(8 * PAGE);
    write(&setup.storage, "a", &bytes);
    let file = setup.storage.open("a").unwrap();
    let damaged = nameless(&setup.cache_dir()).unwrap();
    let damaged = OpenOptions::new().write(true).open(damaged).unwrap();
    for page in 0..8 {
        damaged
            .write_all_at(b"x", (page * PAGE + 1234) as u64)
            .unwrap();
    }
    assert_eq!(file.read(0, bytes.len() as u64).unwrap(), bytes);
    assert!(setup.reads() > 0);
    let reads = setup.reads();
    assert_eq!(file.read(0, bytes.len() as u64).unwrap(), bytes);
    assert_eq!(setup.reads(), reads);
    // One that was cut off at its end, as a full disk does it.
    damaged.set_len(PAGE as u64).unwrap();
    assert_eq!(file.read(0, bytes.len() as u64).unwrap(), bytes);
}

#[test]
fn what_an_append_that_failed_may_have_left_is_read_from_storage() {
    let setup = setup(64 * MIB);
    let mut file = setup.storage.create("a").unwrap();
    file.append(&content(2 * PAGE)).unwrap();
    setup.remote.short_append_nth(1, 10);
    assert!(file.append(b"this is cut in the middle").is_err());
    file.cut((2 * PAGE) as u64).unwrap();
    file.append(b"on it goes").unwrap();
    file.finish().unwrap();
    let expected = [content(2 * PAGE), b"on it goes".to_vec()].concat();
    assert_eq!(
        setup.storage.read("a", 0, expected.len() as u64).unwrap(),
        expected
    );
}

#[test]
fn an_object_that_is_gone_is_not_found_though_it_was_in_the_cache() {
    let setup = setup(64 * MIB);
    write(&setup.storage, "a", &content(MIB));
    write(&setup.storage, "b", &content(MIB));
    // By another process, and by this one.
    setup.remote.delete("a").unwrap();
    setup.storage.delete("b").unwrap();
    for name in ["a", "b"] {
        let error = setup.storage.read(name, 0, 1).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
    }
}

#[test]
fn an_object_that_grows_is_read_to_its_new_end() {
    let setup = setup(64 * MIB);
    let bytes = content(PAGE);
    let mut file = setup.remote.create("a").unwrap();
    for part in bytes.chunks(70_000) {
        file.append(part).unwrap();
        let len = setup.remote.len("a").unwrap();
        let found = setup.storage.read("a", 0, len).unwrap();
        assert_eq!(found, bytes[..len as usize]);
    }
}

#[test]
fn what_cannot_be_read_ahead_fails_nobody() {
    let setup = setup(64 * MIB);
    let bytes = content(8 * PAGE);
    setup.foreign("a", &bytes);
    let file = setup.storage.open("a").unwrap();
    file.read(0, 1).unwrap();
    setup.remote.fail_nth(Operation::Read, 1);
    let start = PAGE as u64;
    assert_eq!(file.read(start, 5).unwrap(), bytes[PAGE..PAGE + 5]);
    // A failure for the requested bytes fails the read.
    setup.remote.fail_nth(Operation::Read, 1);
    assert_eq!(
        file.read(5 * start, 5).unwrap_err().kind(),
        ErrorKind::Storage
    );
}

#[test]
fn a_folder_that_cannot_be_made_is_reported_and_reads_go_to_storage() {
    let setup = setup(0);
    setup.foreign("a", b"bytes");
    let file = setup.dir.path().join("a-file");
    fs::write(&file, b"").unwrap();
    let error = setup
        .cache
        .keep_in(&file.join("cache"), MIB as u64)
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Storage);
    assert!(error.to_string().contains("a-file/cache"), "{error}");
    assert_eq!(setup.storage.read("a", 1, 3).unwrap(), b"yte");
}

#[test]
fn threads_that_share_a_small_cache_read_what_is_there() {
    let setup = setup(3 * PAGE);
    let bytes = content(16 * PAGE);
    setup.foreign("a", &bytes);
    std::thread::scope(|scope| {
        for seed in 0..4usize {
            let (storage, bytes) = (&setup.storage, &bytes);
            scope.spawn(move || {
                let file = storage.open("a").unwrap();
                for step in 0..400 {
                    let start = (step * 7919 + seed * 104_729) * 4099 % (bytes.len() - 5000);
                    let found = file.read(start as u64, 5000).unwrap();
                    assert!(found == bytes[start..start + 5000]);
                }
            });
        }
    });
    assert!(setup.cache.used_bytes() <= (3 * PAGE) as u64);
}

#[derive(Clone, Debug)]
enum Step {
    Read { at: usize, len: usize },
    Append(usize),
    Bound(usize),
    Reopen,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..4 * MIB, 0..MIB).prop_map(|(at, len)| Step::Read { at, len }),
        3 => (1..MIB).prop_map(Step::Append),
        1 => (0..8usize).prop_map(|pages| Step::Bound(pages * PAGE)),
        1 => Just(Step::Reopen),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn every_read_is_what_was_appended(steps in prop::collection::vec(step(), 1..60)) {
        let setup = setup(2 * PAGE);
        let bytes = content(40 * MIB);
        let mut file = setup.storage.create("a").unwrap();
        file.append(&bytes[..1]).unwrap();
        let mut len = 1;
        let mut open = setup.storage.open("a").unwrap();
        for step in steps {
            match step {
                Step::Read { at, len } => {
                    let size = open.size_bytes() as usize;
                    let at = at % size;
                    let len = len.min(size - at);
                    let found = open.read(at as u64, len as u64).unwrap();
                    prop_assert!(found == bytes[at..at + len]);
                }
                Step::Append(more) => {
                    let end = (len + more).min(bytes.len());
                    file.append(&bytes[len..end]).unwrap();
                    len = end;
                }
                Step::Bound(max) => {
                    setup.cache.keep_in(&setup.cache_dir(), max as u64).unwrap();
                }
                Step::Reopen => open = setup.storage.open("a").unwrap(),
            }
        }
    }
}
