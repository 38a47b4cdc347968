//! States of operators in a region's entry.

use holdfast_core::checkpoint::{
    OperatorEntry as CoreOperator, Piece as CorePiece, StateContent, StateEntry as CoreState,
    StateKind,
};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};

use crate::arguments::{natural, one_of};
use crate::errors::to_py;
use crate::parts::{Parts, constructed, parts};
use crate::values::SegmentRef;

/// Bytes of a state inside the payload of a segment.
///
/// Parameters
/// ----------
/// payload_offset : int
///     First byte in the payload, as `SnapshotManager.read` returns it.
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

    #[getter]
    fn r#ref(&self) -> SegmentRef {
        SegmentRef(self.0.reference)
    }

    #[getter]
    fn payload_offset(&self) -> u64 {
        self.0.payload_offset
    }

    #[getter]
    fn length(&self) -> u64 {
        self.0.length
    }

    fn __getnewargs_ex__<'py>(slf: &Bound<'py, Self>) -> PyResult<Parts<'py>> {
        parts(slf, "", "ref payload_offset length")
    }

    fn __repr__(slf: &Bound<'_, Self>) -> PyResult<String> {
        constructed(slf, Self::__getnewargs_ex__(slf)?)
    }
}

/// A state of an operator in a region: type, shape, bytes. Readable without the writer's program.
///
/// Parameters
/// ----------
/// name : str
///     Name in the operator, at most 1 KiB. It is the store of the state's owner.
/// kind : {"array", "value", "list", "union", "broadcast", "table"}
///     How it is redistributed when the regions change. "array", "value" and "table" go with their
///     region, "list" is split evenly, "union" goes whole to every region, "broadcast" is copied.
/// dtype : str
///     Type string of NumPy's array interface, such as ``"<f8"``. It may be empty unless `kind` is
///     "array". Objects (``"|O"``) are refused, because they have no bytes of their own.
/// shape : sequence of int
///     Length of each dimension.
/// pieces : sequence of Piece, default ()
///     The places of the bytes, in this order.
///
/// Raises
/// ------
/// ValueError
///     If a name, a kind, a type or a number is not allowed, or both `pieces` and `inline` are
///     given. Only a table has both: the segments that it is made of, and its description.
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
        let kind = one_of(
            "kind",
            kind,
            &StateKind::ALL.map(|kind| (kind.name(), kind)),
        )?;
        let places = || pieces.iter().map(|piece| piece.0.clone()).collect();
        let content = match inline {
            Some(description) if kind == StateKind::Table => StateContent::Table {
                pieces: places(),
                description,
            },
            None => StateContent::Pieces(places()),
            Some(bytes) if pieces.is_empty() => StateContent::Inline(bytes),
            Some(_) => {
                return Err(PyValueError::new_err(format!(
                    "state {name:?}: pieces and inline exclude each other"
                )));
            }
        };
        let shape = shape.into_iter().map(|length| natural("shape", length));
        let entry = CoreState {
            kind,
            name,
            dtype,
            shape: shape.collect::<PyResult<_>>()?,
            content,
        };
        entry.check().map_err(to_py)?;
        Ok(Self(entry))
    }

    #[getter]
    fn name(&self) -> &str {
        &self.0.name
    }

    #[getter]
    fn kind(&self) -> &'static str {
        self.0.kind.name()
    }

    #[getter]
    fn dtype(&self) -> &str {
        &self.0.dtype
    }

    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.0.shape)
    }

    #[getter]
    fn pieces<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let pieces: &[CorePiece] = self.0.content.pieces();
        PyTuple::new(py, pieces.iter().cloned().map(Piece))
    }

    #[getter]
    fn inline<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyBytes>> {
        match &self.0.content {
            StateContent::Pieces(_) => None,
            StateContent::Inline(bytes)
            | StateContent::Table {
                description: bytes, ..
            } => Some(PyBytes::new(py, bytes)),
        }
    }

    fn __getnewargs_ex__<'py>(slf: &Bound<'py, Self>) -> PyResult<Parts<'py>> {
        let content = match slf.get().0.content {
            StateContent::Pieces(_) => "pieces",
            StateContent::Inline(_) => "inline",
            StateContent::Table { .. } => "pieces inline",
        };
        parts(slf, "name kind dtype shape", content)
    }

    fn __repr__(slf: &Bound<'_, Self>) -> PyResult<String> {
        constructed(slf, Self::__getnewargs_ex__(slf)?)
    }
}

/// The states of one operator in a region.
///
/// Parameters
/// ----------
/// name : str
///     Name in the pipeline, at most 1 KiB. "in-flight" is taken: it owns the in-flight data.
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

    #[getter]
    fn name(&self) -> &str {
        &self.0.name
    }

    #[getter]
    fn states<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.0.states.iter().cloned().map(StateEntry))
    }

    #[getter]
    fn finished(&self) -> bool {
        self.0.finished
    }

    fn __getnewargs_ex__<'py>(slf: &Bound<'py, Self>) -> PyResult<Parts<'py>> {
        parts(slf, "name states", "finished")
    }

    fn __repr__(slf: &Bound<'_, Self>) -> PyResult<String> {
        constructed(slf, Self::__getnewargs_ex__(slf)?)
    }
}
