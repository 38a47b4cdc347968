//! The snapshot manager of this process: opening it, and messages about checkpoints. The methods
//! for segments are in `segment_store`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use holdfast_core::checkpoint::Metadata;
use holdfast_core::manager::{RestoredCheckpoint, SnapshotManager as Core};
use holdfast_core::state::VersionId;
use holdfast_core::storage::LocalStorage;
use holdfast_core::{CheckpointId, Error};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;

use crate::arguments::{self, DEFAULT_MAX_FILE_BYTES, FallbacksArgument, RetainedArgument};
use crate::checkpoint::CheckpointMetadata;
use crate::errors::to_py;
use crate::place::Place;
use crate::segment_store::SegmentStore;
use crate::shared::Shared;
use crate::status::{FileStatus, Stats};
use crate::table::{CommitParts, commit_parts, key_columns, parse};
use crate::values::{Owner, SegmentRef};

/// Packs the state of many owners into a few files, and deletes each file as soon as no retained
/// checkpoint and no open attempt needs it.
///
/// One manager owns one folder. To restart, open a new manager on the same folder. It writes under
/// a new term, so it never overwrites files of an earlier incarnation. Then call `restore` with the
/// retained checkpoints, and `sweep`. With its first change it takes the folder over: from then on,
/// every change of an older manager raises `FencedError`.
///
/// A forked child can read with the manager of its parent. Every other call is a ValueError.
///
/// The messages `started`, `completed`, `partially_completed`, `aborted` and `subsumed` may be
/// lost, repeated and reordered. Each carries everything that is retained at its moment, so the
/// next one makes up for a lost one. The design follows Apache Flink's FLIP-306 (unified file
/// merging) and FLIP-600 (regional checkpoints).
///
/// All methods may be called from several threads; the GIL is released around work and I/O.
///
/// Parameters
/// ----------
/// path : str or os.PathLike
///     Folder of the physical files, made if it is missing. A relative path starts at the working
///     directory of this moment.
/// max_file_bytes : int, default 32 MiB
///     Size in bytes at which a file is sealed and the next one is begun. A soft bound: the segment
///     that crosses it is still written whole.
/// across_checkpoints : bool, optional
///     True if a file takes segments of several checkpoints. This is the default if the storage can
///     append durably, as local files can.
/// compression : {"lz4", "none"}, default "lz4"
///     How payloads are compressed on disk. Both are always readable.
/// max_space_amplification : float or None, default 2.0
///     Bound on physical bytes divided by live bytes, at least 1; None for no bound. Beyond it,
///     segments in the most wasteful files are not offered for reuse (`lease`). A file that wastes
///     more than 64 KiB takes no further segments as soon as it could break the bound.
///
/// Raises
/// ------
/// ValueError
///     If an option has a value that is not allowed.
/// OSError
///     If the folder cannot be listed.
///
/// Examples
/// --------
/// >>> owner = holdfast.Owner("sales", "rolling-stats", "shard-7")
/// >>> with holdfast.SnapshotManager("/data/state") as manager:
/// ...     ref = manager.append(owner, 1, b"state of shard 7")
/// ...     manager.persist(1)
/// ...     manager.completed(1, {1: {}})
/// ...     manager.read(ref, owner)
/// b'state of shard 7'
#[pyclass(frozen, extends = SegmentStore, module = "holdfast")]
pub(crate) struct SnapshotManager(Arc<Shared<Core>>);

impl SnapshotManager {
    /// Runs `work` on the core with the GIL released.
    fn detached<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&Core) -> Result<T, Error> + Send,
    ) -> PyResult<T> {
        let core = self.open()?;
        py.detach(|| work(&core)).map_err(to_py)
    }

    fn open(&self) -> PyResult<Arc<Core>> {
        self.0.open().map_err(to_py)
    }

    /// The manager, which is open, for a server.
    #[cfg(feature = "testing")]
    pub(crate) fn shared(&self) -> PyResult<Arc<Shared<Core>>> {
        self.open()?;
        Ok(Arc::clone(&self.0))
    }
}

#[pymethods]
impl SnapshotManager {
    #[new]
    #[pyo3(signature = (
        path,
        *,
        max_file_bytes = DEFAULT_MAX_FILE_BYTES,
        across_checkpoints = None,
        compression = "lz4",
        max_space_amplification = Some(2.0),
    ), text_signature = "(path, *, max_file_bytes=33554432, across_checkpoints=None, compression=\"lz4\", max_space_amplification=2.0)")]
    fn new(
        py: Python<'_>,
        path: PathBuf,
        max_file_bytes: i64,
        across_checkpoints: Option<bool>,
        compression: &str,
        max_space_amplification: Option<f64>,
    ) -> PyResult<PyClassInitializer<Self>> {
        let options = arguments::manager_options(
            max_file_bytes,
            across_checkpoints,
            compression,
            max_space_amplification,
        )?;
        let storage = LocalStorage::new(&path);
        let path = storage.root().to_path_buf();
        // No term may come back, even if all its files were deleted. So it is at least the time.
        #[expect(clippy::disallowed_methods, reason = "the one look at a clock")]
        let now_ms = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(1, |elapsed| u64::try_from(elapsed.as_millis()).unwrap_or(1));
        let core = py
            .detach(|| Core::open_next_term(Arc::new(storage), options, now_ms))
            .map_err(to_py)?;
        let shared = Shared::new("manager", path, core);
        let base = PyClassInitializer::from(SegmentStore(Place::Here(Arc::clone(&shared))));
        Ok(base.add_subclass(Self(shared)))
    }

    /// Folder of the physical files.
    #[getter]
    fn path(&self) -> &Path {
        self.0.path()
    }

    /// Number of this incarnation, part of the name of every file it writes.
    #[getter]
    fn term(&self) -> PyResult<u64> {
        Ok(self.open()?.term().0)
    }

    /// Return whether files take segments of several checkpoints.
    #[getter]
    fn across_checkpoints(&self) -> PyResult<bool> {
        Ok(self.open()?.across_checkpoints())
    }

    /// Make everything that the attempt wrote or leased survive a machine crash.
    ///
    /// Call it before the acknowledgement that depends on it. It does not wait for owners that are
    /// still writing, and files take further segments.
    ///
    /// Raises
    /// ------
    /// AttemptEndedError, FencedError
    ///     If the attempt was decided, or a newer manager took the folder over.
    /// OSError
    ///     If storage failed, or an earlier failure lost a segment: release it and write it again.
    fn persist(&self, py: Python<'_>, checkpoint: u64) -> PyResult<()> {
        self.detached(py, |core| core.persist(CheckpointId(checkpoint)))
    }

    /// Tell that an attempt started.
    fn started(&self, py: Python<'_>, checkpoint: u64) -> PyResult<()> {
        self.detached(py, |core| {
            core.started(CheckpointId(checkpoint));
            Ok(())
        })
    }

    /// Tell that a checkpoint completed with every owner's state of `checkpoint`.
    ///
    /// Parameters
    /// ----------
    /// retained : mapping of int to mapping of Owner to int
    ///     All checkpoints retained at that moment, this one included, by id. The inner mapping has
    ///     the owners that fell back in it, with the origin of their state; it is empty for a
    ///     global checkpoint.
    /// decided : int, optional
    ///     Id of the last attempt that had been decided at that moment, if it is neither
    ///     `checkpoint` nor in `retained`.
    ///
    /// Raises
    /// ------
    /// ValueError, FencedError
    ///     If `retained` cannot be true, or a newer manager took the folder over: no change.
    #[pyo3(signature = (checkpoint, retained, *, decided = None))]
    fn completed(
        &self,
        py: Python<'_>,
        checkpoint: u64,
        retained: RetainedArgument,
        decided: Option<u64>,
    ) -> PyResult<()> {
        let (id, retained) = retained.at(checkpoint, decided);
        self.detached(py, |core| core.completed(id, &retained))
    }

    /// Tell that a checkpoint completed with an older state of some owners.
    ///
    /// All segments that these owners wrote for `checkpoint` die at once, acknowledged or not. The
    /// segments of their origin remain as long as a retained checkpoint refers to that origin.
    ///
    /// Parameters
    /// ----------
    /// fallbacks : mapping of Owner to int
    ///     The owners that fell back, with the origin of the state that the checkpoint has for
    ///     them: the checkpoint whose snapshot produced it, through any chain of fallbacks.
    /// retained, decided
    ///     The same as in `completed`. The entry of `checkpoint` equals `fallbacks`.
    ///
    /// Raises
    /// ------
    /// ValueError
    ///     If `retained` cannot be true. For example, it lacks `checkpoint`, contradicts an earlier
    ///     message about the same checkpoint, or names an origin that is not older than its
    ///     checkpoint or in which the owner fell back itself. Nothing is changed then.
    /// FencedError
    ///     If a newer manager took the folder over. Nothing is changed then.
    #[pyo3(signature = (checkpoint, fallbacks, retained, *, decided = None))]
    fn partially_completed(
        &self,
        py: Python<'_>,
        checkpoint: u64,
        fallbacks: FallbacksArgument,
        retained: RetainedArgument,
        decided: Option<u64>,
    ) -> PyResult<()> {
        let (id, retained) = retained.at(checkpoint, decided);
        self.detached(py, |core| {
            core.partially_completed(id, &fallbacks.0, &retained)
        })
    }

    /// Tell that an attempt ended without a checkpoint.
    ///
    /// Parameters and errors are the same as in `completed`; `retained` lacks `checkpoint`.
    #[pyo3(signature = (checkpoint, retained, *, decided = None))]
    fn aborted(
        &self,
        py: Python<'_>,
        checkpoint: u64,
        retained: RetainedArgument,
        decided: Option<u64>,
    ) -> PyResult<()> {
        let (id, retained) = retained.at(checkpoint, decided);
        self.detached(py, |core| core.aborted(id, &retained))
    }

    /// Tell that a checkpoint is not retained any more.
    ///
    /// Parameters and errors are the same as in `completed`; `retained` lacks `checkpoint`.
    #[pyo3(signature = (checkpoint, retained, *, decided = None))]
    fn subsumed(
        &self,
        py: Python<'_>,
        checkpoint: u64,
        retained: RetainedArgument,
        decided: Option<u64>,
    ) -> PyResult<()> {
        let (id, retained) = retained.at(checkpoint, decided);
        self.detached(py, |core| core.subsumed(id, &retained))
    }

    /// Write a table of another folder as a table of this one, as one segment.
    ///
    /// Parameters
    /// ----------
    /// folder : str or os.PathLike
    ///     The other folder.
    /// before, id : Owner, str
    ///     Its owner and its commit there.
    /// after, checkpoint : Owner, int
    ///     Its owner here, and the checkpoint that it is written for.
    ///
    /// Returns
    /// -------
    /// (str, tuple of SegmentRef, int)
    ///     Id of the commit, its segments, number of keys.
    ///
    /// Raises
    /// ------
    /// FileNotFoundError, CorruptSegmentError, OSError
    ///     If it cannot be read, or storage failed.
    fn copy_table<'py>(
        &self,
        py: Python<'py>,
        folder: PathBuf,
        before: Owner,
        id: &str,
        after: Owner,
        checkpoint: u64,
    ) -> PyResult<CommitParts<'py>> {
        let id = id.parse::<VersionId>().map_err(to_py)?.state;
        let source = LocalStorage::new(folder);
        let to = CheckpointId(checkpoint);
        let commit = self.detached(py, |core| {
            core.copy_table(&source, (&before.0, &id), &after.0, to)
        })?;
        commit_parts(py, commit)
    }

    /// Write chosen rows of tables in another folder as one table.
    ///
    /// Parameters
    /// ----------
    /// folder : str or os.PathLike
    ///     The folder of their segments, which must not change during the call.
    /// before : sequence of (Owner, str)
    ///     Owners and commits there.
    /// after, checkpoint : Owner, int
    ///     Owner of the new table, and the checkpoint that has it.
    /// keys : sequence of str
    ///     Layouts of the columns of the key.
    /// choose : callable
    ///     Gets the place of a table in `before`, a number of rows, and the columns of their keys.
    ///     Returns a byte for each row: 0 leaves it out. No key is chosen in two tables.
    ///
    /// Returns
    /// -------
    /// (str, tuple of SegmentRef, int)
    ///     Id of the commit, its segments, number of keys.
    ///
    /// Raises
    /// ------
    /// FileNotFoundError, CorruptSegmentError, OSError
    ///     If a table cannot be read, or storage failed. Errors of `choose` are raised unchanged.
    #[pyo3(signature = (folder, before, after, checkpoint, *, keys, choose))]
    #[allow(clippy::too_many_arguments, reason = "keywords in Python")]
    fn divide_tables<'py>(
        &self,
        py: Python<'py>,
        folder: PathBuf,
        before: Vec<(Owner, String)>,
        after: Owner,
        checkpoint: u64,
        keys: Vec<String>,
        choose: Py<PyAny>,
    ) -> PyResult<CommitParts<'py>> {
        let before = before.into_iter().map(|(owner, id)| {
            let id = id.parse::<VersionId>().map_err(to_py)?;
            Ok((owner.0, id.state))
        });
        let before = before.collect::<PyResult<Vec<_>>>()?;
        let keys = parse(keys)?;
        let source = LocalStorage::new(folder);
        let to = CheckpointId(checkpoint);
        let mut raised = None;
        let mut asked = |table: usize, rows: u64, entries: &[u8]| {
            Python::attach(|py| {
                let columns = key_columns(py, &keys, rows, entries)?;
                let chosen = choose.call1(py, (table, rows, columns))?;
                Ok(chosen.extract::<PyBackedBytes>(py)?.to_vec())
            })
            .map_err(|error: PyErr| {
                raised = Some(error);
                Error::invalid_input("rows were not chosen")
            })
        };
        let divided = self.detached(py, |core| {
            core.divide_tables(&source, &before, &after.0, to, &mut asked)
        });
        if let Some(error) = raised {
            return Err(error);
        }
        commit_parts(py, divided?)
    }

    /// Make the segments of retained checkpoints known, after a restart.
    ///
    /// Parameters
    /// ----------
    /// checkpoints : dict of int to sequence of (Owner, int, SegmentRef)
    ///     Per retained checkpoint every segment it needs: owner, origin of that owner's state,
    ///     reference. Each further call adds to these.
    ///
    /// Raises
    /// ------
    /// ValueError
    ///     If a segment was written for another owner, or an owner has two origins in one
    ///     checkpoint or an origin newer than it. Nothing is changed then.
    /// FileNotFoundError
    ///     If segments are missing. All others are known nevertheless and can be read. A file is
    ///     kept until no checkpoint needs it, even if it is damaged.
    /// OSError
    ///     If storage failed. Nothing is changed then.
    fn restore(
        &self,
        py: Python<'_>,
        checkpoints: BTreeMap<u64, Vec<(Owner, u64, SegmentRef)>>,
    ) -> PyResult<()> {
        let checkpoints: Vec<RestoredCheckpoint> = checkpoints
            .into_iter()
            .map(|(id, segments)| RestoredCheckpoint {
                id: CheckpointId(id),
                segments: segments
                    .into_iter()
                    .map(|(owner, origin, reference)| (owner.0, CheckpointId(origin), reference.0))
                    .collect(),
            })
            .collect();
        self.detached(py, |core| core.restore(&checkpoints))
    }

    /// Make the segments of all retained checkpoints known, after a restart.
    ///
    /// Looks for their files now, and lists their segments before it takes in the first message. So
    /// a start takes no longer if more of them are shared. Raises the errors of `restore`; the
    /// first message may raise the ``ValueError`` instead, and changes nothing then.
    ///
    /// Parameters
    /// ----------
    /// pipeline : str
    ///     Name of the pipeline in the owners of the segments.
    fn restore_checkpoints(
        &self,
        py: Python<'_>,
        pipeline: &str,
        checkpoints: Vec<Py<CheckpointMetadata>>,
    ) -> PyResult<()> {
        let checkpoints = checkpoints.iter().map(|one| Arc::clone(&one.get().0));
        let checkpoints = checkpoints.collect();
        self.detached(py, |core| {
            core.restore_later(Metadata::postponed(pipeline, checkpoints)?)
        })
    }

    /// Delete the files of earlier incarnations that no restored checkpoint needs.
    ///
    /// Returns
    /// -------
    /// int
    ///     Number of files found. The next message retries files that cannot be deleted now.
    ///
    /// Raises
    /// ------
    /// ValueError
    ///     Before `restore`, or after one that changed nothing: it is not known which files are
    ///     needed. Call ``restore({})`` if no checkpoint is retained.
    /// OSError
    ///     If the folder cannot be listed.
    fn sweep(&self, py: Python<'_>) -> PyResult<u64> {
        self.detached(py, Core::sweep)
    }

    /// Wait until every file that is due was deleted.
    ///
    /// Messages only decide which files go; a thread deletes and seals them later. The next message
    /// retries files that could not be deleted.
    fn wait_for_deletes(&self, py: Python<'_>) -> PyResult<()> {
        self.detached(py, |core| {
            core.wait_for_deletes();
            Ok(())
        })
    }

    /// Return counts and sizes.
    fn stats(&self, py: Python<'_>) -> PyResult<Stats> {
        self.detached(py, |core| Ok(Stats::from(core.stats())))
    }

    /// Return all physical files, by name.
    fn files(&self, py: Python<'_>) -> PyResult<Vec<FileStatus>> {
        let files = self.detached(py, |core| Ok(core.files()))?;
        Ok(files.into_iter().map(FileStatus::from).collect())
    }

    fn __repr__(&self) -> String {
        let path = self.0.path().display();
        match self.0.while_open() {
            Some(core) => format!("<SnapshotManager of {path} in term {}>", core.term().0),
            None => format!("<closed SnapshotManager of {path}>"),
        }
    }
}
