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

create_exception!(
    holdfast,
    NewerFormatError,
    PyRuntimeError,
    "A newer Holdfast wrote this file, and it is intact: upgrade Holdfast to read it.\n\nDo not go \
     back to an older checkpoint: that gives up what the newer Holdfast wrote."
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
        // The file may be sound, but this build cannot read it.
        ErrorKind::Newer => NewerFormatError::new_err(message),
        ErrorKind::Unsupported => PyNotImplementedError::new_err(message),
        _ => os_error(&error, message),
    }
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
