//! The state of one owner at one version: opening and scanning. `session` has changes and commits,
//! `images` the runs that keep loads short.

use std::sync::Arc;

use super::changes::read_changelog;
use super::commit_id::CommitId;
use super::content::{Families, Layout};
use super::delta_runs::DeltaRuns;
use super::entry_stream::EntryStream;
use super::hydration::Progress;
use super::journal::Journal;
use super::load::Load;
use super::memory::{MemoryBudget, MemoryShare};
use super::merge_task::MergedRun;
use super::open_run::OpenRun;
use super::open_scans::{OpenScans, ScanBatch, ScanOf};
use super::order::KeyRange;
use super::position::Position;
use crate::error::{Error, ErrorKind, Result};
use crate::format::{SegmentReader, read_head};
use crate::ids::{CheckpointId, Owner, SegmentRef};
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
    /// `None` while the store has no version: never opened, or a load failed.
    pub(super) at: Option<Position>,
    /// The version that undoing the last commit restores.
    pub(super) before: Option<Position>,
    pub(super) in_session: bool,
    /// Opened, or begun to be changed, since maintenance came last.
    pub(super) is_used: bool,
    /// Sessions record every operation.
    pub(super) records: bool,
    /// The operations of the open session, if it records them.
    pub(super) journal: Option<Journal>,
    /// Maintenance wrote it, and its file may not be durable yet: no commit may refer to it.
    pub(super) pending_run: Option<MergedRun>,
    /// Maintenance has found `pending_run` there before.
    pub(super) run_waits: bool,
    /// The runs that the next session puts the store over, and the version that they have.
    pub(super) next_runs: Option<(Vec<Arc<OpenRun>>, u64)>,
    /// What is still to come into memory by itself.
    pub(super) hydration: Progress,
    /// A session read a block for a key since another caller asked what to hydrate.
    pub(super) session_reads: bool,
    /// The newest of the runs that were last looked at as ones to lie over.
    pub(super) looked_at: Option<SegmentRef>,
    /// Most of what the last session left in memory is in no run.
    pub(super) is_starved: bool,
    /// A run was found to be damaged while its keys were read: the next load reads all of it, and goes
    /// around the damage where it can.
    pub(super) distrusts_runs: bool,
    /// Where it stood then.
    pub(super) lost: Option<Position>,
    pub(super) stats: StoreStats,
    warning: Option<String>,
}

impl StateStore {
    /// An unopened store of `owner`.
    pub fn new(owner: Owner, layout: Layout) -> Self {
        Self::within(owner, layout, Arc::default())
    }

    /// As [`StateStore::new`]; its memory counts against a budget that other stores share.
    pub fn within(owner: Owner, layout: Layout, budget: Arc<MemoryBudget>) -> Self {
        Self {
            owner,
            families: Families::new(layout),
            memory: MemoryShare::of(budget),
            scans: OpenScans::default(),
            at: None,
            before: None,
            in_session: false,
            is_used: false,
            records: false,
            journal: None,
            pending_run: None,
            run_waits: false,
            next_runs: None,
            hydration: Progress::default(),
            session_reads: false,
            looked_at: None,
            is_starved: false,
            distrusts_runs: false,
            lost: None,
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
    pub fn layout(&self) -> Layout {
        self.families.layout()
    }

    /// Counters.
    pub fn stats(&self) -> StoreStats {
        StoreStats {
            cold_reads: self.stats.cold_reads + self.families.cold_reads(),
            ..self.stats
        }
    }

    /// The damage that the last load worked around, for the log. The second call returns nothing.
    pub fn take_warning(&mut self) -> Option<String> {
        self.warning.take()
    }

    /// Positions the store at `version`, whose commit returned `id`. Version 0 is empty and has no
    /// id. The store stays where it is if it stands at that version, else undoes the last commit if
    /// that leads there, else loads.
    ///
    /// # Errors
    /// `InvalidInput` when id and version disagree or a session is open; `NotFound`, `Corrupt`
    /// with file, offset and owner when a segment is gone or damaged, unless it is a run and
    /// the segments it replaced are still there: then the state is rebuilt from them, see
    /// [`StateStore::take_warning`].
    pub fn open(
        &mut self,
        storage: &dyn Storage,
        version: u64,
        id: Option<&CommitId>,
    ) -> Result<()> {
        self.need_no_session(version)?;
        self.is_used = true;
        let wanted = match id {
            None if version == 0 => CommitId {
                version: 0,
                floor: CheckpointId(0),
                deltas: DeltaRuns::NONE,
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
        if let Some(at) = self.at.as_mut().filter(|at| at.has_state_of(&wanted)) {
            at.adopt(wanted);
            return Ok(());
        }
        if self
            .before
            .as_ref()
            .is_some_and(|before| before.has_state_of(&wanted))
        {
            self.scans.clear();
            self.families.abort();
            // They may have what was taken back.
            self.next_runs = None;
            self.looked_at = None;
            self.at = self.before.take().map(|mut before| {
                before.adopt(wanted);
                before
            });
            self.stats.rewinds += 1;
            return Ok(());
        }
        self.load(storage, wanted)
    }

    /// Positions the store at `version` with no content. The next commit writes the whole content of
    /// the next version, without a lineage.
    ///
    /// # Errors
    /// `InvalidInput` when a session is open.
    pub fn open_empty(&mut self, version: u64) -> Result<()> {
        self.need_no_session(version)?;
        self.forget_content();
        self.at = Some(Position::empty(version));
        Ok(())
    }

    /// Frees all but the newest `versions` versions in memory; there are never more than two. A later
    /// `open` loads a version that was freed. During a session this does nothing.
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
        // Drops the undo log of the last commit.
        self.families.begin();
        self.count_less_memory();
    }

    /// Positions the store at `to` by loading `from`, an older version, and applying what the
    /// commits after it changed: this reads no run that was written after `from`.
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
                    .apply(&mut EntryStream::of_segment(changelog))
                    .map_err(|e| e.context(format!("version {version} of {}", self.owner)))?;
            }
        }
        self.at = Some(position);
        Ok(())
    }

    /// The value of a key; of a family with several values per key the first one.
    ///
    /// # Errors
    /// `InvalidInput` without such a family; those of reading a key that is not in memory, which takes
    /// memory then: `LimitExceeded`. Where its run is damaged, the store has no version then.
    pub fn get(&mut self, family: u32, key: &[u8]) -> Result<Option<&[u8]>> {
        self.read(family, key)?;
        Ok(self.families.family(family)?.get(key))
    }

    /// Brings a key into memory, if there is such a key, so that [`Family::get`](super::Family::get) finds it.
    ///
    /// # Errors
    /// As [`StateStore::get`].
    pub fn read(&mut self, family: u32, key: &[u8]) -> Result<()> {
        let content = self.families.family(family)?;
        if content.is_in_memory() {
            return Ok(());
        }
        let before = content.page_bytes();
        self.reach_runs(family, |content| content.fault_in(key))?;
        self.count_pages(family, before)
    }

    /// Starts a scan and copies its first batch to `out`, see [`StateStore::scan_on`]. The scan sees
    /// the content of this moment, not what the session changes later. It ends with its last entry,
    /// or when a session begins.
    ///
    /// # Errors
    /// `InvalidInput` without such a family, for a range of a family that is not ordered, for values
    /// of a family with one value per key, and for one open scan too many; as [`StateStore::get`].
    pub fn scan(
        &mut self,
        family: u32,
        what: ScanOf<'_>,
        max_bytes: usize,
        out: &mut Vec<u8>,
    ) -> Result<ScanBatch> {
        if let ScanOf::Keys(KeyRange::All) | ScanOf::Values(KeyRange::All) = what {
            self.hydrate_at_once();
        }
        let content = self.families.family_mut(family)?;
        let before = content.page_bytes();
        let begun = match what {
            ScanOf::Keys(range) => content.scan(range, false),
            ScanOf::Values(range) => content.scan(range, true),
            ScanOf::ValuesOfKey(key) => content.scan_values(key),
        };
        let filled = begun.and_then(|mut scan| {
            let entries = scan.fill(content, max_bytes, out)?;
            Ok((scan, entries))
        });
        let (scan, entries) = self.trust(filled)?;
        self.count_pages(family, before)?;
        if scan.is_over() {
            return Ok(ScanBatch {
                scan: None,
                entries,
            });
        }
        let scan = self.scans.keep(&self.owner, family, scan)?;
        Ok(ScanBatch {
            scan: Some(scan),
            entries,
        })
    }

    /// Copies the next entries of a scan to `out` as `key_len u32, value_len u32, key, value`
    /// (little-endian): as many as fit `max_bytes`, at least one.
    ///
    /// # Errors
    /// `InvalidInput` for a scan that ended.
    pub fn scan_on(&mut self, scan: u32, max_bytes: usize, out: &mut Vec<u8>) -> Result<ScanBatch> {
        let batch = self
            .scans
            .go_on(&self.owner, &self.families, scan, max_bytes, out);
        self.trust(batch)
    }

    /// Ends a scan before its last entry; nothing happens when it ended already.
    pub fn close_scan(&mut self, scan: u32) {
        self.scans.close(scan);
    }

    /// The position of a store that has the content of `id` by `replay`.
    fn position(&self, storage: &dyn Storage, id: &CommitId) -> Result<Position> {
        let Some(reference) = id.segment else {
            return Ok(Position::empty(id.version));
        };
        let head = read_head(storage, &reference, &self.owner)?;
        // The lineage may name a damaged run, which `replay` did not read. The position counts
        // as rebuilt, so that the next session writes a new image and builds on that.
        Ok(Position::read(*id, reference, head, Vec::new(), true))
    }

    fn forget_content(&mut self) {
        self.at = None;
        self.lost = None;
        self.before = None;
        self.scans.clear();
        self.stats = self.stats();
        self.families = Families::new(self.families.layout());
        self.next_runs = None;
        self.hydration = Progress::Over;
        self.looked_at = None;
        self.count_less_memory();
    }

    pub(super) fn count_memory(&mut self) -> Result<()> {
        let journal = self.journal.as_ref().map_or(0, Journal::memory_bytes);
        let bytes = (self.families.memory_bytes() + journal) as u64;
        self.memory.set(bytes).map_err(|e| e.context(&self.owner))
    }

    /// Counts the memory once the pages of a family are not those of `before`. Only they are looked at for
    /// every row; the rest is counted along when they grow.
    pub(super) fn count_pages(&mut self, family: u32, before: usize) -> Result<()> {
        if self.families.family(family)?.page_bytes() == before {
            return Ok(());
        }
        self.count_memory()
    }

    /// After the store freed memory. The budget refuses growth only.
    fn count_less_memory(&mut self) {
        let _ = self.count_memory();
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

    /// Loads the content that the store has once more, over `runs`, which the next commit builds on.
    ///
    /// # Errors
    /// As [`StateStore::open`]; the store has no version then.
    pub(super) fn load_over(
        &mut self,
        storage: &dyn Storage,
        runs: Vec<Arc<OpenRun>>,
    ) -> Result<()> {
        let Some(at) = self.at.take() else {
            return Ok(());
        };
        let tables = self.families.table_keys();
        self.forget_content();
        let mut load = Load {
            segments: SegmentReader::new(storage),
            owner: &self.owner,
            content: &mut self.families,
            memory: None,
            changed: Vec::new(),
            rebuilt: Vec::new(),
        };
        let loaded = load.run_over(runs, at.changelogs(), &tables);
        loaded.inspect_err(|_| self.forget_content())?;
        let newest_run = at.newest_run().0;
        self.families.mark(at.id.version, newest_run, true);
        self.count_memory()?;
        self.at = Some(at);
        self.stats.loads += 1;
        Ok(())
    }

    pub(super) fn load(&mut self, storage: &dyn Storage, wanted: CommitId) -> Result<()> {
        // Until the load is complete the content belongs to no version.
        self.forget_content();
        let position = match wanted.segment {
            None => Position {
                id: wanted,
                ..Position::empty(wanted.version)
            },
            Some(reference) => {
                let distrusts = std::mem::take(&mut self.distrusts_runs);
                let memory = Some(&self.memory).filter(|memory| memory.has_target() && !distrusts);
                let mut load = Load {
                    segments: SegmentReader::new(storage),
                    owner: &self.owner,
                    content: &mut self.families,
                    memory,
                    changed: Vec::new(),
                    rebuilt: Vec::new(),
                };
                let loaded = load.run(&reference, wanted.replaced);
                let (messages, changed) = (load.rebuilt, load.changed);
                // What was applied before the damage was found is the content of no version.
                let (newest, head) = loaded.inspect_err(|_| self.forget_content())?;
                let rebuilt = !messages.is_empty();
                if rebuilt {
                    self.warning = Some(messages.join("; "));
                    self.stats.rebuilds += 1;
                }
                Position::read(wanted, newest, head, changed, rebuilt)
            }
        };
        let newest_run = position.newest_run().0;
        self.families.mark(position.id.version, newest_run, true);
        self.count_memory()?;
        self.at = Some(position);
        self.begin_hydration();
        self.stats.loads += 1;
        Ok(())
    }
}
