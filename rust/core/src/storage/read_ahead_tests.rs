#![allow(clippy::unwrap_used, clippy::indexing_slicing)]
use std::sync::Arc;

use super::*;
use crate::storage::check_range;

const KIB: u64 = 1 << 10;

/// A file in memory that notes its reads: where they begin, and their length.
#[derive(Debug)]
struct Noting {
    bytes: Vec<u8>,
    reads: Arc<Mutex<Vec<(u64, u64)>>>,
}

impl ReadFile for Noting {
    fn size_bytes(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn read(&self, offset: u64, len: u64) -> Result<Vec<u8>> {
        check_range("file", self.size_bytes(), offset, len)?;
        self.reads.lock().push((offset, len));
        Ok(self.bytes[offset as usize..(offset + len) as usize].to_vec())
    }
}

struct Setup {
    file: ReadAhead,
    bytes: Vec<u8>,
    reads: Arc<Mutex<Vec<(u64, u64)>>>,
}

fn setup(size: u64) -> Setup {
    let bytes: Vec<u8> = (0..size).map(|at| (at * 7 % 251) as u8).collect();
    let reads = Arc::default();
    let noting = Noting {
        bytes: bytes.clone(),
        reads: Arc::clone(&reads),
    };
    Setup {
        file: ReadAhead::new(Box::new(noting)),
        bytes,
        reads,
    }
}

impl Setup {
    /// Reads, and says how many reads of the file that took.
    fn reads_of(&self, offset: u64, len: u64) -> usize {
        let found = self.file.read(offset, len).unwrap();
        assert_eq!(found, self.bytes[offset as usize..(offset + len) as usize]);
        std::mem::take(&mut *self.reads.lock()).len()
    }
}

#[test]
fn small_reads_in_either_direction_are_made_of_few_large_ones() {
    let parts: Vec<u64> = (0..425).map(|part| part * 8 * KIB).collect();
    let forward = setup(3400 * KIB);
    let reads: usize = parts.iter().map(|at| forward.reads_of(*at, 8 * KIB)).sum();
    assert_eq!(reads, 5, "the first one, and one for each MiB");
    let backward = setup(3400 * KIB);
    let parts = parts.iter().rev();
    let reads: usize = parts.map(|at| backward.reads_of(*at, 8 * KIB)).sum();
    assert_eq!(reads, 5);
}

#[test]
fn what_lies_across_two_parts_is_read_whole() {
    let setup = setup(4096 * KIB);
    assert_eq!(setup.reads_of(900 * KIB, KIB), 1);
    assert_eq!(setup.reads_of(1000 * KIB, 100 * KIB), 1);
    assert_eq!(
        setup.reads_of(1020 * KIB, 132 * KIB),
        0,
        "an eighth of a MiB more"
    );
    assert_eq!(setup.reads_of(1020 * KIB, 133 * KIB), 1);
    assert_eq!(setup.reads_of(1000 * KIB, 153 * KIB), 0);
}

#[test]
fn single_reads_and_large_ones_take_what_was_asked_for() {
    let setup = setup(8192 * KIB);
    for (offset, len) in [(0, 10), (3000 * KIB, 10), (6000 * KIB, 600 * KIB)] {
        setup.file.read(offset, len).unwrap();
    }
    assert_eq!(
        *setup.reads.lock(),
        [(0, 10), (3000 * KIB, 10), (6000 * KIB, 600 * KIB)]
    );
}

#[test]
fn a_small_file_is_read_at_once() {
    let setup = setup(1024 * KIB);
    assert_eq!(setup.reads_of(500 * KIB, 8 * KIB), 1);
    assert_eq!(setup.reads_of(0, 8 * KIB), 0);
    assert_eq!(setup.reads_of(1000 * KIB, 24 * KIB), 0);
    assert_eq!(setup.reads_of(0, 513 * KIB), 1, "a large read");
}

#[test]
fn nothing_is_read_behind_the_end() {
    let setup = setup(1500 * KIB);
    assert_eq!(setup.reads_of(1200 * KIB, KIB), 1);
    assert_eq!(setup.reads_of(1400 * KIB, 100 * KIB), 1);
    assert!(setup.file.read(1400 * KIB, 101 * KIB).is_err());
    assert!(setup.file.read(u64::MAX, 2).is_err());
    assert_eq!(setup.reads_of(1500 * KIB, 0), 1);
}
