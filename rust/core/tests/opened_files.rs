//! Segments that are read one by one through files that stay open: requests, and changes in between.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use crate::common::{append, faulty, options, owner, payload};
use holdfast_core::format::{Compression, OpenedFiles};
use holdfast_core::segment::SegmentWriter;
use holdfast_core::{ErrorKind, SegmentRef, Term};
use holdfast_sim::{FaultyStorage, Operation};

const SEGMENT_BYTES: usize = 8_000;

struct Folder {
    dir: tempfile::TempDir,
    storage: Arc<FaultyStorage>,
    /// One of each region.
    segments: Vec<SegmentRef>,
}

impl Folder {
    /// Segments of many regions, in files of this size.
    fn new(regions: u64, max_file_bytes: u64) -> Self {
        let (dir, storage) = faulty();
        let options = options(max_file_bytes, Compression::None);
        let writer = SegmentWriter::open(storage.clone(), Term(1), options);
        let segments = (0..regions)
            .map(|region| {
                let bytes = payload(region, SEGMENT_BYTES);
                append(&writer, &owner(&region.to_string()), 1, &bytes).unwrap()
            })
            .collect();
        writer.seal().unwrap();
        Self {
            dir,
            storage,
            segments,
        }
    }

    fn path(&self, region: usize) -> PathBuf {
        let name = self.segments[region].file.file_name();
        self.dir.path().join("root").join(name)
    }

    fn read(&self, files: &OpenedFiles, region: usize) -> Result<(), ErrorKind> {
        self.read_known(files, region, 0)
    }

    fn read_known(
        &self,
        files: &OpenedFiles,
        region: usize,
        known_bytes: u64,
    ) -> Result<(), ErrorKind> {
        let whose = owner(&region.to_string());
        let segment = &self.segments[region];
        let found = files.read(self.storage.as_ref(), segment, &whose, known_bytes);
        let payload_read = found.map_err(|e| e.kind())?.payload;
        assert_eq!(payload_read, payload(region as u64, SEGMENT_BYTES));
        Ok(())
    }

    /// Files that were opened and ranges that were read since this was last called.
    fn requests(&self, before: &mut (u64, u64)) -> (u64, u64) {
        self.calls([Operation::Open, Operation::Read], before)
    }

    /// Files that were opened with a look at their length, and without, since this was last called.
    fn openings(&self, before: &mut (u64, u64)) -> (u64, u64) {
        self.calls([Operation::Open, Operation::OpenKnown], before)
    }

    fn calls(&self, [one, other]: [Operation; 2], before: &mut (u64, u64)) -> (u64, u64) {
        let now = (self.storage.calls(one), self.storage.calls(other));
        let since = (now.0 - before.0, now.1 - before.1);
        *before = now;
        since
    }

    /// The end of a region's segment in its file.
    fn end_of(&self, region: usize) -> u64 {
        self.segments[region].offset + self.segments[region].len
    }
}

#[test]
fn the_segments_of_a_checkpoint_cost_few_requests() {
    let folder = Folder::new(430, 32 << 20);
    let (files, mut before) = (OpenedFiles::new(8), (0, 0));
    folder.requests(&mut before);
    (0..430).for_each(|region| folder.read(&files, region).unwrap());
    assert_eq!(folder.requests(&mut before), (1, 5), "3.5 MB");
    files.clear();
    (0..430)
        .rev()
        .for_each(|region| folder.read(&files, region).unwrap());
    assert_eq!(folder.requests(&mut before), (1, 5));
}

#[test]
fn files_take_turns_as_long_as_they_may_stay_open() {
    let folder = Folder::new(12, 3 * SEGMENT_BYTES as u64);
    let files_of: Vec<_> = folder.segments.iter().map(|s| s.file).collect();
    assert_eq!(files_of.iter().filter(|f| **f == files_of[0]).count(), 3);
    let turns = [0, 3, 6, 9, 1, 4, 7, 10, 2, 5, 8, 11];
    let mut before = (0, 0);
    for (max, requests) in [(4, (4, 4)), (3, (12, 12)), (0, (12, 12))] {
        let files = OpenedFiles::new(max);
        folder.requests(&mut before);
        turns
            .iter()
            .for_each(|region| folder.read(&files, *region).unwrap());
        assert_eq!(folder.requests(&mut before), requests, "{max} files");
    }
}

#[test]
fn what_was_read_ahead_before_its_writer_took_it_back_is_read_again() {
    let folder = Folder::new(3, 32 << 20);
    let (path, last) = (folder.path(2), folder.segments[2]);
    let written = fs::read(&path).unwrap();
    let mut before = written.clone();
    before[last.offset as usize..(last.offset + last.len) as usize].fill(7);
    fs::write(&path, &before).unwrap();
    let files = OpenedFiles::new(8);
    folder.read(&files, 0).unwrap();
    folder.read(&files, 1).unwrap();
    assert_eq!(folder.read(&files, 2), Err(ErrorKind::Corrupt));
    // All of the file is in memory again, with its present content.
    folder.read(&files, 0).unwrap();
    fs::write(&path, &written).unwrap();
    folder.read(&files, 2).unwrap();
}

#[test]
fn a_file_that_is_gone_is_missed_when_it_is_not_open() {
    let folder = Folder::new(2, 32 << 20);
    let files = OpenedFiles::new(1);
    folder.read(&files, 0).unwrap();
    fs::remove_file(folder.path(0)).unwrap();
    files.clear();
    assert_eq!(folder.read(&files, 1), Err(ErrorKind::NotFound));
}

#[test]
fn the_length_of_a_file_is_asked_for_only_where_it_is_not_known() {
    let folder = Folder::new(4, 32 << 20);
    let (files, mut before) = (OpenedFiles::new(8), (0, 0));
    folder.openings(&mut before);
    let known = folder.end_of(2);
    for region in [1, 0, 2] {
        folder.read_known(&files, region, known).unwrap();
    }
    assert_eq!(folder.openings(&mut before), (0, 1));
    // After the known bytes.
    folder.read_known(&files, 3, known).unwrap();
    assert_eq!(folder.openings(&mut before), (1, 0));
    folder.read_known(&files, 2, known).unwrap();
    assert_eq!(folder.openings(&mut before), (0, 0), "it is open already");
}

#[test]
fn a_file_shorter_than_was_known_is_read_as_far_as_it_goes() {
    let folder = Folder::new(3, 32 << 20);
    let (path, known) = (folder.path(0), folder.end_of(2));
    let file = fs::File::options().write(true).open(&path).unwrap();
    file.set_len(folder.end_of(1)).unwrap();
    let files = OpenedFiles::new(8);
    for region in [0, 1] {
        folder.read_known(&files, region, known).unwrap();
    }
    let damaged = folder.read_known(&files, 2, known);
    assert_eq!(damaged, Err(ErrorKind::Corrupt));
    files.clear();
    fs::remove_file(path).unwrap();
    let gone = folder.read_known(&files, 0, known);
    assert_eq!(gone, Err(ErrorKind::NotFound));
}
