//! A file whose writer died is listed shorter than it is for a while, as HDFS does.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use std::sync::Arc;

use crate::common::{append, owner};
use holdfast_core::liveness::RestoredCheckpoint;
use holdfast_core::reclaim::{ReclaimReport, reclaim_orphans};
use holdfast_core::segment::{SegmentWriter, WriterOptions};
use holdfast_core::storage::{
    AppendFile, Capabilities, LocalStorage, ObjectMeta, ReadFile, Storage,
};
use holdfast_core::{CheckpointId, ErrorKind, Result, SegmentRef, Term};

#[derive(Debug)]
struct LateLengths(LocalStorage);

impl Storage for LateLengths {
    fn location(&self) -> String {
        self.0.location()
    }

    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }

    fn create(&self, name: &str) -> Result<Box<dyn AppendFile>> {
        self.0.create(name)
    }

    fn open(&self, name: &str) -> Result<Box<dyn ReadFile>> {
        self.0.open(name)
    }

    fn len(&self, name: &str) -> Result<u64> {
        self.0.len(name)
    }

    fn sync(&self, name: &str) -> Result<()> {
        self.0.sync(name)
    }

    fn delete(&self, name: &str) -> Result<()> {
        self.0.delete(name)
    }

    fn list(&self) -> Result<Vec<ObjectMeta>> {
        let mut objects = self.0.list()?;
        objects.iter_mut().for_each(|object| object.len = 0);
        Ok(objects)
    }
}

fn reclaim(storage: &LateLengths, needed: SegmentRef) -> Result<ReclaimReport> {
    let retained = RestoredCheckpoint {
        id: CheckpointId(1),
        segments: vec![(owner("a"), CheckpointId(1), needed)],
    };
    reclaim_orphans(storage, || Ok(vec![retained]), &|_| false, Term(9))
}

#[test]
fn what_is_needed_of_it_is_found_and_what_is_missing_is_missed() {
    let dir = tempfile::tempdir().unwrap();
    let storage = Arc::new(LateLengths(LocalStorage::new(dir.path().join("root"))));
    let write = |term| {
        let writer = SegmentWriter::open(storage.clone(), Term(term), WriterOptions::default());
        append(&writer, &owner("a"), 1, b"state").unwrap()
    };
    let (needed, orphan) = (write(1), write(2));
    let report = reclaim(&storage, needed).unwrap();
    assert_eq!(report.deleted, [orphan.file]);
    assert_eq!(report.kept, [needed.file]);
    let beyond = SegmentRef {
        offset: needed.offset + 1,
        ..needed
    };
    let missing = reclaim(&storage, beyond).unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::NotFound);
    assert_eq!(storage.list().unwrap().len(), 1);
}
