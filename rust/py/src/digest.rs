//! Digests of chunks of a buffer.

use std::num::NonZeroUsize;

use holdfast_core::digest;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::arguments::not_allowed;
use crate::buffer::Payload;

/// Return the xxh3-128 digest of every chunk of a buffer. Releases the GIL.
///
/// Parameters
/// ----------
/// data : buffer
///     Any object with the buffer protocol, see `SnapshotManager.append`.
/// chunk_bytes : int
///     Size of a chunk in bytes; the last one may be shorter.
///
/// Returns
/// -------
/// bytes
///     16 bytes for each chunk, in order; nothing for an empty buffer.
///
/// Raises
/// ------
/// ValueError
///     If `chunk_bytes` is not positive.
#[pyfunction]
pub(crate) fn chunk_digests<'py>(
    py: Python<'py>,
    data: &Bound<'py, PyAny>,
    chunk_bytes: isize,
) -> PyResult<Bound<'py, PyBytes>> {
    let chunk = usize::try_from(chunk_bytes)
        .ok()
        .and_then(NonZeroUsize::new)
        .ok_or_else(|| not_allowed("chunk_bytes", chunk_bytes, "at least 1 byte"))?;
    let digests = Payload::of(data)?.with_bytes(py, |bytes| digest::chunk_digests(bytes, chunk));
    Ok(PyBytes::new(py, &digests))
}
