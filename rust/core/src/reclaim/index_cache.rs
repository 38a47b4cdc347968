//! Facts about sealed files, kept from one pass to the next. A sealed file never changes and its
//! name is never used again, so its index is read once. To read it again would cost a round trip on
//! remote storage, and on HDFS an operation of the name node.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::format::FileIndex;
use crate::ids::{FileId, Owner};
use crate::liveness::{ListedFile, ListedSegment};

/// Bound on the memory of a cache. A segment takes 24 bytes, a file 144, and an owner, which its
/// segments share, some 220. With 1,000 segments a file, 64 MiB hold 2,700 files of 1,000 owners:
/// 84 GiB of state at 32 MiB each.
const MAX_BYTES: usize = 64 << 20;

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
        let facts = folder.facts(index);
        if facts.sealed
            && self.make_room(location, file_bytes(&facts))
            && let Some(folder) = self.folders.get_mut(location)
        {
            folder.bytes += file_bytes(&facts);
            folder.files.insert(facts.file, facts.clone());
        }
        facts
    }

    /// Ends a pass over `location`: forgets all files that are not `left`.
    pub(super) fn keep_only(&mut self, location: &str, left: &HashSet<FileId>) {
        self.passes += 1;
        let Some(folder) = self.folders.get_mut(location) else {
            return;
        };
        folder.last_pass = self.passes;
        folder.keep_only(left);
        if folder.files.is_empty() {
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
    fn facts(&mut self, index: FileIndex) -> ListedFile {
        let segments = index.segments.into_iter().map(|entry| ListedSegment {
            owner: self.shared(entry.owner),
            created: entry.created,
            len: entry.reference.len,
            kind: entry.kind.into(),
        });
        ListedFile {
            file: index.file,
            sealed: index.sealed,
            damaged: index.damaged_bytes > 0,
            physical_bytes: index.file_bytes,
            segments: segments.collect(),
        }
    }

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
