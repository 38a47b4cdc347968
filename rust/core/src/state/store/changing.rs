//! A session changes the opened version of a store and ends with a commit or an abort.

use super::large_changes::LargeChanges;
use super::session::{Session, Spilled};
use super::state_store::StateStore;
use crate::error::{Error, Result};
use crate::format::{NewSegment, SegmentKind};
use crate::ids::CheckpointId;
use crate::segment::SegmentWriter;
use crate::state::commit_id::CommitId;
use crate::state::content::family::{Family, FamilyOptions};
use crate::state::content::journal::Journal;
use crate::state::content::merge_task::MergedRun;
use crate::state::runs::entries::{ChangeKind, ChangeWriter};

impl StateStore {
    /// Begins a session.
    ///
    /// # Errors
    /// `InvalidInput` without a version, in a session, or if [`StateStore::mend`] is needed.
    pub fn begin(&mut self) -> Result<()> {
        let why_not = match self.standing.now() {
            _ if self.session.is_some() => Some("a session is open"),
            None => Some("no version is open"),
            Some(at) if at.rebuilt => Some("it was rebuilt and must be mended first"),
            Some(_) => None,
        };
        if let Some(why) = why_not {
            return Err(Error::invalid_input(format!("{}: {why}", self.owner)));
        }
        self.residency.is_used = true;
        self.make_room(false)?;
        self.memory.begin_session();
        self.session = Some(Session {
            journal: self.records.then(Journal::default),
            spilled: None,
            replayed: false,
            reads_before: self.families.cold_reads(),
        });
        Ok(())
    }

    /// Sets a key to one value.
    ///
    /// # Errors
    /// `InvalidInput` outside a session, without such a family, or for an entry above 4 GiB;
    /// `LimitExceeded` if the memory budget is used up: abort the session; as [`StateStore::get`].
    pub fn put(&mut self, family: u32, key: &[u8], value: &[u8]) -> Result<()> {
        self.write(family, |content| content.put(key, value))?;
        self.record(family, ChangeKind::Put, key, &[value])
    }

    /// Sets a key to a list of values; an empty one removes the key.
    ///
    /// # Errors
    /// Errors of [`StateStore::put`]; `InvalidInput` for a family with one value per key.
    pub fn put_list(&mut self, family: u32, key: &[u8], values: &[&[u8]]) -> Result<()> {
        self.write(family, |content| content.put_list(key, values))?;
        self.record(family, ChangeKind::Put, key, values)
    }

    /// Appends to the list of a key.
    pub fn append(&mut self, family: u32, key: &[u8], values: &[&[u8]]) -> Result<()> {
        self.write(family, |content| content.append(key, values))?;
        self.record(family, ChangeKind::Append, key, values)
    }

    /// Removes a key with all its values; false if it did not exist.
    ///
    /// # Errors
    /// `InvalidInput` outside a session or without such a family; as [`StateStore::get`].
    pub fn remove(&mut self, family: u32, key: &[u8]) -> Result<bool> {
        self.need_session()?;
        let removed = self.reach(family, |content| content.remove(key))?;
        self.record_removal(family, key)?;
        Ok(removed)
    }

    /// Number of the column family `name`, which is made if necessary.
    ///
    /// # Errors
    /// `InvalidInput` outside a session, in a plain store, for a family with another number of
    /// values per key, and for one family too many.
    pub fn open_family(&mut self, name: &str, options: FamilyOptions) -> Result<u32> {
        self.need_session()?;
        self.families.open(name, options)
    }

    /// Removes a column family and everything in it; false if it did not exist.
    ///
    /// # Errors
    /// `InvalidInput` outside a session.
    pub fn remove_family(&mut self, name: &str) -> Result<bool> {
        self.need_session()?;
        self.record_removal_of(name)?;
        let dropped = self.families.drop_family(name);
        self.trust(dropped)
    }

    /// Ends the session: appends its changes and returns the id of the next version. Without
    /// changes the new id names the same segment. Only the first commit on a new run then writes a
    /// changelog, without entries.
    ///
    /// # Errors
    /// `InvalidInput` outside a session, and on top of a parked version whose input was not
    /// replayed. `Storage` if the changelog could not be appended: the session is still open then.
    pub fn commit(&mut self, writer: &SegmentWriter) -> Result<CommitId> {
        let never = LargeChanges {
            bytes: u64::MAX,
            merges: false,
        };
        self.commit_above(writer, &mut None, never)
    }

    /// Like [`StateStore::commit`]. Changes build on a durable `merged`; large ones become a run.
    pub(crate) fn commit_above(
        &mut self,
        writer: &SegmentWriter,
        merged: &mut Option<MergedRun>,
        large: LargeChanges,
    ) -> Result<CommitId> {
        self.need_session()?;
        self.need_replayed()?;
        if self.spilled().is_some() && self.memory.is_short(2 * self.memory.taken_by_batch()) {
            // The rest of a batch that is larger than memory does not wait for a merge either. Its
            // changelog would be made in memory, raw and compressed.
            self.spill(writer)?;
        }
        self.settle_run(writer);
        let changes = self.families.changes();
        let spilled = self.spilled();
        let mut over_runs = spilled.map(Spilled::position).transpose()?;
        if changes.is_some()
            && over_runs.is_none()
            && let Some(run) = merged.take()
        {
            // Undo restores the old lineage: a commit without changes would name its id again.
            over_runs = self.standing.now().cloned();
            over_runs.iter_mut().for_each(|at| at.install(&run));
        }
        let Some(at) = over_runs.as_ref().or(self.standing.now()) else {
            return Err(self.refused("no version is open"));
        };
        let changed = changes.is_some();
        let session = self.session.as_ref();
        let journal = session.and_then(|session| session.journal.as_ref());
        let journal = journal.filter(|journal| journal.tells_more_than(changes.as_ref()));
        let next = if changed || journal.is_some() || spilled.is_some() || at.is_untold() {
            let changes = changes.map_or_else(ChangeWriter::default, |changes| changes.entries);
            let has_target = self.memory.has_target();
            let tables = has_target.then(|| self.families.table_keys());
            let tables = tables.unwrap_or_default();
            let (mut entries, mut payload) = (changes.entries(), changes.into_bytes());
            let changed_bytes = payload.len() as u64;
            let above_large = match (spilled, journal) {
                (None, None) => self.write_large(writer, at, &payload, &tables, large)?,
                _ => None,
            };
            if above_large.is_some() {
                (entries, payload) = (0, Vec::new());
            }
            let at = above_large.as_ref().unwrap_or(at);
            let new = NewSegment {
                owner: &self.owner,
                created: CheckpointId(at.id.version + 1),
                kind: SegmentKind::Changelog,
                lineage: &at.lineage,
                replaced: at.replaced,
                entries,
                tables: &tables,
                runs: at.runs_in_head(),
            };
            let reference = match journal {
                None => writer.append(&new, &payload)?,
                Some(journal) => {
                    writer.append_with_journal(&new, &payload, &journal.last_part())?
                }
            };
            if let Some(spilled) = spilled {
                let parts = journal.map_or(&[][..], |journal| journal.last_part().before);
                let files = spilled.runs.iter().chain(parts).map(|part| part.file);
                writer.sync_files(&files.filter(|file| *file != reference.file).collect())?;
            }
            let spilled_bytes = spilled.map_or(0, |spilled| spilled.bytes);
            self.stats.commits += 1;
            self.stats.written_bytes += changed_bytes + spilled_bytes;
            self.stats.written_bytes +=
                journal.map_or(0, |journal| journal.last_part().payload.len() as u64);
            let mut next = at.with_segment(reference);
            if above_large.is_some() {
                next.ready = next.changelogs().len();
            }
            next
        } else {
            self.stats.empty_commits += 1;
            at.unchanged()
        };
        self.families.commit();
        let spilled = self.session.take().and_then(|session| session.spilled);
        let newest_run = next.newest_run().0;
        self.families
            .mark(next.id.version, newest_run, changed || spilled.is_some());
        if let Some(runs) = self.families.runs().filter(|_| !self.memory.has_room(0)) {
            // There may be hundreds of stores, each of which works briefly in every batch.
            runs.forget_blocks();
        }
        // The commit stands. If it exceeds the limit, the next session fails.
        let _ = self.count_memory();
        self.memory.end_session();
        self.pending_since = None;
        let id = next.id;
        let long = next.is_long();
        self.standing.advance(next);
        if spilled.is_some() {
            // The tables cannot undo the session.
            self.standing.forget_before();
        }
        if long {
            // Maintenance does not keep up. If this fails, the next commit tries again.
            let _ = self.write_base_image(writer);
        }
        Ok(id)
    }

    /// Takes back the open session, if any. A store whose session spilled then has no version.
    pub fn abort(&mut self) {
        if let Some(session) = self.session.take() {
            self.scans.clear();
            if session.spilled.is_none() {
                self.families.abort();
            } else if self.standing.now().is_some() {
                self.forget_content();
            }
            let _ = self.count_memory();
        }
    }

    /// Notes that the session has replayed all pending input of the opened version.
    ///
    /// # Errors
    /// `InvalidInput` outside a session.
    pub fn mark_replayed(&mut self) -> Result<()> {
        self.need_session()?;
        if let Some(session) = &mut self.session {
            session.replayed = true;
        }
        Ok(())
    }

    fn need_replayed(&self) -> Result<()> {
        let session = self.session.as_ref();
        let replayed = session.is_some_and(|session| session.replayed);
        let Some(since) = self.pending_since.filter(|_| !replayed) else {
            return Ok(());
        };
        Err(self.refused(format!(
            "the input of batch {} waits to be replayed, and perhaps that of later batches. A commit \
             without it would lose it: run the query with the isolation of failures that parked it",
            since.saturating_sub(1),
        )))
    }

    fn write(&mut self, family: u32, act: impl FnOnce(&mut Family) -> Result<()>) -> Result<()> {
        self.need_session()?;
        let before = self.families.family(family)?.page_bytes();
        self.reach(family, act)?;
        self.count_pages(family, before)
    }

    fn need_session(&self) -> Result<()> {
        let is_open = self.session.is_some().then_some(());
        is_open.ok_or_else(|| self.refused("no session is open"))
    }

    /// Has later sessions record all operations for [`read_changes`](crate::state::read_changes),
    /// also those that change nothing, or that a later one of the same session replaces.
    pub fn record_operations(&mut self, record: bool) {
        self.records = record;
    }

    /// Records that the values of a key were set, or added to. To set no values removes the key.
    fn record(
        &mut self,
        family: u32,
        first: ChangeKind,
        key: &[u8],
        values: &[&[u8]],
    ) -> Result<()> {
        if first == ChangeKind::Put && values.is_empty() {
            return self.record_removal(family, key);
        }
        let kinds = std::iter::once(first).chain(std::iter::repeat(ChangeKind::Append));
        self.push(family, |journal| {
            for (kind, value) in kinds.zip(values) {
                journal.push(family, kind, key, value);
            }
        })
    }

    fn record_removal(&mut self, family: u32, key: &[u8]) -> Result<()> {
        self.push(family, |journal| {
            journal.push(family, ChangeKind::Remove, key, &[]);
        })
    }

    fn record_removal_of(&mut self, name: &str) -> Result<()> {
        if self.journal().is_some()
            && let Some(number) = self.families.find(name)?
        {
            let keys = self.families.family_mut(number)?.keys();
            for key in self.trust(keys)? {
                self.record_removal(number, &key)?;
            }
        }
        Ok(())
    }

    fn push(&mut self, family: u32, act: impl FnOnce(&mut Journal)) -> Result<()> {
        let session = self.session.as_mut();
        let Some(journal) = session.and_then(|session| session.journal.as_mut()) else {
            return Ok(());
        };
        let options = self.families.family(family)?.options();
        journal.of_lists |= options.several_values;
        let before = journal.memory_bytes();
        act(journal);
        if journal.memory_bytes() == before {
            return Ok(());
        }
        self.count_memory()
    }
}
