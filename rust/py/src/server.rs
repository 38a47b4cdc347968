//! Serving a manager to other Python processes, and messages about checkpoints as bytes.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use holdfast_core::manager::SnapshotManager as Core;
use holdfast_core::{Error, ErrorKind};
use holdfast_wire::{Hello, Host, ManagerMessage, MessageKind, Server, Session};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::arguments::{FallbacksArgument, ReleasedArgument, RetainedArgument};
use crate::errors::from_py;
use crate::shared::Shared;

/// A snapshot manager that other processes of the same user reach through a Unix socket, until
/// closed. Made by `SnapshotManager.serve`.
#[pyclass(frozen, module = "holdfast._core")]
pub(crate) struct ManagerServer(Arc<Shared<Server>>);

/// The manager and the function that takes its clients' messages.
struct Served {
    manager: Arc<Shared<Core>>,
    on_message: Arc<Py<PyAny>>,
}

impl Served {
    /// Calls Python from a thread of the server.
    fn call(&self, data: &[u8]) -> Result<(), Error> {
        let called = Python::try_attach(|py| {
            self.on_message
                .call1(py, (PyBytes::new(py, data),))
                .map(drop)
        });
        match called {
            Some(done) => done.map_err(|error| from_py("on_message", &error)),
            None => Err(Error::new(
                ErrorKind::Fenced,
                "the process that serves this socket is ending",
            )),
        }
    }
}

impl Host for Served {
    fn open(&self, hello: &Hello) -> Result<Box<dyn Session>, Error> {
        if Path::new(&hello.folder) != self.manager.path() {
            return Err(Error::invalid_input(format!(
                "this socket serves {}, not {}",
                self.manager.path().display(),
                hello.folder
            )));
        }
        Ok(Box::new(Self {
            manager: Arc::clone(&self.manager),
            on_message: Arc::clone(&self.on_message),
        }))
    }
}

impl Session for Served {
    fn manager(&self) -> Result<Arc<Core>, Error> {
        self.manager.open()
    }

    fn send(&self, data: Vec<u8>) -> Result<(), Error> {
        self.call(&data)
    }
}

/// Serves `manager` at `path`.
pub(crate) fn serve(
    py: Python<'_>,
    manager: Arc<Shared<Core>>,
    path: PathBuf,
    on_message: Py<PyAny>,
) -> Result<ManagerServer, Error> {
    let host = Served {
        manager,
        on_message: Arc::new(on_message),
    };
    let server = py.detach(|| Server::start(&path, Arc::new(host)))?;
    Ok(ManagerServer(Shared::new("server", path, server)))
}

impl Drop for ManagerServer {
    fn drop(&mut self) {
        // The server's threads may wait for the GIL, which this thread holds.
        if let Some(server) = self.0.take() {
            Python::try_attach(|py| py.detach(|| server.stop()));
        }
    }
}

#[pymethods]
impl ManagerServer {
    /// Path of the socket.
    #[getter]
    fn path(&self) -> &Path {
        self.0.path()
    }

    /// Stop serving: clients lose their connection, and requests that are being served end first.
    /// The manager stays open. Closing twice does nothing.
    fn close(&self, py: Python<'_>) {
        let server = self.0.take();
        py.detach(|| server.inspect(|server| server.stop()));
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
        self.0.repr("ManagerServer")
    }
}

/// Encode a message about a checkpoint, for managers in other processes.
///
/// Parameters
/// ----------
/// kind : {"started", "completed", "partially_completed", "aborted", "subsumed"}
///     Which method of `SnapshotManager` is called there.
/// checkpoint : int
///     Id of the checkpoint.
/// fallbacks : mapping of Owner to int
///     As for `SnapshotManager.partially_completed`; empty for every other kind.
/// retained : mapping of int to mapping of Owner to int
///     As for `SnapshotManager.completed`.
/// decided : int, optional
///     As for `SnapshotManager.completed`.
/// released : mapping of Owner to sequence of SegmentRef, optional
///     As for `SnapshotManager.release`, which is called first.
///
/// Returns
/// -------
/// bytes
///     For ``RegionalBridge.tellManagers``.
///
/// Raises
/// ------
/// ValueError
///     If there is no such kind, or there are fallbacks that the kind does not have.
#[pyfunction]
#[pyo3(signature = (kind, checkpoint, fallbacks, retained, decided = None, released = None))]
pub(crate) fn manager_message<'py>(
    py: Python<'py>,
    kind: &str,
    checkpoint: u64,
    fallbacks: FallbacksArgument,
    retained: RetainedArgument,
    decided: Option<u64>,
    released: Option<ReleasedArgument>,
) -> PyResult<Bound<'py, PyBytes>> {
    let kind = match kind {
        "started" => MessageKind::Started,
        "completed" => MessageKind::Completed,
        "partially_completed" => MessageKind::PartiallyCompleted,
        "aborted" => MessageKind::Aborted,
        "subsumed" => MessageKind::Subsumed,
        other => {
            return Err(PyValueError::new_err(format!(
                "kind='{other}' is not allowed: expected one of started, completed, \
                 partially_completed, aborted, subsumed"
            )));
        }
    };
    if kind != MessageKind::PartiallyCompleted && !fallbacks.0.is_empty() {
        return Err(PyValueError::new_err(format!(
            "a message of {} fallbacks is partially_completed",
            fallbacks.0.len()
        )));
    }
    let (checkpoint, retained) = retained.at(checkpoint, decided);
    let message = ManagerMessage {
        kind,
        checkpoint,
        fallbacks: fallbacks.0,
        retained,
        released: released.map(|released| released.0).unwrap_or_default(),
    };
    Ok(PyBytes::new(py, &py.detach(|| message.to_bytes())))
}
