//! A checkpoint's metadata and the folder that holds it.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use holdfast_core::checkpoint::{
    self, CheckpointKind, Metadata, NewMetadata, RegionEntry as CoreEntry,
};
use holdfast_core::manager::RestoredCheckpoint;
use holdfast_core::storage::LocalStorage;
use holdfast_core::{CheckpointId, Error};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyMapping, PyTuple, PyType};

use super::numbers::{natural, one_of, repr};
use super::region::RegionEntry;
use crate::arguments::items;
use crate::errors::to_py;
use crate::values::{Owner, SegmentRef};

/// Everything that must be known to restore a checkpoint.
///
/// An immutable value, and one file: it is made whole, never changed, and restoring reads exactly
/// one. Entries of regions stay encoded until the caller reads them.
///
/// Parameters
/// ----------
/// id : int
///     The checkpoint.
/// batch_id : int
///     Spark's batch; -1 before the first.
/// kind : {"checkpoint", "savepoint", "final"}
///     Why it was taken: for a batch, because a user asked, at the end of all input.
/// created_ms : int
///     When, in milliseconds since the epoch.
/// topology : bytes
///     What the pipeline looked like. Together with `finished_operators` and `properties` it has at
///     most 1 MiB.
/// regions : mapping of str to RegionEntry, or sequence of RegionEntry
///     Entries of all regions.
/// coordinators : mapping of str to bytes, default {}
///     Snapshots of the operator coordinators, by operator.
/// consecutive_regional : int, default 0
///     Regional completions in a row up to this one.
/// force_global : bool, default False
///     Whether the next attempt must be global.
/// finished_operators : sequence of str, default ()
///     Operators that are finished in every region.
/// properties : mapping of str to str, default {}
///     Whatever else the pipeline must find again.
///
/// Raises
/// ------
/// ValueError
///     If a name, a kind or a number is not allowed, a region occurs twice or under another name,
///     or an origin is not in the past of this checkpoint.
#[pyclass(frozen, eq, hash, module = "holdfast._core")]
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct CheckpointMetadata(Arc<Metadata>);

impl CheckpointMetadata {
    /// What the checkpoint needs.
    pub(crate) fn restored(&self, pipeline: &str) -> Result<RestoredCheckpoint, Error> {
        let references = self.0.references(pipeline)?.into_iter();
        Ok(RestoredCheckpoint {
            id: self.0.id(),
            segments: references
                .map(|found| (found.owner, found.origin, found.reference))
                .collect(),
        })
    }

    fn fields(&self) -> &NewMetadata {
        self.0.fields()
    }
}

#[pymethods]
impl CheckpointMetadata {
    #[new]
    #[pyo3(signature = (
        id,
        batch_id,
        kind,
        created_ms,
        topology,
        regions,
        *,
        coordinators = Entries::default(),
        consecutive_regional = 0,
        force_global = false,
        finished_operators = Vec::new(),
        properties = Entries::default(),
    ))]
    #[pyo3(
        text_signature = "(id, batch_id, kind, created_ms, topology, regions, *, coordinators={}, consecutive_regional=0, force_global=False, finished_operators=(), properties={})"
    )]
    #[allow(clippy::too_many_arguments, reason = "keywords in Python")]
    fn new(
        py: Python<'_>,
        id: i64,
        batch_id: i64,
        kind: &str,
        created_ms: i64,
        topology: Vec<u8>,
        regions: &Bound<'_, PyAny>,
        coordinators: Entries<Vec<u8>>,
        consecutive_regional: i64,
        force_global: bool,
        finished_operators: Vec<String>,
        properties: Entries<String>,
    ) -> PyResult<Self> {
        let new = NewMetadata {
            id: CheckpointId(natural("id", id)?),
            batch_id,
            kind: one_of("kind", kind, &CheckpointKind::ALL, CheckpointKind::name)?,
            created_ms: natural("created_ms", created_ms)?,
            topology,
            regions: region_entries(regions)?,
            coordinators: coordinators.0,
            consecutive_regional: natural("consecutive_regional", consecutive_regional)?,
            force_global,
            finished_operators,
            properties: properties.0,
        };
        let metadata = py.detach(|| Metadata::new(new)).map_err(to_py)?;
        Ok(Self(Arc::new(metadata)))
    }

    /// The checkpoint.
    #[getter]
    fn id(&self) -> u64 {
        self.fields().id.0
    }

    /// Spark's batch; -1 before the first.
    #[getter]
    fn batch_id(&self) -> i64 {
        self.fields().batch_id
    }

    /// Why it was taken.
    #[getter]
    fn kind(&self) -> &'static str {
        self.fields().kind.name()
    }

    /// When, in milliseconds since the epoch.
    #[getter]
    fn created_ms(&self) -> u64 {
        self.fields().created_ms
    }

    /// What the pipeline looked like.
    #[getter]
    fn topology<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.fields().topology)
    }

    /// Entries of all regions, by name and sorted by name. A new dict each time.
    #[getter]
    fn regions<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let regions = PyDict::new(py);
        for entry in self.0.regions() {
            regions.set_item(entry.region(), RegionEntry(entry.clone()))?;
        }
        Ok(regions)
    }

    /// Snapshots of the operator coordinators, by operator. A new dict each time.
    #[getter]
    fn coordinators<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let coordinators = PyDict::new(py);
        for (name, snapshot) in &self.fields().coordinators {
            coordinators.set_item(name, PyBytes::new(py, snapshot))?;
        }
        Ok(coordinators)
    }

    /// Regional completions in a row up to this one.
    #[getter]
    fn consecutive_regional(&self) -> u64 {
        self.fields().consecutive_regional
    }

    /// Whether the next attempt must be global.
    #[getter]
    fn force_global(&self) -> bool {
        self.fields().force_global
    }

    /// Operators that are finished in every region.
    #[getter]
    fn finished_operators<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.fields().finished_operators)
    }

    /// Whatever else the pipeline must find again. A new dict each time.
    #[getter]
    fn properties(&self) -> BTreeMap<String, String> {
        self.fields().properties.clone()
    }

    /// Whether no region fell back.
    #[getter]
    fn is_global(&self) -> bool {
        self.0.is_global()
    }

    /// The regions that fell back, with the origin of their state. A new dict each time.
    #[getter]
    fn failed(&self) -> BTreeMap<String, u64> {
        let failed = self.0.regions().iter().filter(|entry| entry.failed());
        failed
            .map(|entry| (entry.region().to_owned(), entry.origin().0))
            .collect()
    }

    /// Return every segment the checkpoint needs, as `SnapshotManager.restore` takes them.
    ///
    /// Parameters
    /// ----------
    /// pipeline : str
    ///     Name of the pipeline in its owners.
    ///
    /// Returns
    /// -------
    /// list of (Owner, int, SegmentRef)
    ///     Owner, origin and segment, each once. State has the origin of its region, also where a
    ///     snapshot reused an older segment; in-flight data has the checkpoint that stored it.
    fn segments(&self, py: Python<'_>, pipeline: &str) -> PyResult<Vec<(Owner, u64, SegmentRef)>> {
        let references = py.detach(|| self.0.references(pipeline)).map_err(to_py)?;
        Ok(references
            .into_iter()
            .map(|found| {
                (
                    Owner(found.owner),
                    found.origin.0,
                    SegmentRef(found.reference),
                )
            })
            .collect())
    }

    /// Return how many bytes each physical file of its segments has, at least.
    ///
    /// Returns
    /// -------
    /// dict of str to int
    ///     By the name of the file, as `SegmentRef.file` has it.
    fn file_bytes(&self, py: Python<'_>) -> PyResult<BTreeMap<String, u64>> {
        let bytes = py.detach(|| self.0.file_bytes()).map_err(to_py)?;
        let bytes = bytes.into_iter();
        Ok(bytes
            .map(|(file, known)| (file.file_name(), known))
            .collect())
    }

    /// Write the file of this checkpoint.
    ///
    /// Whatever happens, it is there whole or not at all, and an error says that it is not. What a
    /// crash left of another write in the folder is removed. One writer per folder at a time.
    ///
    /// Parameters
    /// ----------
    /// folder : str or os.PathLike
    ///     Folder of the metadata files. It is made if it is missing.
    ///
    /// Returns
    /// -------
    /// pathlib.Path
    ///     The file, which survives a machine crash from now on.
    ///
    /// Raises
    /// ------
    /// FileExistsError
    ///     If the checkpoint has a file. It is not touched.
    /// OSError
    ///     If storage failed.
    fn write(&self, py: Python<'_>, folder: PathBuf) -> PyResult<PathBuf> {
        let storage = LocalStorage::new(&folder);
        let name = py
            .detach(|| checkpoint::write(&storage, &self.0))
            .map_err(to_py)?;
        Ok(folder.join(name))
    }

    /// Read and verify the file of a checkpoint.
    ///
    /// Parameters
    /// ----------
    /// path : str or os.PathLike
    ///     The file.
    ///
    /// Returns
    /// -------
    /// CheckpointMetadata
    ///
    /// Raises
    /// ------
    /// FileNotFoundError
    ///     If it is missing.
    /// CorruptSegmentError
    ///     If its bytes are not those that were written, or are those of the checkpoint of another
    ///     file. The message names file and offset.
    /// NotImplementedError
    ///     If a newer version of Holdfast wrote it.
    /// OSError
    ///     If storage failed.
    #[classmethod]
    fn read(_: &Bound<'_, PyType>, py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        let Some(name) = path.file_name().and_then(OsStr::to_str) else {
            return Err(PyValueError::new_err(format!(
                "{} is not the name of a file",
                path.display()
            )));
        };
        let storage = LocalStorage::new(path.parent().unwrap_or(Path::new("")));
        py.detach(|| checkpoint::read_file(&storage, name))
            .map(|metadata| Self(Arc::new(metadata)))
            .map_err(to_py)
    }

    /// List the checkpoints that have a file in a folder. The files are not looked into.
    ///
    /// Parameters
    /// ----------
    /// folder : str or os.PathLike
    ///     Folder of the metadata files. One that is missing has none.
    ///
    /// Returns
    /// -------
    /// list of int
    ///     Their ids, ascending.
    #[classmethod]
    fn list(_: &Bound<'_, PyType>, py: Python<'_>, folder: PathBuf) -> PyResult<Vec<u64>> {
        let ids = in_folder(py, folder, |storage| checkpoint::list(storage))?;
        Ok(ids.into_iter().map(|id| id.0).collect())
    }

    /// Delete the file of a checkpoint. Deleting one that is not there does nothing.
    ///
    /// Parameters
    /// ----------
    /// folder : str or os.PathLike
    ///     Folder of the metadata files.
    /// id : int
    ///     The checkpoint.
    ///
    /// Raises
    /// ------
    /// OSError
    ///     If storage failed.
    #[classmethod]
    fn delete(_: &Bound<'_, PyType>, py: Python<'_>, folder: PathBuf, id: i64) -> PyResult<()> {
        let id = CheckpointId(natural("id", id)?);
        in_folder(py, folder, |storage| checkpoint::delete(storage, id))
    }

    /// Encode: the bytes of the file.
    ///
    /// Returns
    /// -------
    /// bytes
    fn to_bytes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let bytes = py.detach(|| self.0.to_bytes()).map_err(to_py)?;
        Ok(PyBytes::new(py, &bytes))
    }

    /// Verify and decode what `to_bytes` gave.
    ///
    /// Parameters
    /// ----------
    /// data : bytes
    ///     The bytes of a file.
    ///
    /// Returns
    /// -------
    /// CheckpointMetadata
    ///
    /// Raises
    /// ------
    /// CorruptSegmentError
    ///     If `data` is something else. The message names the offset.
    /// NotImplementedError
    ///     If a newer version of Holdfast wrote it.
    #[classmethod]
    fn from_bytes(_: &Bound<'_, PyType>, py: Python<'_>, data: &[u8]) -> PyResult<Self> {
        py.detach(|| Metadata::from_bytes(data))
            .map(|metadata| Self(Arc::new(metadata)))
            .map_err(to_py)
    }

    fn __reduce__<'py>(
        &self,
        py: Python<'py>,
    ) -> PyResult<(Bound<'py, PyAny>, (Bound<'py, PyBytes>,))> {
        let decode = py.get_type::<Self>().getattr("from_bytes")?;
        Ok((decode, (self.to_bytes(py)?,)))
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(format!(
            "<CheckpointMetadata {} of batch {}: {}, {} regions, failed {}>",
            self.id(),
            self.batch_id(),
            self.kind(),
            self.0.regions().len(),
            repr(py, self.failed())?,
        ))
    }
}

fn in_folder<T: Send>(
    py: Python<'_>,
    folder: PathBuf,
    work: impl FnOnce(&LocalStorage) -> Result<T, Error> + Send,
) -> PyResult<T> {
    py.detach(|| work(&LocalStorage::new(folder)))
        .map_err(to_py)
}

/// Any mapping from names, `dict` or not.
#[derive(Default)]
struct Entries<T>(BTreeMap<String, T>);

impl<'py, T> FromPyObject<'_, 'py> for Entries<T>
where
    T: for<'a> FromPyObject<'a, 'py, Error = PyErr>,
{
    type Error = PyErr;

    fn extract(obj: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        items(&obj)?
            .into_iter()
            .map(|(name, value)| Ok((name.extract()?, value.extract()?)))
            .collect::<PyResult<_>>()
            .map(Self)
    }
}

/// Entries of a mapping by region, or of a sequence.
fn region_entries(regions: &Bound<'_, PyAny>) -> PyResult<Vec<CoreEntry>> {
    if regions.cast::<PyMapping>().is_err() {
        return regions
            .try_iter()?
            .map(|entry| Ok(entry?.cast::<RegionEntry>()?.get().0.clone()))
            .collect();
    }
    let regions = items(regions)?;
    let mut entries = Vec::with_capacity(regions.len());
    for (name, entry) in regions {
        let name: String = name.extract()?;
        let entry = entry.cast::<RegionEntry>()?.get().0.clone();
        if entry.region() != name {
            return Err(PyValueError::new_err(format!(
                "regions: the entry under {name:?} is that of region {:?}",
                entry.region()
            )));
        }
        entries.push(entry);
    }
    Ok(entries)
}
