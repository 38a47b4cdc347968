//! A store that the threads of an executor share: maintenance and hydration run during sessions. It
//! has whole steps, so that tests and product take the same ones.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

use super::state_store::StateStore;
use crate::error::{Error, Result};
use crate::ids::{CheckpointId, FileId, Owner};
use crate::segment::SegmentWriter;
use crate::state::commit_id::{CommitId, VersionId};
use crate::state::content::hydration::HYDRATION_BYTES;
use crate::state::content::merge_task::MergedRun;
use crate::storage::Storage;

/// The folder of a query's stores in one process.
#[derive(Debug)]
pub struct StoreFolder {
    storage: Arc<dyn Storage>,
    writer: Option<Arc<SegmentWriter>>,
    /// Runs of stores that closed before commits could build on them, for the owner's next store:
    /// Spark's `unloadOnCommit` closes stores after every batch. At most one per store, with
    /// references only: about 1 KiB after ten changelogs, so 1 MiB for a thousand stores.
    runs: Mutex<HashMap<Owner, MergedRun>>,
}

impl StoreFolder {
    /// The folder in `storage`. Without a writer it is only read.
    pub fn new(storage: Arc<dyn Storage>, writer: Option<SegmentWriter>) -> Arc<Self> {
        Self::with(storage, writer.map(Arc::new))
    }

    /// The folder in `storage`, with a writer that is shared.
    pub fn sharing(storage: Arc<dyn Storage>, writer: Arc<SegmentWriter>) -> Arc<Self> {
        Self::with(storage, Some(writer))
    }

    fn with(storage: Arc<dyn Storage>, writer: Option<Arc<SegmentWriter>>) -> Arc<Self> {
        Arc::new(Self {
            storage,
            writer,
            runs: Mutex::default(),
        })
    }

    /// The storage that segments are read from.
    pub fn storage(&self) -> &dyn Storage {
        self.storage.as_ref()
    }

    /// The writer of segments.
    ///
    /// # Errors
    /// `InvalidInput` in a folder that is only read.
    pub fn writer(&self) -> Result<&SegmentWriter> {
        self.writer.as_deref().ok_or_else(|| {
            Error::invalid_input(format!(
                "{} was opened for reading only",
                self.storage.location()
            ))
        })
    }
}

/// Work to do during a session that has begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Beside {
    /// [`SharedStore::hydrate`].
    pub hydration: bool,
    /// [`SharedStore::maintain`] at once, without waiting for the next round of maintenance.
    pub merge: bool,
}

/// The next step of a caller that hydrates a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hydrated {
    /// Continue.
    More,
    /// Call again a little later: a session hydrates, which is quicker than turns with it.
    Later,
    /// Stop.
    Over,
}

/// A store, and the folder where its segments are.
#[derive(Debug)]
pub struct SharedStore {
    pub(super) folder: Arc<StoreFolder>,
    state: Mutex<StateStore>,
}

impl SharedStore {
    /// Shares `state`, which takes over the run that [`SharedStore::close`] left, if there is one.
    pub fn new(folder: Arc<StoreFolder>, mut state: StateStore) -> Self {
        if let Some(run) = folder.runs.lock().remove(state.owner()) {
            state.accept(run);
        }
        Self {
            folder,
            state: Mutex::new(state),
        }
    }

    /// Leaves a run that no commit builds on yet to the next store of the owner.
    pub fn close(&self) {
        let mut state = self.lock();
        if let Some(run) = state.take_pending_run() {
            self.folder.runs.lock().insert(state.owner().clone(), run);
        }
    }

    /// The folder.
    pub fn folder(&self) -> &StoreFolder {
        &self.folder
    }

    /// The store, for a single step, or for one that should fail on damage.
    pub fn lock(&self) -> MutexGuard<'_, StateStore> {
        self.state.lock()
    }

    /// Like [`StateStore::open`].
    pub fn open(&self, version: u64, id: Option<&CommitId>) -> Result<()> {
        self.lock().open(self.folder.storage(), version, id)
    }

    /// Like [`StateStore::open_version`].
    pub fn open_version(&self, version: u64, id: Option<&VersionId>) -> Result<()> {
        self.lock().open_version(self.folder.storage(), version, id)
    }

    /// Makes a call, and repeats it after damage that the store can go around: a call that fails
    /// with damage has changed nothing. Then spills, if the session has outgrown memory.
    ///
    /// # Errors
    /// Errors of the call, of [`StateStore::go_around`] and of [`StateStore::spill`].
    pub fn call<R>(&self, mut call: impl FnMut(&mut StateStore) -> Result<R>) -> Result<R> {
        let mut state = self.lock();
        let done = match call(&mut state) {
            Err(damage) if damage.is_damage() => {
                // Readers have no writer.
                let writer = self.folder.writer.as_deref();
                if !state.go_around(self.folder.storage(), writer)? {
                    return Err(damage);
                }
                call(&mut state)
            }
            done => done,
        }?;
        state.leave_memory(self.folder.writer.as_deref())?;
        Ok(done)
    }

    /// Begins a session after [`StateStore::mend`], and returns the work to do during it.
    pub fn begin(&self) -> Result<Beside> {
        let mut state = self.lock();
        state.mend(self.folder.writer()?)?;
        state.begin()?;
        Ok(Beside {
            hydration: state.is_hydrating(),
            merge: state.wants_merge(),
        })
    }

    /// Ends the session, see [`StateStore::commit`].
    pub fn commit(&self) -> Result<CommitId> {
        self.lock().commit(self.folder.writer()?)
    }

    /// Brings some keys of runs into memory. Does not lock the store while it reads runs.
    pub fn hydrate(&self) -> Result<Hydrated> {
        let mut hydration = {
            let mut state = self.lock();
            if state.session_hydrates() {
                return Ok(Hydrated::Later);
            }
            match state.take_hydration() {
                Some(hydration) => hydration,
                None => return Ok(Hydrated::Over),
            }
        };
        let read = hydration.read(HYDRATION_BYTES);
        let mut state = self.lock();
        state.hydrate(hydration, read)?;
        Ok(if state.is_hydrating() {
            Hydrated::More
        } else {
            Hydrated::Over
        })
    }

    /// One round of maintenance: makes a run durable that no commit makes durable, evicts keys of
    /// an idle store, and merges what is due, see [`StateStore::merge_task`]. Does not lock the
    /// store while it reads, merges and writes files. Returns [`StateStore::snapshot_version`].
    ///
    /// # Errors
    /// Errors of [`StateStore::rest`] and of merging; without a writer `InvalidInput`.
    pub fn maintain(
        &self,
        min_changelogs: usize,
        wasteful: &HashSet<FileId>,
    ) -> Result<Option<CheckpointId>> {
        let writer = self.folder.writer()?;
        let overdue = self.lock().overdue_run(writer);
        if let Some(file) = overdue {
            // If this fails, file and run are lost, and a later round writes another run.
            let _ = writer.sync_soon(file);
        }
        let (task, snapshot) = {
            let mut state = self.lock();
            state.rest(writer)?;
            let task = state.merge_task(writer, min_changelogs, wasteful);
            (task, state.snapshot_version(writer, min_changelogs))
        };
        if let Some(task) = task {
            let run = task.run(self.folder.storage(), writer)?;
            self.lock().accept(run);
        }
        Ok(snapshot)
    }
}
