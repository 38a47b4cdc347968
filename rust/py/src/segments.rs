//! Reading segments without a manager: for inspection, which must not take a term.

use std::path::PathBuf;

use holdfast_core::format;
use holdfast_core::leases::open_local;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::errors::to_py;
use crate::values::{Owner, SegmentRef};

/// Read a segment and verify all of it, without a manager. Return the payload, uncompressed.
///
/// Raises
/// ------
/// FileNotFoundError
///     If the physical file is missing.
/// CorruptSegmentError
///     If the stored bytes differ from the written ones, or belong to another owner. The message
///     names file, offset, owner, expected and found values.
/// NewerFormatError
///     If a newer version of Holdfast wrote the segment.
/// OSError
///     If storage failed.
#[pyfunction]
#[pyo3(signature = (folder, r#ref, owner))]
pub(crate) fn read_segment<'py>(
    py: Python<'py>,
    folder: PathBuf,
    r#ref: SegmentRef,
    owner: Owner,
) -> PyResult<Bound<'py, PyBytes>> {
    let segment = py
        .detach(|| format::read_segment(open_local(folder)?.as_ref(), &r#ref.0, &owner.0))
        .map_err(to_py)?;
    Ok(PyBytes::new(py, &segment.payload))
}
