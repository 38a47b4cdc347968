//! Python extension module `holdfast._core`.

use pyo3::prelude::*;

/// The compiled half of Holdfast.
#[pymodule]
mod _core {
    #[pymodule_export]
    #[allow(non_upper_case_globals, reason = "the name Python expects")]
    const __version__: &str = env!("CARGO_PKG_VERSION");
}
