//! The contract of every backend, as a suite that its tests call.
//!
//! ```
//! use std::sync::Arc;
//! use holdfast_core::storage::LocalStorage;
//! use holdfast_sim::conformance;
//! # let parent = tempfile::tempdir().unwrap();
//! # let next = std::cell::Cell::new(0);
//! conformance::run(|| {
//!     next.set(next.get() + 1);
//!     Arc::new(LocalStorage::new(parent.path().join(next.get().to_string())))
//! });
//! ```

#![expect(
    clippy::disallowed_methods,
    reason = "the suite, which tests run, calls a storage from several threads"
)]
// A failed expectation is reported by a panic, as in any test.
#![allow(clippy::expect_used)]

use std::sync::Arc;

use holdfast_core::ErrorKind;
use holdfast_core::storage::Storage;

/// Runs every check, each on a fresh and empty storage from `make`.
///
/// # Panics
/// When the backend breaks the contract; the message says which rule.
pub fn run(make: impl Fn() -> Arc<dyn Storage>) {
    let checks: [fn(&dyn Storage); 14] = [
        absent_objects_are_not_found,
        finished_objects_read_back,
        an_open_object_serves_several_reads,
        an_object_of_known_length_is_read_as_any_other,
        a_name_is_taken_once,
        reads_past_the_end_are_refused,
        appended_bytes_are_visible_before_the_end,
        what_is_cut_off_is_gone_and_appends_go_on,
        unfinished_objects_are_absent_without_durable_appends,
        deleted_objects_are_gone,
        renaming_takes_a_free_name_only,
        listing_is_sorted_with_sizes,
        names_cannot_leave_the_folder,
        writers_of_different_objects_do_not_meet,
    ];
    for check in checks {
        check(make().as_ref());
    }
}

fn kind<T: std::fmt::Debug>(result: holdfast_core::Result<T>) -> ErrorKind {
    result.expect_err("an error was expected").kind()
}

fn put(storage: &dyn Storage, name: &str, bytes: &[u8]) {
    let mut file = storage.create(name).expect("create");
    file.append(bytes).expect("append");
    file.finish().expect("finish");
}

fn absent_objects_are_not_found(storage: &dyn Storage) {
    assert!(
        storage
            .list()
            .expect("an absent root lists nothing")
            .is_empty()
    );
    assert_eq!(kind(storage.open("absent")), ErrorKind::NotFound);
    assert_eq!(kind(storage.read("absent", 0, 0)), ErrorKind::NotFound);
    assert_eq!(kind(storage.len("absent")), ErrorKind::NotFound);
    assert_eq!(kind(storage.sync("absent")), ErrorKind::NotFound);
    storage
        .delete("absent")
        .expect("deleting what is absent succeeds");
}

fn finished_objects_read_back(storage: &dyn Storage) {
    let mut file = storage.create("object").expect("create");
    file.append(b"abc").expect("append");
    file.append(b"").expect("an empty append");
    file.append(b"defg").expect("append again");
    file.sync()
        .or_else(|e| {
            if storage.capabilities().durable_append {
                Err(e)
            } else {
                Ok(())
            }
        })
        .expect("sync");
    file.finish().expect("finish");
    assert_eq!(storage.len("object").expect("len"), 7);
    assert_eq!(storage.read("object", 0, 7).expect("read"), b"abcdefg");
    assert_eq!(storage.read("object", 2, 3).expect("read a range"), b"cde");
    assert_eq!(
        storage
            .read("object", 7, 0)
            .expect("read nothing at the end"),
        b""
    );
    storage.sync("object").expect("sync by name");
}

fn an_open_object_serves_several_reads(storage: &dyn Storage) {
    put(storage, "object", b"abcdefg");
    let open = storage.open("object").expect("open");
    assert_eq!(open.size_bytes(), 7);
    assert_eq!(open.read(4, 3).expect("read the end"), b"efg");
    assert_eq!(open.read(0, 2).expect("read the beginning"), b"ab");
    assert_eq!(kind(open.read(5, 3)), ErrorKind::Corrupt);
    assert_eq!(open.read(5, 2).expect("read after an error"), b"fg");
}

fn an_object_of_known_length_is_read_as_any_other(storage: &dyn Storage) {
    put(storage, "object", b"abcdefg");
    for known in [5, 7] {
        let open = storage.open_known("object", known).expect("open");
        assert!(open.size_bytes() >= known);
        assert_eq!(open.read(3, 2).expect("read the known end"), b"de");
        assert_eq!(open.read(0, 2).expect("read the beginning"), b"ab");
    }
    // The known length is wrong.
    let first_read = |name, len| storage.open_known(name, len)?.read(0, len);
    assert_eq!(kind(first_read("object", 9)), ErrorKind::Corrupt);
    assert_eq!(kind(first_read("absent", 9)), ErrorKind::NotFound);
}

fn a_name_is_taken_once(storage: &dyn Storage) {
    put(storage, "object", b"first");
    let again = match storage.create("object") {
        Ok(mut second) if !storage.capabilities().durable_append => {
            second.append(b"second").expect("append");
            second.finish()
        }
        created => created.map(|_| ()),
    };
    assert_eq!(kind(again), ErrorKind::AlreadyExists);
    assert_eq!(storage.read("object", 0, 5).expect("read"), b"first");
}

fn reads_past_the_end_are_refused(storage: &dyn Storage) {
    put(storage, "object", b"12345");
    for (offset, len) in [
        (0, 6),
        (5, 1),
        (6, 0),
        (0, u64::MAX),
        (u64::MAX, 1),
        (1 << 40, 1 << 40),
    ] {
        let error = storage
            .read("object", offset, len)
            .expect_err("a read past the end");
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{offset} + {len}");
        assert!(
            error.to_string().contains("found 5"),
            "the size is named: {error}"
        );
    }
}

fn appended_bytes_are_visible_before_the_end(storage: &dyn Storage) {
    let mut file = storage.create("object").expect("create");
    if !storage.capabilities().durable_append {
        return;
    }
    file.append(b"12").expect("append");
    assert_eq!(
        storage.read("object", 0, 2).expect("read while open"),
        b"12"
    );
    if storage.capabilities().sync_by_name {
        storage.sync("object").expect("sync by name while open");
    }
    file.append(b"34").expect("append after a sync");
    if let Some(syncer) = file.syncer() {
        syncer.sync().expect("sync apart from the writer");
    }
    file.sync().expect("sync");
    assert_eq!(storage.len("object").expect("len while open"), 4);
    let open = storage.open("object").expect("open while written");
    assert_eq!(
        (open.size_bytes(), open.read(1, 2).ok()),
        (4, Some(b"23".to_vec()))
    );
    // A dropped writer is a dead process: its bytes stay.
    drop(file);
    assert_eq!(storage.read("object", 0, 4).expect("read"), b"1234");
    assert_eq!(
        kind(storage.create("object").map(|_| ())),
        ErrorKind::AlreadyExists
    );
}

fn what_is_cut_off_is_gone_and_appends_go_on(storage: &dyn Storage) {
    let mut file = storage.create("object").expect("create");
    file.append(b"12345").expect("append");
    match file.cut(2) {
        Err(e) if e.kind() == ErrorKind::Unsupported => return,
        cut => cut.expect("cut"),
    }
    file.cut(3).expect_err("a cut never makes an object longer");
    file.append(b"ab").expect("append behind the cut");
    file.finish().expect("finish");
    assert_eq!(storage.len("object").expect("len"), 4);
    assert_eq!(storage.read("object", 0, 4).expect("read"), b"12ab");
}

fn unfinished_objects_are_absent_without_durable_appends(storage: &dyn Storage) {
    let mut file = storage.create("object").expect("create");
    if storage.capabilities().durable_append {
        return;
    }
    file.append(b"123").expect("append");
    assert_eq!(kind(storage.len("object")), ErrorKind::NotFound);
    assert_eq!(kind(storage.read("object", 0, 1)), ErrorKind::NotFound);
    file.finish().expect("finish");
    assert_eq!(storage.read("object", 0, 3).expect("read"), b"123");
    let mut dropped = storage.create("dropped").expect("create");
    dropped.append(b"123").expect("append");
    drop(dropped);
    assert_eq!(kind(storage.len("dropped")), ErrorKind::NotFound);
    let listed = storage.list().expect("list");
    assert!(
        listed.iter().all(|object| object.name == "object"),
        "{listed:?}"
    );
}

fn deleted_objects_are_gone(storage: &dyn Storage) {
    put(storage, "object", b"1");
    put(storage, "other", b"2");
    storage.delete("object").expect("delete");
    storage.delete("object").expect("delete again");
    let names = ["first", "absent", "second"].map(str::to_owned);
    put(storage, "first", b"1");
    put(storage, "second", b"2");
    put(storage, "third", b"3");
    let deleted = storage.delete_all(&names);
    assert!(deleted.len() == names.len() && deleted.iter().all(Result::is_ok));
    assert!(storage.delete_all(&[]).is_empty());
    assert_eq!(kind(storage.len("first")), ErrorKind::NotFound);
    assert_eq!(kind(storage.len("second")), ErrorKind::NotFound);
    assert_eq!(storage.len("third").expect("another stays"), 1);
    storage.delete("third").expect("delete the last");
    assert_eq!(kind(storage.read("object", 0, 1)), ErrorKind::NotFound);
    let names: Vec<_> = storage
        .list()
        .expect("list")
        .into_iter()
        .map(|o| o.name)
        .collect();
    assert_eq!(names, ["other"]);
}

fn renaming_takes_a_free_name_only(storage: &dyn Storage) {
    put(storage, "object", b"1");
    put(storage, "taken", b"22");
    let refused = kind(storage.rename("object", "taken"));
    if refused == ErrorKind::Unsupported {
        return;
    }
    assert_eq!(refused, ErrorKind::AlreadyExists);
    assert_eq!(kind(storage.rename("absent", "new")), ErrorKind::NotFound);
    assert_eq!(
        kind(storage.rename("object", "../new")),
        ErrorKind::InvalidInput
    );
    storage.rename("object", "new").expect("rename");
    let names: Vec<_> = storage
        .list()
        .expect("list")
        .into_iter()
        .map(|o| (o.name, o.len))
        .collect();
    let expected = [("new", 1), ("taken", 2)].map(|(n, l)| (n.to_owned(), l));
    assert_eq!(names, expected);
    assert_eq!(storage.read("new", 0, 1).expect("read"), b"1");
}

fn listing_is_sorted_with_sizes(storage: &dyn Storage) {
    for (name, bytes) in [("b", "22"), ("c", ""), ("a", "1")] {
        put(storage, name, bytes.as_bytes());
    }
    let found: Vec<_> = storage
        .list()
        .expect("list")
        .into_iter()
        .map(|o| (o.name, o.len))
        .collect();
    let expected = [("a", 1), ("b", 2), ("c", 0)].map(|(n, l)| (n.to_owned(), l));
    assert_eq!(found, expected);
}

fn names_cannot_leave_the_folder(storage: &dyn Storage) {
    for name in ["", ".", "..", "a/b", "../a", "/a", "a\0"] {
        assert_eq!(
            kind(storage.create(name).map(|_| ())),
            ErrorKind::InvalidInput,
            "{name:?}"
        );
        assert_eq!(
            kind(storage.read(name, 0, 0)),
            ErrorKind::InvalidInput,
            "{name:?}"
        );
        assert_eq!(
            kind(storage.delete(name)),
            ErrorKind::InvalidInput,
            "{name:?}"
        );
    }
}

fn writers_of_different_objects_do_not_meet(storage: &dyn Storage) {
    std::thread::scope(|scope| {
        for writer in 0..4u8 {
            scope.spawn(move || {
                let mut file = storage.create(&format!("object-{writer}")).expect("create");
                for _ in 0..50 {
                    file.append(&[writer; 7]).expect("append");
                }
                file.finish().expect("finish");
            });
        }
    });
    for writer in 0..4u8 {
        let bytes = storage
            .read(&format!("object-{writer}"), 0, 350)
            .expect("read");
        assert!(bytes.iter().all(|b| *b == writer));
    }
}
