//! The entry of a region, its in-flight data and its staged files.

use holdfast_core::CheckpointId;
use holdfast_core::checkpoint::{
    InFlight as CoreInFlight, InFlightPlace, NewRegion, RegionEntry as CoreEntry,
    Staged as CoreStaged,
};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyTuple, PyType};

use super::numbers::{natural, repr};
use super::state::OperatorEntry;
use crate::errors::to_py;
use crate::values::SegmentRef;

/// Input rows of a region that a checkpoint covers but that its state does not reflect yet.
///
/// Parameters
/// ----------
/// created : int
///     Checkpoint that stored them.
/// channel : str
///     Channel they belong to, at most 1 KiB.
/// rows : int
///     Number of rows.
/// bytes : int
///     Their size in bytes.
/// ref : SegmentRef, optional
///     The segment that holds them.
/// inline : bytes, optional
///     The rows themselves, when they are few. Exactly one of `ref` and `inline` is given.
///
/// Raises
/// ------
/// ValueError
///     If a number is negative, the name is too long, or `ref` and `inline` are both given or both
///     missing.
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

    /// Checkpoint that stored the rows.
    #[getter]
    fn created(&self) -> u64 {
        self.0.created.0
    }

    /// Channel they belong to.
    #[getter]
    fn channel(&self) -> &str {
        &self.0.channel
    }

    /// Number of rows.
    #[getter]
    fn rows(&self) -> u64 {
        self.0.rows
    }

    /// Their size in bytes.
    #[getter]
    fn bytes(&self) -> u64 {
        self.0.bytes
    }

    /// The segment that holds them, or None.
    #[getter]
    fn r#ref(&self) -> Option<SegmentRef> {
        match self.0.place {
            InFlightPlace::Segment(reference) => Some(SegmentRef(reference)),
            InFlightPlace::Inline(_) => None,
        }
    }

    /// The rows themselves, or None.
    #[getter]
    fn inline<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyBytes>> {
        match &self.0.place {
            InFlightPlace::Segment(_) => None,
            InFlightPlace::Inline(bytes) => Some(PyBytes::new(py, bytes)),
        }
    }

    #[allow(clippy::type_complexity, reason = "what the protocol asks for")]
    fn __getnewargs_ex__<'py>(
        &self,
        py: Python<'py>,
    ) -> PyResult<((u64, String, u64, u64), Bound<'py, PyDict>)> {
        let keywords = PyDict::new(py);
        keywords.set_item("ref", self.r#ref())?;
        keywords.set_item("inline", self.inline(py))?;
        let channel = self.0.channel.clone();
        Ok((
            (self.created(), channel, self.rows(), self.bytes()),
            keywords,
        ))
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let place = match &self.0.place {
            InFlightPlace::Segment(_) => format!("ref={}", repr(py, self.r#ref())?),
            InFlightPlace::Inline(_) => format!("inline={}", repr(py, self.inline(py))?),
        };
        Ok(format!(
            "InFlight({}, {}, {}, {}, {place})",
            self.created(),
            repr(py, self.channel())?,
            self.rows(),
            self.bytes(),
        ))
    }
}

/// What a two-phase sink staged: a file, or anything that it finds again by a text.
///
/// Every checkpoint records it, where all who read the checkpoint folder see it.
///
/// Parameters
/// ----------
/// path : str
///     Where it is now, or by what else the sink finds it, at most 4 KiB.
/// target : str
///     Where it belongs once committed, or what else becomes of it, at most 4 KiB.
/// rows : int
///     Number of rows.
/// bytes : int
///     Its size in bytes.
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
    fn new(path: String, target: String, rows: i64, bytes: i64) -> PyResult<Self> {
        let staged = CoreStaged {
            path,
            target,
            rows: natural("rows", rows)?,
            bytes: natural("bytes", bytes)?,
        };
        staged.check().map_err(to_py)?;
        Ok(Self(staged))
    }

    /// Where it is now.
    #[getter]
    fn path(&self) -> &str {
        &self.0.path
    }

    /// Where it belongs once committed.
    #[getter]
    fn target(&self) -> &str {
        &self.0.target
    }

    /// Number of rows.
    #[getter]
    fn rows(&self) -> u64 {
        self.0.rows
    }

    /// Its size in bytes.
    #[getter]
    fn bytes(&self) -> u64 {
        self.0.bytes
    }

    fn __getnewargs__(&self) -> (&str, &str, u64, u64) {
        (self.path(), self.target(), self.rows(), self.bytes())
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(format!(
            "Staged({}, {}, {}, {})",
            repr(py, self.path())?,
            repr(py, self.target())?,
            self.rows(),
            self.bytes(),
        ))
    }
}

/// What a checkpoint holds for one region.
///
/// An immutable value. Its lists stay encoded until the caller reads one of them, so an entry costs
/// little to keep, to pass on and to compare.
///
/// Parameters
/// ----------
/// region : str
///     Name of the region, at most 1 KiB.
/// origin : int
///     Checkpoint whose snapshot really produced the state, followed through any chain of
///     fallbacks.
/// operators : sequence of OperatorEntry, default ()
///     States of the operators, each operator once.
/// in_flight : sequence of InFlight, default ()
///     Rows that the checkpoint covers and the state does not reflect, in the order of replay.
/// staged : sequence of Staged, default ()
///     What sinks staged up to this checkpoint.
/// finished : bool, default False
///     Whether the region has seen the end of its data.
/// failed : bool, default False
///     Whether the region fell back in this checkpoint.
/// fallbacks : int, default 0
///     How often it fell back since its last snapshot.
/// stale_since_ms : int, optional
///     When it began to fall back, in milliseconds since the epoch.
/// cause : str, default ""
///     Why it fell back last. It is cut after 4 KiB.
///
/// Raises
/// ------
/// ValueError
///     If a name is too long or occurs twice, or a number is negative.
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

    /// Name of the region.
    #[getter]
    fn region(&self) -> &str {
        self.0.region()
    }

    /// Checkpoint whose snapshot really produced the state.
    #[getter]
    fn origin(&self) -> u64 {
        self.0.origin().0
    }

    /// States of the operators.
    #[getter]
    fn operators<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let operators = self.0.operators().map_err(to_py)?;
        PyTuple::new(py, operators.into_iter().map(OperatorEntry))
    }

    /// Rows that the checkpoint covers and the state does not reflect, in the order of replay.
    #[getter]
    fn in_flight<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let in_flight = self.0.in_flight().map_err(to_py)?;
        PyTuple::new(py, in_flight.into_iter().map(InFlight))
    }

    /// What sinks staged up to this checkpoint.
    #[getter]
    fn staged<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let staged = self.0.staged().map_err(to_py)?;
        PyTuple::new(py, staged.into_iter().map(Staged))
    }

    /// Whether the region has seen the end of its data.
    #[getter]
    fn finished(&self) -> bool {
        self.0.finished()
    }

    /// Whether the region fell back in this checkpoint.
    #[getter]
    fn failed(&self) -> bool {
        self.0.failed()
    }

    /// How often it fell back since its last snapshot.
    #[getter]
    fn fallbacks(&self) -> u64 {
        self.0.fallbacks()
    }

    /// When it began to fall back, in milliseconds since the epoch, or None.
    #[getter]
    fn stale_since_ms(&self) -> Option<u64> {
        self.0.stale_since_ms()
    }

    /// Why it fell back last.
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
        let references = self.0.references().map_err(to_py)?;
        Ok(references
            .into_iter()
            .map(|found| (found.operator, found.store, SegmentRef(found.reference)))
            .collect())
    }

    /// Return the entry of this region in a checkpoint in which it failed.
    ///
    /// Its state and origin stay. The input it owes is put behind what it owed already, it counts
    /// one more fallback, and what it staged is not part of that checkpoint.
    ///
    /// Parameters
    /// ----------
    /// cause : str
    ///     Why it failed.
    /// now_ms : int
    ///     Milliseconds since the epoch: the start of its staleness unless it is stale already.
    /// in_flight : sequence of InFlight
    ///     Its input of the batch.
    ///
    /// Returns
    /// -------
    /// RegionEntry
    ///
    /// Raises
    /// ------
    /// ValueError
    ///     If `now_ms` is negative.
    fn fell_back(&self, cause: &str, now_ms: i64, in_flight: Vec<InFlight>) -> PyResult<Self> {
        let now_ms = natural("now_ms", now_ms)?;
        self.0
            .fell_back(cause, now_ms, &core_in_flight(in_flight))
            .map(Self)
            .map_err(to_py)
    }

    /// Return the entry of this region in the next checkpoint if it has nothing to do there.
    ///
    /// What it staged belongs to this checkpoint and is dropped; the rest is unchanged.
    ///
    /// Returns
    /// -------
    /// RegionEntry
    fn carried(&self) -> Self {
        Self(self.0.carried())
    }

    /// Encode, for example for an acknowledgement.
    ///
    /// Returns
    /// -------
    /// bytes
    fn to_bytes<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.0.to_bytes())
    }

    /// Decode what `to_bytes` gave, and check all of it.
    ///
    /// Parameters
    /// ----------
    /// data : bytes
    ///     An encoded entry.
    ///
    /// Returns
    /// -------
    /// RegionEntry
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

    fn __reduce__<'py>(
        &self,
        py: Python<'py>,
    ) -> PyResult<(Bound<'py, PyAny>, (Bound<'py, PyBytes>,))> {
        let decode = py.get_type::<Self>().getattr("from_bytes")?;
        Ok((decode, (self.to_bytes(py),)))
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(format!(
            "RegionEntry({}, origin={}, operators={}, in_flight={}, staged={}, finished={}, \
             failed={}, fallbacks={}, stale_since_ms={}, cause={})",
            repr(py, self.region())?,
            self.origin(),
            repr(py, self.operators(py)?)?,
            repr(py, self.in_flight(py)?)?,
            repr(py, self.staged(py)?)?,
            repr(py, self.finished())?,
            repr(py, self.failed())?,
            self.fallbacks(),
            repr(py, self.stale_since_ms())?,
            repr(py, self.cause())?,
        ))
    }
}

fn core_in_flight(in_flight: Vec<InFlight>) -> Vec<CoreInFlight> {
    in_flight.into_iter().map(|item| item.0).collect()
}
