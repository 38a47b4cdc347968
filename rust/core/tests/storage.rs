//! Every backend of the core keeps the storage contract.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::cell::Cell;
use std::path::PathBuf;
use std::sync::Arc;

use holdfast_core::ErrorKind;
use holdfast_core::storage::{
    CachedStorage, HandlePool, LocalCache, LocalStorage, PooledStorage, Storage,
};
use holdfast_sim::{FaultyStorage, Operation, conformance};

fn fresh_roots() -> (tempfile::TempDir, impl Fn() -> PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let parent = dir.path().to_owned();
    let next = Cell::new(0);
    let fresh = move || {
        next.set(next.get() + 1);
        // Two levels that do not exist yet: the root is made on the first create.
        parent.join(next.get().to_string()).join("root")
    };
    (dir, fresh)
}

#[test]
fn local_storage_conforms() {
    let (_dir, fresh) = fresh_roots();
    conformance::run(|| Arc::new(LocalStorage::new(fresh())));
}

#[test]
fn faulty_storage_without_a_script_conforms() {
    let (_dir, fresh) = fresh_roots();
    conformance::run(|| Arc::new(FaultyStorage::new(Arc::new(LocalStorage::new(fresh())))));
}

#[test]
fn pooled_storage_conforms_with_any_number_of_handles() {
    let (_dir, fresh) = fresh_roots();
    for max_handles in [0, 1, 128] {
        let pool = Arc::new(HandlePool::new(max_handles));
        conformance::run(|| {
            let files = Arc::new(LocalStorage::new(fresh()));
            Arc::new(PooledStorage::new(files, Arc::clone(&pool)))
        });
    }
}

#[test]
fn pooled_storage_behind_a_cache_conforms() {
    let (dir, fresh) = fresh_roots();
    let (pool, cache) = (Arc::new(HandlePool::new(2)), Arc::<LocalCache>::default());
    cache.keep_in(&dir.path().join("cache"), 16 << 20).unwrap();
    conformance::run(|| {
        let files = Arc::new(LocalStorage::new(fresh()));
        let pooled = Arc::new(PooledStorage::new(files, Arc::clone(&pool)));
        Arc::new(CachedStorage::new(pooled, Arc::clone(&cache)))
    });
}

#[test]
fn scripted_failures_hit_the_chosen_call_only() {
    let (_dir, fresh) = fresh_roots();
    let storage = FaultyStorage::new(Arc::new(LocalStorage::new(fresh())));
    storage.fail_nth(Operation::Create, 2);
    storage.short_append_nth(2, 1);
    storage.fail_nth(Operation::Sync, 1);
    let mut file = storage.create("a").unwrap();
    assert_eq!(storage.create("b").unwrap_err().kind(), ErrorKind::Storage);
    file.append(b"123").unwrap();
    assert!(file.append(b"456").is_err());
    assert_eq!(storage.read("a", 0, 4).unwrap(), b"1234");
    assert!(file.sync().is_err());
    file.finish().unwrap();
    assert_eq!(storage.calls(Operation::Create), 2);
}

#[test]
fn errors_name_the_full_path() {
    let (dir, fresh) = fresh_roots();
    let storage = LocalStorage::new(fresh());
    let error = storage.read("absent", 0, 1).unwrap_err().to_string();
    assert!(error.contains(dir.path().to_str().unwrap()), "{error}");
    assert!(error.contains("absent"), "{error}");
}

#[test]
fn foreign_directories_are_not_listed() {
    let (_dir, fresh) = fresh_roots();
    let root = fresh();
    std::fs::create_dir_all(root.join("folder")).unwrap();
    assert!(LocalStorage::new(root).list().unwrap().is_empty());
}
