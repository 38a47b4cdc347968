//! Forged files, whose checksums and digests fit: a reader of them gets an error or some state, never
//! a panic, and takes no memory that the bytes do not justify.
//!
//! `HOLDFAST_FUZZ_SECONDS=<n>` forges each kind of bytes for so long, and `HOLDFAST_FUZZ_FIRST=<n>` other
//! ones, as `make fuzz` does; a case that fails is run again with `HOLDFAST_FUZZ_SEED=<seed>`.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

mod common;

use std::collections::BTreeMap;
use std::sync::Arc;

use common::forgery::{Rng, Swaps, change, for_many_seeds, frames_of, refit};
use common::frames::{COORDINATORS, HEADER, REGIONS, TRAILER, file};
use common::memory::{Counting, peak_of, turn};
use common::metadata::{full_region, metadata};
use common::{content, options, owner, plain};
use holdfast_core::checkpoint::{Metadata, RegionEntry};
use holdfast_core::format::{
    Compression, read_any_head, read_head, read_index, read_sealed_index, read_segment,
};
use holdfast_core::segment::SegmentWriter;
use holdfast_core::state::{
    ChangeKind, CommitId, FIRST_FAMILY, FamilyOfInterest, KeyRange, MemoryBudget, Pending, ScanOf,
    StateStore, VersionId, inspect_segment, read_changes,
};
use holdfast_core::storage::LocalStorage;
use holdfast_core::{Error, ErrorKind, FileId, Result, SegmentRef, Term};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// For one file of a few KiB: frames have at most 1 MiB, and a reader has few of them at a time.
const PEAK_BYTES: usize = 24 << 20;

/// Type of the frames that blocks of entries consist of.
const ENTRIES: u8 = 10;
const TRAILER_OF_RUN: u8 = 13;

/// Errors that forged bytes may cause. Errors of storage or of the caller would be wrong.
fn check<T>(found: Result<T>) -> Option<T> {
    let allowed = [ErrorKind::Corrupt, ErrorKind::NotFound, ErrorKind::Newer];
    match found {
        Ok(found) => Some(found),
        Err(error) => {
            assert!(
                allowed.contains(&error.kind()),
                "{:?}: {error}",
                error.kind()
            );
            None
        }
    }
}

/// A store with changelogs, a journal, a base image and a delta run, and everything that it wrote.
struct Sample {
    files: BTreeMap<FileId, Vec<u8>>,
    ids: Vec<CommitId>,
}

fn key(number: u32) -> String {
    format!("key-{number:05}")
}

fn sample() -> Sample {
    let dir = tempfile::tempdir().unwrap();
    let storage = Arc::new(LocalStorage::new(dir.path()));
    let small = options(4 << 10, Compression::None);
    let writer = SegmentWriter::open(storage.clone(), Term(1), small);
    let mut store = StateStore::new(owner("a"), plain());
    store.record_operations(true);
    store.open(storage.as_ref(), 0, None).unwrap();
    let mut ids = Vec::new();
    // A base image of some blocks, then changes of a few keys, of which a delta run is made.
    for (batch, keys) in [0..300, 0..20, 5..30, 290..310, 0..3]
        .into_iter()
        .enumerate()
    {
        store.begin().unwrap();
        for number in keys {
            for value in ["first".to_owned(), format!("second-{batch}").repeat(15)] {
                store
                    .put(FIRST_FAMILY, key(number).as_bytes(), value.as_bytes())
                    .unwrap();
            }
        }
        store.remove(FIRST_FAMILY, key(7).as_bytes()).unwrap();
        ids.push(store.commit(&writer).unwrap());
        writer.sync().unwrap();
        if batch == 0 || batch == 3 {
            writer.seal().unwrap();
            // A merge is due where a changelog keeps a wasteful file alive.
            let newest = ids.last().and_then(|id| id.segment);
            let wasteful = newest.iter().map(|segment| segment.file).collect();
            let task = store.merge_task(&writer, 1, &wasteful).unwrap();
            assert_eq!(task.makes_base_image(), batch == 0);
            store.accept(task.run(storage.as_ref(), &writer).unwrap());
            writer.sync().unwrap();
        }
    }
    writer.seal().unwrap();
    assert!(ids.iter().any(|id| !id.deltas.is_empty()), "{ids:?}");
    let file = |entry: std::io::Result<std::fs::DirEntry>| {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        (FileId::parse(name).unwrap(), std::fs::read(&path).unwrap())
    };
    let files = std::fs::read_dir(dir.path()).unwrap().map(file).collect();
    Sample { files, ids }
}

/// The first and last offset of each segment.
fn segments(sample: &Sample, file: FileId) -> Vec<(usize, usize)> {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join(file.file_name()), &sample.files[&file]).unwrap();
    let index = read_index(&LocalStorage::new(dir.path()), file).unwrap();
    assert!(index.sealed);
    let places = index.segments.iter().map(|entry| entry.reference);
    places
        .map(|place| (place.offset as usize, (place.offset + place.len) as usize))
        .collect()
}

/// Reads all that a forged file may be read for.
fn read_all(storage: &LocalStorage, file: FileId, ids: &[CommitId]) {
    let owner = owner("a");
    check(read_sealed_index(storage, file));
    if let Some(index) = check(read_index(storage, file)) {
        for entry in &index.segments {
            check(read_any_head(storage, &entry.reference));
            check(read_head(storage, &entry.reference, &owner));
            check(read_segment(storage, &entry.reference, &owner));
            check(inspect_segment(storage, &entry.reference));
        }
    }
    for id in ids {
        for target in [None, Some(0)] {
            let budget = Arc::new(MemoryBudget::unlimited());
            budget.set_target_bytes(target);
            let mut store = StateStore::within(owner.clone(), plain(), budget);
            if check(store.open(storage, id.version, Some(id))).is_some() {
                look_into(&mut store);
            }
        }
        if let Some(Some(changes)) = check(read_changes(storage, &owner, id.version, &[*id])) {
            let all = FamilyOfInterest {
                number: FIRST_FAMILY,
                several_values: false,
            };
            let ignore = |_: ChangeKind, _: &[u8], _: &[u8]| {};
            check(changes.for_each(plain(), all, ignore));
        }
    }
}

/// Reads keys one by one, then all, through runs that are read when they are asked.
fn look_into(store: &mut StateStore) {
    for number in [0, 7, 150, 299, 9_999] {
        if check(store.get(FIRST_FAMILY, key(number).as_bytes()).map(|_| ())).is_none() {
            return; // it has no version any more
        }
    }
    let all = ScanOf::Keys(KeyRange::All);
    check(store.scan(FIRST_FAMILY, all, usize::MAX, &mut Vec::new()));
}

/// The ids of the sample, for segments with other digests.
fn forged_ids(ids: &[CommitId], swaps: &Swaps) -> Vec<CommitId> {
    let refer = |reference: SegmentRef| {
        let mut digest = reference.digest.to_le_bytes();
        swaps.apply(&mut digest);
        SegmentRef {
            digest: u128::from_le_bytes(digest),
            ..reference
        }
    };
    let forged = |id: &CommitId| CommitId {
        segment: id.segment.map(refer),
        replaced: id.replaced.map(refer),
        ..*id
    };
    ids.iter().map(forged).collect()
}

#[test]
fn forged_files_are_read_without_a_panic_and_in_bounded_memory() {
    let _turn = turn();
    let sample = sample();
    let names: Vec<FileId> = sample.files.keys().copied().collect();
    let places: BTreeMap<_, _> = names.iter().map(|f| (*f, segments(&sample, *f))).collect();
    let dir = tempfile::tempdir().unwrap();
    let storage = LocalStorage::new(dir.path());
    for_many_seeds("files", 200, |rng: &mut Rng| {
        let changed = rng.below(names.len());
        let mut swaps = Swaps::default();
        // Files are written in this order, so digests are known before they are referred to.
        for (number, file) in names.iter().enumerate() {
            let mut frames = frames_of(&sample.files[file]);
            if number == changed {
                for _ in 0..=rng.below(2) {
                    let at = rng.below(frames.len());
                    match rng.below(12) {
                        0 => drop(frames.remove(at)),
                        1 => frames.insert(at, frames[at].clone()),
                        2 => frames.swap(at, 0),
                        _ => frames[at].change(rng),
                    }
                }
            }
            let bytes = refit(&frames, &places[file], &mut swaps);
            std::fs::write(dir.path().join(file.file_name()), bytes).unwrap();
        }
        let ids = forged_ids(&sample.ids, &swaps);
        let ((), peak) = peak_of(|| read_all(&storage, names[changed], &ids));
        assert!(peak < PEAK_BYTES, "{peak} bytes at once");
    });
}

/// Otherwise forged files would be refused only for their digests.
#[test]
fn what_refers_to_forged_blocks_fits_them() {
    let _turn = turn();
    let sample = sample();
    let dir = tempfile::tempdir().unwrap();
    let mut swaps = Swaps::default();
    let mut replaced = 0;
    for (file, bytes) in &sample.files {
        let mut frames = frames_of(bytes);
        // A value in each block of entries.
        let blocks = frames.iter_mut().filter(|frame| frame.kind == ENTRIES);
        replaced += blocks
            .filter_map(|block| block.replace_last(b"second", b"seconD"))
            .count();
        let forged = refit(&frames, &segments(&sample, *file), &mut swaps);
        std::fs::write(dir.path().join(file.file_name()), forged).unwrap();
    }
    assert!(replaced > 2, "{replaced} blocks");
    let storage = LocalStorage::new(dir.path());
    for id in forged_ids(&sample.ids, &swaps) {
        let mut store = StateStore::new(owner("a"), plain());
        store.open(&storage, id.version, Some(&id)).unwrap();
        assert_eq!(store.take_warning(), None, "{id}");
        let forged = content(&mut store)
            .into_values()
            .filter(|value| value.contains("seconD"));
        assert_eq!(forged.count() > 0, id.version > 1, "{id}");
    }
}

#[test]
fn a_run_that_says_that_it_has_endless_entries_takes_no_memory_for_them() {
    let _turn = turn();
    let sample = sample();
    let dir = tempfile::tempdir().unwrap();
    let mut swaps = Swaps::default();
    for (file, bytes) in &sample.files {
        let mut frames = frames_of(bytes);
        let trailers = frames
            .iter_mut()
            .filter(|frame| frame.kind == TRAILER_OF_RUN);
        // Number of entries, and bytes of their bodies.
        trailers.for_each(|frame| frame.set(16, &[0xff; 16]));
        let forged = refit(&frames, &segments(&sample, *file), &mut swaps);
        std::fs::write(dir.path().join(file.file_name()), forged).unwrap();
    }
    let storage = LocalStorage::new(dir.path());
    let ids = forged_ids(&sample.ids, &swaps);
    for target in [None, Some(0)] {
        let budget = Arc::new(MemoryBudget::unlimited());
        budget.set_target_bytes(target);
        let mut store = StateStore::within(owner("a"), plain(), budget);
        let newest = ids.last().unwrap();
        let open = || store.open(&storage, newest.version, Some(newest));
        let (opened, peak) = peak_of(open);
        assert!(peak < PEAK_BYTES, "{peak} bytes at once");
        opened.unwrap();
        // The segments that runs replaced are still there.
        assert!(store.take_warning().is_some());
    }
}

#[test]
fn forged_metadata_is_read_without_a_panic_and_in_bounded_memory() {
    let _turn = turn();
    let whole = metadata(42).to_bytes().unwrap();
    let region = RegionEntry::new(full_region("east", 42))
        .unwrap()
        .to_bytes();
    let header = common::forgery::body_of(&whole, HEADER).unwrap();
    let coordinators = common::forgery::body_of(&whole, COORDINATORS);
    for_many_seeds("metadata", 1_000, |rng: &mut Rng| {
        let (mut header, mut region) = (header.clone(), region.clone());
        let mut coordinators = coordinators.clone().unwrap_or_default();
        match rng.below(4) {
            0 => change(rng, &mut header),
            1 => change(rng, &mut coordinators),
            _ => change(rng, &mut region),
        }
        let mut records = Vec::new();
        prost::encode_length_delimiter(region.len(), &mut records).unwrap();
        records.extend_from_slice(&region);
        let mut sections: Vec<(u8, &[u8])> = vec![(HEADER, &header), (REGIONS, &records)];
        if !coordinators.is_empty() {
            sections.push((COORDINATORS, &coordinators));
        }
        if rng.one_in(10) {
            let at = rng.below(sections.len());
            sections[at].0 = [HEADER, REGIONS, COORDINATORS, TRAILER][rng.below(4)];
        }
        let counted = u64::from(!coordinators.is_empty());
        let bytes = file(&sections, 1, counted);
        let ((), peak) = peak_of(|| {
            if let Some(found) = check(Metadata::from_bytes(&bytes)) {
                for entry in found.regions().iter().unwrap() {
                    check(entry.operators().map(|_| ()));
                    check(entry.in_flight().map(|_| ()));
                    check(entry.staged().map(|_| ()));
                }
                check(found.restored("pipeline"));
                check(found.file_bytes());
                let again = Metadata::from_bytes(&found.to_bytes().unwrap()).unwrap();
                assert_eq!(again, found);
            }
        });
        assert!(peak < PEAK_BYTES, "{peak} bytes at once");
    });
}

/// The id of a version that is parked since `id`, for so many batches.
fn parked(id: CommitId, batches: u64) -> VersionId {
    let versions = id.version + 1..=id.version + batches;
    let pending = versions.map(|version| Pending {
        version,
        segment: id.segment.unwrap(),
    });
    VersionId {
        state: CommitId {
            version: id.version + batches,
            ..id
        },
        pending: pending.collect(),
    }
}

#[test]
fn forged_ids_of_commits_are_read_without_a_panic() {
    let _turn = turn();
    let ids = sample().ids;
    let parked = ids
        .iter()
        .flat_map(|id| [1, 3].map(|batches| parked(*id, batches).to_string()));
    let texts: Vec<String> = ids.iter().map(CommitId::to_string).chain(parked).collect();
    for_many_seeds("ids of commits", 1_000, |rng: &mut Rng| {
        let text = &texts[rng.below(texts.len())];
        let forged = common::forgery::change_id(rng, text);
        let found: std::result::Result<VersionId, Error> = forged.parse();
        if let Ok(id) = found {
            assert_eq!(id.to_string().parse::<VersionId>().unwrap(), id);
        }
    });
}
