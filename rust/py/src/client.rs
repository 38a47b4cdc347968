//! Managers of other processes: the worker's client.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use holdfast_core::segment::WriterOptions;
use holdfast_wire::{Address, Client, Hello};
use pyo3::prelude::*;

use crate::arguments::{DEFAULT_MAX_FILE_BYTES, writer_options};
use crate::errors::to_py;
use crate::place::Place;
use crate::segment_store::SegmentStore;
use crate::shared::Shared;

/// A snapshot manager in another process of the same user, reached through a Unix socket.
///
/// The workers of an executor share its manager, so their segments go into the same few files.
/// `ManagerClient.of_executor` connects a Python worker of Spark to it.
///
/// All methods may be called from several threads. Their requests wait for each other, without the
/// GIL. A broken connection fails the call; the next one reconnects. A forked child gets its own.
///
/// Parameters
/// ----------
/// pipeline : str
///     Pipeline that this process works for. The driver must have opened it.
/// folder : str
///     Folder of the pipeline's segments: a path, or the URI of a folder on another file system.
/// max_file_bytes : int, default 32 MiB
///     Size in bytes at which a file is sealed and the next one is begun. The first client of a
///     manager decides on this and on `compression` for all.
/// compression : {"lz4", "none"}, default "lz4"
///     How payloads are compressed on disk.
///
/// Raises
/// ------
/// FileNotFoundError, ConnectionError
///     If there is no such socket, or no manager listens there.
/// ValueError
///     If an option has a value that is not allowed.
/// NotImplementedError
///     If the other process is of another version of Holdfast.
/// OSError
///     If the manager cannot be opened, or the pipeline is not open.
///
/// Examples
/// --------
/// >>> with ManagerClient.of_executor(pipeline="sales", folder="/data/ckpt/segments") as client:
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
        let writer = writer_options(max_file_bytes, compression)?;
        connect(py, Address::Path(socket), pipeline, folder, writer)
    }

    /// Connect to the manager of the executor that this Python worker belongs to.
    ///
    /// Raises
    /// ------
    /// FileNotFoundError
    ///     If this process is no Python worker of Spark, or its executor does not listen.
    /// ValueError, NotImplementedError, OSError
    ///     In the same cases as `ManagerClient`.
    #[staticmethod]
    #[pyo3(signature = (
        *,
        pipeline,
        folder,
        max_file_bytes = DEFAULT_MAX_FILE_BYTES,
        compression = "lz4",
    ), text_signature = "(*, pipeline, folder, max_file_bytes=33554432, compression=\"lz4\")")]
    fn of_executor(
        py: Python<'_>,
        pipeline: String,
        folder: String,
        max_file_bytes: i64,
        compression: &str,
    ) -> PyResult<Py<Self>> {
        let writer = writer_options(max_file_bytes, compression)?;
        let address = Address::of_this_worker().map_err(to_py)?;
        Py::new(py, connect(py, address, pipeline, folder, writer)?)
    }

    /// Path of the socket; of an executor its name, after `@`.
    #[getter]
    fn socket(&self) -> &Path {
        self.client.path()
    }

    #[getter]
    fn pipeline(&self) -> &str {
        &self.pipeline
    }

    #[getter]
    fn folder(&self) -> &str {
        &self.folder
    }

    /// Send bytes to the driver while the job still runs.
    ///
    /// Returns once the driver has them. Waits as long as the driver has no room.
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
    /// Returns once it is durable. No reader sees it under the final name before it is published.
    ///
    /// Parameters
    /// ----------
    /// local_path : str
    ///     The file, on the machine of both processes.
    /// staged : str
    ///     URI on any file system that the executor reaches. No other task may use it.
    /// target : str
    ///     URI of the final name, on the same file system.
    ///
    /// Raises
    /// ------
    /// FileNotFoundError, FileExistsError
    ///     If there is no such local file, or the staged name is taken.
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

fn connect(
    py: Python<'_>,
    address: Address,
    pipeline: String,
    folder: String,
    writer: WriterOptions,
) -> PyResult<PyClassInitializer<ManagerClient>> {
    let socket = match &address {
        Address::Path(path) => path.clone(),
        Address::Executor { .. } => PathBuf::from(address.to_string()),
    };
    let hello = Hello::new(&pipeline, &folder, &writer);
    let client = py
        .detach(|| Client::connect(address, hello))
        .map_err(to_py)?;
    let client = Shared::new("client", socket, client);
    let base = PyClassInitializer::from(SegmentStore(Place::BehindSocket(Arc::clone(&client))));
    Ok(base.add_subclass(ManagerClient {
        client,
        pipeline,
        folder,
    }))
}
