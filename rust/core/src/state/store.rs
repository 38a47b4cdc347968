//! One owner's state at one version: opens it, changes it, commits it.

use super::base_image::{BaseImage, BaseImageTask};
use super::commit_id::CommitId;
use super::table::Table;
use crate::error::{Error, ErrorKind, Result};
use crate::format::{NewSegment, SegmentKind, read_segment};
use crate::ids::{CheckpointId, Owner, SegmentRef};
use crate::manager::{Durability, SegmentWriter};
use crate::storage::Storage;

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
    /// `created` of the newest segment.
    created: CheckpointId,
}

impl Position {
    fn empty(version: u64) -> Self {
        let created = CheckpointId(version);
        let id = CommitId {
            version,
            floor: created,
            segment: None,
        };
        Self {
            id,
            lineage: Vec::new(),
            lineage_floor: created,
            created,
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

    /// The position after a commit that wrote `segment` on top of `lineage`.
    fn with_segment(&self, lineage: &[SegmentRef], segment: SegmentRef) -> Self {
        let version = self.id.version + 1;
        let created = CheckpointId(version);
        let floor = if lineage.is_empty() {
            created
        } else {
            self.lineage_floor
        };
        let id = CommitId {
            version,
            floor,
            segment: Some(segment),
        };
        Self {
            id,
            lineage: [lineage, &[segment]].concat(),
            lineage_floor: floor,
            created,
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
    /// Commits that wrote a changelog.
    pub commits: u64,
}

/// State of one owner. All calls come from one thread at a time.
#[derive(Debug)]
pub struct StateStore {
    owner: Owner,
    table: Table,
    /// `None` when the table's content is unknown (never opened, or a load failed).
    at: Option<Position>,
    /// Where the undo log of the last commit leads to.
    before: Option<Position>,
    in_session: bool,
    /// Written by maintenance, and not known to be durable: no commit may cite it yet.
    pending_image: Option<BaseImage>,
    installed_image: Option<CheckpointId>,
    stats: StoreStats,
}

impl StateStore {
    /// An unopened store of `owner`.
    pub fn new(owner: Owner) -> Self {
        Self {
            owner,
            table: Table::default(),
            at: None,
            before: None,
            in_session: false,
            pending_image: None,
            installed_image: None,
            stats: StoreStats::default(),
        }
    }

    /// Whose state this is.
    pub fn owner(&self) -> &Owner {
        &self.owner
    }

    /// The content.
    pub fn table(&self) -> &Table {
        &self.table
    }

    /// Counters.
    pub fn stats(&self) -> StoreStats {
        self.stats
    }

    /// Positions the store at `version`, whose commit returned `id`; version 0 is empty and has
    /// none. Served in place, by undoing the last commit, or by loading, in this order.
    ///
    /// # Errors
    /// `InvalidInput` when id and version disagree or a session is open; `NotFound`, `Corrupt`
    /// with file, offset and owner when a segment is gone or damaged.
    pub fn open(
        &mut self,
        storage: &dyn Storage,
        version: u64,
        id: Option<&CommitId>,
    ) -> Result<()> {
        if self.in_session {
            return Err(Error::invalid_input(format!(
                "{}: cannot open version {version} while a session is open",
                self.owner
            )));
        }
        let wanted = match id {
            None if version == 0 => CommitId {
                version: 0,
                floor: CheckpointId(0),
                segment: None,
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
            self.table.abort();
            self.at = self.before.take().map(|mut before| {
                before.adopt(wanted);
                before
            });
            self.stats.rewinds += 1;
            return Ok(());
        }
        self.load(storage, wanted)
    }

    /// Starts changing the opened version.
    ///
    /// # Errors
    /// `InvalidInput` when nothing is open or a session is open already.
    pub fn begin(&mut self) -> Result<()> {
        if self.in_session || self.at.is_none() {
            let why = if self.in_session {
                "a session is open"
            } else {
                "no version is open"
            };
            return Err(Error::invalid_input(format!("{}: {why}", self.owner)));
        }
        self.table.begin();
        self.before = None;
        self.in_session = true;
        Ok(())
    }

    /// Sets a key.
    ///
    /// # Errors
    /// `InvalidInput` outside a session, or for an entry above 4 GiB.
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.need_session()?;
        self.table.put(key, value)
    }

    /// Removes a key; false when it was not there.
    ///
    /// # Errors
    /// `InvalidInput` outside a session.
    pub fn remove(&mut self, key: &[u8]) -> Result<bool> {
        self.need_session()?;
        Ok(self.table.remove(key))
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
        let next = match self.table.changes() {
            None => {
                self.stats.empty_commits += 1;
                at.unchanged()
            }
            Some(changes) => {
                // Where maintenance does not keep up, the writer bounds the lineage itself.
                let whole = at.lineage.len() >= MAX_LINEAGE_SEGMENTS;
                let (kind, lineage, content) = if whole {
                    (SegmentKind::BaseImage, [].as_slice(), self.table.snapshot())
                } else {
                    (SegmentKind::Changelog, at.lineage.as_slice(), changes)
                };
                let new = NewSegment {
                    owner: &self.owner,
                    created: CheckpointId(at.id.version + 1),
                    kind,
                    lineage,
                    entries: content.entries(),
                };
                let payload = content.into_bytes();
                let reference = writer.append(&new, &payload)?;
                self.stats.commits += 1;
                self.stats.written_bytes += payload.len() as u64;
                at.with_segment(lineage, reference)
            }
        };
        self.table.commit();
        self.in_session = false;
        let id = next.id;
        self.before = self.at.replace(next);
        Ok(id)
    }

    /// Takes back the open session; nothing happens when there is none.
    pub fn abort(&mut self) {
        if self.in_session {
            self.table.abort();
            self.in_session = false;
        }
    }

    /// The merge that is due once at least `min_changelogs` durable ones lie above the base image;
    /// `None` while an earlier image waits for its file to become durable.
    pub fn base_image_task(
        &mut self,
        writer: &SegmentWriter,
        min_changelogs: usize,
    ) -> Option<BaseImageTask> {
        self.settle_image(writer);
        if self.pending_image.is_some() {
            return None;
        }
        // What is not durable may not even be readable yet, and its checkpoint may never complete.
        let durable = |position: &&Position| {
            let durability = |segment| writer.durability(segment);
            position.lineage.last().map(durability) == Some(Durability::Durable)
        };
        let from = [&self.at, &self.before]
            .into_iter()
            .flatten()
            .find(durable)?;
        // The first segment is the base image, or the first changelog of a store without one.
        (from.lineage.len() > min_changelogs.max(1)).then(|| BaseImageTask {
            owner: self.owner.clone(),
            lineage: from.lineage.clone(),
            created: from.created,
        })
    }

    /// Takes an image over. Commits build on it once it is durable; it is dropped when it is lost,
    /// or when the store has moved to another lineage.
    pub fn accept(&mut self, image: BaseImage) {
        self.pending_image = Some(image);
    }

    /// The newest image that commits began to build on since this was last asked.
    pub fn take_installed_image(&mut self) -> Option<CheckpointId> {
        self.installed_image.take()
    }

    fn settle_image(&mut self, writer: &SegmentWriter) {
        let durability = self
            .pending_image
            .as_ref()
            .map(|image| writer.durability(&image.reference));
        match durability {
            None | Some(Durability::Pending) => {}
            Some(Durability::Lost) => self.pending_image = None,
            Some(Durability::Durable) => {
                if let Some(image) = self.pending_image.take()
                    && self.install(&image)
                {
                    self.installed_image = Some(image.created);
                }
            }
        }
    }

    fn install(&mut self, image: &BaseImage) -> bool {
        let Some(at) = self.at.as_mut() else {
            return false;
        };
        let Some(rest) = at.lineage.strip_prefix(image.replaces.as_slice()) else {
            return false;
        };
        let mut lineage = Vec::with_capacity(1 + rest.len());
        lineage.push(image.reference);
        lineage.extend_from_slice(rest);
        at.lineage = lineage;
        at.lineage_floor = image.created;
        true
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
        self.at = None;
        self.before = None;
        self.table = Table::default();
        let position = match wanted.segment {
            None => Position {
                id: wanted,
                ..Position::empty(wanted.version)
            },
            Some(reference) => {
                let newest = read_segment(storage, &reference, &self.owner)?;
                for older in &newest.head.lineage {
                    let segment = read_segment(storage, older, &self.owner)?;
                    self.apply(older, &segment.payload)?;
                }
                self.apply(&reference, &newest.payload)?;
                let mut lineage = newest.head.lineage;
                lineage.push(reference);
                let created = newest.head.created;
                Position {
                    id: wanted,
                    lineage,
                    lineage_floor: wanted.floor,
                    created,
                }
            }
        };
        self.at = Some(position);
        self.stats.loads += 1;
        Ok(())
    }

    fn apply(&mut self, reference: &SegmentRef, payload: &[u8]) -> Result<()> {
        self.table
            .apply(payload)
            .map_err(|e| e.context(format!("{reference}, {}", self.owner)))
    }
}

/// Two ids stand for the same content of the same version: the digest of a segment covers its owner,
/// checkpoint, lineage and changes, wherever it was written.
fn same_state(a: &CommitId, b: &CommitId) -> bool {
    let content = |id: &CommitId| id.segment.map(|segment| (segment.len, segment.digest));
    a.version == b.version && content(a) == content(b)
}
