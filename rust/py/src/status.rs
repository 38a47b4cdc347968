//! Status of a manager and of its files.

use holdfast_core::manager::{FileStatus as CoreFile, ManagerStats};
use pyo3::prelude::*;

use crate::parts::{constructed, parts};

/// Counts and sizes of a manager, at one moment.
#[pyclass(frozen, eq, get_all, module = "holdfast")]
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Stats {
    /// Physical files that exist, as far as this manager knows.
    physical_files: u64,
    /// Their size in bytes.
    physical_bytes: u64,
    /// Segments that are live.
    live_segments: u64,
    /// Their size in bytes, as stored.
    live_bytes: u64,
    /// Size in bytes of the files that only owners that fell back keep alive.
    pinned_bytes: u64,
    /// Files sealed.
    seals: u64,
    /// Syncs of storage, including syncs of sealing.
    syncs: u64,
    /// Segments appended.
    appends: u64,
    /// Files deleted.
    deletes: u64,
    /// Deletes that failed. The next message retries each.
    delete_failures: u64,
    /// Physical bytes divided by live bytes: 1.0 without a file, infinite without a live segment.
    space_amplification: f64,
}

impl From<ManagerStats> for Stats {
    fn from(stats: ManagerStats) -> Self {
        Self {
            physical_files: stats.physical_files,
            physical_bytes: stats.physical_bytes,
            live_segments: stats.live_segments,
            live_bytes: stats.live_bytes,
            pinned_bytes: stats.pinned_bytes,
            seals: stats.seals,
            syncs: stats.syncs,
            appends: stats.appends,
            deletes: stats.deletes,
            delete_failures: stats.delete_failures,
            space_amplification: stats.space_amplification,
        }
    }
}

#[pymethods]
impl Stats {
    fn __repr__(slf: &Bound<'_, Self>) -> PyResult<String> {
        let names = "physical_files physical_bytes live_segments live_bytes pinned_bytes seals \
                     syncs appends deletes delete_failures space_amplification";
        constructed(slf, parts(slf, "", names)?)
    }
}

/// One physical file, at one moment.
#[pyclass(frozen, eq, get_all, module = "holdfast")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FileStatus {
    /// Name of the file inside the storage root.
    file: String,
    /// True while it takes appends, or its writer is closing it.
    open: bool,
    /// Size in bytes: segments, live or not, and footer.
    physical_bytes: u64,
    /// Number of its live segments.
    live_segments: u64,
    /// Their size in bytes, as stored.
    live_bytes: u64,
    /// True if only owners that fell back keep it alive.
    pinned: bool,
    /// True if its segments are no longer offered for reuse, so that it can be deleted.
    wasteful: bool,
}

impl From<CoreFile> for FileStatus {
    fn from(file: CoreFile) -> Self {
        Self {
            file: file.file.file_name(),
            open: file.open,
            physical_bytes: file.physical_bytes,
            live_segments: file.live_segments,
            live_bytes: file.live_bytes,
            pinned: file.pinned,
            wasteful: file.wasteful,
        }
    }
}

#[pymethods]
impl FileStatus {
    fn __repr__(slf: &Bound<'_, Self>) -> PyResult<String> {
        let names = "file open physical_bytes live_segments live_bytes pinned wasteful";
        constructed(slf, parts(slf, "", names)?)
    }
}
