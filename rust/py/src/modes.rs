//! Modes of the files that this process makes on local disks.

use holdfast_core::storage;
use pyo3::prelude::*;

/// Take Hadoop's umask for files and folders that the core makes on local disks from now on.
///
/// Parameters
/// ----------
/// umask : int or None
///     Rights that new files do not get, such as ``0o077``; None leaves it to the process's umask.
#[pyfunction]
pub(crate) fn set_local_umask(umask: Option<u32>) {
    storage::set_local_umask(umask);
}
