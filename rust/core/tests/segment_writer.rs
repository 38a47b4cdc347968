//! The segment writer: packing, rolling, durability and failures.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::collections::BTreeSet;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::{append, faulty, options, owner, payload, writer};
use holdfast_core::format::{Compression, read_index, read_segment};
use holdfast_core::segment::SegmentWriter;
use holdfast_core::storage::{AppendFile, Capabilities, ObjectMeta, ReadFile, Storage};
use holdfast_core::{Error, ErrorKind, Result, SegmentRef, Term};
use holdfast_sim::{FaultyStorage, Operation};

fn reads_back(storage: &dyn Storage, reference: &SegmentRef, region: &str, bytes: &[u8]) {
    let segment = read_segment(storage, reference, &owner(region)).unwrap();
    assert_eq!(segment.payload, bytes);
}

#[test]
fn nothing_is_created_before_the_first_append() {
    let (_dir, storage) = faulty();
    let writer = writer(&storage);
    writer.sync().unwrap();
    writer.seal().unwrap();
    assert!(storage.list().unwrap().is_empty());
}

#[test]
fn segments_of_all_owners_share_a_file() {
    let (_dir, storage) = faulty();
    let writer = writer(&storage);
    let refs: Vec<_> = (0..10)
        .map(|i| append(&writer, &owner(&i.to_string()), 1, &payload(i, 5000)).unwrap())
        .collect();
    for (i, reference) in refs.iter().enumerate() {
        reads_back(
            storage.as_ref(),
            reference,
            &i.to_string(),
            &payload(i as u64, 5000),
        );
    }
    assert_eq!(storage.list().unwrap().len(), 1);
    writer.seal().unwrap();
    let index = read_index(storage.as_ref(), refs[0].file).unwrap();
    assert!(index.sealed);
    let indexed: Vec<_> = index.segments.iter().map(|entry| entry.reference).collect();
    assert_eq!(indexed, refs);
    let stats = writer.stats();
    assert_eq!(
        (stats.files_created, stats.files_sealed, stats.segments),
        (1, 1, 10)
    );
}

#[test]
fn a_full_file_is_sealed_and_names_follow_publish_order() {
    let (_dir, storage) = faulty();
    let writer = SegmentWriter::open(storage.clone(), Term(9), options(4000, Compression::None));
    let refs: Vec<_> = (0..6)
        .map(|i| append(&writer, &owner("r"), 1, &payload(i, 1500)).unwrap())
        .collect();
    let seqs: Vec<_> = refs.iter().map(|r| r.file.seq).collect();
    assert_eq!(seqs, [1, 1, 1, 2, 2, 2]);
    assert!(read_index(storage.as_ref(), refs[0].file).unwrap().sealed);
    assert!(read_index(storage.as_ref(), refs[5].file).unwrap().sealed);
}

#[test]
fn appended_segments_are_found_by_scanning_while_the_file_is_open() {
    let (_dir, storage) = faulty();
    let writer = writer(&storage);
    let refs: Vec<_> = (0..4)
        .map(|i| append(&writer, &owner("r"), i, &payload(i, 3 << 20)).unwrap())
        .collect();
    let index = read_index(storage.as_ref(), refs[0].file).unwrap();
    assert!(!index.sealed);
    assert_eq!((index.torn_bytes, index.damaged_bytes), (0, 0));
    assert_eq!(
        index
            .segments
            .iter()
            .map(|e| e.reference)
            .collect::<Vec<_>>(),
        refs
    );
}

#[test]
fn appends_leave_a_file_that_was_deleted() {
    let (dir, storage) = faulty();
    let writer = writer(&storage);
    let deleted = append(&writer, &owner("1"), 1, b"of a checkpoint that is gone").unwrap();
    writer.leave_deleted().unwrap();
    let same = append(&writer, &owner("1"), 1, b"the file is there").unwrap();
    assert_eq!(same.file, deleted.file);
    std::fs::remove_dir_all(dir.path().join("root")).unwrap();
    writer.leave_deleted().unwrap();
    let kept = append(&writer, &owner("1"), 1, b"of one that was begun again").unwrap();
    assert_ne!(kept.file, deleted.file);
    writer.sync_files(&BTreeSet::from([kept.file])).unwrap();
    reads_back(storage.as_ref(), &kept, "1", b"of one that was begun again");
    // A segment that a batch might still cite is not said to be safe.
    let error = writer.sync_files(&BTreeSet::from([deleted.file]));
    assert_eq!(error.unwrap_err().kind(), ErrorKind::Poisoned);
}

#[test]
fn concurrent_appends_never_interleave() {
    let (_dir, storage) = faulty();
    let writer = SegmentWriter::open(storage.clone(), Term(1), options(200_000, Compression::Lz4));
    let refs: Vec<Vec<SegmentRef>> = std::thread::scope(|scope| {
        let handles: Vec<_> = (0..8u64)
            .map(|thread| {
                let writer = &writer;
                scope.spawn(move || {
                    (0..40u64)
                        .map(|i| {
                            let bytes = payload(thread * 100 + i, 9000);
                            let reference =
                                append(writer, &owner(&thread.to_string()), i, &bytes).unwrap();
                            if i % 8 == 0 {
                                writer.sync().unwrap();
                            }
                            if i % 16 == 0 {
                                writer.seal().unwrap();
                            }
                            reference
                        })
                        .collect()
                })
            })
            .collect();
        handles.into_iter().map(|h| h.join().unwrap()).collect()
    });
    let mut seen = BTreeSet::new();
    for (thread, refs) in refs.iter().enumerate() {
        for (i, reference) in refs.iter().enumerate() {
            let expected = payload(thread as u64 * 100 + i as u64, 9000);
            reads_back(storage.as_ref(), reference, &thread.to_string(), &expected);
            assert!(seen.insert((reference.file, reference.offset)));
        }
    }
}

#[test]
fn a_short_append_cuts_the_segment_and_spares_its_neighbours() {
    for kept in [0, 1, 19, 20, 21, 70, 200] {
        let (_dir, storage) = faulty();
        let writer = writer(&storage);
        let before = append(&writer, &owner("a"), 1, &payload(1, 900)).unwrap();
        storage.short_append_nth(1, kept);
        let error = append(&writer, &owner("b"), 1, &payload(2, 900)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Storage);
        assert!(error.to_string().contains("region b"), "{error}");
        let after = append(&writer, &owner("b"), 1, &payload(2, 900)).unwrap();
        writer.sync().unwrap();
        assert_ne!(before.file, after.file, "a retry goes to a new file");
        reads_back(storage.as_ref(), &before, "a", &payload(1, 900));
        reads_back(storage.as_ref(), &after, "b", &payload(2, 900));
        let index = read_index(storage.as_ref(), before.file).unwrap();
        assert!(index.sealed);
        assert_eq!(index.torn_bytes, 0, "it was cut off");
        assert_eq!(index.segments.len(), 1);
        let stats = writer.stats();
        assert_eq!((stats.appends_failed, stats.garbage_bytes), (1, 0));
    }
}

#[test]
fn what_cannot_be_cut_off_is_counted() {
    for kept in [1, 70, 200] {
        let (_dir, storage) = faulty();
        let writer = writer(&storage);
        let before = append(&writer, &owner("a"), 1, &payload(1, 900)).unwrap();
        storage.full_append_nth(1, kept);
        storage.fail_nth(Operation::Cut, 1);
        append(&writer, &owner("b"), 1, &payload(2, 900)).unwrap_err();
        let after = append(&writer, &owner("b"), 1, &payload(2, 900)).unwrap();
        assert_ne!(before.file, after.file, "nothing follows garbage");
        let index = read_index(storage.as_ref(), before.file).unwrap();
        assert!(index.sealed, "the footer records the cut");
        assert_eq!(index.torn_bytes, kept as u64);
        assert_eq!(writer.stats().garbage_bytes, kept as u64);
    }
}

#[test]
fn a_file_on_a_full_disk_is_cut_back_and_takes_what_fits() {
    let (_dir, storage) = faulty();
    let writer = writer(&storage);
    let first = append(&writer, &owner("a"), 1, &payload(1, 900)).unwrap();
    let name = first.file.file_name();
    let before = storage.len(&name).unwrap();
    for kept in [0, 1, 500] {
        storage.full_append_nth(1, kept);
        let error = append(&writer, &owner("b"), 1, &payload(2, 900)).unwrap_err();
        assert!(error.to_string().contains("No space left"), "{error}");
        assert_eq!(storage.len(&name).unwrap(), before);
    }
    let second = append(&writer, &owner("b"), 1, &payload(2, 900)).unwrap();
    assert_eq!(second.file, first.file);
    // A footer that does not fit leaves nothing either.
    storage.full_append_nth(1, 30);
    writer.seal().expect("every segment is durable");
    assert_eq!(storage.len(&name).unwrap(), second.offset + second.len);
    assert_eq!(writer.stats().garbage_bytes, 0);
    assert_eq!(storage.list().unwrap().len(), 1);
    for (reference, region, seed) in [(first, "a", 1), (second, "b", 2)] {
        reads_back(storage.as_ref(), &reference, region, &payload(seed, 900));
    }
}

#[test]
fn a_cut_file_whose_footer_fails_too_is_recovered_by_scanning() {
    let (_dir, storage) = faulty();
    let writer = writer(&storage);
    let before = append(&writer, &owner("a"), 1, &payload(1, 900)).unwrap();
    storage.short_append_nth(1, 50);
    storage.short_append_nth(2, 30);
    storage.fail_nth(Operation::Cut, 1);
    storage.fail_nth(Operation::Cut, 2);
    append(&writer, &owner("b"), 1, &payload(2, 900)).unwrap_err();
    writer
        .sync()
        .expect("what was appended is durable although there is no footer");
    let index = read_index(storage.as_ref(), before.file).unwrap();
    assert!(!index.sealed);
    assert_eq!((index.segments.len(), index.torn_bytes), (1, 80));
    assert_eq!(index.segments[0].reference, before);
}

#[test]
fn a_file_left_without_a_footer_is_named_in_a_warning_once() {
    let (_dir, storage) = faulty();
    let writer = writer(&storage);
    let first = append(&writer, &owner("a"), 1, b"state").unwrap();
    writer.seal().unwrap();
    assert!(writer.take_warnings().is_empty(), "it has its footer");
    let second = append(&writer, &owner("a"), 2, b"more").unwrap();
    storage.short_append_nth(1, 10);
    writer.seal().expect("every segment is durable");
    let warnings = writer.take_warnings();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    for said in [&second.file.to_string(), "injected failure", "readable"] {
        assert!(warnings[0].contains(said), "{warnings:?}");
    }
    assert!(!warnings[0].contains(&first.file.to_string()));
    assert!(writer.take_warnings().is_empty(), "returned once");
    reads_back(storage.as_ref(), &second, "a", b"more");
}

#[test]
fn a_file_that_is_lost_is_an_error_and_no_warning() {
    let (_dir, storage) = faulty();
    let writer = writer(&storage);
    append(&writer, &owner("a"), 1, b"state").unwrap();
    storage.short_append_nth(1, 10);
    storage.fail_nth(Operation::Sync, 1);
    assert_eq!(writer.seal().unwrap_err().kind(), ErrorKind::Storage);
    assert!(writer.take_warnings().is_empty());
}

#[test]
fn warnings_that_no_caller_takes_do_not_pile_up() {
    let (_dir, storage) = faulty();
    let writer = writer(&storage);
    for created in 0..70 {
        append(&writer, &owner("a"), created, b"state").unwrap();
        storage.fail_nth(Operation::Append, 1);
        writer.seal().unwrap();
    }
    assert_eq!(writer.take_warnings().len(), 64);
}

#[test]
fn a_failed_sync_poisons_its_file_only() {
    let (_dir, storage) = faulty();
    let writer = writer(&storage);
    let lost = append(&writer, &owner("a"), 1, b"lost").unwrap();
    storage.fail_nth(Operation::Sync, 1);
    assert_eq!(writer.sync().unwrap_err().kind(), ErrorKind::Storage);
    let next = append(&writer, &owner("a"), 1, b"next").unwrap();
    assert_ne!(lost.file, next.file);
    assert_eq!(writer.lost_files(), [lost.file]);
    writer.sync().expect("the loss was reported once");
    writer.sync_files(&BTreeSet::from([next.file])).unwrap();
    for _ in 0..2 {
        let error = writer
            .sync_files(&BTreeSet::from([lost.file, next.file]))
            .unwrap_err();
        assert_eq!(
            error.kind(),
            ErrorKind::Poisoned,
            "never forgotten: {error}"
        );
        assert!(
            error.to_string().contains(&lost.file.to_string()),
            "{error}"
        );
    }
    reads_back(storage.as_ref(), &lost, "a", b"lost");
}

#[test]
fn a_failed_sync_of_a_full_file_is_reported_by_the_next_sync() {
    let (_dir, storage) = faulty();
    let writer = SegmentWriter::open(storage.clone(), Term(1), options(1, Compression::None));
    storage.fail_nth(Operation::Sync, 1);
    let lost = append(&writer, &owner("a"), 1, b"lost").expect("the append itself succeeded");
    assert_eq!(writer.lost_files(), [lost.file]);
    assert_eq!(writer.sync().unwrap_err().kind(), ErrorKind::Poisoned);
    let index = read_index(storage.as_ref(), lost.file).unwrap();
    assert_eq!(index.segments.len(), 1);
    append(&writer, &owner("a"), 1, b"next").unwrap();
    writer.sync().unwrap();
}

#[test]
fn one_sync_covers_all_earlier_appends() {
    let (_dir, storage) = faulty();
    let writer = writer(&storage);
    for i in 0..20 {
        append(&writer, &owner("a"), i, b"state").unwrap();
    }
    writer.sync().unwrap();
    writer.sync().unwrap();
    assert_eq!(writer.stats().syncs, 1);
    assert_eq!(storage.calls(Operation::Sync), 1);
}

/// Storage whose unfinished objects only their writer can sync.
#[derive(Debug)]
struct HandleSyncOnly(Arc<FaultyStorage>);

impl Storage for HandleSyncOnly {
    fn location(&self) -> String {
        self.0.location()
    }
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            sync_by_name: false,
            ..self.0.capabilities()
        }
    }
    fn create(&self, name: &str) -> Result<Box<dyn AppendFile>> {
        Ok(Box::new(HandleOnly(self.0.create(name)?)))
    }
    fn open(&self, name: &str) -> Result<Box<dyn ReadFile>> {
        self.0.open(name)
    }
    fn len(&self, name: &str) -> Result<u64> {
        self.0.len(name)
    }
    fn sync(&self, _: &str) -> Result<()> {
        Err(Error::new(ErrorKind::Storage, "only the writer can"))
    }
    fn delete(&self, name: &str) -> Result<()> {
        self.0.delete(name)
    }
    fn list(&self) -> Result<Vec<ObjectMeta>> {
        self.0.list()
    }
}

#[derive(Debug)]
struct HandleOnly(Box<dyn AppendFile>);

impl AppendFile for HandleOnly {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.0.append(bytes)
    }
    fn sync(&mut self) -> Result<()> {
        self.0.sync()
    }
    fn finish(self: Box<Self>) -> Result<()> {
        self.0.finish()
    }
}

#[test]
fn the_handle_is_synced_where_the_name_cannot_be() {
    let (_dir, storage) = faulty();
    let only = Arc::new(HandleSyncOnly(storage.clone()));
    let writer = SegmentWriter::open(only, Term(1), options(1 << 20, Compression::None));
    append(&writer, &owner("a"), 1, b"state").unwrap();
    writer.sync().unwrap();
    assert_eq!(storage.calls(Operation::Sync), 1);
    append(&writer, &owner("a"), 1, b"more").unwrap();
    storage.fail_nth(Operation::Sync, 1);
    assert_eq!(writer.sync().unwrap_err().kind(), ErrorKind::Storage);
}

/// Storage on which an append of many bytes takes until the test lets it continue.
#[derive(Debug)]
struct SlowForLarge {
    inner: Arc<FaultyStorage>,
    gate: Arc<Gate>,
}

#[derive(Debug)]
struct Gate {
    arrived: Mutex<Sender<()>>,
    may_go_on: Mutex<Receiver<()>>,
}

const PATIENCE: Duration = Duration::from_secs(30);

impl Storage for SlowForLarge {
    fn location(&self) -> String {
        self.inner.location()
    }
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }
    fn create(&self, name: &str) -> Result<Box<dyn AppendFile>> {
        Ok(Box::new(SlowFile {
            inner: self.inner.create(name)?,
            gate: self.gate.clone(),
        }))
    }
    fn open(&self, name: &str) -> Result<Box<dyn ReadFile>> {
        self.inner.open(name)
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

#[derive(Debug)]
struct SlowFile {
    inner: Box<dyn AppendFile>,
    gate: Arc<Gate>,
}

impl AppendFile for SlowFile {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        if bytes.len() > 10_000 {
            self.gate.arrived.lock().unwrap().send(()).unwrap();
            let waited = self.gate.may_go_on.lock().unwrap().recv_timeout(PATIENCE);
            waited
                .map_err(|_| Error::new(ErrorKind::Storage, "the others waited for these bytes"))?;
        }
        self.inner.append(bytes)
    }
    fn sync(&mut self) -> Result<()> {
        self.inner.sync()
    }
    fn cut(&mut self, len: u64) -> Result<()> {
        self.inner.cut(len)
    }
    fn finish(self: Box<Self>) -> Result<()> {
        self.inner.finish()
    }
}

#[test]
fn a_large_segment_has_a_file_of_its_own_and_the_others_do_not_wait_for_its_bytes() {
    let (_dir, storage) = faulty();
    let (arrived, arrives) = channel();
    let (go_on, may_go_on) = channel();
    let slow = Arc::new(SlowForLarge {
        inner: storage.clone(),
        gate: Arc::new(Gate {
            arrived: Mutex::new(arrived),
            may_go_on: Mutex::new(may_go_on),
        }),
    });
    let writer = SegmentWriter::open(slow, Term(1), options(4000, Compression::None));
    let before = append(&writer, &owner("small"), 1, b"first").unwrap();
    let large = std::thread::scope(|scope| {
        let large = scope.spawn(|| append(&writer, &owner("large"), 1, &payload(1, 20_000)));
        arrives.recv_timeout(PATIENCE).unwrap();
        let beside = append(&writer, &owner("small"), 1, b"second").unwrap();
        assert_eq!(beside.file, before.file);
        go_on.send(()).unwrap();
        large.join().unwrap().unwrap()
    });
    assert_ne!(large.file, before.file);
    reads_back(storage.as_ref(), &large, "large", &payload(1, 20_000));
    // It was full from the start; the shared one takes more.
    assert!(read_index(storage.as_ref(), large.file).unwrap().sealed);
    let after = append(&writer, &owner("small"), 1, b"third").unwrap();
    assert_eq!(after.file, before.file);
    writer.seal().unwrap();
    assert_eq!(writer.stats().files_sealed, 2);
}

#[test]
fn a_large_segment_that_finds_no_room_leaves_no_open_file_behind() {
    let (_dir, storage) = faulty();
    let writer = SegmentWriter::open(storage.clone(), Term(1), options(4000, Compression::None));
    append(&writer, &owner("small"), 1, b"first").unwrap();
    // The header of its file is the append before it.
    storage.full_append_nth(2, 5000);
    let failed = append(&writer, &owner("large"), 1, &payload(1, 20_000)).unwrap_err();
    assert_eq!(failed.kind(), ErrorKind::Storage, "{failed}");
    storage.heal();
    let retried = append(&writer, &owner("large"), 1, &payload(1, 20_000)).unwrap();
    reads_back(storage.as_ref(), &retried, "large", &payload(1, 20_000));
    let shared = append(&writer, &owner("small"), 1, b"second").unwrap();
    assert_eq!(shared.file.seq, 1);
    writer.seal().unwrap();
    writer.sync().unwrap();
    let stats = writer.stats();
    assert_eq!((stats.files_created, stats.files_sealed), (3, 3));
    assert!(writer.lost_files().is_empty());
}

#[test]
fn a_term_in_use_is_refused_and_a_failed_create_is_retried_under_a_new_name() {
    let (_dir, storage) = faulty();
    append(&writer(&storage), &owner("a"), 1, b"first").unwrap();
    let second = writer(&storage);
    let error = append(&second, &owner("a"), 1, b"second").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AlreadyExists);
    assert!(
        error
            .to_string()
            .contains("another incarnation is using term"),
        "{error}"
    );

    let third = SegmentWriter::open(storage.clone(), Term(2), options(1 << 20, Compression::Lz4));
    storage.fail_nth(Operation::Create, 1);
    assert_eq!(
        append(&third, &owner("a"), 1, b"x").unwrap_err().kind(),
        ErrorKind::Storage
    );
    assert_eq!(append(&third, &owner("a"), 1, b"x").unwrap().file.seq, 2);
}

#[test]
fn a_failed_header_leaves_no_file() {
    let (_dir, storage) = faulty();
    let writer = writer(&storage);
    storage.short_append_nth(1, 3);
    append(&writer, &owner("a"), 1, b"x").unwrap_err();
    assert!(storage.list().unwrap().is_empty());
    append(&writer, &owner("a"), 1, b"x").unwrap();
}

#[test]
fn owners_and_lineages_out_of_bounds_are_refused() {
    let (_dir, storage) = faulty();
    let writer = writer(&storage);
    let error = append(&writer, &owner(&"r".repeat(2000)), 1, b"x").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(storage.list().unwrap().is_empty());
}

#[test]
fn a_writer_is_shared_between_threads() {
    fn check<T: Send + Sync>() {}
    check::<SegmentWriter>();
    check::<Arc<SegmentWriter>>();
}
