//! Files of checkpoints that share a file of regions.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::common::faulty;
use crate::common::frames::{HEADER, REGIONS, frame, positions, record, trailer};
use crate::common::metadata::{
    empty_region, facts, full_region, operator, pieces, reference, state,
};
use holdfast_core::checkpoint::{
    Metadata, NewRegion, RegionEntry, Staged, StateKind, file_name, list, parse_base_name, read,
    read_like, write,
};
use holdfast_core::storage::LocalStorage;
use holdfast_core::{CheckpointId, Error, ErrorKind, FileId};
use holdfast_sim::Operation;
use xxhash_rust::xxh3::xxh3_128;

pub const MANY: u64 = 1_000;
const FIRST: u64 = 10;
pub const SECOND: CheckpointId = CheckpointId(FIRST + 1);

pub fn name(region: u64) -> String {
    format!("region-{region:04}")
}

fn entry(region: u64, origin: u64) -> RegionEntry {
    RegionEntry::new(empty_region(&name(region), origin)).unwrap()
}

pub fn whole(regions: u64) -> Metadata {
    let regions = (0..regions).map(|region| entry(region, 1)).collect();
    Metadata::new(facts(FIRST), regions).unwrap()
}

pub fn next(before: &Metadata, changed: &[u64], gone: &[&str]) -> Metadata {
    let id = before.id().0 + 1;
    let changed = changed.iter().map(|region| entry(*region, id)).collect();
    let gone = gone.iter().copied();
    before.next(facts(id), changed, gone).unwrap()
}

fn sizes(folder: &Path, ending: &str) -> Vec<u64> {
    let entries = std::fs::read_dir(folder).unwrap().map(Result::unwrap);
    let of_kind = entries.filter(|e| e.file_name().to_str().unwrap().ends_with(ending));
    let mut sizes: Vec<_> = of_kind.map(|e| e.metadata().unwrap().len()).collect();
    sizes.sort_unstable();
    sizes
}

fn base_of(folder: &Path) -> PathBuf {
    let entries = std::fs::read_dir(folder).unwrap().map(Result::unwrap);
    let mut names = entries.map(|e| e.file_name().into_string().unwrap());
    folder.join(names.find(|name| parse_base_name(name).is_some()).unwrap())
}

fn error_of(folder: &Path) -> Error {
    read(&LocalStorage::new(folder), SECOND).unwrap_err()
}

#[test]
fn a_checkpoint_writes_what_changed() {
    let dir = tempfile::tempdir().unwrap();
    let storage = LocalStorage::new(dir.path());
    let mut metadata = whole(MANY);
    let mut made = vec![metadata.clone()];
    write(&storage, &metadata).unwrap();
    for number in 0..40 {
        metadata = next(
            &metadata,
            &[7, number, MANY + number],
            &[&name(500 + number)],
        );
        write(&storage, &metadata).unwrap();
        made.push(metadata.clone());
    }
    let (bases, checkpoints) = (sizes(dir.path(), ".hfb"), sizes(dir.path(), ".hfc"));
    assert_eq!(bases.len(), 1);
    assert_eq!(checkpoints.len(), 41);
    assert!(checkpoints[39] * 3 < checkpoints[40], "{checkpoints:?}");
    let newest = read(&storage, metadata.id()).unwrap();
    assert_eq!(newest.regions().base_file(), metadata.regions().base_file());
    for one in made {
        assert_eq!(read(&storage, one.id()).unwrap(), one);
        let like = read_like(&storage, &file_name(one.id()), Some(&newest)).unwrap();
        assert_eq!(like, one);
    }
    // After a restart the next one builds on the same file.
    write(&storage, &next(&newest, &[3], &[])).unwrap();
    assert_eq!(sizes(dir.path(), ".hfb").len(), 1);
}

#[test]
fn all_is_written_anew_when_a_quarter_has_changed() {
    let dir = tempfile::tempdir().unwrap();
    let storage = LocalStorage::new(dir.path());
    let mut metadata = whole(MANY);
    for round in 0..60 {
        let changed: Vec<u64> = (round * 10..(round + 1) * 10).collect();
        metadata = next(&metadata, &changed, &[]);
        write(&storage, &metadata).unwrap();
        assert_eq!(read(&storage, metadata.id()).unwrap(), metadata);
    }
    assert_eq!(sizes(dir.path(), ".hfb").len(), 3, "60 times 1 in 100");
}

#[test]
fn active_and_small_pipelines_write_whole_files() {
    let dir = tempfile::tempdir().unwrap();
    let storage = LocalStorage::new(dir.path());
    let half: Vec<u64> = (0..MANY / 2).collect();
    let some: Vec<u64> = (0..MANY / 10).collect();
    let (small, active) = (whole(MANY - 1), whole(MANY));
    for metadata in [
        next(&small, &[1], &[]),
        next(&next(&active, &half, &[]), &some, &[]),
    ] {
        write(&storage, &metadata).unwrap();
        assert_eq!(read(&storage, metadata.id()).unwrap(), metadata);
    }
    assert!(sizes(dir.path(), ".hfb").is_empty());
}

#[test]
fn very_many_names_of_regions_that_are_gone_need_a_whole_file() {
    let dir = tempfile::tempdir().unwrap();
    let storage = LocalStorage::new(dir.path());
    let names: Vec<String> = (0..3_000).map(|n| format!("{n:01024}")).collect();
    let regions = names
        .iter()
        .map(|n| RegionEntry::new(empty_region(n, 1)).unwrap());
    let first = Metadata::new(facts(FIRST), regions.collect()).unwrap();
    let gone: Vec<&str> = names.iter().take(180).map(String::as_str).collect();
    let next_without = |before: &Metadata, gone: &[&str]| {
        let facts = facts(before.id().0 + 1);
        let next = before.next(facts, Vec::new(), gone.iter().copied());
        next.unwrap()
    };
    let second = next_without(&first, &gone[..100]);
    write(&storage, &second).unwrap();
    let third = next_without(&second, &gone[100..]);
    write(&storage, &third).unwrap();
    let fourth = next(&third, &[1], &gone);
    assert_eq!(read(&storage, third.id()).unwrap(), third);
    write(&storage, &fourth).unwrap();
    assert_eq!(read(&storage, fourth.id()).unwrap(), fourth);
    assert_eq!(sizes(dir.path(), ".hfb").len(), 1);
}

#[test]
fn damage_of_the_shared_file_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let storage = LocalStorage::new(dir.path());
    write(&storage, &next(&whole(MANY), &[1], &[])).unwrap();
    let base = base_of(dir.path());
    let bytes = std::fs::read(&base).unwrap();
    for position in (0..bytes.len()).step_by(17) {
        let mut damaged = bytes.clone();
        damaged[position] ^= 4;
        std::fs::write(&base, damaged).unwrap();
        let error = error_of(dir.path());
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{position}: {error}");
    }
    let text = error_of(dir.path()).to_string();
    assert!(
        text.contains(base.file_name().unwrap().to_str().unwrap()),
        "{text}"
    );
    std::fs::remove_file(&base).unwrap();
    let error = error_of(dir.path());
    assert_eq!(
        error.kind(),
        ErrorKind::Corrupt,
        "the checkpoint is there: {error}"
    );
    assert!(
        error.to_string().contains("its regions are missing"),
        "{error}"
    );
    let alone = std::fs::read(dir.path().join(file_name(SECOND))).unwrap();
    let error = Metadata::from_bytes(&alone).unwrap_err();
    assert!(error.to_string().contains("in another file"), "{error}");
}

#[test]
fn damage_of_what_changed_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let storage = LocalStorage::new(dir.path());
    write(&storage, &next(&whole(MANY), &[1], &[&name(3)])).unwrap();
    let file = dir.path().join(file_name(SECOND));
    let bytes = std::fs::read(&file).unwrap();
    assert_eq!(positions(&bytes).len(), 4);
    for position in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[position] ^= 4;
        std::fs::write(&file, damaged).unwrap();
        let kind = error_of(dir.path()).kind();
        assert!(
            matches!(kind, ErrorKind::Corrupt | ErrorKind::Newer),
            "{position}"
        );
        std::fs::write(&file, &bytes[..position]).unwrap();
        assert_eq!(
            error_of(dir.path()).kind(),
            ErrorKind::Corrupt,
            "{position}"
        );
    }
}

/// A region whose state is in a segment of a file.
fn with_state(region: u64, origin: u64, file: u32) -> RegionEntry {
    let content = pieces(&[reference(file, region)]);
    let sums = state("sums", StateKind::Array, "<f8", content);
    let late = Staged {
        path: "late/_staged/5".to_owned(),
        target: "late/part-5".to_owned(),
        rows: 1,
        bytes: 9,
        output: "late".to_owned(),
    };
    RegionEntry::new(NewRegion {
        operators: vec![operator("stats", vec![sums])],
        staged: if region == 5 { vec![late] } else { Vec::new() },
        ..empty_region(&name(region), origin)
    })
    .unwrap()
}

/// A checkpoint of regions with state, the first ones in a file of their own.
pub fn with_states(alone: u64) -> Metadata {
    let file = |region| if region < alone { 1 } else { 2 };
    let regions = (0..MANY).map(|region| with_state(region, 1, file(region)));
    Metadata::new(facts(FIRST), regions.collect()).unwrap()
}

fn following(before: &Metadata, regions: Vec<RegionEntry>) -> Metadata {
    let id = before.id().0 + 1;
    before.next(facts(id), regions, []).unwrap()
}

fn seqs(files: BTreeMap<FileId, u64>) -> Vec<u32> {
    files.into_keys().map(|file| file.seq).collect()
}

#[test]
fn a_start_needs_no_region_that_did_not_change() {
    let dir = tempfile::tempdir().unwrap();
    let storage = LocalStorage::new(dir.path());
    let changed = |id: u64| (0..3).map(|region| with_state(region, id, 3)).collect();
    let written = following(&with_states(3), changed(FIRST + 1));
    write(&storage, &written).unwrap();
    // The same outline with other regions, which do not decode.
    let base = base_of(dir.path());
    let bytes = std::fs::read(&base).unwrap();
    let header_end = positions(&bytes)[1].0;
    let mut forged = bytes[..header_end].to_vec();
    forged.extend(frame(1, REGIONS, &record(b"no region")));
    forged.extend(trailer(&forged, MANY, 0));
    let whole = std::fs::read(dir.path().join(file_name(SECOND))).unwrap();
    let digest = |bytes: &[u8]| xxh3_128(bytes).to_le_bytes();
    let place = whole
        .windows(16)
        .position(|at| at == digest(&bytes))
        .unwrap();
    let (header, rest) = whole.split_at(positions(&whole)[1].0);
    let mut named = header.to_vec();
    named[place..place + 16].copy_from_slice(&digest(&forged));
    let mut again = frame(1, HEADER, &named[20..]);
    let records = &rest[..positions(&whole)[3].0 - header.len()];
    again.extend_from_slice(records);
    again.extend(trailer(&again, 3, 1));
    let found = Metadata::from_files(&again, Some(&forged)).unwrap();
    assert_eq!(found.regions().len() as u64, MANY);
    assert_eq!(found.regions().since(SECOND).unwrap().count(), 3);
    assert_eq!(found.regions().notable().count(), 0);
    assert!(found.is_global());
    assert_eq!(
        found.regions().get(&name(2)).unwrap().unwrap().origin(),
        SECOND
    );
    assert_eq!(
        seqs(found.regions().files_at_most().unwrap()),
        [2, 3],
        "file 1 is not needed"
    );
    assert_eq!(
        found.regions().outputs_at_most().unwrap(),
        ["late".to_owned()].into()
    );
    let samples = found.regions().samples().unwrap();
    let regions: Vec<_> = samples.iter().map(|group| group[0].region()).collect();
    assert_eq!(regions, [&name(0), &samples[1][0].region().to_owned()]);
    let next = following(&found, changed(FIRST + 2));
    assert_eq!(next.regions().len() as u64, MANY);
    for error in [
        found.regions().get(&name(7)).unwrap_err(),
        found.regions().iter().map(|_| ()).unwrap_err(),
        found.restored("p").unwrap_err(),
        found.to_bytes().unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    }
}

#[test]
fn files_are_named_as_long_as_a_region_may_need_them() {
    for (alone, changed, expected) in [
        (3, 2, vec![1, 2, 3]),
        (3, 3, vec![2, 3]),
        (99, 99, vec![1, 2, 3]),
    ] {
        let first = with_states(alone);
        let regions = (0..changed).map(|region| with_state(region, FIRST + 1, 3));
        let metadata = following(&first, regions.collect());
        assert_eq!(seqs(metadata.regions().files_at_most().unwrap()), expected);
        let exact = metadata.file_bytes().unwrap();
        let at_most = metadata.regions().files_at_most().unwrap();
        assert!(exact.iter().all(|(file, bytes)| at_most[file] >= *bytes));
    }
}

#[test]
fn some_regions_stand_for_those_that_are_like_them() {
    let plain = |region| entry(region, FIRST + 1);
    let first = with_states(0);
    let names = |metadata: &Metadata| {
        let samples = metadata.regions().samples().unwrap();
        let first = samples.iter().map(|group| group[0].region().to_owned());
        first.collect::<Vec<_>>()
    };
    assert_eq!(names(&first), [name(0)]);
    // Changed regions do not represent the unchanged ones.
    let second = following(&first, (0..40).map(plain).collect());
    assert_eq!(names(&second)[0], name(0));
    assert!(names(&second)[1] >= name(40));
    // All samples changed, but not all that they represented.
    let samples = first.regions().samples().unwrap().concat();
    let changed = samples
        .iter()
        .map(|one| RegionEntry::new(empty_region(one.region(), FIRST + 1)));
    let third = following(&first, changed.map(Result::unwrap).collect());
    assert_eq!(names(&third).len(), 2);
    assert_eq!(
        third.regions().samples().unwrap().len(),
        third.alike().unwrap().len()
    );
}

/// A checkpoint of regions of which one has finished.
pub fn with_one_finished() -> Metadata {
    let finished = RegionEntry::new(NewRegion {
        finished: true,
        ..empty_region(&name(MANY), 1)
    });
    let idle = (0..MANY).map(|region| entry(region, 1));
    let regions = idle.chain([finished.unwrap()]).collect();
    Metadata::new(facts(FIRST), regions).unwrap()
}

#[test]
fn shared_regions_that_are_not_merely_idle_have_no_outline() {
    let dir = tempfile::tempdir().unwrap();
    let storage = LocalStorage::new(dir.path());
    let second = next(&with_one_finished(), &[1], &[]);
    write(&storage, &second).unwrap();
    let base = std::fs::read(base_of(dir.path())).unwrap();
    let header = positions(&base)[1].0;
    assert!(header < 40, "it has version, id and number of regions");
    assert_eq!(read(&storage, SECOND).unwrap(), second);
    assert_eq!(
        read(&storage, SECOND).unwrap().regions().notable().count(),
        1
    );
}

/// The process dies with the call, so its clean-up does not happen either.
#[test]
fn after_a_crash_at_any_call_the_checkpoint_is_absent_or_whole() {
    let operations = [
        Operation::Create,
        Operation::Append,
        Operation::Sync,
        Operation::Rename,
        Operation::List,
    ];
    for (operation, nth) in operations
        .into_iter()
        .flat_map(|one| (1..=4).map(move |n| (one, n)))
    {
        let (dir, storage) = faulty();
        let root = dir.path().join("root");
        let metadata = next(&whole(MANY), &[1], &[]);
        storage.fail_nth(operation, nth);
        storage.fail_nth(Operation::Delete, 1);
        let written = write(&*storage, &metadata).is_ok();
        let restarted = LocalStorage::new(&root);
        assert_eq!(list(&restarted).unwrap().is_empty(), !written);
        // Another attempt has the same number, and other regions.
        let other = next(&whole(MANY), &[2], &[]);
        if !written {
            write(&restarted, &other).unwrap();
        }
        let expected = if written { &metadata } else { &other };
        assert_eq!(
            &read(&restarted, SECOND).unwrap(),
            expected,
            "{operation:?} {nth}"
        );
        // The driver continues after the error: its regions are in a file, or are written again.
        let third = next(&metadata, &[3], &[]);
        write(&restarted, &third).unwrap();
        assert_eq!(read(&restarted, third.id()).unwrap(), third);
        let left = std::fs::read_dir(&root)
            .unwrap()
            .map(|e| e.unwrap().file_name());
        assert!(
            !left
                .into_iter()
                .any(|name| name.to_str().unwrap().ends_with(".tmp"))
        );
    }
}

#[test]
fn a_leftover_with_the_name_of_the_shared_file_is_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let storage = LocalStorage::new(dir.path());
    write(&storage, &next(&whole(MANY), &[1], &[])).unwrap();
    let base = base_of(dir.path());
    std::fs::write(&base, "half a fi").unwrap();
    std::fs::remove_file(dir.path().join(file_name(SECOND))).unwrap();
    let again = next(&whole(MANY), &[1], &[]);
    write(&storage, &again).unwrap();
    assert_eq!(read(&storage, SECOND).unwrap(), again);
}

#[test]
fn an_entry_may_take_the_place_of_one_that_is_gone() {
    let dir = tempfile::tempdir().unwrap();
    let storage = LocalStorage::new(dir.path());
    let second = next(&whole(MANY), &[], &[&name(3), "never seen"]);
    let again = RegionEntry::new(full_region(&name(3), FIRST + 2)).unwrap();
    let third = second.next(facts(FIRST + 2), vec![again], []).unwrap();
    for metadata in [&second, &third] {
        write(&storage, metadata).unwrap();
        assert_eq!(&read(&storage, metadata.id()).unwrap(), metadata);
    }
    assert_eq!(second.regions().len() + 1, third.regions().len());
}
