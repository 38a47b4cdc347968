//! Serving a manager to other Python processes.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use holdfast_core::manager::SnapshotManager as Core;
use holdfast_core::{Error, ErrorKind};
use holdfast_wire::{Hello, Host, Server, Session};
use pyo3::exceptions::{PyFileNotFoundError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::errors::{AttemptEndedError, FencedError, to_py};
use crate::manager::SnapshotManager;
use crate::shared::Shared;

/// A snapshot manager that other processes of the same user reach through a Unix socket, until
/// closed.
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

/// Returns the error that a client gets when Python code that serves it raises; `what` was called.
fn from_py(what: &str, error: &PyErr) -> Error {
    Python::attach(|py| {
        let kind = if error.is_instance_of::<AttemptEndedError>(py) {
            ErrorKind::AttemptEnded
        } else if error.is_instance_of::<FencedError>(py) {
            ErrorKind::Fenced
        } else if error.is_instance_of::<PyFileNotFoundError>(py) {
            ErrorKind::NotFound
        } else if error.is_instance_of::<PyValueError>(py) {
            ErrorKind::InvalidInput
        } else {
            ErrorKind::Storage
        };
        Error::new(kind, format!("{what}: {error}"))
    })
}

/// Serve a manager at a path. `on_message` gets the bytes of every message of a client, on threads of
/// the server, one per client; its exceptions are raised at the client.
#[pyfunction]
pub(crate) fn serve(
    py: Python<'_>,
    manager: PyRef<'_, SnapshotManager>,
    path: PathBuf,
    on_message: Py<PyAny>,
) -> PyResult<ManagerServer> {
    let host = Served {
        manager: manager.shared()?,
        on_message: Arc::new(on_message),
    };
    let server = py
        .detach(|| Server::start(path.as_path(), Arc::new(host)))
        .map_err(to_py)?;
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
