//! States of operators in a region's entry.

use holdfast_core::checkpoint::{
    OperatorEntry as CoreOperator, Piece as CorePiece, StateContent, StateEntry as CoreState,
    StateKind,
};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyTuple};

use super::numbers::{natural, one_of, repr};
use crate::errors::to_py;
use crate::values::SegmentRef;

/// Bytes of a state inside the payload of a segment.
///
/// Parameters
/// ----------
/// ref : SegmentRef
///     The segment.
/// payload_offset : int
///     First byte in its payload, which is what `SnapshotManager.read` returns.
/// length : int
///     Number of bytes.
///
/// Raises
/// ------
/// ValueError
///     If a number is negative.
#[pyclass(frozen, eq, hash, from_py_object, module = "holdfast._core")]
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Piece(pub(super) CorePiece);

#[pymethods]
impl Piece {
    #[new]
    #[pyo3(signature = (r#ref, payload_offset, length))]
    fn new(r#ref: SegmentRef, payload_offset: i64, length: i64) -> PyResult<Self> {
        Ok(Self(CorePiece {
            reference: r#ref.0,
            payload_offset: natural("payload_offset", payload_offset)?,
            length: natural("length", length)?,
        }))
    }

    /// The segment.
    #[getter]
    fn r#ref(&self) -> SegmentRef {
        SegmentRef(self.0.reference)
    }

    /// First byte in the segment's payload.
    #[getter]
    fn payload_offset(&self) -> u64 {
        self.0.payload_offset
    }

    /// Number of bytes.
    #[getter]
    fn length(&self) -> u64 {
        self.0.length
    }

    fn __getnewargs__(&self) -> (SegmentRef, u64, u64) {
        (self.r#ref(), self.payload_offset(), self.length())
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(format!(
            "Piece(ref={}, payload_offset={}, length={})",
            repr(py, self.r#ref())?,
            self.0.payload_offset,
            self.0.length
        ))
    }
}

/// One state of an operator in a region: type, shape and bytes, readable without the program that
/// wrote it.
///
/// Parameters
/// ----------
/// name : str
///     Name in the operator, at most 1 KiB. It is the store of the state's owner.
/// kind : {"array", "value", "list", "union", "broadcast"}
///     How it is redistributed when the regions change: with its region, with its region, split
///     evenly, all to every region, copied.
/// dtype : str
///     Type string of NumPy's array interface, such as ``"<f8"``. May be empty unless `kind` is
///     "array". Objects (``"|O"``) are refused: they have no bytes of their own.
/// shape : sequence of int
///     Length of each dimension.
/// pieces : sequence of Piece, default ()
///     Where the bytes are, in this order.
/// inline : bytes, optional
///     The bytes themselves, for small states.
///
/// Raises
/// ------
/// ValueError
///     If a name, a kind, a type or a number is not allowed, or both `pieces` and `inline` are
///     given.
#[pyclass(frozen, eq, hash, from_py_object, module = "holdfast._core")]
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct StateEntry(pub(super) CoreState);

#[pymethods]
impl StateEntry {
    #[new]
    #[pyo3(signature = (name, kind, dtype, shape, *, pieces = Vec::new(), inline = None))]
    #[pyo3(text_signature = "(name, kind, dtype, shape, *, pieces=(), inline=None)")]
    fn new(
        name: String,
        kind: &str,
        dtype: String,
        shape: Vec<i64>,
        pieces: Vec<Piece>,
        inline: Option<Vec<u8>>,
    ) -> PyResult<Self> {
        let content = match inline {
            None => StateContent::Pieces(pieces.into_iter().map(|piece| piece.0).collect()),
            Some(bytes) if pieces.is_empty() => StateContent::Inline(bytes),
            Some(_) => {
                return Err(PyValueError::new_err(format!(
                    "state {name:?}: pieces and inline exclude each other"
                )));
            }
        };
        let entry = CoreState {
            kind: one_of("kind", kind, &StateKind::ALL, StateKind::name)?,
            name,
            dtype,
            shape: shape
                .into_iter()
                .map(|length| natural("shape", length))
                .collect::<PyResult<_>>()?,
            content,
        };
        entry.check().map_err(to_py)?;
        Ok(Self(entry))
    }

    /// Name in the operator.
    #[getter]
    fn name(&self) -> &str {
        &self.0.name
    }

    /// How it is redistributed.
    #[getter]
    fn kind(&self) -> &'static str {
        self.0.kind.name()
    }

    /// Type string of NumPy's array interface, or empty.
    #[getter]
    fn dtype(&self) -> &str {
        &self.0.dtype
    }

    /// Length of each dimension.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.0.shape)
    }

    /// Where its bytes are, in order.
    #[getter]
    fn pieces<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let pieces: &[CorePiece] = match &self.0.content {
            StateContent::Pieces(pieces) => pieces,
            StateContent::Inline(_) => &[],
        };
        PyTuple::new(py, pieces.iter().cloned().map(Piece))
    }

    /// The bytes themselves, or None.
    #[getter]
    fn inline<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyBytes>> {
        match &self.0.content {
            StateContent::Pieces(_) => None,
            StateContent::Inline(bytes) => Some(PyBytes::new(py, bytes)),
        }
    }

    #[allow(clippy::type_complexity, reason = "what the protocol asks for")]
    fn __getnewargs_ex__<'py>(
        &self,
        py: Python<'py>,
    ) -> PyResult<(
        (String, &'static str, String, Bound<'py, PyTuple>),
        Bound<'py, PyDict>,
    )> {
        let keywords = PyDict::new(py);
        keywords.set_item("pieces", self.pieces(py)?)?;
        keywords.set_item("inline", self.inline(py))?;
        let entry = &self.0;
        let arguments = (
            entry.name.clone(),
            self.kind(),
            entry.dtype.clone(),
            self.shape(py)?,
        );
        Ok((arguments, keywords))
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let content = match &self.0.content {
            StateContent::Pieces(_) => format!("pieces={}", repr(py, self.pieces(py)?)?),
            StateContent::Inline(_) => format!("inline={}", repr(py, self.inline(py))?),
        };
        Ok(format!(
            "StateEntry({}, '{}', '{}', {}, {content})",
            repr(py, self.name())?,
            self.kind(),
            self.dtype(),
            repr(py, self.shape(py)?)?,
        ))
    }
}

/// The states of one operator in a region.
///
/// Parameters
/// ----------
/// name : str
///     Name in the pipeline, at most 1 KiB. "in-flight" is taken: it owns the in-flight data.
/// states : sequence of StateEntry, default ()
///     Its states, each name once.
/// finished : bool, default False
///     Whether it has seen the end of its data in this region.
///
/// Raises
/// ------
/// ValueError
///     If a name is not allowed or occurs twice.
#[pyclass(frozen, eq, hash, from_py_object, module = "holdfast._core")]
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct OperatorEntry(pub(super) CoreOperator);

#[pymethods]
impl OperatorEntry {
    #[new]
    #[pyo3(signature = (name, states = Vec::new(), *, finished = false))]
    #[pyo3(text_signature = "(name, states=(), *, finished=False)")]
    fn new(name: String, states: Vec<StateEntry>, finished: bool) -> PyResult<Self> {
        let entry = CoreOperator {
            name,
            states: states.into_iter().map(|state| state.0).collect(),
            finished,
        };
        entry.check().map_err(to_py)?;
        Ok(Self(entry))
    }

    /// Name in the pipeline.
    #[getter]
    fn name(&self) -> &str {
        &self.0.name
    }

    /// Its states.
    #[getter]
    fn states<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.0.states.iter().cloned().map(StateEntry))
    }

    /// Whether it has seen the end of its data in this region.
    #[getter]
    fn finished(&self) -> bool {
        self.0.finished
    }

    #[allow(clippy::type_complexity, reason = "what the protocol asks for")]
    fn __getnewargs_ex__<'py>(
        &self,
        py: Python<'py>,
    ) -> PyResult<((String, Bound<'py, PyTuple>), Bound<'py, PyDict>)> {
        let keywords = PyDict::new(py);
        keywords.set_item("finished", self.0.finished)?;
        Ok(((self.0.name.clone(), self.states(py)?), keywords))
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(format!(
            "OperatorEntry({}, {}, finished={})",
            repr(py, self.name())?,
            repr(py, self.states(py)?)?,
            repr(py, self.0.finished)?,
        ))
    }
}
