//! Modes of the files that this process makes on local disks.

use holdfast_core::storage;
use pyo3::prelude::*;

/// Take Hadoop's umask for files and folders that the core makes on local disks from now on.
///
/// Parameters
/// ----------
/// umask : int or None
///     Rights that nobody gets, such as ``0o077``; None leaves it to the umask of the process.
#[pyfunction]
pub(crate) fn set_local_umask(umask: Option<u32>) {
    storage::set_local_umask(umask);
}
