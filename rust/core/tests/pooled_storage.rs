//! Readers that share handles: how many there are, and that a reader notices nothing of it. Descriptors are
//! counted by folder, so that tests of one process may run at once.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::path::Path;
use std::sync::{Arc, Barrier};

use crate::common::faulty;
use crate::common::open_files::open_below;
use holdfast_core::storage::{
    AppendFile, Capabilities, HandlePool, LocalStorage, ObjectMeta, PooledStorage, ReadFile,
    Storage,
};
use holdfast_core::{ErrorKind, Result};
use holdfast_sim::{FaultyStorage, Operation};

fn pooled(folder: &Path, max_handles: usize) -> PooledStorage {
    let pool = Arc::new(HandlePool::new(max_handles));
    PooledStorage::new(Arc::new(LocalStorage::new(folder)), pool)
}

fn put(storage: &dyn Storage, name: &str, bytes: &[u8]) {
    let mut file = storage.create(name).unwrap();
    file.append(bytes).unwrap();
    file.finish().unwrap();
}

#[test]
fn readers_of_one_object_share_a_handle_that_the_last_one_closes() {
    let dir = tempfile::tempdir().unwrap();
    let storage = pooled(dir.path(), 8);
    put(&storage, "object", b"0123456789");
    let readers: Vec<_> = (0..10u64)
        .map(|at| (at, storage.open("object").unwrap()))
        .collect();
    for (at, reader) in &readers {
        assert_eq!(reader.read(*at, 1).unwrap(), [b'0' + *at as u8]);
    }
    assert_eq!(open_below(dir.path()).len(), 1);
    let mut readers = readers;
    let last = readers.split_off(9);
    drop(readers);
    assert_eq!(last[0].1.read(0, 2).unwrap(), b"01");
    assert_eq!(open_below(dir.path()).len(), 1);
    drop(last);
    assert_eq!(open_below(dir.path()), Vec::<String>::new());
}

#[test]
fn beyond_the_bound_the_handles_that_were_not_used_for_longest_make_room() {
    let (dir, files) = faulty();
    let storage = PooledStorage::new(files.clone(), Arc::new(HandlePool::new(3)));
    let names: Vec<_> = (0..10u8).map(|n| format!("object-{n}")).collect();
    names
        .iter()
        .for_each(|name| put(&storage, name, name.as_bytes()));
    let readers: Vec<_> = names
        .iter()
        .map(|name| storage.open(name).unwrap())
        .collect();
    let opened = || files.calls(Operation::Open);
    for _ in 0..3 {
        for (name, reader) in names.iter().zip(&readers) {
            assert_eq!(reader.read(0, 8).unwrap(), name.as_bytes());
            assert_eq!(open_below(dir.path()).len(), 3);
        }
    }
    // The last three are open. One that is used over and over stays so.
    let before = opened();
    for reader in &readers[..7] {
        readers[7].read(0, 1).unwrap();
        reader.read(0, 1).unwrap();
    }
    assert_eq!(opened() - before, 7);
    drop(readers);
    assert_eq!(open_below(dir.path()), Vec::<String>::new());
}

#[test]
fn storages_with_one_pool_share_its_bound() {
    let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let pool = Arc::new(HandlePool::new(2));
    let storages = [one.path(), other.path()]
        .map(|folder| PooledStorage::new(Arc::new(LocalStorage::new(folder)), Arc::clone(&pool)));
    let mut readers = Vec::new();
    for storage in &storages {
        for name in ["a", "b"] {
            put(storage, name, storage.location().as_bytes());
            readers.push((storage, storage.open(name).unwrap()));
        }
    }
    for (storage, reader) in &readers {
        let location = storage.location();
        let len = location.len() as u64;
        assert_eq!(reader.read(0, len).unwrap(), location.as_bytes());
        let open = open_below(one.path()).len() + open_below(other.path()).len();
        assert_eq!(open, 2);
    }
}

#[test]
fn an_object_that_grows_is_read_to_its_new_end_by_those_that_open_it_then() {
    let dir = tempfile::tempdir().unwrap();
    let storage = pooled(dir.path(), 8);
    let mut file = storage.create("object").unwrap();
    file.append(b"first").unwrap();
    let before = storage.open("object").unwrap();
    assert_eq!(before.read(0, 5).unwrap(), b"first");
    file.append(b"second").unwrap();
    let after = storage.open("object").unwrap();
    assert_eq!(after.size_bytes(), 11);
    assert_eq!(after.read(3, 8).unwrap(), b"stsecond");
    // A reader knows the size at which it was opened.
    assert_eq!(before.size_bytes(), 5);
    let beyond = before.read(3, 8).unwrap_err();
    assert_eq!(beyond.kind(), ErrorKind::Corrupt);
    assert!(beyond.to_string().contains("found 5"), "{beyond}");
    assert_eq!(before.read(0, 5).unwrap(), b"first");
    file.finish().unwrap();
    // The handle that was too short is closed.
    assert_eq!(open_below(dir.path()).len(), 1);
}

#[test]
fn what_was_cut_off_under_a_reader_is_damage_and_what_is_left_is_read() {
    let (_dir, files) = faulty();
    let storage = PooledStorage::new(files, Arc::new(HandlePool::new(0)));
    let mut file = storage.create("object").unwrap();
    file.append(b"whole and a part").unwrap();
    let reader = storage.open("object").unwrap();
    file.cut(5).unwrap();
    assert_eq!(reader.read(0, 5).unwrap(), b"whole");
    let cut = reader.read(5, 6).unwrap_err();
    assert_eq!(cut.kind(), ErrorKind::Corrupt);
    assert!(cut.to_string().contains("found 5"), "{cut}");
}

#[test]
fn a_deleted_object_is_gone_once_its_handle_is_closed() {
    let dir = tempfile::tempdir().unwrap();
    let storage = pooled(dir.path(), 2);
    for name in ["gone", "other", "third"] {
        put(&storage, name, name.as_bytes());
    }
    let reader = storage.open("gone").unwrap();
    // Another process deletes it: what is open can be read to the end.
    std::fs::remove_file(dir.path().join("gone")).unwrap();
    assert_eq!(
        storage.open("gone").unwrap_err().kind(),
        ErrorKind::NotFound
    );
    assert_eq!(reader.read(0, 4).unwrap(), b"gone");
    let others = ["other", "third"].map(|name| storage.open(name).unwrap());
    let gone = reader.read(0, 4).unwrap_err();
    assert_eq!(gone.kind(), ErrorKind::NotFound);
    let path = dir.path().join("gone");
    assert!(gone.to_string().contains(path.to_str().unwrap()), "{gone}");
    assert_eq!(others[0].read(0, 5).unwrap(), b"other");
}

#[test]
fn deleting_an_object_closes_its_handles() {
    let dir = tempfile::tempdir().unwrap();
    let storage = pooled(dir.path(), 8);
    put(&storage, "object", b"bytes");
    let reader = storage.open("object").unwrap();
    assert_eq!(open_below(dir.path()).len(), 1);
    storage.delete("object").unwrap();
    assert_eq!(open_below(dir.path()), Vec::<String>::new());
    assert_eq!(reader.read(0, 5).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(open_below(dir.path()), Vec::<String>::new());
    // So does giving it another name.
    put(&storage, "old", b"bytes");
    let _reader = storage.open("old").unwrap();
    storage.rename("old", "new").unwrap();
    assert_eq!(open_below(dir.path()), Vec::<String>::new());
}

#[test]
fn a_read_that_fails_is_made_again_with_a_handle_that_is_new() {
    let (dir, files) = faulty();
    let storage = PooledStorage::new(files.clone(), Arc::new(HandlePool::new(8)));
    put(&storage, "object", b"bytes");
    let reader = storage.open("object").unwrap();
    let before = files.calls(Operation::Open);
    files.fail_nth(Operation::Read, 1);
    assert_eq!(reader.read(0, 5).unwrap(), b"bytes");
    assert_eq!(files.calls(Operation::Open) - before, 1);
    // The second read fails as well.
    (1..=2).for_each(|nth| files.fail_nth(Operation::Read, nth));
    assert_eq!(reader.read(0, 5).unwrap_err().kind(), ErrorKind::Storage);
    assert_eq!(open_below(dir.path()), Vec::<String>::new());
    files.fail_nth(Operation::Open, 1);
    assert_eq!(reader.read(0, 5).unwrap_err().kind(), ErrorKind::Storage);
    assert_eq!(reader.read(0, 5).unwrap(), b"bytes");
    assert_eq!(open_below(dir.path()).len(), 1);
}

/// Each read waits until as many are under way as the barrier has places.
#[derive(Debug)]
struct Meeting {
    inner: FaultyStorage,
    barrier: Arc<Barrier>,
}

#[derive(Debug)]
struct MeetingReader {
    inner: Box<dyn ReadFile>,
    barrier: Arc<Barrier>,
}

impl ReadFile for MeetingReader {
    fn size_bytes(&self) -> u64 {
        self.inner.size_bytes()
    }

    fn read(&self, offset: u64, len: u64) -> Result<Vec<u8>> {
        self.barrier.wait();
        let read = self.inner.read(offset, len);
        self.barrier.wait();
        read
    }
}

impl Storage for Meeting {
    fn location(&self) -> String {
        self.inner.location()
    }

    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn create(&self, name: &str) -> Result<Box<dyn AppendFile>> {
        self.inner.create(name)
    }

    fn open(&self, name: &str) -> Result<Box<dyn ReadFile>> {
        Ok(Box::new(MeetingReader {
            inner: self.inner.open(name)?,
            barrier: Arc::clone(&self.barrier),
        }))
    }

    fn len(&self, name: &str) -> Result<u64> {
        self.inner.len(name)
    }

    fn sync(&self, name: &str) -> Result<()> {
        self.inner.sync(name)
    }

    fn delete(&self, name: &str) -> Result<()> {
        self.inner.delete(name)
    }

    fn list(&self) -> Result<Vec<ObjectMeta>> {
        self.inner.list()
    }
}

#[test]
fn reads_of_one_object_do_not_wait_for_each_other_whatever_the_bound() {
    const AT_ONCE: usize = 4;
    for (max_handles, kept, opened) in [(0, 0, 12), (2, 2, 7), (8, AT_ONCE, 3)] {
        let (dir, files) = faulty();
        put(files.as_ref(), "object", b"0123456789");
        // If one of them waited for another, none would ever get on.
        let barrier = Arc::new(Barrier::new(AT_ONCE));
        let inner = Meeting {
            inner: files.as_ref().clone(),
            barrier,
        };
        let pool = Arc::new(HandlePool::new(max_handles));
        let storage = PooledStorage::new(Arc::new(inner), pool);
        let readers: Vec<_> = (0..AT_ONCE)
            .map(|_| storage.open("object").unwrap())
            .collect();
        let before = files.calls(Operation::Open);
        for _ in 0..3 {
            std::thread::scope(|scope| {
                for (at, reader) in readers.iter().enumerate() {
                    let expected = vec![b'0' + at as u8, b'1' + at as u8];
                    scope.spawn(move || {
                        assert_eq!(reader.read(at as u64, 2).unwrap(), expected);
                    });
                }
            });
        }
        assert_eq!(open_below(dir.path()).len(), kept);
        assert_eq!(files.calls(Operation::Open) - before, opened);
        drop(readers);
        assert_eq!(open_below(dir.path()), Vec::<String>::new());
    }
}

#[test]
fn a_handle_that_a_read_has_while_the_object_is_deleted_is_closed_after_it() {
    let (dir, files) = faulty();
    put(files.as_ref(), "object", b"bytes");
    // The read, and the one that deletes during it.
    let barrier = Arc::new(Barrier::new(2));
    let inner = Meeting {
        inner: files.as_ref().clone(),
        barrier: Arc::clone(&barrier),
    };
    let storage = PooledStorage::new(Arc::new(inner), Arc::new(HandlePool::new(8)));
    let reader = storage.open("object").unwrap();
    std::thread::scope(|scope| {
        let read = scope.spawn(|| reader.read(0, 5));
        barrier.wait();
        storage.delete("object").unwrap();
        assert_eq!(open_below(dir.path()).len(), 1);
        barrier.wait();
        assert_eq!(read.join().unwrap().unwrap(), b"bytes");
    });
    assert_eq!(open_below(dir.path()), Vec::<String>::new());
    assert_eq!(reader.read(0, 5).unwrap_err().kind(), ErrorKind::NotFound);
}
