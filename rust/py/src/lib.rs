//! Python extension module `holdfast._core`: a thin face of `holdfast-core`.
//!
//! Every call into the core runs with the GIL released, and every error of the core becomes the
//! builtin Python exception that says what to do (see `errors`).

mod arguments;
mod buffer;
mod errors;
mod manager;
mod status;
mod values;

use pyo3::prelude::*;

/// The compiled half of Holdfast.
#[pymodule]
mod _core {
    #[pymodule_export]
    #[allow(non_upper_case_globals, reason = "the name Python expects")]
    const __version__: &str = env!("CARGO_PKG_VERSION");

    #[pymodule_export]
    use crate::errors::{AttemptEndedError, CorruptSegmentError};
    #[pymodule_export]
    use crate::manager::SnapshotManager;
    #[pymodule_export]
    use crate::status::{FileStatus, Stats};
    #[pymodule_export]
    use crate::values::{Owner, SegmentRef};
}
