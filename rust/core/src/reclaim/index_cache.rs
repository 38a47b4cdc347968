//! Facts about sealed files, kept from one pass to the next. A sealed file never changes and its
//! name is never used again, so its index is read once. To read it again would cost a round trip on
//! remote storage, and on HDFS an operation of the name node.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::catalog;
use crate::error::Result;
use crate::format::FileIndex;
use crate::ids::{FileId, Owner};
use crate::liveness::{ListedFile, ListedSegment};

/// Bound on the memory of a cache. A segment takes 32 bytes, a file 160, and an owner, which its
/// segments share, some 220. 1,000 executors keep some 130,000 files of 10 segments: 61 MiB, and
/// 10,000 owners 2 MiB.
const MAX_BYTES: usize = 256 << 20;

const SEGMENT_BYTES: usize = size_of::<ListedSegment>();
/// A slot of the map, which may be half empty, and the counters of the shared list.
const FILE_BYTES: usize = 2 * size_of::<(FileId, ListedFile)>() + 16;
/// An owner without its text: a slot of the set, which may be half empty, the counters, and the
/// overhead of the allocator for its five pieces.
const OWNER_BYTES: usize = size_of::<Owner>() + 2 * size_of::<Arc<Owner>>() + 16 + 5 * 16;

/// Facts about the sealed files of some folders, for the next [`reclaim`](super::reclaim).
///
/// ```
/// use holdfast_core::Term;
/// use holdfast_core::liveness::Floors;
/// use holdfast_core::reclaim::{IndexCache, reclaim};
/// use holdfast_core::storage::LocalStorage;
/// # fn main() -> holdfast_core::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// let storage = LocalStorage::new(dir.path());
/// let mut indexes = IndexCache::default();
/// for _pass in 0..2 {
///     let report = reclaim(&storage, &mut indexes, &Floors::default(), &|_| false, Term(1))?;
///     assert_eq!(indexes.files(), report.kept.len());
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct IndexCache {
    max_bytes: usize,
    /// Passes so far, over all folders.
    passes: u64,
    folders: HashMap<String, Folder>,
}

#[derive(Debug, Default)]
struct Folder {
    last_pass: u64,
    /// Files that a list had and that their writers had not told of yet.
    awaited: HashSet<FileId>,
    files: HashMap<FileId, ListedFile>,
    /// Every owner once, shared by its segments.
    owners: HashSet<Arc<Owner>>,
    /// Memory of all this.
    bytes: usize,
}

impl Default for IndexCache {
    fn default() -> Self {
        Self::with_max_bytes(MAX_BYTES)
    }
}

impl IndexCache {
    /// A cache that never takes more than about `max_bytes` of memory between two passes.
    pub fn with_max_bytes(max_bytes: usize) -> Self {
        Self {
            max_bytes,
            passes: 0,
            folders: HashMap::new(),
        }
    }

    /// Its memory in bytes.
    pub fn bytes(&self) -> usize {
        self.folders.values().map(|folder| folder.bytes).sum()
    }

    /// Number of files that it knows.
    pub fn files(&self) -> usize {
        self.folders.values().map(|folder| folder.files.len()).sum()
    }

    /// If the file had another size when it was read, the facts are wrong and are forgotten.
    pub(super) fn find(
        &mut self,
        location: &str,
        file: FileId,
        listed_bytes: u64,
    ) -> Option<ListedFile> {
        let files = &mut self.folders.get_mut(location)?.files;
        let facts = files.get(&file)?;
        if facts.physical_bytes == listed_bytes {
            return Some(facts.clone());
        }
        files.remove(&file);
        None
    }

    /// The facts in an index that was read. Keeps facts of a sealed file if there is room. Every
    /// pass asks for all files, so evicting one for another would gain nothing.
    pub(super) fn learn(&mut self, location: &str, index: FileIndex) -> ListedFile {
        let folder = self.folders.entry(location.to_owned()).or_default();
        let facts = catalog::listed(index, |owner| folder.shared(owner));
        self.keep(location, facts.clone());
        facts
    }

    fn keep(&mut self, location: &str, facts: ListedFile) {
        let bytes = file_bytes(&facts);
        if facts.sealed
            && self.make_room(location, bytes)
            && let Some(folder) = self.folders.get_mut(location)
            && folder.files.insert(facts.file, facts).is_none()
        {
            folder.bytes += bytes;
        }
    }

    /// Learns of the files in the bytes of [`encode_finished`](super::encode_finished), or of a
    /// catalog.
    ///
    /// # Errors
    /// `Corrupt`, `Newer`: the files after the damage are not known.
    pub fn learn_told(&mut self, location: &str, told: &[u8]) -> Result<()> {
        let folder = self.folders.entry(location.to_owned()).or_default();
        let mut files = Vec::new();
        let read = catalog::decode(
            told,
            |owner| folder.shared(owner),
            |facts| files.push(facts),
        );
        for facts in files {
            self.keep(location, facts);
        }
        read
    }

    /// The known files of a folder as a catalog.
    ///
    /// # Errors
    /// Errors of compression.
    pub fn catalog(&self, location: &str) -> Result<Vec<u8>> {
        let folder = self.folders.get(location).into_iter();
        catalog::encode(folder.flat_map(|folder| folder.files.values()))
    }

    /// The known files of a folder, and their sizes.
    pub(super) fn known(&self, location: &str) -> Vec<(FileId, u64)> {
        let folder = self.folders.get(location).into_iter();
        let files = folder.flat_map(|folder| folder.files.values());
        let mut known: Vec<_> = files
            .map(|facts| (facts.file, facts.physical_bytes))
            .collect();
        known.sort();
        known
    }

    /// Returns true the first time that a list has a file which is not known.
    pub(super) fn awaits(&mut self, location: &str, file: FileId) -> bool {
        let folder = self.folders.entry(location.to_owned()).or_default();
        folder.awaited.insert(file)
    }

    /// Ends a pass over `location`: forgets all files that are not `left`.
    pub(super) fn keep_only(&mut self, location: &str, left: &HashSet<FileId>) {
        self.passes += 1;
        let Some(folder) = self.folders.get_mut(location) else {
            return;
        };
        folder.last_pass = self.passes;
        folder.keep_only(left);
        if folder.files.is_empty() && folder.awaited.is_empty() {
            self.folders.remove(location);
        }
    }

    /// Returns whether there is room for `bytes` of `location`. Evicts other folders for it, first
    /// the one whose last pass is longest ago: its query may have ended.
    fn make_room(&mut self, location: &str, bytes: usize) -> bool {
        while self.bytes() + bytes > self.max_bytes {
            let others = self.folders.iter().filter(|(name, _)| *name != location);
            let oldest = others.min_by_key(|(_, folder)| folder.last_pass);
            let Some(oldest) = oldest.map(|(name, _)| name.clone()) else {
                return false;
            };
            self.folders.remove(&oldest);
        }
        true
    }
}

impl Folder {
    fn shared(&mut self, owner: Owner) -> Arc<Owner> {
        if let Some(known) = self.owners.get(&owner) {
            return Arc::clone(known);
        }
        self.bytes += owner_bytes(&owner);
        let owner = Arc::new(owner);
        self.owners.insert(Arc::clone(&owner));
        owner
    }

    /// Also forgets the owners without files, and counts the bytes again.
    fn keep_only(&mut self, left: &HashSet<FileId>) {
        self.files.retain(|file, _| left.contains(file));
        let files = &self.files;
        self.awaited
            .retain(|file| left.contains(file) && !files.contains_key(file));
        self.owners.retain(|owner| Arc::strong_count(owner) > 1);
        let files = self.files.values().map(file_bytes);
        let owners = self.owners.iter().map(|owner| owner_bytes(owner));
        self.bytes = files.chain(owners).sum();
    }
}

fn file_bytes(facts: &ListedFile) -> usize {
    FILE_BYTES + facts.segments.len() * SEGMENT_BYTES
}

fn owner_bytes(owner: &Owner) -> usize {
    OWNER_BYTES + owner.parts().iter().map(|part| part.len()).sum::<usize>()
}
