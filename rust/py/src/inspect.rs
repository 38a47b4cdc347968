//! Segments of the state of an ordinary query, for inspection.

use std::path::PathBuf;

use holdfast_core::leases::open_local;
use holdfast_core::state::{self, SegmentReport as CoreReport, StoreId, VersionId};
use pyo3::prelude::*;
use pyo3::types::PyType;

use crate::arguments::SEGMENT_KINDS;
use crate::errors::to_py;
use crate::values::{Owner, SegmentRef};

/// The state of one store at one version, as Spark's commit log names it.
///
/// Instances come from `CommitId.parse`.
#[pyclass(frozen, eq, hash, get_all, module = "holdfast")]
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct CommitId {
    /// Version of the store: Spark's batch id + 1.
    version: u64,
    /// The newest segment of the version; None for a store that was never written.
    r#ref: Option<SegmentRef>,
    /// The newest segment that `ref` replaces, if an older release wrote the id of a run.
    replaced: Option<SegmentRef>,
    /// Pending rows of a parked partition, oldest first: the version that a batch made, and its
    /// last segment, whose lineage names the others.
    pending: Vec<(u64, SegmentRef)>,
}

#[pymethods]
impl CommitId {
    /// Decode a state store checkpoint id.
    ///
    /// Parameters
    /// ----------
    /// text : str
    ///     The id, from ``stateUniqueIds`` in an entry of Spark's commit log.
    ///
    /// Raises
    /// ------
    /// CorruptSegmentError, NotImplementedError
    ///     If it was damaged, or another provider wrote it.
    /// NewerFormatError
    ///     If a newer version of Holdfast wrote it.
    #[classmethod]
    fn parse(_: &Bound<'_, PyType>, text: &str) -> PyResult<Self> {
        text.parse::<VersionId>().map(Self::from).map_err(to_py)
    }

    /// Return whether Holdfast, not another provider, wrote the text in the place of an id.
    #[staticmethod]
    fn is_holdfasts(text: &str) -> bool {
        text.starts_with(StoreId::PREFIX)
    }

    /// Return whether an id names the rows of stores of an older number of partitions.
    #[staticmethod]
    fn is_view(text: &str) -> bool {
        text.starts_with(StoreId::VIEW_PREFIX)
    }

    /// Return the ids whose segments a store needs, each with its partition: its own, or the ids of
    /// a view. Raises the errors of `parse`.
    #[staticmethod]
    fn needed(partition: u32, text: &str) -> PyResult<Vec<(u32, Self)>> {
        let ids = StoreId::needed(partition, text).map_err(to_py)?;
        Ok(ids.into_iter().map(|(at, id)| (at, id.into())).collect())
    }
}

impl From<VersionId> for CommitId {
    fn from(id: VersionId) -> Self {
        let pending = id.pending.iter();
        Self {
            version: id.state.version,
            r#ref: id.state.segment.map(SegmentRef),
            replaced: id.state.replaced.map(SegmentRef),
            pending: pending
                .map(|one| (one.version, SegmentRef(one.segment)))
                .collect(),
        }
    }
}

/// Content of a segment of a state store, after all of it was verified.
///
/// Instances come from `inspect_segment` and `SegmentReport.from_bytes`.
#[pyclass(frozen, eq, get_all, module = "holdfast")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SegmentReport {
    /// Whose state it is.
    owner: Owner,
    /// Checkpoint it was written for. In a state store that is a version, the batch id + 1.
    created: u64,
    /// Either "changelog", "snapshot", "in_flight" or "run".
    kind: &'static str,
    /// Segments it builds on, oldest first.
    lineage: Vec<SegmentRef>,
    /// Number of entries.
    entries: u64,
    /// Size of its entries in bytes, uncompressed.
    payload_bytes: u64,
    /// Groups of blocks. This and all numbers below are 0 unless it is a run.
    groups: u64,
    /// Blocks of entries.
    blocks: u64,
    /// Size of the separators of all blocks in bytes.
    separator_bytes: u64,
    /// Groups that have a filter.
    filters: u64,
    /// Size of the fingerprints of all filters in bytes.
    filter_bytes: u64,
}

#[pymethods]
impl SegmentReport {
    /// Decode a report of another process.
    ///
    /// Parameters
    /// ----------
    /// data : bytes
    ///     Return value of ``Native.inspectSegment``.
    ///
    /// Raises
    /// ------
    /// CorruptSegmentError
    ///     If `data` is no report.
    #[classmethod]
    fn from_bytes(_: &Bound<'_, PyType>, data: &[u8]) -> PyResult<Self> {
        CoreReport::from_bytes(data).map(Self::from).map_err(to_py)
    }
}

impl From<CoreReport> for SegmentReport {
    fn from(report: CoreReport) -> Self {
        let CoreReport { head, index } = report;
        let index = index.unwrap_or_default();
        Self {
            owner: Owner(head.owner),
            created: head.created.0,
            kind: SEGMENT_KINDS
                .iter()
                .find(|(_, kind)| *kind == head.kind)
                .map_or("run", |(name, _)| *name),
            lineage: head.lineage.into_iter().map(SegmentRef).collect(),
            entries: head.entries,
            payload_bytes: head.payload_bytes,
            groups: index.groups,
            blocks: index.blocks,
            separator_bytes: index.separator_bytes,
            filters: index.filters,
            filter_bytes: index.filter_bytes,
        }
    }
}

/// Read a segment of a state store and verify all of it: digests, checksums and the order of the
/// entries. In a run, separators and filters must lead to every key. Errors: see `read_segment`.
#[pyfunction]
#[pyo3(signature = (folder, r#ref))]
pub(crate) fn inspect_segment(
    py: Python<'_>,
    folder: PathBuf,
    r#ref: SegmentRef,
) -> PyResult<SegmentReport> {
    py.detach(|| state::inspect_segment(open_local(folder)?.as_ref(), &r#ref.0))
        .map(SegmentReport::from)
        .map_err(to_py)
}
