//! A session changes the opened version of a store and ends with a commit or an abort.

use super::changes::ChangeKind;
use super::commit_id::CommitId;
use super::entries::ChangeWriter;
use super::family::{Family, FamilyOptions};
use super::images::is_long;
use super::store::StateStore;
use crate::error::{Error, Result};
use crate::format::{NewSegment, SegmentKind};
use crate::ids::CheckpointId;
use crate::segment::SegmentWriter;

impl StateStore {
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
        self.is_used = true;
        self.make_room(false)?;
        self.memory.begin_session();
        self.turn_journal(true);
        self.in_session = true;
        Ok(())
    }

    /// Sets a key to one value.
    ///
    /// # Errors
    /// `InvalidInput` outside a session, without such a family, or for an entry above 4 GiB;
    /// `LimitExceeded` when the memory budget is used up: abort the session; as [`StateStore::get`].
    pub fn put(&mut self, family: u32, key: &[u8], value: &[u8]) -> Result<()> {
        self.write(family, |content| content.put(key, value))?;
        self.record(family, ChangeKind::Put, key, &[value])
    }

    /// Sets a key to a list of values; an empty one removes the key.
    ///
    /// # Errors
    /// As [`StateStore::put`]; `InvalidInput` for a family with one value per key.
    pub fn put_list(&mut self, family: u32, key: &[u8], values: &[&[u8]]) -> Result<()> {
        self.write(family, |content| content.put_list(key, values))?;
        self.record(family, ChangeKind::Put, key, values)
    }

    /// Appends to the list of a key.
    ///
    /// # Errors
    /// As [`StateStore::put_list`].
    pub fn append(&mut self, family: u32, key: &[u8], values: &[&[u8]]) -> Result<()> {
        self.write(family, |content| content.append(key, values))?;
        self.record(family, ChangeKind::Append, key, values)
    }

    /// Removes a key with all its values; false when it was not there.
    ///
    /// # Errors
    /// `InvalidInput` outside a session or without such a family; as [`StateStore::get`].
    pub fn remove(&mut self, family: u32, key: &[u8]) -> Result<bool> {
        self.need_session()?;
        let removed = self.reach(family, |content| content.remove(key))?;
        self.record_removal(family, key)?;
        Ok(removed)
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
        self.record_removal_of(name)?;
        let dropped = self.families.drop_family(name);
        self.trust(dropped)
    }

    /// Ends the session: appends what changed and returns the id of the next version. Without
    /// changes nothing is written and the new id names the same segment.
    ///
    /// # Errors
    /// `InvalidInput` outside a session; `Storage` when the changelog could not be appended: the
    /// session stays open then and can be aborted.
    pub fn commit(&mut self, writer: &SegmentWriter) -> Result<CommitId> {
        self.need_session()?;
        self.settle_run(writer);
        let Some(at) = self.at.as_ref() else {
            return Err(Error::invalid_input(format!(
                "{}: no version is open",
                self.owner
            )));
        };
        let changes = self.families.changes();
        let changed = changes.is_some();
        let journal = self.journal.as_ref();
        let journal = journal.filter(|journal| journal.tells_more_than(changes.as_ref()));
        let mut next = if changed || journal.is_some() {
            let changes = changes.map_or_else(ChangeWriter::default, |changes| changes.entries);
            let tables = if self.memory.has_target() {
                self.families.table_keys()
            } else {
                Vec::new()
            };
            let new = NewSegment {
                owner: &self.owner,
                created: CheckpointId(at.id.version + 1),
                kind: SegmentKind::Changelog,
                lineage: &at.lineage,
                replaced: at.replaced,
                entries: changes.entries(),
                tables: &tables,
                runs: at.runs_in_head(),
            };
            let payload = changes.into_bytes();
            let reference = match journal {
                None => writer.append(&new, &payload)?,
                Some(journal) => {
                    let operations = (journal.payload(), journal.operations());
                    writer.append_with_journal(&new, &payload, operations)?
                }
            };
            self.stats.commits += 1;
            self.stats.written_bytes += payload.len() as u64;
            self.stats.written_bytes += journal.map_or(0, |journal| journal.payload().len() as u64);
            at.with_segment(reference)
        } else {
            self.stats.empty_commits += 1;
            at.unchanged()
        };
        self.families.commit();
        self.turn_journal(false);
        let newest_run = next.newest_run().0;
        self.families.mark(next.id.version, newest_run, changed);
        if !self.memory.has_room(0) {
            // There may be hundreds of stores, each of which works a moment in every batch.
            self.families.forget_blocks();
        }
        // What was committed stays committed: a limit that this exceeds stops the next session.
        let _ = self.count_memory();
        self.memory.end_session();
        self.in_session = false;
        // Also where an older build wrote the id that this commit builds on.
        next.id.owner = Some(self.owner.tag());
        let id = next.id;
        let long = is_long(&next);
        self.before = self.at.replace(next);
        if long {
            // Where maintenance does not keep up. The commit stands without it: when this fails,
            // the next one tries again.
            let _ = self.write_base_image(writer);
        }
        Ok(id)
    }

    /// Takes back the open session; nothing happens when there is none.
    pub fn abort(&mut self) {
        if self.in_session {
            self.scans.clear();
            self.families.abort();
            self.turn_journal(false);
            let _ = self.count_memory();
            self.in_session = false;
        }
    }

    fn write(&mut self, family: u32, act: impl FnOnce(&mut Family) -> Result<()>) -> Result<()> {
        self.need_session()?;
        let before = self.families.family(family)?.page_bytes();
        self.reach(family, act)?;
        self.count_pages(family, before)
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
}
