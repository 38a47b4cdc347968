//! Managers of other processes: the worker's client, and the executor's socket.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use holdfast_wire::{self as wire, Client, Hello};
use pyo3::prelude::*;

use crate::arguments::{self, DEFAULT_MAX_FILE_BYTES};
use crate::errors::to_py;
use crate::segment_store::SegmentStore;
use crate::shared::Shared;

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
#[pyclass(frozen, extends = SegmentStore, module = "holdfast._core")]
pub(crate) struct ManagerClient {
    client: Arc<Shared<Client>>,
    pipeline: String,
    folder: String,
}

#[pymethods]
impl ManagerClient {
    #[new]
    #[pyo3(signature = (
        socket,
        *,
        pipeline,
        folder,
        max_file_bytes = DEFAULT_MAX_FILE_BYTES,
        compression = "lz4",
    ), text_signature = "(socket, *, pipeline, folder, max_file_bytes=33554432, compression=\"lz4\")")]
    fn new(
        py: Python<'_>,
        socket: PathBuf,
        pipeline: String,
        folder: String,
        max_file_bytes: i64,
        compression: &str,
    ) -> PyResult<PyClassInitializer<Self>> {
        let writer = arguments::writer_options(max_file_bytes, compression)?;
        let hello = Hello {
            pipeline: pipeline.clone(),
            folder: folder.clone(),
            writer,
        };
        let client = py
            .detach(|| Client::connect(&socket, hello))
            .map_err(to_py)?;
        let client = Shared::new("client", socket, client);
        let base = PyClassInitializer::from(SegmentStore::behind_socket(Arc::clone(&client)));
        Ok(base.add_subclass(Self {
            client,
            pipeline,
            folder,
        }))
    }

    /// Path of the socket.
    #[getter]
    fn socket(&self) -> &Path {
        self.client.path()
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
        let client = self.client.open().map_err(to_py)?;
        py.detach(|| client.send(data)).map_err(to_py)
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
        let client = self.client.open().map_err(to_py)?;
        py.detach(|| client.stage(local_path, staged, target))
            .map_err(to_py)
    }

    fn __repr__(&self) -> String {
        self.client.repr("ManagerClient")
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
