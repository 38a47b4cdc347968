//! Errors of the core as Python exceptions: builtin ones first.

use std::error::Error as _;

use holdfast_core::{Error, ErrorKind};
use pyo3::create_exception;
use pyo3::exceptions::{
    PyFileExistsError, PyFileNotFoundError, PyMemoryError, PyNotImplementedError, PyOSError,
    PyRuntimeError, PyValueError,
};
use pyo3::prelude::*;

create_exception!(
    holdfast,
    CorruptSegmentError,
    PyOSError,
    "Bytes on storage are not the bytes that were written.\n\nThe message names file, offset and \
     owner. Restore the file, or use a checkpoint that does not need it."
);

create_exception!(
    holdfast,
    AttemptEndedError,
    PyRuntimeError,
    "The checkpoint attempt was decided already: late work is not accepted."
);

create_exception!(
    holdfast,
    FencedError,
    PyOSError,
    "A newer manager took the folder over: this one writes and deletes no more.\n\nStop the older \
     application, or open a new manager to take over again."
);

/// The exception for an error of the core.
pub(crate) fn to_py(error: Error) -> PyErr {
    let message = error.to_string();
    match error.kind() {
        ErrorKind::NotFound => PyFileNotFoundError::new_err(message),
        ErrorKind::AlreadyExists => PyFileExistsError::new_err(message),
        ErrorKind::Corrupt => CorruptSegmentError::new_err(message),
        ErrorKind::InvalidInput => PyValueError::new_err(message),
        ErrorKind::AttemptEnded => AttemptEndedError::new_err(message),
        ErrorKind::Fenced => FencedError::new_err(message),
        ErrorKind::LimitExceeded => PyMemoryError::new_err(message),
        // As `zipfile` has it: the file may be sound, this build cannot read it.
        ErrorKind::Unsupported => PyNotImplementedError::new_err(message),
        _ => os_error(&error, message),
    }
}

/// What a client gets when Python code that serves it raises; `what` was called.
pub(crate) fn from_py(what: &str, error: &PyErr) -> Error {
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

/// With an `errno`, Python picks the subclass: `PermissionError`, for example.
fn os_error(error: &Error, message: String) -> PyErr {
    let errno = error
        .source()
        .and_then(|source| source.downcast_ref::<std::io::Error>())
        .and_then(std::io::Error::raw_os_error);
    match errno {
        Some(errno) => PyOSError::new_err((errno, message)),
        None => PyOSError::new_err(message),
    }
}
