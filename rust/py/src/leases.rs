//! Leases and the parents of branches.

use holdfast_core::leases::{Facts, Lease, Parent, Record, Step, next_step};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::errors::to_py;

/// Return the content of the file of a lease from its keys as JSON, which FORMAT.md has.
#[pyfunction]
pub(crate) fn lease_to_bytes<'py>(py: Python<'py>, json: &str) -> PyResult<Bound<'py, PyBytes>> {
    let bytes = Lease::from_json(json).and_then(|lease| lease.to_bytes());
    Ok(PyBytes::new(py, &bytes.map_err(to_py)?))
}

/// Return the keys of a lease as JSON, by the content of its file.
///
/// Raises
/// ------
/// CorruptSegmentError, NewerFormatError, NotImplementedError
///     If the file or an id in it is damaged, or Holdfast, or this version of it, did not write it.
#[pyfunction]
pub(crate) fn lease_from_bytes(data: &[u8]) -> PyResult<String> {
    let json = Lease::from_bytes(data).and_then(|lease| lease.to_json());
    json.map_err(to_py)
}

/// Return the content of the file of a branch's parent from its keys as JSON.
#[pyfunction]
pub(crate) fn parent_to_bytes<'py>(py: Python<'py>, json: &str) -> PyResult<Bound<'py, PyBytes>> {
    let bytes = Parent::from_json(json).and_then(|parent| parent.to_bytes());
    Ok(PyBytes::new(py, &bytes.map_err(to_py)?))
}

/// Return the keys of a branch's parent as JSON; the errors are those of `lease_from_bytes`.
#[pyfunction]
pub(crate) fn parent_from_bytes(data: &[u8]) -> PyResult<String> {
    let json = Parent::from_bytes(data).and_then(|parent| parent.to_json());
    json.map_err(to_py)
}

/// Return the next step of a command that makes a lease: "record", "copy", "look", "hold", "publish",
/// "done", "give up" or "refuse". `same` is None without a lease of the name, and else whether it is
/// for the same.
#[pyfunction]
#[pyo3(signature = (*, same, held, copied, retained, published))]
pub(crate) fn lease_step(
    same: Option<bool>,
    held: bool,
    copied: bool,
    retained: Option<bool>,
    published: bool,
) -> &'static str {
    let record = match same {
        None => Record::Absent,
        Some(true) => Record::Same,
        Some(false) => Record::Other,
    };
    match next_step(&Facts {
        record,
        held,
        copied,
        retained,
        published,
    }) {
        Step::Record => "record",
        Step::Copy => "copy",
        Step::Look => "look",
        Step::Hold => "hold",
        Step::Publish => "publish",
        Step::Done => "done",
        Step::GiveUp => "give up",
        Step::Refuse => "refuse",
    }
}
