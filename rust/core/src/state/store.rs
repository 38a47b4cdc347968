//! One owner's state at one version: opens it, changes it, commits it.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use super::base_image::{BaseImage, BaseImageTask};
use super::changes::read_changelog;
use super::commit_id::CommitId;
use super::content::{Families, Layout};
use super::family::{Family, FamilyOptions};
use super::load::Load;
use super::memory::{MemoryBudget, MemoryShare};
use super::order::KeyRange;
use super::scan::Scan;
use crate::error::{Error, ErrorKind, Result};
use crate::format::{NewSegment, SegmentHead, SegmentKind, SegmentReader, read_head};
use crate::ids::{CheckpointId, FileId, Owner, SegmentRef};
use crate::segment::{Durability, SegmentWriter};
use crate::storage::Storage;

/// A base image is written at the latest when this many times the least number of changelogs have
/// gathered. Below 5, where Spark's coordinator begins to call a store lagging.
const MAX_WAIT: usize = 4;

/// Bound on open scans; each holds 8 or 16 bytes per entry it has to hand out.
const MAX_OPEN_SCANS: usize = 4096;

/// Bound on the segments a version is made of: 256 references of 44 bytes are 11 KiB in the head of
/// every segment. Maintenance, once a minute, stays far below it unless batches take under 250 ms.
const MAX_LINEAGE_SEGMENTS: usize = 256;

/// Where a table stands: a version, and the segments that make it up.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Position {
    /// As it was returned to the caller, so that a retry finds this position by it.
    id: CommitId,
    /// What the next changelog builds on, oldest first: an optional base image, then changelogs.
    /// Runs ahead of `id` once a base image is installed.
    lineage: Vec<SegmentRef>,
    /// `created` of the oldest segment in `lineage`.
    lineage_floor: CheckpointId,
    /// Newest of the segments that the base image in `lineage` stands for.
    replaced: Option<SegmentRef>,
    /// The base image in `lineage` is damaged: nothing may build on it.
    rebuilt: bool,
}

impl Position {
    fn empty(version: u64) -> Self {
        let created = CheckpointId(version);
        let id = CommitId {
            version,
            floor: created,
            owner: None,
            segment: None,
            replaced: None,
        };
        Self {
            id,
            lineage: Vec::new(),
            lineage_floor: created,
            replaced: None,
            rebuilt: false,
        }
    }

    /// The position of a version that was read: `head` is that of the segment it was read from.
    fn read(id: CommitId, segment: SegmentRef, head: SegmentHead, rebuilt: bool) -> Self {
        let mut lineage = head.lineage;
        lineage.push(segment);
        Self {
            id,
            lineage,
            lineage_floor: id.floor,
            replaced: head.replaced,
            rebuilt,
        }
    }

    /// The position after a commit that changed nothing.
    fn unchanged(&self) -> Self {
        let version = self.id.version + 1;
        let id = match self.lineage.as_slice() {
            [] => return Self::empty(version),
            // The whole state is one segment, possibly a base image installed since.
            [only] => CommitId {
                version,
                floor: self.lineage_floor,
                segment: Some(*only),
                replaced: self.replaced,
                ..self.id
            },
            // The segment of the last id names its own, older lineage: its floor stays.
            _ => CommitId { version, ..self.id },
        };
        Self { id, ..self.clone() }
    }

    /// Makes `id`, which stands for the same state, the one this position goes by. Where a batch ran
    /// twice (a sink with two actions), the driver keeps the first run's id, and only that run's
    /// segments are made durable: the next commit must build on them.
    fn adopt(&mut self, id: CommitId) {
        if let (Some(own), Some(wanted)) = (self.id.segment, id.segment)
            && let Some(newest) = self.lineage.last_mut().filter(|newest| **newest == own)
        {
            *newest = wanted;
        }
        self.id = id;
    }

    /// The position after a commit that wrote `segment` on top of the lineage.
    fn with_segment(&self, segment: SegmentRef) -> Self {
        let version = self.id.version + 1;
        let created = CheckpointId(version);
        let (floor, replaced) = if self.lineage.is_empty() {
            (created, None)
        } else {
            (self.lineage_floor, self.replaced)
        };
        let id = CommitId {
            version,
            floor,
            owner: self.id.owner,
            segment: Some(segment),
            replaced: None,
        };
        Self {
            id,
            lineage: [self.lineage.as_slice(), &[segment]].concat(),
            lineage_floor: floor,
            replaced,
            rebuilt: false,
        }
    }
}

/// Counters of one store since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreStats {
    /// Versions read from storage.
    pub loads: u64,
    /// Versions served by undoing the last commit.
    pub rewinds: u64,
    /// Bytes of payload written by commits, before compression.
    pub written_bytes: u64,
    /// Commits that changed nothing and wrote nothing.
    pub empty_commits: u64,
    /// Loads that rebuilt the state because a base image was damaged.
    pub rebuilds: u64,
    /// Commits that wrote a segment.
    pub commits: u64,
}

/// Entries of a scan, one batch of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScanBatch {
    /// To be given to [`StateStore::scan_on`]; `None` when this was the last batch.
    pub scan: Option<u32>,
    /// Entries in this batch.
    pub entries: u32,
}

/// What to scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScanOf<'a> {
    /// An entry per key in the range; the first value where a key has several.
    Keys(KeyRange<'a>),
    /// An entry per value of the keys in the range.
    Values(KeyRange<'a>),
    /// An entry per value of one key.
    ValuesOfKey(&'a [u8]),
}

/// State of one owner. All calls come from one thread at a time.
#[derive(Debug)]
pub struct StateStore {
    owner: Owner,
    families: Families,
    memory: MemoryShare,
    scans: HashMap<u32, (u32, Scan)>,
    last_scan: u32,
    /// `None` when the content is unknown (never opened, or a load failed).
    at: Option<Position>,
    /// Where the undo log of the last commit leads to.
    before: Option<Position>,
    in_session: bool,
    /// Written by maintenance, and not known to be durable: no commit may cite it yet.
    pending_image: Option<BaseImage>,
    /// Maintenance has seen the image pending.
    image_waits: bool,
    stats: StoreStats,
    warning: Option<String>,
}

impl StateStore {
    /// An unopened store of `owner`.
    pub fn new(owner: Owner, layout: Layout) -> Self {
        Self::within(owner, layout, Arc::default())
    }

    /// As [`StateStore::new`], with memory from a budget that other stores share.
    pub fn within(owner: Owner, layout: Layout, budget: Arc<MemoryBudget>) -> Self {
        Self {
            owner,
            families: Families::new(layout),
            memory: MemoryShare::of(budget),
            scans: HashMap::new(),
            last_scan: 0,
            at: None,
            before: None,
            in_session: false,
            pending_image: None,
            image_waits: false,
            stats: StoreStats::default(),
            warning: None,
        }
    }

    /// Whose state this is.
    pub fn owner(&self) -> &Owner {
        &self.owner
    }

    /// The content.
    pub fn families(&self) -> &Families {
        &self.families
    }

    /// How its keys are laid out on disk.
    pub fn layout(&self) -> Layout {
        self.families.layout()
    }

    /// Counters.
    pub fn stats(&self) -> StoreStats {
        self.stats
    }

    /// What the last load had to work around, for the log; told once.
    pub fn take_warning(&mut self) -> Option<String> {
        self.warning.take()
    }

    /// Positions the store at `version`, whose commit returned `id`; version 0 is empty and has
    /// none. Served in place, by undoing the last commit, or by loading, in this order.
    ///
    /// # Errors
    /// `InvalidInput` when id and version disagree or a session is open; `NotFound`, `Corrupt`
    /// with file, offset and owner when a segment is gone or damaged, unless it is a base image and
    /// the segments it replaced are still there: then the state is rebuilt from them, see
    /// [`StateStore::take_warning`].
    pub fn open(
        &mut self,
        storage: &dyn Storage,
        version: u64,
        id: Option<&CommitId>,
    ) -> Result<()> {
        self.need_no_session(version)?;
        let wanted = match id {
            None if version == 0 => CommitId {
                version: 0,
                floor: CheckpointId(0),
                owner: None,
                segment: None,
                replaced: None,
            },
            None => {
                return Err(Error::new(
                    ErrorKind::Unsupported,
                    format!(
                        "{}: version {version} has no state store checkpoint id. Its checkpoint \
                         was written with checkpoint format 1 or by another provider; Holdfast \
                         needs format 2 from the first batch on",
                        self.owner
                    ),
                ));
            }
            Some(id) if id.owner.is_some_and(|owner| owner != self.owner.tag()) => {
                return Err(Error::invalid_input(format!(
                    "{}: version {version} was asked for with the id of another store",
                    self.owner
                )));
            }
            Some(id) if id.version == version => *id,
            Some(id) => {
                return Err(Error::invalid_input(format!(
                    "{}: version {version} was asked for with the id of version {}",
                    self.owner, id.version
                )));
            }
        };
        if let Some(at) = self.at.as_mut().filter(|at| same_state(&at.id, &wanted)) {
            at.adopt(wanted);
            return Ok(());
        }
        if self
            .before
            .as_ref()
            .is_some_and(|before| same_state(&before.id, &wanted))
        {
            self.scans.clear();
            self.families.abort();
            self.at = self.before.take().map(|mut before| {
                before.adopt(wanted);
                before
            });
            self.stats.rewinds += 1;
            return Ok(());
        }
        self.load(storage, wanted)
    }

    /// Positions the store at `version` with no content: its next commit writes the whole content of
    /// the next version and builds on nothing.
    ///
    /// # Errors
    /// `InvalidInput` when a session is open.
    pub fn open_empty(&mut self, version: u64) -> Result<()> {
        self.need_no_session(version)?;
        self.forget_content();
        self.at = Some(Position::empty(version));
        Ok(())
    }

    /// Keeps at most `versions` of the last versions in memory, the newest first; there are never
    /// more than two. What is asked for and not there is loaded. A session that is open keeps what it
    /// needs.
    pub fn retain(&mut self, versions: u32) {
        if self.in_session || versions > 1 {
            return;
        }
        if versions == 0 {
            self.forget_content();
            return;
        }
        self.before = None;
        self.scans.clear();
        // Sets free what leads back.
        self.families.begin();
        // Never more than before.
        let _ = self.count_memory();
    }

    /// Positions the store at `to` by loading `from`, an older version, and applying what the
    /// commits after it changed: a way round segments that `to` is normally loaded from.
    ///
    /// `ids` are those of the versions after `from`, of all stores of the partition.
    ///
    /// # Errors
    /// As [`StateStore::open`]; `InvalidInput` when `to` is older than `from`; `Unsupported` when a
    /// commit in between wrote its whole content instead of its changes.
    pub fn replay(
        &mut self,
        storage: &dyn Storage,
        from: (u64, Option<&CommitId>),
        to: &CommitId,
        ids: &[CommitId],
    ) -> Result<()> {
        if to.version < from.0 {
            return Err(Error::invalid_input(format!(
                "{}: cannot replay from version {} to the older version {}",
                self.owner, from.0, to.version
            )));
        }
        self.open(storage, from.0, from.1)?;
        let position = self.position(storage, to)?;
        // Until everything is applied the content belongs to no version.
        self.at = None;
        self.before = None;
        self.scans.clear();
        for version in from.0 + 1..=to.version {
            if let Some(changelog) = read_changelog(storage, &self.owner, version, ids)? {
                self.families
                    .apply(&changelog)
                    .map_err(|e| e.context(format!("version {version} of {}", self.owner)))?;
            }
        }
        self.at = Some(position);
        Ok(())
    }

    /// Writes a new base image if the opened version was rebuilt around a damaged one, so that what
    /// follows depends on sound segments only, or if it is made of too many segments. To be called
    /// before [`StateStore::begin`].
    ///
    /// # Errors
    /// Those of storage: nothing must be committed then.
    pub fn mend(&mut self, writer: &SegmentWriter) -> Result<()> {
        let Some(at) = &self.at else {
            return Ok(());
        };
        if at.rebuilt {
            return self.write_base_image(writer);
        }
        if at.lineage.len() > MAX_LINEAGE_SEGMENTS {
            // Where every batch runs in a process of its own, no commit builds on the images that
            // commits and maintenance write. When this fails, the next session tries again.
            let _ = self.write_base_image(writer);
        }
        Ok(())
    }

    /// Starts changing the opened version.
    ///
    /// # Errors
    /// `InvalidInput` when nothing is open, a session is open already, or [`StateStore::mend`] was
    /// not called.
    pub fn begin(&mut self) -> Result<()> {
        let why_not = match &self.at {
            _ if self.in_session => Some("a session is open"),
            None => Some("no version is open"),
            Some(at) if at.rebuilt => Some("it was rebuilt and must be mended first"),
            Some(_) => None,
        };
        if let Some(why) = why_not {
            return Err(Error::invalid_input(format!("{}: {why}", self.owner)));
        }
        self.scans.clear();
        // From here on there is no undo log that leads back.
        self.before = None;
        self.families.begin();
        self.count_memory()?;
        self.in_session = true;
        Ok(())
    }

    /// Sets a key to one value.
    ///
    /// # Errors
    /// `InvalidInput` outside a session, without such a family, or for an entry above 4 GiB;
    /// `LimitExceeded` when the memory budget is used up: abort the session.
    pub fn put(&mut self, family: u32, key: &[u8], value: &[u8]) -> Result<()> {
        self.write(family, |content| content.put(key, value))
    }

    /// Sets a key to a list of values; an empty one removes the key.
    ///
    /// # Errors
    /// As [`StateStore::put`]; `InvalidInput` for a family with one value per key.
    pub fn put_list(&mut self, family: u32, key: &[u8], values: &[&[u8]]) -> Result<()> {
        self.write(family, |content| content.put_list(key, values))
    }

    /// Appends to the list of a key.
    ///
    /// # Errors
    /// As [`StateStore::put_list`].
    pub fn append(&mut self, family: u32, key: &[u8], values: &[&[u8]]) -> Result<()> {
        self.write(family, |content| content.append(key, values))
    }

    /// Removes a key with all its values; false when it was not there.
    ///
    /// # Errors
    /// `InvalidInput` outside a session or without such a family.
    pub fn remove(&mut self, family: u32, key: &[u8]) -> Result<bool> {
        self.need_session()?;
        self.families.family_mut(family)?.remove(key)
    }

    /// Number of the column family `name`, which is made when it is not there.
    ///
    /// # Errors
    /// `InvalidInput` outside a session, in a plain store, for a family that was made with another
    /// number of values per key, and for one family too many.
    pub fn open_family(&mut self, name: &str, options: FamilyOptions) -> Result<u32> {
        self.need_session()?;
        self.families.open(name, options)
    }

    /// Removes a column family and everything in it; false when it was not there.
    ///
    /// # Errors
    /// `InvalidInput` outside a session.
    pub fn remove_family(&mut self, name: &str) -> Result<bool> {
        self.need_session()?;
        self.families.drop_family(name)
    }

    /// Starts a scan and copies its first batch to `out`, see [`StateStore::scan_on`]. The scan sees
    /// the content as it is now, whatever the session changes later. It ends with its last entry,
    /// and when a session begins.
    ///
    /// # Errors
    /// `InvalidInput` without such a family, for a range of a family that is not ordered, for values
    /// of a family with one value per key, and for one open scan too many.
    pub fn scan(
        &mut self,
        family: u32,
        what: ScanOf<'_>,
        max_bytes: usize,
        out: &mut Vec<u8>,
    ) -> Result<ScanBatch> {
        let content = self.families.family_mut(family)?;
        let mut scan = match what {
            ScanOf::Keys(range) => content.scan(range, false)?,
            ScanOf::Values(range) => content.scan(range, true)?,
            ScanOf::ValuesOfKey(key) => content.scan_values(key)?,
        };
        let entries = scan.fill(content, max_bytes, out);
        if scan.is_over() {
            return Ok(ScanBatch {
                scan: None,
                entries,
            });
        }
        if self.scans.len() >= MAX_OPEN_SCANS {
            return Err(Error::invalid_input(format!(
                "{}: {MAX_OPEN_SCANS} scans are open; close iterators that are not read to the end",
                self.owner
            )));
        }
        // Never 0, which stands for "no scan" on the way to Java.
        self.last_scan = self.last_scan.checked_add(1).unwrap_or(1);
        self.scans.insert(self.last_scan, (family, scan));
        Ok(ScanBatch {
            scan: Some(self.last_scan),
            entries,
        })
    }

    /// Copies the next entries of a scan to `out` as `key_len u32, value_len u32, key, value`
    /// (little-endian): as many as fit `max_bytes`, at least one.
    ///
    /// # Errors
    /// `InvalidInput` for a scan that ended.
    pub fn scan_on(&mut self, scan: u32, max_bytes: usize, out: &mut Vec<u8>) -> Result<ScanBatch> {
        let Some((family, open)) = self.scans.get_mut(&scan) else {
            return Err(Error::invalid_input(format!(
                "{}: this scan ended, at the latest when the next session began",
                self.owner
            )));
        };
        let entries = open.fill(self.families.family(*family)?, max_bytes, out);
        let over = open.is_over();
        if over {
            self.scans.remove(&scan);
        }
        Ok(ScanBatch {
            scan: (!over).then_some(scan),
            entries,
        })
    }

    /// Ends a scan before its last entry; nothing happens when it ended already.
    pub fn close_scan(&mut self, scan: u32) {
        self.scans.remove(&scan);
    }

    /// Ends the session: appends what changed and returns the id of the next version. Without
    /// changes nothing is written and the new id names the same segment.
    ///
    /// # Errors
    /// `InvalidInput` outside a session; `Storage` when the changelog could not be appended: the
    /// session stays open then and can be aborted.
    pub fn commit(&mut self, writer: &SegmentWriter) -> Result<CommitId> {
        self.need_session()?;
        self.settle_image(writer);
        let Some(at) = self.at.as_ref() else {
            return Err(Error::invalid_input(format!(
                "{}: no version is open",
                self.owner
            )));
        };
        let mut next = match self.families.changes() {
            None => {
                self.stats.empty_commits += 1;
                at.unchanged()
            }
            Some(changes) => {
                let new = NewSegment {
                    owner: &self.owner,
                    created: CheckpointId(at.id.version + 1),
                    kind: SegmentKind::Changelog,
                    lineage: &at.lineage,
                    replaced: at.replaced,
                    entries: changes.entries(),
                };
                let payload = changes.into_bytes();
                let reference = writer.append(&new, &payload)?;
                self.stats.commits += 1;
                self.stats.written_bytes += payload.len() as u64;
                at.with_segment(reference)
            }
        };
        self.families.commit();
        // What was committed stays committed: a limit that this exceeds stops the next session.
        let _ = self.count_memory();
        self.in_session = false;
        // Also where an older build wrote the id that this commit builds on.
        next.id.owner = Some(self.owner.tag());
        let id = next.id;
        let long = next.lineage.len() > MAX_LINEAGE_SEGMENTS;
        self.before = self.at.replace(next);
        if long {
            // Where maintenance does not keep up. The commit stands without it: when this fails,
            // the next one tries again.
            let _ = self.write_base_image(writer);
        }
        Ok(id)
    }

    /// Writes the content as a base image from memory, for later commits to build on.
    fn write_base_image(&mut self, writer: &SegmentWriter) -> Result<()> {
        let Some(at) = self.at.as_ref() else {
            return Ok(());
        };
        let content = self.families.snapshot();
        // A damaged image stands for nothing: then it is what that one had replaced.
        let changelog = at.lineage.get(1..).and_then(<[SegmentRef]>::last);
        let replaced = changelog.copied().or(at.replaced);
        let new = NewSegment {
            owner: &self.owner,
            created: CheckpointId(at.id.version),
            kind: SegmentKind::BaseImage,
            lineage: &[],
            replaced,
            entries: content.entries(),
        };
        let reference = writer.append(&new, &content.into_bytes())?;
        writer.sync_files(&BTreeSet::from([reference.file]))?;
        if let Some(at) = self.at.as_mut() {
            at.lineage = vec![reference];
            at.lineage_floor = CheckpointId(at.id.version);
            at.replaced = replaced;
            at.rebuilt = false;
        }
        Ok(())
    }

    /// Takes back the open session; nothing happens when there is none.
    pub fn abort(&mut self) {
        if self.in_session {
            self.scans.clear();
            self.families.abort();
            let _ = self.count_memory();
            self.in_session = false;
        }
    }

    /// The merge that is due: at least `min_changelogs` durable ones lie above the base image, and
    /// either they are half its size, so that a load is not much longer than it must be and images
    /// cost at most three times what commits write, or there are `MAX_WAIT` times as many. Also as
    /// soon as any segment lies in one of the `wasteful` files, which go once nobody needs them.
    /// `None` while an earlier image waits for its file to become durable.
    pub fn base_image_task(
        &mut self,
        writer: &SegmentWriter,
        min_changelogs: usize,
        wasteful: &HashSet<FileId>,
    ) -> Option<BaseImageTask> {
        self.settle_image(writer);
        if self.pending_image.is_some() {
            return None;
        }
        let from = self.durable_position(writer)?;
        let least = min_changelogs.max(1);
        // The first segment is the base image, or the first changelog of a store without one.
        let (base, changelogs) = from.lineage.split_first()?;
        let bytes: u64 = changelogs.iter().map(|segment| segment.len).sum();
        let due = changelogs.len() >= least
            && (bytes >= base.len / 2 || changelogs.len() >= least.saturating_mul(MAX_WAIT));
        let pins = |segment: &SegmentRef| wasteful.contains(&segment.file);
        (due || from.lineage.iter().any(pins)).then(|| BaseImageTask {
            owner: self.owner.clone(),
            lineage: from.lineage.clone(),
            // Not when it last changed, but how far it is known not to have: what is older is not
            // needed any more once commits build on the image.
            created: CheckpointId(from.id.version),
        })
    }

    /// Takes an image over. Commits build on it once it is durable; it is dropped when it is lost,
    /// or when the store has moved to another lineage.
    pub fn accept(&mut self, image: BaseImage) {
        self.pending_image = Some(image);
        self.image_waits = false;
    }

    /// The file of an image that was pending when this was called before, too. Commits make durable
    /// what they refer to, and where all stores rest none refers to the file of an image: then
    /// maintenance has to sync it.
    pub fn overdue_image(&mut self, writer: &SegmentWriter) -> Option<FileId> {
        self.settle_image(writer);
        let image = self.pending_image.as_ref()?;
        let overdue = std::mem::replace(&mut self.image_waits, true);
        overdue.then_some(image.reference.file)
    }

    /// Gives back an image that no commit builds on yet, for another store of the same owner that
    /// is opened next.
    pub fn take_pending_image(&mut self) -> Option<BaseImage> {
        self.pending_image.take()
    }

    /// The newest version that is as good as a snapshot: the durable one, as long as fewer than
    /// `min_changelogs` lie above its base image, else that of the image. So it rises for a store
    /// that rests, too, which needs no new image.
    pub fn snapshot_version(
        &self,
        writer: &SegmentWriter,
        min_changelogs: usize,
    ) -> Option<CheckpointId> {
        let position = self.durable_position(writer)?;
        let near = position.lineage.len() <= min_changelogs.max(1);
        Some(if near {
            CheckpointId(position.id.version)
        } else {
            position.lineage_floor
        })
    }

    /// The newest version that is durable and builds on no damaged image. What is not durable may
    /// not even be readable yet, and its checkpoint may never complete.
    fn durable_position(&self, writer: &SegmentWriter) -> Option<&Position> {
        let durable = |position: &&Position| {
            let lost = |segment| writer.durability(segment) != Durability::Durable;
            !position.rebuilt && !position.lineage.last().is_some_and(lost)
        };
        [&self.at, &self.before].into_iter().flatten().find(durable)
    }

    fn settle_image(&mut self, writer: &SegmentWriter) {
        if self.at.is_none() {
            // Whether the image is one of what is opened next, nobody knows yet.
            return;
        }
        let durability = self
            .pending_image
            .as_ref()
            .map(|image| writer.durability(&image.reference));
        match durability {
            None | Some(Durability::Pending) => {}
            Some(Durability::Lost) => self.pending_image = None,
            Some(Durability::Durable) => {
                if let Some(image) = self.pending_image.take() {
                    self.install(&image);
                }
            }
        }
    }

    fn install(&mut self, image: &BaseImage) {
        let Some(at) = self.at.as_mut() else {
            return;
        };
        let Some(rest) = at.lineage.strip_prefix(image.replaces.as_slice()) else {
            return;
        };
        let mut lineage = Vec::with_capacity(1 + rest.len());
        lineage.push(image.reference);
        lineage.extend_from_slice(rest);
        at.lineage = lineage;
        at.lineage_floor = image.created;
        at.replaced = image.replaces.last().copied();
    }

    /// Where a store with the content of `id` stands.
    fn position(&self, storage: &dyn Storage, id: &CommitId) -> Result<Position> {
        let Some(reference) = id.segment else {
            return Ok(Position::empty(id.version));
        };
        let head = read_head(storage, &reference, &self.owner)?;
        // It may name segments that replay went round: nothing builds on them.
        Ok(Position::read(*id, reference, head, true))
    }

    fn forget_content(&mut self) {
        self.at = None;
        self.before = None;
        self.scans.clear();
        self.families = Families::new(self.families.layout());
        // Never more than before.
        let _ = self.count_memory();
    }

    fn write(&mut self, family: u32, act: impl FnOnce(&mut Family) -> Result<()>) -> Result<()> {
        self.need_session()?;
        let content = self.families.family_mut(family)?;
        let before = content.page_bytes();
        act(content)?;
        // Only pages are looked at for every row; the rest is counted along when they grow.
        if content.page_bytes() == before {
            return Ok(());
        }
        self.count_memory()
    }

    fn count_memory(&mut self) -> Result<()> {
        let bytes = self.families.memory_bytes() as u64;
        self.memory.set(bytes).map_err(|e| e.context(&self.owner))
    }

    fn need_no_session(&self, version: u64) -> Result<()> {
        if !self.in_session {
            return Ok(());
        }
        Err(Error::invalid_input(format!(
            "{}: cannot open version {version} while a session is open",
            self.owner
        )))
    }

    fn need_session(&self) -> Result<()> {
        if self.in_session {
            return Ok(());
        }
        Err(Error::invalid_input(format!(
            "{}: no session is open",
            self.owner
        )))
    }

    fn load(&mut self, storage: &dyn Storage, wanted: CommitId) -> Result<()> {
        // Until the load is complete the content belongs to no version.
        self.forget_content();
        let position = match wanted.segment {
            None => Position {
                id: wanted,
                ..Position::empty(wanted.version)
            },
            Some(reference) => {
                let mut load = Load {
                    segments: SegmentReader::new(storage),
                    owner: &self.owner,
                    content: &mut self.families,
                    rebuilt: Vec::new(),
                };
                let head = load.run(&reference, wanted.replaced)?;
                let rebuilt = !load.rebuilt.is_empty();
                if rebuilt {
                    self.warning = Some(load.rebuilt.join("; "));
                    self.stats.rebuilds += 1;
                }
                Position::read(wanted, reference, head, rebuilt)
            }
        };
        self.count_memory()?;
        self.at = Some(position);
        self.stats.loads += 1;
        Ok(())
    }
}

/// Two ids stand for the same content of the same version: the digest of a segment covers its owner,
/// checkpoint, lineage and changes, wherever it was written.
fn same_state(a: &CommitId, b: &CommitId) -> bool {
    let content = |id: &CommitId| id.segment.map(|segment| (segment.len, segment.digest));
    a.version == b.version && content(a) == content(b)
}
