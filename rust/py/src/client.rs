//! Managers in other processes: the worker's client, and the executor's socket.

use std::path::PathBuf;
use std::sync::Arc;

use holdfast_core::format::NewSegment;
use holdfast_core::segment::WriterOptions;
use holdfast_core::{CheckpointId, Error};
use holdfast_wire::{self as wire, Client, Hello};
use parking_lot::Mutex;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::arguments;
use crate::buffer::Payload;
use crate::errors::to_py;
use crate::values::{Owner, SegmentRef, core_refs};

/// A snapshot manager in another process of the same user, reached through a Unix socket.
///
/// In a Python worker of Spark that is the manager of the worker's executor, which all workers there
/// share: their segments go into the same few files. `executor_socket` says where it listens. Without
/// Spark it is what `SnapshotManager.serve` serves.
///
/// All methods may be called from several threads; their requests wait for each other, with the GIL
/// released. A connection that broke fails the call it was used for; the next call connects again. A
/// forked child gets a connection of its own.
///
/// Parameters
/// ----------
/// socket : str or os.PathLike
///     Path of the socket.
/// pipeline : str
///     Pipeline that this process works for. The driver must have opened it.
/// folder : str
///     Folder of the pipeline's segments: a path, or the URI of a folder on another file system.
/// max_file_bytes : int, default 32 MiB
///     Size in bytes at which a file is sealed and the next one is begun. Of this and of
///     `compression`, what the first client of a manager says holds for all.
/// compression : {"lz4", "none"}, default "lz4"
///     How payloads are compressed on disk.
///
/// Raises
/// ------
/// FileNotFoundError
///     If there is no such socket.
/// ConnectionError
///     If no manager listens there.
/// ValueError
///     If an option has a value that is not allowed.
/// NotImplementedError
///     If the other process is of another version of Holdfast.
/// OSError
///     If the manager cannot be opened, or the pipeline is not open.
///
/// Examples
/// --------
/// >>> socket = holdfast._core.executor_socket()
/// >>> with ManagerClient(socket, pipeline="sales", folder="/data/ckpt/segments") as client:
/// ...     ref = client.append(owner, 1, b"state of shard 7")
/// ...     client.persist_segments(1, owner, [ref])
/// ...     client.send(b"acknowledgement")
#[pyclass(frozen, module = "holdfast._core")]
pub(crate) struct ManagerClient {
    socket: PathBuf,
    pipeline: String,
    folder: String,
    /// `None` once closed. The lock is held for a moment only, never around work.
    client: Mutex<Option<Arc<Client>>>,
}

impl ManagerClient {
    /// Runs `work` with the GIL released.
    fn detached<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&Client) -> Result<T, Error> + Send,
    ) -> PyResult<T> {
        let client = self.open_client()?;
        py.detach(|| work(&client)).map_err(to_py)
    }

    fn open_client(&self) -> PyResult<Arc<Client>> {
        self.client.lock().clone().ok_or_else(|| {
            PyValueError::new_err(format!("the client of {} is closed", self.socket.display()))
        })
    }
}

#[pymethods]
impl ManagerClient {
    #[new]
    #[pyo3(signature = (
        socket,
        *,
        pipeline,
        folder,
        max_file_bytes = 33_554_432,
        compression = "lz4",
    ))]
    fn new(
        py: Python<'_>,
        socket: PathBuf,
        pipeline: String,
        folder: String,
        max_file_bytes: i64,
        compression: &str,
    ) -> PyResult<Self> {
        let writer: WriterOptions = arguments::writer_options(max_file_bytes, compression)?;
        let hello = Hello {
            pipeline: pipeline.clone(),
            folder: folder.clone(),
            writer,
        };
        let client = py
            .detach(|| Client::connect(&socket, hello))
            .map_err(to_py)?;
        Ok(Self {
            socket,
            pipeline,
            folder,
            client: Mutex::new(Some(Arc::new(client))),
        })
    }

    /// Path of the socket.
    #[getter]
    fn socket(&self) -> PathBuf {
        self.socket.clone()
    }

    /// Pipeline that this process works for.
    #[getter]
    fn pipeline(&self) -> &str {
        &self.pipeline
    }

    /// Folder of the pipeline's segments.
    #[getter]
    fn folder(&self) -> &str {
        &self.folder
    }

    /// Append a segment for an open checkpoint attempt, as `SnapshotManager.append`.
    ///
    /// Parameters
    /// ----------
    /// owner, checkpoint, data, kind, lineage, entries
    ///     As for `SnapshotManager.append`. Data of more than 64 KiB cross in memory that both
    ///     processes see, not through the socket.
    ///
    /// Returns
    /// -------
    /// SegmentRef
    ///
    /// Raises
    /// ------
    /// AttemptEndedError, ValueError, OSError
    ///     As for `SnapshotManager.append`.
    /// ConnectionError
    ///     If the connection broke. The segment may have been written, but no checkpoint refers to it.
    #[pyo3(signature = (owner, checkpoint, data, *, kind = "snapshot", lineage = Vec::new(), entries = 0))]
    #[pyo3(
        text_signature = "($self, owner, checkpoint, data, *, kind=\"snapshot\", lineage=(), entries=0)"
    )]
    #[allow(clippy::too_many_arguments, reason = "keywords in Python")]
    fn append(
        &self,
        py: Python<'_>,
        owner: Owner,
        checkpoint: u64,
        data: &Bound<'_, PyAny>,
        kind: &str,
        lineage: Vec<SegmentRef>,
        entries: u64,
    ) -> PyResult<SegmentRef> {
        let client = self.open_client()?;
        let kind = arguments::segment_kind(kind)?;
        let lineage = core_refs(&lineage);
        let payload = Payload::of(data)?;
        let new = NewSegment {
            owner: &owner.0,
            created: CheckpointId(checkpoint),
            kind,
            lineage: &lineage,
            replaced: None,
            entries,
        };
        payload
            .with_bytes(py, |bytes| client.append(&new, bytes))
            .map(SegmentRef)
            .map_err(to_py)
    }

    /// Read a segment and verify all of it, as `SnapshotManager.read`.
    ///
    /// Parameters
    /// ----------
    /// ref, owner
    ///     As for `SnapshotManager.read`.
    ///
    /// Returns
    /// -------
    /// bytes
    ///     The payload, uncompressed.
    ///
    /// Raises
    /// ------
    /// FileNotFoundError, CorruptSegmentError, NotImplementedError, OSError
    ///     As for `SnapshotManager.read`.
    #[pyo3(signature = (r#ref, owner))]
    fn read<'py>(
        &self,
        py: Python<'py>,
        r#ref: SegmentRef,
        owner: Owner,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let payload = self.detached(py, |client| client.read(&r#ref.0, &owner.0))?;
        Ok(PyBytes::new(py, &payload))
    }

    /// Make exactly these segments survive a machine crash, as `SnapshotManager.persist_segments`.
    ///
    /// Parameters
    /// ----------
    /// checkpoint, owner, refs
    ///     As for `SnapshotManager.persist_segments`.
    ///
    /// Raises
    /// ------
    /// AttemptEndedError, FileNotFoundError, OSError
    ///     As for `SnapshotManager.persist_segments`.
    fn persist_segments(
        &self,
        py: Python<'_>,
        checkpoint: u64,
        owner: Owner,
        refs: Vec<SegmentRef>,
    ) -> PyResult<()> {
        let refs = core_refs(&refs);
        self.detached(py, |client| {
            client.persist_segments(CheckpointId(checkpoint), &owner.0, &refs)
        })
    }

    /// Ask to reuse segments in an open attempt, as `SnapshotManager.lease`.
    ///
    /// Parameters
    /// ----------
    /// owner, checkpoint, refs
    ///     As for `SnapshotManager.lease`.
    ///
    /// Returns
    /// -------
    /// list of bool
    ///     Per segment: False when it must be written again. Segments that another executor wrote
    ///     always must.
    ///
    /// Raises
    /// ------
    /// AttemptEndedError
    ///     If the attempt was decided already.
    /// OSError
    ///     If the connection broke.
    fn lease(
        &self,
        py: Python<'_>,
        owner: Owner,
        checkpoint: u64,
        refs: Vec<SegmentRef>,
    ) -> PyResult<Vec<bool>> {
        let refs = core_refs(&refs);
        self.detached(py, |client| {
            client.lease(&owner.0, CheckpointId(checkpoint), &refs)
        })
    }

    /// Give up segments whose acknowledgement was refused, as `SnapshotManager.release`.
    ///
    /// Parameters
    /// ----------
    /// owner, refs
    ///     As for `SnapshotManager.release`.
    ///
    /// Raises
    /// ------
    /// OSError
    ///     If the connection broke.
    fn release(&self, py: Python<'_>, owner: Owner, refs: Vec<SegmentRef>) -> PyResult<()> {
        let refs = core_refs(&refs);
        self.detached(py, |client| client.release(&owner.0, &refs))
    }

    /// Hand bytes on to the driver while the job still runs.
    ///
    /// Returns once the driver has them. As long as the driver has no room, the call waits.
    ///
    /// Parameters
    /// ----------
    /// data : bytes
    ///     A message of at most 16 MiB.
    ///
    /// Raises
    /// ------
    /// ValueError
    ///     If it is too long.
    /// ConnectionError
    ///     If the connection broke. The message may have arrived.
    /// OSError
    ///     If the pipeline is not open, or the driver does not answer.
    fn send(&self, py: Python<'_>, data: &[u8]) -> PyResult<()> {
        self.detached(py, |client| client.send(data))
    }

    /// Let the executor make the content of a local file ready to be published.
    ///
    /// Returns once it is durable. Nothing can be seen under the final name before it is published.
    ///
    /// Parameters
    /// ----------
    /// local_path : str
    ///     The file, on the machine of both processes.
    /// staged : str
    ///     URI on any file system that the executor reaches, which no other task uses.
    /// target : str
    ///     URI of the final name, on the same file system.
    ///
    /// Raises
    /// ------
    /// FileNotFoundError
    ///     If there is no such local file.
    /// FileExistsError
    ///     If the staged name is taken.
    /// PermissionError
    ///     If the file system does not allow it.
    /// NotImplementedError
    ///     If the other process is no executor of Spark: it reaches local files only.
    /// ConnectionError
    ///     If the connection broke. The file may be staged.
    /// OSError
    ///     If a file system failed. Nothing is staged then.
    fn stage(&self, py: Python<'_>, local_path: &str, staged: &str, target: &str) -> PyResult<()> {
        self.detached(py, |client| client.stage(local_path, staged, target))
    }

    /// Let the executor throw away what was staged.
    ///
    /// Parameters
    /// ----------
    /// staged : sequence of str
    ///     URIs that were staged. Those that are not there are left out.
    ///
    /// Raises
    /// ------
    /// NotImplementedError
    ///     If the other process is no executor of Spark.
    /// ConnectionError
    ///     If the connection broke.
    /// OSError
    ///     If a file system failed. All others are gone.
    fn discard(&self, py: Python<'_>, staged: Vec<String>) -> PyResult<()> {
        self.detached(py, |client| client.discard(&staged))
    }

    /// Close the connection. Closing twice does nothing.
    fn close(&self, py: Python<'_>) {
        let client = self.client.lock().take();
        py.detach(|| drop(client));
    }

    fn __enter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    #[pyo3(signature = (exc_type, exc_value, traceback, /))]
    fn __exit__(
        &self,
        py: Python<'_>,
        exc_type: &Bound<'_, PyAny>,
        exc_value: &Bound<'_, PyAny>,
        traceback: &Bound<'_, PyAny>,
    ) {
        let _ = (exc_type, exc_value, traceback);
        self.close(py);
    }

    fn __repr__(&self) -> String {
        let closed = if self.client.lock().is_none() {
            "closed "
        } else {
            ""
        };
        format!("<{closed}ManagerClient at {}>", self.socket.display())
    }
}

/// Find the socket of the executor that this Python worker belongs to.
///
/// It is looked for among the parents of this process: worker, daemon, JVM.
///
/// Returns
/// -------
/// pathlib.Path
///
/// Raises
/// ------
/// FileNotFoundError
///     If none of them has one, because the Holdfast plugin is not running there.
#[pyfunction]
pub(crate) fn executor_socket(py: Python<'_>) -> PyResult<PathBuf> {
    py.detach(wire::executor_socket).map_err(to_py)
}
