//! Runs, damaged everywhere: truncation at every byte and a flip of every byte are reported with file,
//! offset and owner, by all who read them.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::path::PathBuf;
use std::sync::Arc;

use crate::common::frames::positions;
use crate::common::{assert_damage, content, options, owner, plain};
use holdfast_core::format::{
    Compression, NewSegment, SegmentKind, read_any_head, read_head, read_index, read_segment,
};
use holdfast_core::segment::SegmentWriter;
use holdfast_core::state::{CommitId, DeltaMarks, StateStore, inspect_segment};
use holdfast_core::storage::LocalStorage;
use holdfast_core::{CheckpointId, ErrorKind, SegmentRef, Term};

/// A file with a run of several blocks, between two small ones.
struct Sample {
    _dir: tempfile::TempDir,
    storage: LocalStorage,
    path: PathBuf,
    bytes: Vec<u8>,
    runs: Vec<(SegmentRef, String)>,
}

const ENTRIES: u32 = 90;

/// Type of the frames that blocks of entries consist of.
const ENTRIES_FRAME: u8 = 10;

fn entry(region: &str, number: u32) -> (String, String) {
    let value = format!("{region}-{number}").repeat(if number == 7 { 3_000 } else { 90 });
    (format!("key-{number:04}"), value)
}

fn sample(compression: Compression, sealed: bool) -> Sample {
    let dir = tempfile::tempdir().unwrap();
    let storage = Arc::new(LocalStorage::new(dir.path()));
    let writer = SegmentWriter::open(storage, Term(1), options(1 << 30, compression));
    let runs = [("a", 1), ("b", ENTRIES), ("c", 0)].map(|(region, entries)| {
        let owner = owner(region);
        let new = NewSegment {
            owner: &owner,
            created: CheckpointId(5),
            kind: SegmentKind::Run,
            lineage: &[],
            replaced: None,
            entries: 0,
            tables: &[],
            runs: 0,
        };
        let mut run = writer.begin_run(&new).unwrap();
        for number in 0..entries {
            let (key, value) = entry(region, number);
            run.push(b"", key.as_bytes(), Some(value.as_bytes()))
                .unwrap();
        }
        (run.finish().unwrap(), region.to_owned())
    });
    if sealed {
        writer.seal().unwrap();
    }
    let path = dir.path().join(runs[0].0.file.file_name());
    let bytes = std::fs::read(&path).unwrap();
    Sample {
        storage: LocalStorage::new(dir.path()),
        _dir: dir,
        path,
        bytes,
        runs: runs.into(),
    }
}

impl Sample {
    fn check(&self, damaged: &[u8], intact: impl Fn(&SegmentRef) -> bool) {
        std::fs::write(&self.path, damaged).unwrap();
        for (reference, region) in &self.runs {
            let owner = owner(region);
            let id = CommitId {
                version: 5,
                floor: CheckpointId(5),
                deltas: DeltaMarks::NONE,
                owner: owner.tag(),
                segment: Some(*reference),
                replaced: None,
            };
            let mut store = StateStore::new(owner.clone(), plain());
            let opened = store.open(&self.storage, 5, Some(&id));
            let read = read_segment(&self.storage, reference, &owner);
            let inspected = inspect_segment(&self.storage, reference);
            if intact(reference) {
                opened.unwrap();
                let report = inspected.unwrap();
                assert_eq!(report.head.owner, owner);
                let index = report.index.unwrap();
                assert_eq!(index.filters, 0, "it is read whole");
                assert_eq!(index.groups, u64::from(report.head.entries > 0));
                assert_eq!(index.blocks > 2, report.head.entries > 2);
                let entries = content(&mut store);
                assert_eq!(entries.len() as u64, read.unwrap().head.entries);
                for (number, found) in (0..).zip(entries) {
                    assert_eq!(found, entry(region, number));
                }
                continue;
            }
            let path = self.path.to_str().unwrap();
            let offset = format!("offset {}", reference.offset);
            assert_damage(&inspected.unwrap_err(), &[path, &offset]);
            for error in [opened.unwrap_err(), read.unwrap_err()] {
                let of_region = format!("region {region}");
                assert_damage(&error, &[path, &offset, &of_region, "expected", "found"]);
            }
            if let Ok(head) = read_head(&self.storage, reference, &owner) {
                assert_eq!((head.kind, head.owner), (SegmentKind::Run, owner));
            }
            let _ = read_any_head(&self.storage, reference);
        }
        let index = match read_index(&self.storage, self.runs[0].0.file) {
            Ok(index) => index,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
                return;
            }
        };
        for known in &self.runs {
            let listed = index.segments.iter().find(|e| e.reference == known.0);
            if let Some(listed) = listed {
                assert_eq!(
                    (listed.kind, &listed.owner),
                    (SegmentKind::Run, &owner(&known.1))
                );
            }
            assert!(index.sealed || listed.is_some() == intact(&known.0));
        }
        assert!(index.segments.len() <= self.runs.len());
    }
}

fn end(reference: &SegmentRef) -> u64 {
    reference.offset + reference.len
}

#[test]
fn truncation_at_every_byte_is_reported() {
    for compression in [Compression::None, Compression::Lz4] {
        let sample = sample(compression, false);
        let run = sample.runs[1].0;
        let frames = positions(&sample.bytes[run.offset as usize..end(&run) as usize]);
        let of_kind = |kind| frames.iter().filter(|(_, found)| *found == kind).count();
        assert!(of_kind(ENTRIES_FRAME) > 2, "{frames:?}");
        for len in 0..sample.bytes.len() {
            // Within the body of a block one byte is as good as another.
            if compression == Compression::None && len % 13 != 0 {
                continue;
            }
            sample.check(&sample.bytes[..len], |r| end(r) <= len as u64);
        }
    }
}

#[test]
fn a_flip_of_every_byte_is_reported() {
    for (compression, sealed) in [(Compression::Lz4, false), (Compression::Lz4, true)] {
        let sample = sample(compression, sealed);
        for at in 0..sample.bytes.len() {
            for mask in [0x01, 0xff] {
                let mut bytes = sample.bytes.clone();
                bytes[at] ^= mask;
                sample.check(&bytes, |r| !(r.offset..end(r)).contains(&(at as u64)));
            }
        }
    }
}

/// A reference to another run, or to a part of one.
#[test]
fn a_reference_to_other_bytes_is_refused() {
    let sample = sample(Compression::Lz4, true);
    let run = sample.runs[1].0;
    let other = sample.runs[0].0;
    let wrong = [
        SegmentRef {
            digest: run.digest ^ 1,
            ..run
        },
        SegmentRef {
            len: run.len - 1,
            ..run
        },
        SegmentRef {
            len: run.len + 1,
            ..run
        },
        SegmentRef {
            len: u64::MAX,
            ..run
        },
        SegmentRef { len: 0, ..run },
        SegmentRef {
            offset: run.offset + 1,
            ..run
        },
        SegmentRef {
            offset: u64::MAX,
            ..run
        },
        SegmentRef {
            len: run.len + other.len,
            ..run
        },
        SegmentRef {
            digest: other.digest,
            ..run
        },
    ];
    for reference in wrong {
        let error = read_segment(&sample.storage, &reference, &owner("b")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
        let id = CommitId {
            version: 5,
            floor: CheckpointId(5),
            deltas: DeltaMarks::NONE,
            owner: owner("b").tag(),
            segment: Some(reference),
            replaced: None,
        };
        let mut store = StateStore::new(owner("b"), plain());
        let error = store.open(&sample.storage, 5, Some(&id)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
        assert!(store.families().keys() == 0);
    }
    let error = read_segment(&sample.storage, &run, &owner("z")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.to_string().contains("region z"), "{error}");
}
