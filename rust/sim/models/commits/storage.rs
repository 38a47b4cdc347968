//! The shared folder: merged files and the commit log.

use crate::model::{BATCHES, RETAINED};

/// A merged file. It has the term of the manager that made it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name {
    pub term: u8,
    pub number: u8,
}

/// Segments are named by the version that their commit made, and are bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct File {
    pub name: Name,
    pub segments: u8,
    pub durable: u8,
}

/// The id of a commit.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Id {
    /// The segments of all commits whose changes it has, oldest first.
    pub history: Vec<(Name, u8)>,
    /// Older segments are not needed to load it.
    pub floor: u8,
}

impl Id {
    /// A commit on top of another one. Every other version is a base image and needs nothing else.
    pub fn next(parent: &Id, version: u8, file: Name) -> Id {
        let mut history = parent.history.clone();
        history.push((file, version));
        let floor = if is_image(version) {
            version
        } else {
            parent.floor
        };
        Id { history, floor }
    }

    pub fn newest(&self) -> (Name, u8) {
        self.history[self.history.len() - 1]
    }

    fn segments(&self) -> impl Iterator<Item = &(Name, u8)> {
        let segments = self.history.iter();
        segments.filter(|(_, version)| *version >= self.floor)
    }
}

fn is_image(version: u8) -> bool {
    version % 2 == 1
}

/// The file of the first batch.
pub const FIRST_FILE: Name = Name { term: 4, number: 0 };

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Storage {
    /// Ordered by name.
    pub files: Vec<File>,
    /// Terms of markers, as bits.
    pub markers: u32,
    /// By batch.
    pub log: [Option<Id>; BATCHES + 1],
    /// For invariants: what was acknowledged, and whether a publication came after a later one.
    pub acknowledged: [Option<Id>; BATCHES + 1],
    pub late: bool,
    /// For an invariant: a file went that a retained batch needs.
    pub took_live: bool,
}

impl Storage {
    /// The first batch is committed.
    pub fn new() -> Self {
        let id = Id {
            history: vec![(FIRST_FILE, 1)],
            floor: 1,
        };
        let mut log = [const { None }; BATCHES + 1];
        log[1] = Some(id);
        Self {
            files: vec![File {
                name: FIRST_FILE,
                segments: bit(1),
                durable: bit(1),
            }],
            markers: 0,
            acknowledged: log.clone(),
            log,
            late: false,
            took_live: false,
        }
    }

    /// The newest term of a file or marker that is not one of these terms, which are bits; 0 without any.
    pub fn newest_foreign(&self, own: u32) -> u8 {
        let terms = self.files.iter().map(|file| 1 << file.name.term);
        let all = terms.fold(self.markers, |all: u32, term: u32| all | term);
        u8::try_from((all & !own).checked_ilog2().unwrap_or(0)).unwrap_or(u8::MAX)
    }

    /// Makes a marker, and deletes those of older terms.
    pub fn mark(&mut self, term: u8) {
        self.markers = self.markers >> term << term | 1 << term;
    }

    pub fn file(&mut self, name: Name) -> Option<&mut File> {
        self.files.iter_mut().find(|file| file.name == name)
    }

    pub fn has(&self, name: Name) -> bool {
        self.files.iter().any(|file| file.name == name)
    }

    /// The machine of an executor with this term stops. What was not synced is gone.
    pub fn crash(&mut self, term: u8) {
        for file in &mut self.files {
            if file.name.term == term {
                file.segments = file.durable;
            }
        }
        self.files.retain(|file| file.segments != 0);
    }

    /// Appends to a file that is there, or creates it.
    pub fn append(&mut self, name: Name, version: u8) {
        match self.files.binary_search_by_key(&name, |file| file.name) {
            Ok(at) => self.files[at].segments |= bit(version),
            Err(at) => self.files.insert(
                at,
                File {
                    name,
                    segments: bit(version),
                    durable: 0,
                },
            ),
        }
    }

    /// Creates an object, unless its name is taken.
    pub fn create(&mut self, name: Name, segments: u8) -> bool {
        let found = self.files.binary_search_by_key(&name, |file| file.name);
        if let Err(at) = found {
            let durable = segments;
            let file = File {
                name,
                segments,
                durable,
            };
            self.files.insert(at, file);
        }
        found.is_err()
    }

    /// The newest batch in the log, 0 without any.
    pub fn committed(&self) -> usize {
        let published = self.log.iter().rposition(Option::is_some);
        published.unwrap_or(0)
    }

    pub fn oldest(&self) -> usize {
        let published = self.log.iter().position(Option::is_some);
        published.unwrap_or(0)
    }

    /// Returns whether Spark would delete entries after this batch.
    pub fn has_old_entries(&self, batch: usize) -> bool {
        self.oldest() + RETAINED <= batch
    }

    pub fn purge(&mut self, batch: usize) {
        for old in 0..=batch.saturating_sub(RETAINED) {
            self.log[old] = None;
        }
    }

    pub fn delete(&mut self, doomed: &[Name]) {
        self.files.retain(|file| !doomed.contains(&file.name));
        self.took_live |= !self.is_readable();
    }

    /// Returns whether everything is there that entries of the log name, also after a crash of all
    /// machines.
    pub fn is_readable(&self) -> bool {
        let ids = self.log.iter().flatten();
        ids.flat_map(Id::segments).all(|(name, version)| {
            let mut files = self.files.iter();
            files.any(|file| file.name == *name && file.durable & bit(*version) != 0)
        })
    }
}

pub const fn bit(version: u8) -> u8 {
    1 << version
}
