//! Truncation at every byte and a flip of every byte: errors, never panics, never wrong data.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;

use crate::common::frames::{bytes_field, frame, number_field};
use crate::common::{append, assert_damage, faulty, options, owner, payload};
use holdfast_core::checkpoint::read_like;
use holdfast_core::format::{
    Compression, FileIndex, read_head, read_index, read_sealed_index, read_segment,
};
use holdfast_core::segment::SegmentWriter;
use holdfast_core::storage::LocalStorage;
use holdfast_core::{ErrorKind, SegmentRef, Term};
use holdfast_sim::{FaultyStorage, Operation};

struct Sample {
    _dir: tempfile::TempDir,
    storage: LocalStorage,
    path: PathBuf,
    bytes: Vec<u8>,
    segments: Vec<(SegmentRef, String, Vec<u8>)>,
}

fn sample(sealed: bool, compression: Compression) -> Sample {
    let (dir, storage) = faulty();
    let writer = SegmentWriter::open(storage, Term(1), options(1 << 20, compression));
    let segments: Vec<_> = [("a", 40), ("b", 0), ("c", 90)]
        .into_iter()
        .enumerate()
        .map(|(i, (region, len))| {
            let bytes = payload(i as u64, len);
            (
                append(&writer, &owner(region), 5, &bytes).unwrap(),
                region.to_owned(),
                bytes,
            )
        })
        .collect();
    if sealed {
        writer.seal().unwrap();
    }
    let root = dir.path().join("root");
    let path = root.join(segments[0].0.file.file_name());
    let bytes = std::fs::read(&path).unwrap();
    Sample {
        _dir: dir,
        storage: LocalStorage::new(root),
        path,
        bytes,
        segments,
    }
}

impl Sample {
    /// Checks every promise on the damaged bytes; `intact` says which segments are not touched.
    fn check(&self, damaged: &[u8], intact: impl Fn(&SegmentRef) -> bool) -> Option<FileIndex> {
        std::fs::write(&self.path, damaged).unwrap();
        for (reference, region, bytes) in &self.segments {
            let found = read_segment(&self.storage, reference, &owner(region));
            let head = read_head(&self.storage, reference, &owner(region));
            if intact(reference) {
                assert_eq!(&found.unwrap().payload, bytes);
                assert_eq!(head.unwrap().owner, owner(region));
            } else {
                let path = self.path.to_str().unwrap();
                let offset = format!("offset {}", reference.offset);
                let of_region = format!("region {region}");
                let error = found.unwrap_err();
                assert_damage(&error, &[path, &offset, &of_region, "expected", "found"]);
                if let Ok(head) = head {
                    assert_eq!(head.owner, owner(region));
                }
            }
        }
        let index = match read_index(&self.storage, self.segments[0].0.file) {
            Ok(index) => index,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
                return None;
            }
        };
        for entry in &index.segments {
            let known = self.segments.iter().find(|(r, ..)| *r == entry.reference);
            let (_, region, _) = known.expect("an index names no segment that was not written");
            assert_eq!(entry.owner, owner(region));
            assert_eq!(entry.created.0, 5);
            if !index.sealed {
                let read = read_segment(&self.storage, &entry.reference, &entry.owner);
                read.expect("what a scan finds verifies");
            }
        }
        Some(index)
    }
}

fn end(reference: &SegmentRef) -> u64 {
    reference.offset + reference.len
}

#[test]
fn truncation_at_every_byte_is_noticed() {
    for sealed in [false, true] {
        for compression in [Compression::None, Compression::Lz4] {
            let sample = sample(sealed, compression);
            for len in 0..sample.bytes.len() {
                let index = sample.check(&sample.bytes[..len], |r| end(r) <= len as u64);
                let index = index.expect("a truncated file can be scanned");
                let whole = sample
                    .segments
                    .iter()
                    .filter(|(r, ..)| end(r) <= len as u64)
                    .count();
                assert_eq!(index.segments.len(), whole, "cut at {len}");
                assert!(!index.sealed, "cut at {len}");
                assert_eq!(index.damaged_bytes, 0, "a cut is not damage");
            }
        }
    }
}

#[test]
fn a_flip_of_every_byte_is_noticed() {
    for sealed in [false, true] {
        for compression in [Compression::None, Compression::Lz4] {
            let sample = sample(sealed, compression);
            for at in 0..sample.bytes.len() {
                let touched = |r: &SegmentRef| (r.offset..end(r)).contains(&(at as u64));
                for mask in [0x01, 0x80, 0xff] {
                    let mut bytes = sample.bytes.clone();
                    bytes[at] ^= mask;
                    let index = sample.check(&bytes, |r| !touched(r));
                    let Some(index) = index else {
                        assert!((at as u64) < sample.segments[0].0.offset, "only the header");
                        continue;
                    };
                    for (reference, ..) in &sample.segments {
                        let listed = index.segments.iter().any(|e| e.reference == *reference);
                        assert!(
                            listed || touched(reference),
                            "flip at {at} hides {reference}"
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn damage_in_the_middle_is_told_from_a_torn_tail() {
    let sample = sample(false, Compression::Lz4);
    let mut bytes = sample.bytes.clone();
    bytes[sample.segments[0].0.offset as usize + 30] ^= 1;
    let index = sample
        .check(&bytes, |r| r.offset > sample.segments[0].0.offset)
        .unwrap();
    assert_eq!(index.damaged_bytes, sample.segments[0].0.len);
    assert_eq!(index.torn_bytes, 0);

    bytes = sample.bytes.clone();
    bytes.extend_from_slice(&[0; 5000]);
    let index = sample.check(&bytes, |_| true).unwrap();
    assert_eq!((index.torn_bytes, index.damaged_bytes), (5000, 0));
}

#[test]
fn a_reference_to_other_bytes_is_refused() {
    let sample = sample(true, Compression::Lz4);
    let (good, region, _) = &sample.segments[0];
    let mut wrong = Vec::new();
    for (offset, len) in [(1, 0), (0, 1), (0, u64::MAX), (u64::MAX, 0), (1 << 40, 0)] {
        let offset = good.offset.wrapping_add(offset);
        wrong.push(SegmentRef {
            offset,
            len: good.len.wrapping_add(len),
            ..*good
        });
    }
    wrong.push(SegmentRef { len: 0, ..*good });
    wrong.push(SegmentRef {
        len: u64::MAX,
        ..*good
    });
    wrong.push(SegmentRef {
        digest: good.digest ^ 1,
        ..*good
    });
    for reference in wrong {
        let error = read_segment(&sample.storage, &reference, &owner(region)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
        let _ = read_head(&sample.storage, &reference, &owner(region));
    }
    let error = read_segment(&sample.storage, good, &owner("z")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.to_string().contains("region z"), "{error}");
    let mut absent = *good;
    absent.file.seq = 7;
    let error = read_segment(&sample.storage, &absent, &owner(region)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    assert_eq!(
        read_index(&sample.storage, absent.file).unwrap_err().kind(),
        ErrorKind::NotFound
    );
}

#[test]
fn a_misplaced_copy_is_not_taken_for_the_file() {
    let sample = sample(true, Compression::Lz4);
    let mut other = sample.segments[0].0.file;
    other.seq = 2;
    std::fs::copy(&sample.path, sample.path.with_file_name(other.file_name())).unwrap();
    let error = read_index(&sample.storage, other).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
}

/// A file without a footer: the header of `sample`, then these bytes.
fn with_tail(tail: &[u8]) -> (tempfile::TempDir, FaultyStorage, SegmentRef) {
    let sample = sample(false, Compression::None);
    let first = sample.segments[0].0;
    let dir = tempfile::tempdir().unwrap();
    let mut bytes = sample.bytes[..end(&first) as usize].to_vec();
    bytes.extend_from_slice(tail);
    std::fs::write(dir.path().join(first.file.file_name()), bytes).unwrap();
    let storage = FaultyStorage::new(Arc::new(LocalStorage::new(dir.path())));
    (dir, storage, first)
}

/// A head that announces more than any file has.
fn endless_head() -> Vec<u8> {
    let owner = bytes_field(1, &bytes_field(2, b"operator"));
    let endless = [&[5 << 3][..], &[0xff; 8], &[0x7f]].concat();
    frame(1, 2, &[owner, number_field(3, 1), endless].concat())
}

#[test]
fn recovery_behind_a_torn_tail_reads_every_byte_once() {
    // One cut segment whose data looks as if further ones began in each of its frames.
    let head = endless_head();
    let body = [&vec![7; (1 << 20) - head.len()], &head[..]].concat();
    let data = frame(1, 3, &body);
    let tail: Vec<u8> = [head, data.repeat(24)].concat();
    let (_dir, storage, first) = with_tail(&tail);
    let index = read_index(&storage, first.file).unwrap();
    assert_eq!(index.segments.len(), 1);
    assert_eq!(
        (index.torn_bytes, index.damaged_bytes),
        (tail.len() as u64, 0)
    );
    // A window is 4 MiB, and at least 3 of them are new.
    assert!(
        storage.calls(Operation::Read) <= 12,
        "{}",
        storage.calls(Operation::Read)
    );
}

#[test]
fn bytes_full_of_heads_that_are_none_are_not_searched_for_ever() {
    let mut fake = frame(1, 2, &[0; 40]);
    fake[8..12].copy_from_slice(&(1u32 << 20).to_le_bytes());
    fake[12..16].copy_from_slice(&(1u32 << 20).to_le_bytes());
    let tail = [fake[..20].repeat(100_000), vec![0; 2 << 20]].concat();
    let (_dir, storage, first) = with_tail(&tail);
    let index = read_index(&storage, first.file).unwrap();
    assert_eq!(index.segments.len(), 1);
    assert!(
        index.damaged_bytes > 0,
        "it is not deleted for want of segments"
    );
}

#[test]
fn a_sparse_file_cannot_make_a_reader_take_memory() {
    // More than any machine of ours has; none of it is on the disk.
    const SPARSE_BYTES: u64 = 4 << 40;
    let (dir, storage, first) = with_tail(&[]);
    let path = dir.path().join(first.file.file_name());
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(SPARSE_BYTES).unwrap();
    let endless = SegmentRef {
        len: SPARSE_BYTES - first.offset,
        ..first
    };
    let error = read_segment(&storage, &endless, &owner("a")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    // A footer of that length, and one of more segments than a file has.
    for (footer_bytes, segments) in [(SPARSE_BYTES - 100, 1), (36, u64::MAX), (36, 65_537)] {
        let mut body = u64::to_le_bytes(footer_bytes).to_vec();
        body.extend_from_slice(&u64::to_le_bytes(segments));
        let trailer = frame(1, 5, &body);
        file.write_all_at(&trailer, SPARSE_BYTES - trailer.len() as u64)
            .unwrap();
        assert_eq!(read_sealed_index(&storage, first.file).unwrap(), None);
    }
    let name = "0000000000000001.hfc";
    let file = std::fs::File::create(dir.path().join(name)).unwrap();
    file.write_all_at(&frame(1, 6, b"header"), 0).unwrap();
    file.set_len(SPARSE_BYTES).unwrap();
    let error = read_like(&storage, name, None).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
}
