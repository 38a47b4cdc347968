//! Entries of all regions, of which the next checkpoint shares those that did not change.

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, OnceLock};

use super::region::RegionEntry;
use crate::error::{Error, Result};
use crate::ids::CheckpointId;

/// The base is written anew when the changes have this part of its entries.
const MOST_CHANGED: usize = 4;

/// A base with fewer regions is in the file of each checkpoint.
const LEAST_FILED: usize = 1_000;

/// A base gets a file of its own for a checkpoint that changes no more than this part of it. A
/// pipeline whose regions are all active writes none.
const MOST_CHANGED_FIRST: usize = 16;

/// Regions that are gone are named in the header, which has a bound.
const MOST_GONE_BYTES: usize = 256 << 10;

/// A file with the regions that several checkpoints share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BaseFile {
    /// The first checkpoint that names it.
    pub id: CheckpointId,
    /// xxh3-128 of all its bytes.
    pub digest: u128,
}

/// Entries of regions, in the order of their names: a base and what changed since, so that a
/// checkpoint costs as much as it changes.
#[derive(Clone, Debug, Default)]
pub struct Regions {
    base: Arc<Base>,
    /// `None` for a region that is gone.
    changes: Arc<BTreeMap<String, Option<RegionEntry>>>,
    len: usize,
    failed: usize,
}

#[derive(Debug, Default)]
struct Base {
    entries: Vec<RegionEntry>,
    /// Set once the file is durable.
    file: OnceLock<BaseFile>,
    /// Places of regions that are not merely idle, see [`RegionEntry::is_notable`].
    notable: Vec<usize>,
    newest_origin: Option<CheckpointId>,
}

impl Regions {
    /// Takes entries in any order.
    ///
    /// # Errors
    /// `InvalidInput` for a region that occurs twice.
    pub fn new(mut entries: Vec<RegionEntry>) -> Result<Self> {
        // Stable, and cheap for regions that are sorted already, as in every file.
        entries.sort_by(|a, b| a.region().cmp(b.region()));
        for (entry, next) in entries.iter().zip(entries.iter().skip(1)) {
            if entry.region() == next.region() {
                return Err(Error::invalid_input(format!(
                    "region {:?} occurs twice",
                    entry.region()
                )));
            }
        }
        Ok(Self::of_base(entries))
    }

    fn of_base(entries: Vec<RegionEntry>) -> Self {
        let places = entries.iter().enumerate();
        let notable = places.filter(|(_, entry)| entry.is_notable());
        Self {
            len: entries.len(),
            failed: entries.iter().filter(|entry| entry.failed()).count(),
            base: Arc::new(Base {
                notable: notable.map(|(place, _)| place).collect(),
                newest_origin: entries.iter().map(RegionEntry::origin).max(),
                entries,
                file: OnceLock::new(),
            }),
            changes: Arc::default(),
        }
    }

    /// These entries with others, and without the regions that are `gone`.
    #[must_use]
    pub fn changed<'a>(
        &self,
        entries: impl IntoIterator<Item = RegionEntry>,
        gone: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        let new = self.differing(entries, gone);
        if new.changes.len().saturating_mul(MOST_CHANGED) > new.base.entries.len() {
            return Self::of_base(new.iter().cloned().collect());
        }
        new
    }

    /// Like [`Self::changed`], always on the same base.
    pub(super) fn differing<'a>(
        &self,
        entries: impl IntoIterator<Item = RegionEntry>,
        gone: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        let mut new = self.clone();
        for entry in entries {
            new.put(entry.region().to_owned(), Some(entry));
        }
        for region in gone {
            new.put(region.to_owned(), None);
        }
        new
    }

    /// Notes that a file has the base.
    pub(super) fn note_filed(&self, file: BaseFile) {
        // Another file with the same regions is as good.
        let _ = self.base.file.set(file);
    }

    /// Regions of the base, and what differs from it: entries, and names of those that are gone.
    /// `None` where a checkpoint has all its regions in its own file.
    pub(super) fn difference(&self) -> Option<Difference<'_>> {
        let (changed, all) = (self.changes.len(), self.base.entries.len());
        let filed = self.base.file.get().is_some();
        let few = changed.saturating_mul(MOST_CHANGED_FIRST) <= all;
        let changes = self.changes.iter();
        let gone = changes.filter(|(_, entry)| entry.is_none());
        let gone: Vec<_> = gone.map(|(region, _)| region.clone()).collect();
        let gone_bytes: usize = gone.iter().map(|name| name.len() + 8).sum();
        let differs = changed > 0 && all >= LEAST_FILED && (filed || few);
        (differs && gone_bytes <= MOST_GONE_BYTES).then(|| Difference {
            base: &self.base.entries,
            file: &self.base.file,
            entries: self.changes.values().flatten().collect(),
            gone,
        })
    }

    /// The base alone.
    pub(super) fn base(&self) -> Self {
        Self {
            len: self.base.entries.len(),
            failed: self.base.entries.iter().filter(|e| e.failed()).count(),
            base: Arc::clone(&self.base),
            changes: Arc::default(),
        }
    }

    /// The file of the base, if it has one.
    pub(super) fn base_file(&self) -> Option<BaseFile> {
        self.base.file.get().copied()
    }

    fn put(&mut self, region: String, entry: Option<RegionEntry>) {
        let before = self.get(&region);
        let (was, had_failed) = (before.is_some(), before.is_some_and(RegionEntry::failed));
        self.len = self.len + usize::from(entry.is_some()) - usize::from(was);
        let fails = entry.as_ref().is_some_and(RegionEntry::failed);
        self.failed = self.failed + usize::from(fails) - usize::from(had_failed);
        Arc::make_mut(&mut self.changes).insert(region, entry);
    }

    /// The entry of a region.
    pub fn get(&self, region: &str) -> Option<&RegionEntry> {
        if let Some(changed) = self.changes.get(region) {
            return changed.as_ref();
        }
        let entries = &self.base.entries;
        let found = entries.binary_search_by(|e| e.region().cmp(region));
        found.ok().and_then(|index| entries.get(index))
    }

    /// All entries, by name.
    pub fn iter(&self) -> impl Iterator<Item = &RegionEntry> {
        let mut base = self.base.entries.iter().peekable();
        let mut changes = self.changes.iter().peekable();
        std::iter::from_fn(move || {
            loop {
                let Some((region, _)) = changes.peek() else {
                    return base.next();
                };
                if let Some(entry) = base.next_if(|entry| entry.region() < region.as_str()) {
                    return Some(entry);
                }
                base.next_if(|entry| entry.region() == region.as_str());
                if let Some((_, Some(entry))) = changes.next() {
                    return Some(entry);
                }
            }
        })
    }

    /// Entries with the state of a checkpoint or a later one, in any order. Costs as much as changed
    /// if the base is older.
    pub fn since(&self, origin: CheckpointId) -> impl Iterator<Item = &RegionEntry> {
        let may_be_in_base = self.base.newest_origin >= Some(origin);
        let base = self.base.entries.iter().filter(move |_| may_be_in_base);
        self.among(base)
            .filter(move |entry| entry.origin() >= origin)
    }

    /// Entries of regions that are not merely idle, in any order: see [`RegionEntry::is_notable`].
    pub fn notable(&self) -> impl Iterator<Item = &RegionEntry> {
        let places = self.base.notable.iter();
        let base = places.filter_map(|place| self.base.entries.get(*place));
        self.among(base).filter(|entry| entry.is_notable())
    }

    /// Entries that changed, and those of the base that did not.
    fn among<'a>(
        &'a self,
        base: impl Iterator<Item = &'a RegionEntry>,
    ) -> impl Iterator<Item = &'a RegionEntry> {
        let same = base.filter(|entry| !self.changes.contains_key(entry.region()));
        same.chain(self.changes.values().flatten())
    }

    /// Number of regions.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether there is no region.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Number of regions that fell back.
    pub fn failed(&self) -> usize {
        self.failed
    }
}

/// See [`Regions::difference`].
pub(super) struct Difference<'a> {
    pub base: &'a [RegionEntry],
    pub file: &'a OnceLock<BaseFile>,
    pub entries: Vec<&'a RegionEntry>,
    pub gone: Vec<String>,
}

impl PartialEq for Regions {
    fn eq(&self, other: &Self) -> bool {
        self.len == other.len && self.iter().eq(other.iter())
    }
}

impl Eq for Regions {}

impl Hash for Regions {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.iter().for_each(|entry| entry.hash(state));
    }
}
