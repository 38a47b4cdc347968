//! Facts about many regions, so that a start does not need their entries.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use prost::Message;

use super::encoding::RegionMessage;
use super::entry::{OperatorEntry, StateContent, StateKind};
use super::region::RegionEntry;
use crate::error::Result;
use crate::ids::{FileId, Term};

/// Samples of a group of like regions.
const SAMPLES: usize = 32;

/// An outline names no more groups of like regions.
const MOST_GROUPS: usize = 8;

/// A file names the regions that need it, unless there are more.
const MOST_NAMED: usize = 64;

/// Facts about the regions of a base, in memory and as stored.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Outline {
    #[prost(uint64, optional, tag = "1")]
    pub newest_origin: Option<u64>,
    #[prost(message, repeated, tag = "2")]
    pub files: Vec<FileUse>,
    #[prost(string, repeated, tag = "3")]
    pub outputs: Vec<String>,
    /// Groups of like regions that have not finished; `None` if there are many.
    #[prost(message, optional, tag = "4")]
    pub groups: Option<GroupList>,
}

/// A file that regions need.
#[derive(Clone, PartialEq, Message)]
pub(super) struct FileUse {
    #[prost(uint64, tag = "1")]
    term: u64,
    #[prost(uint32, tag = "2")]
    seq: u32,
    /// Its least size in bytes.
    #[prost(uint64, tag = "3")]
    pub bytes: u64,
    /// The regions, by name; empty if they are many.
    #[prost(string, repeated, tag = "4")]
    pub regions: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct GroupList {
    #[prost(message, repeated, tag = "1")]
    pub items: Vec<Group>,
}

/// Like regions.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Group {
    #[prost(uint64, tag = "1")]
    pub len: u64,
    #[prost(message, repeated, tag = "2")]
    pub samples: Vec<RegionMessage>,
}

impl FileUse {
    pub fn file(&self) -> FileId {
        FileId {
            term: Term(self.term),
            seq: self.seq,
        }
    }
}

impl Outline {
    pub fn of(entries: &[RegionEntry]) -> Result<Self> {
        let (mut files, mut outputs) = (BTreeMap::<FileId, FileUse>::new(), BTreeSet::new());
        for entry in entries {
            let mut of_region = BTreeMap::new();
            entry.note_files(&mut of_region)?;
            for (file, bytes) in of_region {
                let of_file = files.entry(file).or_default();
                (of_file.term, of_file.seq) = (file.term.0, file.seq);
                of_file.bytes = of_file.bytes.max(bytes);
                if of_file.regions.len() <= MOST_NAMED {
                    of_file.regions.push(entry.region().to_owned());
                }
            }
            entry.note_outputs(&mut outputs)?;
        }
        for of_file in files.values_mut() {
            if of_file.regions.len() > MOST_NAMED {
                of_file.regions.clear();
            }
        }
        let group = |entries: Vec<&RegionEntry>| Group {
            len: entries.len() as u64,
            samples: spread(&entries).map(|one| one.message().clone()).collect(),
        };
        let groups = groups_of(entries.iter(), MOST_GROUPS)?;
        Ok(Self {
            newest_origin: entries.iter().map(|entry| entry.origin().0).max(),
            files: files.into_values().collect(),
            outputs: outputs.into_iter().collect(),
            groups: groups.map(|groups| GroupList {
                items: groups.into_iter().map(group).collect(),
            }),
        })
    }
}

/// Some of each group of like regions that have not finished.
pub(super) fn samples_of<'a>(
    entries: impl Iterator<Item = &'a RegionEntry>,
) -> Result<Vec<Vec<RegionEntry>>> {
    let groups = groups_of(entries, usize::MAX)?.unwrap_or_default();
    let samples = groups.iter().map(|group| spread(group).cloned().collect());
    Ok(samples.collect())
}

/// Regions that have not finished, together where operators have the same states: names, kinds,
/// types, shapes of arrays, and whole descriptions of tables. `None` for more than `most` groups.
pub(super) fn groups_of<'a>(
    entries: impl Iterator<Item = &'a RegionEntry>,
    most: usize,
) -> Result<Option<Vec<Vec<&'a RegionEntry>>>> {
    let mut places: HashMap<Vec<OperatorEntry>, usize> = HashMap::new();
    let mut groups: Vec<Vec<&RegionEntry>> = Vec::new();
    for entry in entries.filter(|entry| !entry.finished()) {
        let place = *places.entry(form(entry)?).or_insert(groups.len());
        if place == groups.len() {
            if place == most {
                return Ok(None);
            }
            groups.push(Vec::new());
        }
        if let Some(group) = groups.get_mut(place) {
            group.push(entry);
        }
    }
    Ok(Some(groups))
}

/// The states of a region, without what differs between like regions.
fn form(entry: &RegionEntry) -> Result<Vec<OperatorEntry>> {
    let mut operators = entry.operators()?;
    for state in operators.iter_mut().flat_map(|one| &mut one.states) {
        if state.kind != StateKind::Array {
            state.shape.clear(); // the length of a value
        }
        if let StateContent::Pieces(_) | StateContent::Inline(_) = state.content {
            state.content = StateContent::Inline(Vec::new());
        } else if let StateContent::Table { pieces, .. } = &mut state.content {
            pieces.clear();
        }
    }
    Ok(operators)
}

/// Entries from all parts of a group, the first one among them.
fn spread<'a>(group: &[&'a RegionEntry]) -> impl Iterator<Item = &'a RegionEntry> {
    let step = group.len().div_ceil(SAMPLES).max(1);
    group.iter().step_by(step).copied()
}
