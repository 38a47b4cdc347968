//! Numbers that cannot be negative, and texts in errors and representations.

use pyo3::IntoPyObjectExt;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// A count, a size or an id.
pub(super) fn natural(what: &str, value: i64) -> PyResult<u64> {
    u64::try_from(value).map_err(|_| {
        PyValueError::new_err(format!(
            "{what}={value} is not allowed: expected at least 0"
        ))
    })
}

/// One of a few names.
pub(super) fn one_of<T: Copy>(
    what: &str,
    found: &str,
    all: &[T],
    name: impl Fn(T) -> &'static str,
) -> PyResult<T> {
    all.iter()
        .copied()
        .find(|kind| name(*kind) == found)
        .ok_or_else(|| {
            let names: Vec<_> = all.iter().copied().map(name).collect();
            PyValueError::new_err(format!(
                "{what}={found:?} is not allowed: expected one of {}",
                names.join(", ")
            ))
        })
}

/// How Python writes it.
pub(super) fn repr<'py>(py: Python<'py>, value: impl IntoPyObject<'py>) -> PyResult<String> {
    Ok(value.into_bound_py_any(py)?.repr()?.to_string())
}
