//! Value classes: they compare, hash, print and pickle by content.

use holdfast_core::{Owner as CoreOwner, SegmentRef as CoreRef};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyType};

use crate::errors::to_py;
use crate::parts::{Reduced, as_bytes, constructed, parts};

/// One unit of state: the owner of a segment.
///
/// Parameters
/// ----------
/// pipeline : str
///     Query or pipeline. Empty if a storage root belongs to one query.
/// operator : str
///     Operator inside the pipeline.
/// region : str
///     Partition number or name of the region.
/// store : str, default "default"
///     Name of the store, for operators with several.
///
/// Examples
/// --------
/// >>> Owner("sales", "rolling-stats", "shard-7")
/// Owner(pipeline='sales', operator='rolling-stats', region='shard-7', store='default')
#[pyclass(frozen, eq, ord, hash, from_py_object, module = "holdfast")]
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Owner(pub(crate) CoreOwner);

#[pymethods]
impl Owner {
    #[new]
    #[pyo3(signature = (pipeline, operator, region, store = "default"))]
    fn new(pipeline: &str, operator: &str, region: &str, store: &str) -> Self {
        Self(CoreOwner::new(pipeline, operator, region, store))
    }

    /// Query or pipeline.
    #[getter]
    fn pipeline(&self) -> &str {
        &self.0.pipeline
    }

    /// Operator inside the pipeline.
    #[getter]
    fn operator(&self) -> &str {
        &self.0.operator
    }

    /// Partition number or name of the region.
    #[getter]
    fn region(&self) -> &str {
        &self.0.region
    }

    /// Name of the store.
    #[getter]
    fn store(&self) -> &str {
        &self.0.store
    }

    fn __getnewargs__(&self) -> (&str, &str, &str, &str) {
        (
            self.pipeline(),
            self.operator(),
            self.region(),
            self.store(),
        )
    }

    fn __repr__(slf: &Bound<'_, Self>) -> PyResult<String> {
        constructed(slf, parts(slf, "", "pipeline operator region store")?)
    }

    fn __str__(&self) -> String {
        self.0.to_string()
    }
}

/// Reference to a segment: a byte range of a physical file and the digest of those bytes.
///
/// The reference has the digest, not the file, so an altered file is noticed. Store the reference
/// (`to_bytes`, 44 bytes, or `pickle`) in the metadata of the checkpoint.
///
/// Instances come from `SnapshotManager.append` and `SegmentRef.from_bytes`.
#[pyclass(frozen, eq, ord, hash, from_py_object, module = "holdfast")]
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct SegmentRef(pub(crate) CoreRef);

#[pymethods]
impl SegmentRef {
    /// Decode a result of `to_bytes`, exactly 44 bytes; another length is a ValueError.
    #[classmethod]
    fn from_bytes(_: &Bound<'_, PyType>, data: &[u8]) -> PyResult<Self> {
        CoreRef::from_bytes(data).map(Self).map_err(to_py)
    }

    /// Encode in 44 bytes, little-endian: term 8, number of the file 4, offset 8, length 8,
    /// digest 16.
    fn to_bytes<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.0.to_bytes())
    }

    /// Term of the manager that wrote the segment.
    #[getter]
    fn term(&self) -> u64 {
        self.0.file.term.0
    }

    /// Name of the physical file inside the storage root.
    #[getter]
    fn file(&self) -> String {
        self.0.file.file_name()
    }

    /// First byte of the segment in the file.
    #[getter]
    fn offset(&self) -> u64 {
        self.0.offset
    }

    /// Length in bytes as stored, headers included.
    #[getter]
    fn length(&self) -> u64 {
        self.0.len
    }

    /// XXH3-128 of the stored bytes, 16 bytes, big-endian (the canonical form of xxHash). References
    /// in ids of commits have zeros in its first half, and are equal to those with the whole one.
    #[getter]
    fn digest<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.0.digest.to_be_bytes())
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<Reduced<'py>> {
        as_bytes(slf)
    }

    fn __repr__(&self) -> String {
        format!(
            "SegmentRef(file='{}', offset={}, length={}, digest='{:032x}')",
            self.file(),
            self.0.offset,
            self.0.len,
            self.0.digest
        )
    }
}

pub(crate) fn core_refs(refs: &[SegmentRef]) -> Vec<CoreRef> {
    refs.iter().map(|reference| reference.0).collect()
}
