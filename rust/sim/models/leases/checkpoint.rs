//! A checkpoint: its log, its physical files, Spark's small files, and leases on its batches.

use std::sync::Arc;

use holdfast_core::leases::BranchStorage;
use holdfast_core::state::{CommitId, DeltaMarks, VersionId};
use holdfast_core::storage::Storage;
use holdfast_core::{CheckpointId, FileId, Owner, SegmentRef, Term};

use crate::folder::{Answer, Folder, not_found};
use crate::model::{Model, Mutant};

pub const BATCHES: usize = 4;
/// Ids that leases get, from 1.
pub const IDS: usize = 8;

/// The two checkpoints.
pub const PARENT: usize = 0;
pub const BRANCH: usize = 1;

/// The two names of leases: the tag, and the one of the branch.
pub const NAMES: [&str; 2] = ["tag", "branch"];
pub const TAG: usize = 0;
pub const OF_BRANCH: usize = 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Record {
    pub id: u8,
    pub batch: u8,
    /// False while it is written, and if its command died then.
    pub is_whole: bool,
}

/// All files of a name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Lease {
    pub record: Option<Record>,
    /// Marks of leases that are held, as bits by id.
    pub marks: u8,
    /// The batch of the copies of Spark's files, by id; 0 without copies.
    pub copies: [u8; IDS],
    /// For invariants: a command said that it made this lease, and nobody deleted it since.
    pub said: Option<u8>,
}

impl Lease {
    /// The lease, if it is held.
    pub fn held(&self, model: &Model) -> Option<Record> {
        let record = self.record.filter(|record| record.is_whole)?;
        (self.marks & bit(model.mark(record.id)) != 0).then_some(record)
    }

    /// Returns whether nothing of it is there.
    pub fn is_gone(&self) -> bool {
        self.record.is_none() && self.marks == 0 && self.copies == [0; IDS]
    }
}

/// A version has the number of the batch that made it. One file has the changes of one batch.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Checkpoint {
    /// The newest entry of its commit log; 0 before it is published.
    pub newest: u8,
    /// The oldest entry, and the oldest batch of which Spark's other files are there.
    pub oldest: u8,
    pub oldest_small: u8,
    /// The term of its next files.
    pub term: u8,
    /// By version, the term of its file.
    pub terms: [u8; BATCHES + 1],
    /// Versions whose files are in its folder, as bits.
    pub files: u8,
    /// The batch that a branch began with; 0 for the parent.
    pub base: u8,
    /// The record of the parent: files up to this term are there. 0 for a branch that was detached.
    pub until: Option<u8>,
    /// Batches of which a command copied Spark's files into it, as bits.
    pub copied: u8,
    pub leases: [Lease; 2],
}

impl Checkpoint {
    /// An empty folder.
    pub fn empty() -> Self {
        Self {
            newest: 0,
            oldest: 0,
            oldest_small: 0,
            term: 0,
            terms: [0; BATCHES + 1],
            files: 0,
            base: 0,
            until: None,
            copied: 0,
            leases: [Lease::default(); 2],
        }
    }

    /// Two batches are committed.
    pub fn parent() -> Self {
        let mut new = Self {
            oldest: 1,
            oldest_small: 1,
            term: 1,
            ..Self::empty()
        };
        new.commit();
        new.commit();
        new
    }

    pub fn commit(&mut self) {
        self.newest += 1;
        self.terms[usize::from(self.newest)] = self.term;
        self.files |= bit(self.newest);
    }

    pub fn has_entry(&self, batch: u8) -> bool {
        self.newest > 0 && (self.oldest..=self.newest).contains(&batch)
    }

    /// The versions whose files a batch needs.
    pub fn needed_by(batch: u8) -> impl Iterator<Item = u8> {
        floor(batch)..=batch
    }

    /// The newest term of the files that a batch needs.
    pub fn newest_term(&self, batch: u8) -> u8 {
        let terms = Self::needed_by(batch).map(|version| self.terms[usize::from(version)]);
        terms.max().unwrap_or(0)
    }

    /// The id of the store in an entry of the log.
    pub fn id(&self, batch: u8) -> VersionId {
        let segment = SegmentRef {
            file: self.file(batch),
            offset: 0,
            len: 1,
            digest: 0,
        };
        let id = CommitId {
            version: batch.into(),
            floor: CheckpointId(floor(batch).into()),
            deltas: DeltaMarks::NONE,
            owner: owner().tag(),
            segment: Some(segment),
            replaced: None,
        };
        id.into()
    }

    pub fn file(&self, version: u8) -> FileId {
        FileId {
            term: Term(self.terms[usize::from(version)].into()),
            seq: version.into(),
        }
    }

    /// The checkpoint whose content is in a file of this folder.
    fn content(&self, name: &str) -> Option<u8> {
        let file = FileId::parse(name)?;
        let version = u8::try_from(file.seq).ok()?;
        let is_there = self.files & bit(version) != 0 && self.file(version) == file;
        is_there.then(|| self.origin(version))
    }

    /// The checkpoint that made a version.
    fn origin(&self, version: u8) -> u8 {
        u8::from(self.base > 0 && version > self.base)
    }

    fn folder(&self) -> Arc<dyn Storage> {
        let this = self.clone();
        Arc::new(Folder(move |name: Option<&str>| {
            match name.and_then(|name| this.content(name)) {
                Some(content) => Ok(Answer::Content(vec![content])),
                None => not_found(),
            }
        }))
    }
}

/// Returns whether all files of a batch can be read, and have the right content.
pub fn is_readable(
    checkpoints: &[Checkpoint; 2],
    at: usize,
    batches: impl Iterator<Item = u8>,
) -> bool {
    let checkpoint = &checkpoints[at];
    let mut folder = checkpoint.folder();
    if let Some(until) = checkpoint.until {
        let parent = checkpoints[PARENT].folder();
        folder = Arc::new(BranchStorage::new(folder, parent, Term(until.into())));
    }
    let mut versions = batches.flat_map(Checkpoint::needed_by);
    versions.all(|version| {
        let read = folder.read(&checkpoint.file(version).file_name(), 0, 1);
        read.is_ok_and(|content| content == [checkpoint.origin(version)])
    })
}

/// Every other version is a base image, and needs nothing else.
pub fn floor(version: u8) -> u8 {
    if is_image(version) {
        version
    } else {
        version - 1
    }
}

pub fn is_image(version: u8) -> bool {
    version % 2 == 1
}

pub fn owner() -> Owner {
    Owner::new("", "0", "0", "default")
}

pub const fn bit(number: u8) -> u8 {
    1 << number
}

impl Model {
    /// The id in the mark of a lease that is held.
    pub fn mark(&self, id: u8) -> u8 {
        if self.is(Mutant::MarkHasNoId) { 0 } else { id }
    }

    /// The id in the name of copies.
    pub fn copies(&self, id: u8) -> u8 {
        if self.is(Mutant::CopiesHaveNoId) {
            0
        } else {
            id
        }
    }
}
