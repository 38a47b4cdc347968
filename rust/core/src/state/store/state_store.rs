//! The state of one owner at one version: opening and scanning. `changing` has changes and commits,
//! `maintaining` the runs that keep loads short, `keeping` and `hydrating` the keys in memory.

use std::borrow::Cow;
use std::fmt::Display;
use std::sync::Arc;

use super::merging::Merging;
use super::open_scans::{OpenScans, ScanBatch, ScanOf};
use super::position::Position;
use super::residency::Residency;
use super::session::Session;
use super::standing::Standing;
use crate::error::{Error, ErrorKind, Result};
use crate::format::{SegmentReader, read_head};
use crate::ids::Owner;
use crate::state::commit_id::{CommitId, VersionId};
use crate::state::content::changes::find_changes;
use crate::state::content::families::{Families, KeyLayout};
use crate::state::content::journal::Journal;
use crate::state::content::load::{Load, READ_AHEAD_BYTES};
use crate::state::content::scan::Scan;
use crate::state::memory::{MemoryBudget, MemoryShare};
use crate::state::runs::entry_stream::EntryStream;
use crate::state::runs::key_range::KeyRange;
use crate::state::runs::stack::OpenRun;
use crate::storage::Storage;

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
    /// Loads that rebuilt the state because a run was damaged.
    pub rebuilds: u64,
    /// Commits that wrote a segment.
    pub commits: u64,
    /// Blocks of runs that were read because their keys were not in memory.
    pub cold_reads: u64,
}

/// State of one owner. All calls come from one thread at a time.
#[derive(Debug)]
pub struct StateStore {
    pub(super) owner: Owner,
    pub(super) families: Families,
    pub(super) memory: MemoryShare,
    pub(super) scans: OpenScans,
    pub(super) standing: Standing,
    /// The oldest version whose input the opened one waits for.
    pub(super) pending_since: Option<u64>,
    pub(super) session: Option<Session>,
    pub(super) records: bool,
    pub(super) merging: Merging,
    pub(super) residency: Residency,
    pub(super) stats: StoreStats,
    warning: Option<String>,
}

impl StateStore {
    /// An unopened store of `owner`.
    pub fn new(owner: Owner, layout: KeyLayout) -> Self {
        Self::within(owner, layout, Arc::default())
    }

    /// Like [`StateStore::new`]; its memory counts against a budget that other stores share.
    pub fn within(owner: Owner, layout: KeyLayout, budget: Arc<MemoryBudget>) -> Self {
        Self {
            owner,
            families: Families::new(layout),
            memory: MemoryShare::of(budget),
            scans: OpenScans::default(),
            standing: Standing::default(),
            pending_since: None,
            session: None,
            records: false,
            merging: Merging::default(),
            residency: Residency::default(),
            stats: StoreStats::default(),
            warning: None,
        }
    }

    /// The owner of the state.
    pub fn owner(&self) -> &Owner {
        &self.owner
    }

    /// The content.
    pub fn families(&self) -> &Families {
        &self.families
    }

    /// How its keys are laid out on disk.
    pub fn layout(&self) -> KeyLayout {
        self.families.layout()
    }

    /// Counters.
    pub fn stats(&self) -> StoreStats {
        StoreStats {
            cold_reads: self.stats.cold_reads + self.families.cold_reads(),
            ..self.stats
        }
    }

    /// The damage that the last load worked around, for the log. Returned once.
    pub fn take_warning(&mut self) -> Option<String> {
        self.warning.take()
    }

    /// Positions the store at `version`, whose commit returned `id`. Version 0 is empty, without
    /// id. Remains if at that version, else undoes the last commit if that leads there, or loads.
    ///
    /// # Errors
    /// `InvalidInput` if id and version disagree, or in a session; `NotFound` and `Corrupt`, with
    /// file, offset and owner, for a segment that is gone or damaged. If older segments still have
    /// the state of a damaged run, loads these instead, see [`StateStore::take_warning`].
    pub fn open(
        &mut self,
        storage: &dyn Storage,
        version: u64,
        id: Option<&CommitId>,
    ) -> Result<()> {
        self.open_since(storage, version, id, None)
    }

    /// Like [`StateStore::open`]. A parked version has the content of an older one, at which the
    /// store may remain. A session commits on it only after [`StateStore::mark_replayed`].
    pub fn open_version(
        &mut self,
        storage: &dyn Storage,
        version: u64,
        id: Option<&VersionId>,
    ) -> Result<()> {
        let since = id.and_then(VersionId::pending_since);
        self.open_since(storage, version, id.map(|id| &id.state), since)
    }

    fn open_since(
        &mut self,
        storage: &dyn Storage,
        version: u64,
        id: Option<&CommitId>,
        pending_since: Option<u64>,
    ) -> Result<()> {
        self.need_no_session(version)?;
        self.residency.is_used = true;
        let wanted = match id {
            None if version == 0 => self.empty(0).id,
            None => {
                return Err(Error::new(
                    ErrorKind::Unsupported,
                    format!(
                        "{}: version {version} has no state store checkpoint id. Its entry of the \
                         commit log is gone, or its checkpoint was written with checkpoint format 1 \
                         or by another provider; Holdfast needs format 2 from the first batch on",
                        self.owner
                    ),
                ));
            }
            Some(id) if id.owner != self.owner.tag() => {
                return Err(self.refused(format!(
                    "version {version} was asked for with the id of another store"
                )));
            }
            Some(id) if id.version == version => *id,
            Some(id) => {
                return Err(self.refused(format!(
                    "version {version} was asked for with the id of version {}",
                    id.version
                )));
            }
        };
        self.pending_since = pending_since;
        if let Some(at) = self.standing.now_mut() {
            if let Some(since) = pending_since {
                at.follow(since, &wanted);
            }
            if at.has_state_of(&wanted) {
                at.adopt(wanted);
                return Ok(());
            }
        }
        if self.go_back_to(&wanted) {
            return Ok(());
        }
        self.load(storage, wanted)
    }

    /// Positions the store directly before `version`, with the content of an older `id` or none.
    /// So the next commit makes `version`. For callers that skip versions: attempts at a checkpoint
    /// that ended, or changed another owner.
    ///
    /// # Errors
    /// Errors of [`StateStore::open`]; `InvalidInput` for an `id` that is not older.
    pub fn open_before(
        &mut self,
        storage: &dyn Storage,
        version: u64,
        id: Option<&CommitId>,
    ) -> Result<()> {
        self.need_no_session(version)?;
        self.residency.is_used = true;
        self.pending_since = None;
        let last = version.saturating_sub(1);
        let wanted = id.copied().unwrap_or(self.empty(last).id);
        let is_of_another = wanted.owner != self.owner.tag();
        if is_of_another || wanted.version > last {
            return Err(self.refused(format!(
                "checkpoint {version} cannot begin with version {} of {}",
                wanted.version,
                if is_of_another { "another store" } else { "it" }
            )));
        }
        if !self.standing.has_content_of(&wanted) && !self.go_back_to_content(&wanted) {
            self.load(storage, wanted)?;
        }
        if let Some(at) = self.standing.now_mut() {
            at.adopt(CommitId {
                version: last,
                ..wanted
            });
        }
        Ok(())
    }

    fn go_back_to_content(&mut self, id: &CommitId) -> bool {
        let Some(before) = self.standing.versions().nth(1) else {
            return false;
        };
        let version = before.id.version;
        self.go_back_to(&CommitId { version, ..*id })
    }

    fn go_back_to(&mut self, id: &CommitId) -> bool {
        if !self.standing.go_back_to(id) {
            return false;
        }
        self.scans.clear();
        self.families.abort();
        // The next runs may have the changes that were taken back.
        self.residency.next = None;
        self.residency.looked_at = None;
        self.stats.rewinds += 1;
        true
    }

    /// Empties the store at `version`. The next commit writes all content, without a lineage.
    ///
    /// # Errors
    /// `InvalidInput` when a session is open.
    pub fn open_empty(&mut self, version: u64) -> Result<()> {
        self.need_no_session(version)?;
        self.forget_content();
        self.pending_since = None;
        self.standing = Standing::at(self.empty(version));
        Ok(())
    }

    /// Frees all but the newest `versions` of two; `open` reloads them. Does nothing in a session.
    pub fn retain(&mut self, versions: u32) {
        if self.session.is_some() || versions > 1 {
            return;
        }
        if versions == 0 {
            let standing = std::mem::take(&mut self.standing);
            self.forget_content();
            if let Standing::Lost { .. } = standing {
                // The next load still distrusts the runs.
                self.standing = standing;
            }
            return;
        }
        self.standing.forget_before();
        self.scans.clear();
        // Drops the undo log of the last commit. The budget only refuses growth.
        self.families.begin();
        let _ = self.count_memory();
    }

    /// Positions the store at `to`: loads the older `from` and applies all later changes. So it
    /// reads no newer run. `ids` are of the versions after `from`, of all stores of the partition.
    ///
    /// # Errors
    /// Errors of [`StateStore::open`]; `InvalidInput` if `to` is older than `from`; `Unsupported`
    /// if a commit in between wrote all content instead of its changes.
    pub fn replay(
        &mut self,
        storage: &dyn Storage,
        from: (u64, Option<&CommitId>),
        to: &VersionId,
        ids: &[CommitId],
    ) -> Result<()> {
        let since = to.pending_since();
        let to = &to.state;
        if to.version < from.0 {
            return Err(self.refused(format!(
                "cannot replay from version {} to the older version {}",
                from.0, to.version
            )));
        }
        self.open(storage, from.0, from.1)?;
        let position = self.position(storage, to)?;
        // Until everything is applied the content belongs to no version.
        self.standing = Standing::Nowhere;
        self.scans.clear();
        let mut segments = SegmentReader::new(storage);
        for version in from.0 + 1..=to.version {
            for changes in find_changes(storage, &self.owner, version, ids)? {
                let changes = segments.stream(&changes, &self.owner, READ_AHEAD_BYTES)?;
                self.families
                    .apply(&mut EntryStream::new(changes))
                    .map_err(|e| e.context(format!("version {version} of {}", self.owner)))?;
            }
        }
        self.standing = Standing::at(position);
        self.pending_since = since;
        Ok(())
    }

    /// The value of a key, or the first one of its list.
    ///
    /// # Errors
    /// `InvalidInput` without such a family; errors of reading a key from a run, and
    /// `LimitExceeded` because it comes into memory. The store has no version after damage.
    pub fn get(&mut self, family: u32, key: &[u8]) -> Result<Option<&[u8]>> {
        let content = self.families.family(family)?;
        if !content.is_in_memory() {
            let before = content.page_bytes();
            self.reach_runs(family, |content| content.fault_in(key))?;
            self.count_pages(family, before)?;
        }
        Ok(self.families.family(family)?.get(key))
    }

    /// Like [`StateStore::get`], but leaves the key in the runs.
    pub(crate) fn look_up(&self, family: u32, key: &[u8]) -> Result<Option<Cow<'_, [u8]>>> {
        self.families.family(family)?.heads.look_up(key)
    }

    /// Starts a scan and copies its first batch to `out`, see [`StateStore::scan_on`]. It sees the
    /// content of this moment, and ends with its last entry, or when a session begins.
    ///
    /// # Errors
    /// `InvalidInput` without such a family, for a range without order, for values of a family with
    /// one per key, and for one open scan too many; as [`StateStore::get`].
    pub fn scan(
        &mut self,
        family: u32,
        what: ScanOf<'_>,
        max_bytes: usize,
        out: &mut Vec<u8>,
    ) -> Result<ScanBatch> {
        if let ScanOf::Keys(KeyRange::All) | ScanOf::Values(KeyRange::All) = what {
            // The scan wants all keys anyway.
            while self.hydrate_some(usize::MAX) {}
        }
        let content = self.families.family_mut(family)?;
        let before = content.page_bytes();
        let begun = match what {
            ScanOf::Keys(range) => Scan::of_range(content, range, false),
            ScanOf::Values(range) => Scan::of_range(content, range, true),
            ScanOf::ValuesOfKey(key) => Scan::of_values(content, key),
        };
        let filled = begun.and_then(|mut scan| {
            let entries = scan.fill(content, max_bytes, out)?;
            Ok((scan, entries))
        });
        let (scan, entries) = self.trust(filled)?;
        self.count_pages(family, before)?;
        let scan = match scan.is_over() {
            true => None,
            false => Some(self.scans.keep(&self.owner, family, scan)?),
        };
        Ok(ScanBatch { scan, entries })
    }

    /// Copies the next entries of a scan to `out` as `key_len u32, value_len u32, key, value`
    /// (little-endian): as many as fit `max_bytes`, at least one.
    ///
    /// # Errors
    /// `InvalidInput` for a scan that ended; as [`StateStore::get`].
    pub fn scan_on(&mut self, scan: u32, max_bytes: usize, out: &mut Vec<u8>) -> Result<ScanBatch> {
        let batch = self
            .scans
            .go_on(&self.owner, &self.families, scan, max_bytes, out);
        self.trust(batch)
    }

    /// Ends a scan before its last entry, if it is open.
    pub fn close_scan(&mut self, scan: u32) {
        self.scans.close(scan);
    }

    fn empty(&self, version: u64) -> Position {
        Position::empty(self.owner.tag(), version)
    }

    fn position(&self, storage: &dyn Storage, id: &CommitId) -> Result<Position> {
        let Some(reference) = id.segment else {
            return Ok(self.empty(id.version));
        };
        let head = read_head(storage, &reference, &self.owner)?;
        // The lineage may name a damaged run: as if rebuilt, the next session builds on an image.
        Ok(Position::read(*id, reference, head, &[], Vec::new(), true))
    }

    pub(super) fn forget_content(&mut self) {
        self.standing = Standing::Nowhere;
        self.scans.clear();
        self.stats = self.stats();
        self.families = Families::new(self.families.layout());
        self.residency = Residency {
            is_used: self.residency.is_used,
            ..Residency::default()
        };
        let _ = self.count_memory();
    }

    pub(super) fn journal(&self) -> Option<&Journal> {
        self.session.as_ref()?.journal.as_ref()
    }

    pub(crate) fn count_memory(&mut self) -> Result<()> {
        let journal = self.journal().map_or(0, Journal::memory_bytes);
        let bytes = self.families.memory_bytes() + journal + self.scans.memory_bytes();
        let counted = self.memory.set(bytes as u64);
        counted.map_err(|e| e.context(&self.owner))
    }

    /// Each row only looks at the pages of its family: the rest is counted when they change.
    pub(crate) fn count_pages(&mut self, family: u32, before: usize) -> Result<()> {
        if self.families.family(family)?.page_bytes() == before {
            return Ok(());
        }
        self.count_memory()
    }

    fn need_no_session(&self, version: u64) -> Result<()> {
        if self.session.is_none() {
            return Ok(());
        }
        Err(self.refused(format!(
            "cannot open version {version} while a session is open"
        )))
    }

    pub(super) fn refused(&self, why: impl Display) -> Error {
        Error::invalid_input(format!("{}: {why}", self.owner))
    }

    pub(crate) fn load_over(
        &mut self,
        storage: &dyn Storage,
        runs: Vec<Arc<OpenRun>>,
    ) -> Result<()> {
        let Standing::At { now: at, .. } = std::mem::take(&mut self.standing) else {
            return Ok(());
        };
        let tables = self.families.table_keys();
        self.forget_content();
        let mut load = Load {
            segments: SegmentReader::new(storage),
            owner: &self.owner,
            families: &mut self.families,
            memory: None,
            runs: Vec::new(),
            changed: Vec::new(),
            ready: 0,
            rebuilt: Vec::new(),
        };
        let loaded = load.run_over(runs, at.changelogs(), &tables);
        loaded.inspect_err(|_| self.forget_content())?;
        let newest_run = at.newest_run().0;
        self.families.mark(at.id.version, newest_run, true);
        self.count_memory()?;
        self.memory.settle();
        self.standing = Standing::at(at);
        self.stats.loads += 1;
        Ok(())
    }

    pub(crate) fn load(&mut self, storage: &dyn Storage, wanted: CommitId) -> Result<()> {
        let distrusts = matches!(self.standing, Standing::Lost { .. });
        // Until the load is complete the content belongs to no version.
        self.forget_content();
        let position = match wanted.segment {
            None => Position {
                id: wanted,
                ..self.empty(wanted.version)
            },
            Some(reference) => {
                let memory = Some(&self.memory).filter(|memory| memory.has_target() && !distrusts);
                let mut load = Load {
                    segments: SegmentReader::new(storage),
                    owner: &self.owner,
                    families: &mut self.families,
                    memory,
                    runs: Vec::new(),
                    changed: Vec::new(),
                    ready: 0,
                    rebuilt: Vec::new(),
                };
                let loaded = load.run(&reference, wanted.replaced);
                let (messages, ready) = (load.rebuilt, load.ready);
                let (runs, changed) = (load.runs, load.changed);
                let (newest, head) = loaded.inspect_err(|_| self.forget_content())?;
                let rebuilt = !messages.is_empty();
                if rebuilt {
                    self.warning = Some(messages.join("; "));
                    self.stats.rebuilds += 1;
                }
                Position {
                    ready: if rebuilt { 0 } else { ready },
                    ..Position::read(wanted, newest, head, &runs, changed, rebuilt)
                }
            }
        };
        let newest_run = position.newest_run().0;
        self.families.mark(position.id.version, newest_run, true);
        self.count_memory()?;
        self.memory.settle();
        self.standing = Standing::at(position);
        self.begin_hydration();
        self.stats.loads += 1;
        Ok(())
    }
}
