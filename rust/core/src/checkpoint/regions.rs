//! Entries of all regions. The next checkpoint shares the entries that did not change.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};
use std::sync::{Arc, OnceLock};

use super::outline::{Outline, samples_of};
use super::region::RegionEntry;
use super::sections::base_entries;
use crate::error::{Error, Result};
use crate::ids::{CheckpointId, FileId};

/// The base is written again when the changes have this part of its entries.
const MOST_CHANGED: usize = 4;

/// A base with fewer regions is in the file of each checkpoint.
const LEAST_FILED: usize = 1_000;

/// A base gets its own file for a checkpoint that changes no more than this part of it. A pipeline
/// whose regions are all active writes none.
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

/// Entries of regions, by name: a base and changes. A checkpoint costs as much as it changes.
#[derive(Clone, Debug)]
pub struct Regions {
    base: Arc<Base>,
    /// `None` for a region that is gone.
    changes: Arc<BTreeMap<String, Option<RegionEntry>>>,
    len: usize,
    failed: usize,
}

#[derive(Debug, Default)]
struct Base {
    len: usize,
    /// Unset until a caller needs them: see `stored`.
    entries: OnceLock<Vec<RegionEntry>>,
    /// The verified file, if it has an outline.
    stored: Vec<u8>,
    /// Set once the file is durable.
    file: OnceLock<BaseFile>,
    /// Places of regions that are not merely idle, see [`RegionEntry::is_notable`].
    notable: Vec<usize>,
    newest_origin: Option<CheckpointId>,
    outline: OnceLock<Outline>,
}

impl Base {
    fn entries(&self) -> Result<&[RegionEntry]> {
        once(&self.entries, || {
            let entries = base_entries(&self.stored)?;
            let entries = sorted(entries).map_err(|e| Error::corrupt(e.to_string()))?;
            let notable = entries.iter().any(RegionEntry::is_notable);
            let newest = entries.iter().map(RegionEntry::origin).max();
            if notable || (entries.len(), newest) != (self.len, self.newest_origin) {
                return Err(Error::corrupt(
                    "regions: they are not those of their outline",
                ));
            }
            Ok(entries)
        })
        .map(Vec::as_slice)
    }

    fn outline(&self) -> Result<&Outline> {
        once(&self.outline, || Outline::of(self.entries()?))
    }
}

/// Like the unstable `OnceLock::get_or_try_init`.
fn once<T>(cell: &OnceLock<T>, make: impl FnOnce() -> Result<T>) -> Result<&T> {
    if let Some(made) = cell.get() {
        return Ok(made);
    }
    let made = make()?;
    Ok(cell.get_or_init(|| made))
}

fn sorted(mut entries: Vec<RegionEntry>) -> Result<Vec<RegionEntry>> {
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
    Ok(entries)
}

impl Regions {
    /// Takes entries in any order.
    ///
    /// # Errors
    /// `InvalidInput` for a region that occurs twice.
    pub fn new(entries: Vec<RegionEntry>) -> Result<Self> {
        Ok(Self::of_base(sorted(entries)?))
    }

    fn of_base(entries: Vec<RegionEntry>) -> Self {
        let places = entries.iter().enumerate();
        let notable = places.filter(|(_, entry)| entry.is_notable());
        Self {
            len: entries.len(),
            failed: entries.iter().filter(|entry| entry.failed()).count(),
            base: Arc::new(Base {
                len: entries.len(),
                notable: notable.map(|(place, _)| place).collect(),
                newest_origin: entries.iter().map(RegionEntry::origin).max(),
                entries: entries.into(),
                ..Base::default()
            }),
            changes: Arc::default(),
        }
    }

    /// Regions of a verified file with an outline, which are decoded when a caller needs one.
    pub(super) fn of_file(stored: Vec<u8>, len: usize, outline: Outline) -> Self {
        let base = Base {
            len,
            stored,
            newest_origin: outline.newest_origin.map(CheckpointId),
            outline: outline.into(),
            ..Base::default()
        };
        Self {
            len,
            failed: 0,
            base: Arc::new(base),
            changes: Arc::default(),
        }
    }

    /// These entries with others, and without the regions that are `gone`.
    pub fn changed<'a>(
        &self,
        entries: impl IntoIterator<Item = RegionEntry>,
        gone: impl IntoIterator<Item = &'a str>,
    ) -> Result<Self> {
        let mut new = self.clone();
        for entry in entries {
            new.put(entry.region().to_owned(), Some(entry))?;
        }
        for region in gone {
            new.put(region.to_owned(), None)?;
        }
        if new.changes.len().saturating_mul(MOST_CHANGED) > new.base.len {
            return Ok(Self::of_base(new.iter()?.cloned().collect()));
        }
        Ok(new)
    }

    /// Only a base, with the difference that a file has from it. `len` counts the regions then.
    pub(super) fn differing(
        &self,
        entries: Vec<RegionEntry>,
        gone: Vec<String>,
        len: usize,
    ) -> Result<Self> {
        let mut new = self.clone();
        let entries = sorted(entries)?.into_iter();
        let entries = entries.map(|entry| (entry.region().to_owned(), Some(entry)));
        let changes = entries.chain(gone.into_iter().map(|region| (region, None)));
        if self.base.entries.get().is_some() {
            for (region, entry) in changes {
                new.put(region, entry)?;
            }
        } else {
            let changes: BTreeMap<_, _> = changes.collect();
            let changed = changes.values().flatten();
            new.failed = changed.filter(|entry| entry.failed()).count();
            new.len = len;
            new.changes = Arc::new(changes);
        }
        Ok(new)
    }

    /// Checks all entries. Does not decode a base that is stored: no region in it failed, and
    /// `origin` is the newest one in it.
    pub(super) fn check(
        &self,
        entry: impl Fn(&RegionEntry) -> Result<()>,
        newest: impl Fn(CheckpointId) -> Result<()>,
    ) -> Result<()> {
        if self.base.entries.get().is_some() {
            return self.iter()?.try_for_each(entry);
        }
        self.base.newest_origin.map_or(Ok(()), newest)?;
        self.changes.values().flatten().try_for_each(entry)
    }

    /// Notes that a file has the base.
    pub(super) fn note_filed(&self, file: BaseFile) {
        // Another file with the same regions is as good.
        let _ = self.base.file.set(file);
    }

    /// Entries that differ from the base, and names of regions that are gone. `None` if a
    /// checkpoint has all its regions in its own file.
    pub(super) fn difference(&self) -> Option<Difference<'_>> {
        let (changed, all) = (self.changes.len(), self.base.len);
        let filed = self.base.file.get().is_some();
        let few = changed.saturating_mul(MOST_CHANGED_FIRST) <= all;
        let changes = self.changes.iter();
        let gone = changes.filter(|(_, entry)| entry.is_none());
        let gone: Vec<_> = gone.map(|(region, _)| region.clone()).collect();
        let gone_bytes: usize = gone.iter().map(|name| name.len() + 8).sum();
        let differs = changed > 0 && all >= LEAST_FILED && (filed || few);
        (differs && gone_bytes <= MOST_GONE_BYTES).then(|| Difference {
            entries: self.changes.values().flatten().collect(),
            gone,
        })
    }

    /// The outline of a base of which every region is merely idle.
    pub(super) fn outline_of_base(&self) -> Result<Option<&Outline>> {
        let is_idle = self.base.notable.is_empty();
        is_idle.then(|| self.base.outline()).transpose()
    }

    /// Only the base.
    pub(super) fn base(&self) -> Self {
        let notable = self.base.notable.iter();
        let entries = self.base.entries.get();
        let notable = notable.filter_map(|place| entries?.get(*place));
        Self {
            len: self.base.len,
            failed: notable.filter(|entry| entry.failed()).count(),
            base: Arc::clone(&self.base),
            changes: Arc::default(),
        }
    }

    /// The file with shared regions, if there is one. It stays as long as a checkpoint names it.
    pub fn base_file(&self) -> Option<BaseFile> {
        self.base.file.get().copied()
    }

    fn put(&mut self, region: String, entry: Option<RegionEntry>) -> Result<()> {
        let before = self.get(&region)?;
        let (was, had_failed) = (before.is_some(), before.is_some_and(RegionEntry::failed));
        // A forged file may say any number.
        let len = self.len.saturating_add(usize::from(entry.is_some()));
        self.len = len.saturating_sub(usize::from(was));
        let fails = entry.as_ref().is_some_and(RegionEntry::failed);
        self.failed = self.failed + usize::from(fails) - usize::from(had_failed);
        Arc::make_mut(&mut self.changes).insert(region, entry);
        Ok(())
    }

    /// The entry of a region.
    pub fn get(&self, region: &str) -> Result<Option<&RegionEntry>> {
        if let Some(changed) = self.changes.get(region) {
            return Ok(changed.as_ref());
        }
        let entries = self.base.entries()?;
        let found = entries.binary_search_by(|e| e.region().cmp(region));
        Ok(found.ok().and_then(|index| entries.get(index)))
    }

    /// All entries, by name.
    pub fn iter(&self) -> Result<impl Iterator<Item = &RegionEntry>> {
        let mut base = self.base.entries()?.iter().peekable();
        let mut changes = self.changes.iter().peekable();
        Ok(std::iter::from_fn(move || {
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
        }))
    }

    /// Entries with the state of `origin` or later, in any order. Does not look at an older base.
    pub fn since(&self, origin: CheckpointId) -> Result<impl Iterator<Item = &RegionEntry>> {
        let may_be_in_base = self.base.newest_origin >= Some(origin);
        let base = match may_be_in_base {
            true => self.base.entries()?,
            false => &[],
        };
        let entries = self.among(base.iter());
        Ok(entries.filter(move |entry| entry.origin() >= origin))
    }

    /// Entries of regions that are not merely idle, in any order: see [`RegionEntry::is_notable`].
    pub fn notable(&self) -> impl Iterator<Item = &RegionEntry> {
        // A base that is not decoded has none.
        let entries = self.base.entries.get();
        let places = self.base.notable.iter();
        let base = places.filter_map(move |place| entries?.get(*place));
        self.among(base).filter(|entry| entry.is_notable())
    }

    /// Least size in bytes of each file with segments of the changes, and of the base. May also
    /// name files that only changed regions of the base needed. Costs as much as changed, once the
    /// base was looked at.
    pub fn files_at_most(&self) -> Result<BTreeMap<FileId, u64>> {
        let same = |region: &String| !self.changes.contains_key(region);
        let files = self.base.outline()?.files.iter();
        let files = files.filter(|of| of.regions.is_empty() || of.regions.iter().any(same));
        let mut files = files.map(|of| (of.file(), of.bytes)).collect();
        for entry in self.changes.values().flatten() {
            entry.note_files(&mut files)?;
        }
        Ok(files)
    }

    /// Outputs with files that the base or a change staged. Costs as much as changed.
    pub fn outputs_at_most(&self) -> Result<BTreeSet<String>> {
        let mut outputs = self.base.outline()?.outputs.iter().cloned().collect();
        for entry in self.changes.values().flatten() {
            entry.note_outputs(&mut outputs)?;
        }
        Ok(outputs)
    }

    /// Some of each group of like regions, see [`super::Metadata::alike`]; some groups are divided.
    /// Costs as much as changed, unless there are many groups.
    pub fn samples(&self) -> Result<Vec<Vec<RegionEntry>>> {
        let Some(groups) = &self.base.outline()?.groups else {
            return samples_of(self.iter()?);
        };
        let mut found = samples_of(self.changes.values().flatten())?;
        for group in &groups.items {
            let samples = group.samples.iter();
            let same = samples.filter(|one| !self.changes.contains_key(&one.region));
            let same: Vec<_> = same.cloned().map(RegionEntry::from_message).collect();
            if same.is_empty() && group.len > group.samples.len() as u64 {
                return samples_of(self.iter()?);
            }
            if !same.is_empty() {
                found.push(same);
            }
        }
        Ok(found)
    }

    /// Entries that changed, and entries of the base that did not.
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

pub(super) struct Difference<'a> {
    pub entries: Vec<&'a RegionEntry>,
    pub gone: Vec<String>,
}

impl PartialEq for Regions {
    fn eq(&self, other: &Self) -> bool {
        let same = Arc::ptr_eq(&self.base, &other.base) && self.changes == other.changes;
        let equal = || match (self.iter(), other.iter()) {
            (Ok(one), Ok(other)) => one.eq(other),
            _ => false,
        };
        self.len == other.len && (same || equal())
    }
}

impl Eq for Regions {}

impl Hash for Regions {
    fn hash<H: Hasher>(&self, state: &mut H) {
        if let Ok(entries) = self.iter() {
            entries.for_each(|entry| entry.hash(state));
        }
    }
}
