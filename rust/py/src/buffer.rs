//! Bytes of any Python object, without a copy if they are contiguous.

use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::PyBufferError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyMemoryView};

/// The bytes of a `bytes`, `bytearray`, `memoryview`, NumPy array, ...
pub(crate) enum Payload {
    /// Lent by the object, which cannot be resized or freed before this is dropped.
    Lent(PyUntypedBuffer),
    /// Gathered from an object whose bytes are scattered.
    Gathered(Py<PyBytes>),
}

impl Payload {
    /// # Errors
    /// `TypeError` when `data` has no buffer.
    pub(crate) fn of(data: &Bound<'_, PyAny>) -> PyResult<Self> {
        match PyUntypedBuffer::get(data) {
            Ok(buffer) if buffer.is_c_contiguous() => Ok(Self::Lent(buffer)),
            Ok(_) => Self::gather(data),
            // Arrays without dimensions have no shape, which `PyUntypedBuffer` does not take.
            Err(e) if e.is_instance_of::<PyBufferError>(data.py()) => Self::gather(data),
            Err(e) => Err(e),
        }
    }

    fn gather(data: &Bound<'_, PyAny>) -> PyResult<Self> {
        let bytes = PyMemoryView::from(data)?.call_method0("tobytes")?;
        Ok(Self::Gathered(bytes.cast_into::<PyBytes>()?.unbind()))
    }

    /// The bytes, for as long as the payload is held.
    pub(crate) fn bytes<'a>(&'a self, py: Python<'_>) -> &'a [u8] {
        match self {
            Self::Lent(buffer) if buffer.len_bytes() == 0 => &[],
            Self::Lent(buffer) => {
                // SAFETY: the buffer is C-contiguous (checked in `of`) and not empty, so `buf_ptr`
                // points at `len_bytes` readable bytes. The exporter keeps them in place while the
                // buffer is held, and `self` outlives the slice. Another Python thread could write
                // to a mutable buffer during a call. The documentation of `append` forbids that, as
                // every extension that releases the GIL does (`hashlib`, `zlib`). No invariant of
                // the core depends on equal bytes.
                unsafe {
                    std::slice::from_raw_parts(buffer.buf_ptr().cast::<u8>(), buffer.len_bytes())
                }
            }
            Self::Gathered(bytes) => bytes.as_bytes(py),
        }
    }

    /// Runs `work` on the bytes with the GIL released.
    pub(crate) fn with_bytes<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&[u8]) -> T + Send,
    ) -> T {
        let bytes = self.bytes(py);
        py.detach(|| work(bytes))
    }
}

/// The buffers of a column of Arrow: validity, offsets and values, any of which may be missing.
pub(crate) struct Buffers([Option<Payload>; 3]);

impl Buffers {
    /// # Errors
    /// Those of [`Payload::of`].
    pub(crate) fn of(given: [Option<Bound<'_, PyAny>>; 3]) -> PyResult<Self> {
        let [validity, offsets, values] =
            given.map(|buffer| buffer.as_ref().map(Payload::of).transpose());
        Ok(Self([validity?, offsets?, values?]))
    }

    /// The bytes, for as long as the buffers are held.
    pub(crate) fn bytes<'a>(&'a self, py: Python<'_>) -> [Option<&'a [u8]>; 3] {
        self.0
            .each_ref()
            .map(|buffer| buffer.as_ref().map(|payload| payload.bytes(py)))
    }
}
