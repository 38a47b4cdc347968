//! The entry of a region, its in-flight data and its staged files.

use holdfast_core::CheckpointId;
use holdfast_core::checkpoint::{
    InFlight as CoreInFlight, InFlightPlace, NewRegion, RegionEntry as CoreEntry,
    Staged as CoreStaged,
};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple, PyType};

use super::state::OperatorEntry;
use crate::arguments::natural;
use crate::errors::to_py;
use crate::parts::{Parts, Reduced, as_bytes, constructed, parts};
use crate::values::SegmentRef;

/// Pending rows of a region: a checkpoint covers them, but its state does not reflect them yet.
///
/// Parameters
/// ----------
/// created : int
///     Checkpoint that stored them.
/// channel : str
///     Channel they belong to, at most 1 KiB.
/// ref : SegmentRef, optional
///     The segment that holds them.
/// inline : bytes, optional
///     The rows themselves, when they are few. Exactly one of `ref` and `inline` is given.
///
/// Raises
/// ------
/// ValueError
///     If a number is negative, a name is too long, or not exactly one of `ref`, `inline` is given.
#[pyclass(frozen, eq, hash, from_py_object, module = "holdfast._core")]
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct InFlight(CoreInFlight);

#[pymethods]
impl InFlight {
    #[new]
    #[pyo3(signature = (created, channel, rows, bytes, *, r#ref = None, inline = None))]
    fn new(
        created: i64,
        channel: String,
        rows: i64,
        bytes: i64,
        r#ref: Option<SegmentRef>,
        inline: Option<Vec<u8>>,
    ) -> PyResult<Self> {
        let place = match (r#ref, inline) {
            (Some(reference), None) => InFlightPlace::Segment(reference.0),
            (None, Some(bytes)) => InFlightPlace::Inline(bytes),
            _ => {
                return Err(PyValueError::new_err(
                    "in-flight data: expected exactly one of ref and inline",
                ));
            }
        };
        let in_flight = CoreInFlight {
            created: CheckpointId(natural("created", created)?),
            channel,
            rows: natural("rows", rows)?,
            bytes: natural("bytes", bytes)?,
            place,
        };
        in_flight.check().map_err(to_py)?;
        Ok(Self(in_flight))
    }

    #[getter]
    fn created(&self) -> u64 {
        self.0.created.0
    }

    #[getter]
    fn channel(&self) -> &str {
        &self.0.channel
    }

    #[getter]
    fn rows(&self) -> u64 {
        self.0.rows
    }

    #[getter]
    fn bytes(&self) -> u64 {
        self.0.bytes
    }

    #[getter]
    fn r#ref(&self) -> Option<SegmentRef> {
        match self.0.place {
            InFlightPlace::Segment(reference) => Some(SegmentRef(reference)),
            InFlightPlace::Inline(_) => None,
        }
    }

    #[getter]
    fn inline<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyBytes>> {
        match &self.0.place {
            InFlightPlace::Segment(_) => None,
            InFlightPlace::Inline(bytes) => Some(PyBytes::new(py, bytes)),
        }
    }

    fn __getnewargs_ex__<'py>(slf: &Bound<'py, Self>) -> PyResult<Parts<'py>> {
        let place = match slf.get().0.place {
            InFlightPlace::Segment(_) => "ref",
            InFlightPlace::Inline(_) => "inline",
        };
        parts(slf, "created channel rows bytes", place)
    }

    fn __repr__(slf: &Bound<'_, Self>) -> PyResult<String> {
        constructed(slf, Self::__getnewargs_ex__(slf)?)
    }
}

/// A file that a two-phase sink staged, or anything else that the sink finds again by a text.
///
/// Every checkpoint records it, so every reader of the checkpoint folder sees it.
///
/// Parameters
/// ----------
/// path : str
///     Its place until the commit, or another text by which the sink finds it, at most 4 KiB.
/// target : str
///     Its place after the commit, or another text about it, at most 4 KiB.
/// rows : int
///     Number of rows.
/// bytes : int
///     Its size in bytes.
/// output : str, default ""
///     The side output that it belongs to. Holdfast sets it; a sink leaves it out.
///
/// Raises
/// ------
/// ValueError
///     If a path is empty or too long, or a number is negative.
#[pyclass(frozen, eq, hash, from_py_object, module = "holdfast._core")]
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Staged(CoreStaged);

#[pymethods]
impl Staged {
    #[new]
    #[pyo3(signature = (path, target, rows, bytes, *, output = ""))]
    fn new(path: String, target: String, rows: i64, bytes: i64, output: &str) -> PyResult<Self> {
        let staged = CoreStaged {
            path,
            target,
            rows: natural("rows", rows)?,
            bytes: natural("bytes", bytes)?,
            output: output.to_owned(),
        };
        staged.check().map_err(to_py)?;
        Ok(Self(staged))
    }

    #[getter]
    fn path(&self) -> &str {
        &self.0.path
    }

    #[getter]
    fn target(&self) -> &str {
        &self.0.target
    }

    #[getter]
    fn rows(&self) -> u64 {
        self.0.rows
    }

    #[getter]
    fn bytes(&self) -> u64 {
        self.0.bytes
    }

    #[getter]
    fn output(&self) -> &str {
        &self.0.output
    }

    fn __getnewargs_ex__<'py>(slf: &Bound<'py, Self>) -> PyResult<Parts<'py>> {
        let output = if slf.get().0.output.is_empty() {
            ""
        } else {
            "output"
        };
        parts(slf, "path target rows bytes", output)
    }

    fn __repr__(slf: &Bound<'_, Self>) -> PyResult<String> {
        constructed(slf, Self::__getnewargs_ex__(slf)?)
    }
}

/// The entry of one region in a checkpoint.
///
/// An immutable value. Its lists stay encoded until the caller reads one of them, so an entry costs
/// little to keep, to pass on and to compare.
///
/// Parameters
/// ----------
/// origin : int
///     Checkpoint whose snapshot produced the state, through any chain of fallbacks.
/// operators : sequence of OperatorEntry, default ()
///     States of the operators, each operator once.
/// in_flight : sequence of InFlight, default ()
///     Pending rows of the region, in the order of their replay.
/// staged : sequence of Staged, default ()
///     Files that sinks staged up to this checkpoint.
/// finished : bool, default False
///     True if the region has seen the end of its data.
/// failed : bool, default False
///     True if the region fell back in this checkpoint.
/// fallbacks : int, default 0
///     Number of fallbacks since its last snapshot.
/// stale_since_ms : int, optional
///     Time of the first of these fallbacks, in milliseconds since the epoch.
/// cause : str, default ""
///     Cause of the last fallback. It is cut after 4 KiB.
///
/// Examples
/// --------
/// >>> entry = RegionEntry("shard-7", origin=4, operators=[OperatorEntry("stats")])
/// >>> entry.fell_back("disk full", 1_700_000_000_000, []).fallbacks
/// 1
#[pyclass(frozen, eq, hash, from_py_object, module = "holdfast._core")]
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct RegionEntry(pub(super) CoreEntry);

#[pymethods]
impl RegionEntry {
    #[new]
    #[pyo3(signature = (
        region,
        *,
        origin,
        operators = Vec::new(),
        in_flight = Vec::new(),
        staged = Vec::new(),
        finished = false,
        failed = false,
        fallbacks = 0,
        stale_since_ms = None,
        cause = "",
    ))]
    #[pyo3(
        text_signature = "(region, *, origin, operators=(), in_flight=(), staged=(), finished=False, failed=False, fallbacks=0, stale_since_ms=None, cause=\"\")"
    )]
    #[allow(clippy::too_many_arguments, reason = "keywords in Python")]
    fn new(
        region: String,
        origin: i64,
        operators: Vec<OperatorEntry>,
        in_flight: Vec<InFlight>,
        staged: Vec<Staged>,
        finished: bool,
        failed: bool,
        fallbacks: i64,
        stale_since_ms: Option<i64>,
        cause: &str,
    ) -> PyResult<Self> {
        let stale_since_ms = stale_since_ms.map(|ms| natural("stale_since_ms", ms));
        CoreEntry::new(NewRegion {
            region,
            origin: CheckpointId(natural("origin", origin)?),
            operators: operators.into_iter().map(|operator| operator.0).collect(),
            in_flight: core_in_flight(in_flight),
            staged: staged.into_iter().map(|staged| staged.0).collect(),
            finished,
            failed,
            fallbacks: natural("fallbacks", fallbacks)?,
            stale_since_ms: stale_since_ms.transpose()?,
            cause: cause.to_owned(),
        })
        .map(Self)
        .map_err(to_py)
    }

    #[getter]
    fn region(&self) -> &str {
        self.0.region()
    }

    #[getter]
    fn origin(&self) -> u64 {
        self.0.origin().0
    }

    #[getter]
    fn operators<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let operators = self.0.operators().map_err(to_py)?;
        PyTuple::new(py, operators.into_iter().map(OperatorEntry))
    }

    #[getter]
    fn in_flight<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let in_flight = self.0.in_flight().map_err(to_py)?;
        PyTuple::new(py, in_flight.into_iter().map(InFlight))
    }

    #[getter]
    fn staged<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let staged = self.0.staged().map_err(to_py)?;
        PyTuple::new(py, staged.into_iter().map(Staged))
    }

    #[getter]
    fn finished(&self) -> bool {
        self.0.finished()
    }

    /// Return whether the region fell back in this checkpoint.
    #[getter]
    fn failed(&self) -> bool {
        self.0.failed()
    }

    #[getter]
    fn fallbacks(&self) -> u64 {
        self.0.fallbacks()
    }

    #[getter]
    fn stale_since_ms(&self) -> Option<u64> {
        self.0.stale_since_ms()
    }

    #[getter]
    fn cause(&self) -> &str {
        self.0.cause()
    }

    /// Size in bytes of all its in-flight data.
    #[getter]
    fn in_flight_bytes(&self) -> u64 {
        self.0.in_flight_bytes()
    }

    /// Return every segment the region needs, each once per owner.
    ///
    /// Returns
    /// -------
    /// list of (str, str, SegmentRef)
    ///     Operator and store of the owner, and the segment. In-flight data has the operator
    ///     "in-flight" and the number of the checkpoint that stored it as its store.
    fn refs(&self) -> PyResult<Vec<(String, String, SegmentRef)>> {
        let references = self.0.references("").map_err(to_py)?.into_iter();
        let named =
            references.map(|(owner, _, one)| (owner.operator, owner.store, SegmentRef(one)));
        Ok(named.collect())
    }

    /// Return the entry of this region in a checkpoint in which it failed.
    ///
    /// State and origin remain. Its input follows its pending rows, and it counts one more
    /// fallback. That checkpoint does not contain the files it staged.
    ///
    /// Parameters
    /// ----------
    /// now_ms : int
    ///     Milliseconds since the epoch. Its staleness starts there unless it is stale already.
    /// in_flight : sequence of InFlight
    ///     Its input of the batch.
    fn fell_back(&self, cause: &str, now_ms: i64, in_flight: Vec<InFlight>) -> PyResult<Self> {
        let now_ms = natural("now_ms", now_ms)?;
        self.0
            .fell_back(cause, now_ms, &core_in_flight(in_flight))
            .map(Self)
            .map_err(to_py)
    }

    /// Return the entry of this region in the next checkpoint if it has nothing to do there. The
    /// files it staged belong to this checkpoint and are dropped.
    fn carried(&self) -> Self {
        Self(self.0.carried())
    }

    /// Encode, for example for an acknowledgement.
    fn to_bytes<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.0.to_bytes())
    }

    /// Decode a result of `to_bytes`, and check all of it.
    ///
    /// Raises
    /// ------
    /// ValueError
    ///     If `data` is something else.
    #[classmethod]
    fn from_bytes(_: &Bound<'_, PyType>, data: &[u8]) -> PyResult<Self> {
        CoreEntry::from_bytes(data.to_vec())
            .map(Self)
            .map_err(|e| PyValueError::new_err(e.to_string()))
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<Reduced<'py>> {
        as_bytes(slf)
    }

    fn __repr__(slf: &Bound<'_, Self>) -> PyResult<String> {
        let keywords = "origin operators in_flight staged finished failed fallbacks \
                        stale_since_ms cause";
        constructed(slf, parts(slf, "region", keywords)?)
    }
}

fn core_in_flight(in_flight: Vec<InFlight>) -> Vec<CoreInFlight> {
    in_flight.into_iter().map(|item| item.0).collect()
}
