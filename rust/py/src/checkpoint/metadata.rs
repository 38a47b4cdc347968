//! A checkpoint's metadata and the folder that holds it.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use holdfast_core::checkpoint::{
    self, CheckpointFacts, CheckpointKind, Metadata, RegionEntry as CoreEntry,
};
use holdfast_core::storage::LocalStorage;
use holdfast_core::{CheckpointId, Error};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyMapping, PyTuple, PyType};

use super::region::RegionEntry;
use crate::arguments::{items, natural, one_of};
use crate::errors::to_py;
use crate::parts::{Reduced, as_bytes};
use crate::values::{Owner, SegmentRef};

/// Everything that a restore of a checkpoint needs.
///
/// An immutable value, and one file that is written whole and never changed. Entries of regions
/// stay encoded until the caller reads them.
///
/// Parameters
/// ----------
/// batch_id : int
///     Spark's batch; -1 before the first.
/// kind : {"checkpoint", "savepoint", "final"}
///     Why it was taken: for a batch, because a user asked, or at the end of all input.
/// created_ms : int
///     Milliseconds since the epoch.
/// topology : bytes
///     Description of the pipeline. Together with `finished_operators` and `properties` it has at
///     most 1 MiB.
/// coordinators : mapping of str to bytes, default {}
///     Snapshots of the operator coordinators, by operator.
/// consecutive_regional : int, default 0
///     Regional completions in a row up to this one.
/// force_global : bool, default False
///     True if the next attempt must be global.
/// finished_operators : sequence of str, default ()
///     Operators that are finished in every region.
/// properties : mapping of str to str, default {}
///     Other values that the pipeline must find again.
/// base : CheckpointMetadata, optional
///     An older checkpoint. Then `regions` has only those that differ from it, so that metadata of
///     many regions costs as much as it changes.
/// gone : sequence of str, default ()
///     Regions of `base` that this checkpoint does not have.
///
/// Raises
/// ------
/// ValueError
///     If a name, a kind or a number is not allowed, a region occurs twice or under another name,
///     or an origin is not in the past of this checkpoint.
#[pyclass(frozen, eq, hash, module = "holdfast._core")]
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct CheckpointMetadata(pub(crate) Arc<Metadata>);

impl CheckpointMetadata {
    fn facts(&self) -> &CheckpointFacts {
        self.0.facts()
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
        base = None,
        gone = Vec::new(),
    ))]
    #[pyo3(
        text_signature = "(id, batch_id, kind, created_ms, topology, regions, *, coordinators={}, consecutive_regional=0, force_global=False, finished_operators=(), properties={}, base=None, gone=())"
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
        base: Option<&Self>,
        gone: Vec<String>,
    ) -> PyResult<Self> {
        let facts = CheckpointFacts {
            id: CheckpointId(natural("id", id)?),
            batch_id,
            kind: one_of(
                "kind",
                kind,
                &CheckpointKind::ALL.map(|kind| (kind.name(), kind)),
            )?,
            created_ms: natural("created_ms", created_ms)?,
            topology,
            coordinators: coordinators.0,
            consecutive_regional: natural("consecutive_regional", consecutive_regional)?,
            force_global,
            finished_operators,
            properties: properties.0,
        };
        let entries = region_entries(regions)?;
        let metadata = py.detach(|| match base {
            Some(base) => base.0.next(facts, entries, gone.iter().map(String::as_str)),
            None => Metadata::new(facts, entries),
        });
        Ok(Self(Arc::new(metadata.map_err(to_py)?)))
    }

    #[getter]
    fn id(&self) -> u64 {
        self.facts().id.0
    }

    #[getter]
    fn batch_id(&self) -> i64 {
        self.facts().batch_id
    }

    #[getter]
    fn kind(&self) -> &'static str {
        self.facts().kind.name()
    }

    #[getter]
    fn created_ms(&self) -> u64 {
        self.facts().created_ms
    }

    #[getter]
    fn topology<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.facts().topology)
    }

    /// Entries of all regions, by name and sorted by name. A new dict each time.
    #[getter]
    fn regions<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        by_name(py, self.0.regions().iter().map_err(to_py)?)
    }

    /// Entries of the regions whose state was made for this checkpoint. A new dict each time.
    #[getter]
    fn fresh<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        by_name(py, self.0.regions().since(self.0.id()).map_err(to_py)?)
    }

    /// Entries of regions that fell back, finished, or have pending rows. A new dict each time.
    #[getter]
    fn notable<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        by_name(py, self.0.regions().notable())
    }

    /// Return the regions with the state of a checkpoint or a later one.
    fn since(&self, checkpoint: u64) -> PyResult<Vec<&str>> {
        let entries = self.0.regions().since(CheckpointId(checkpoint));
        Ok(entries.map_err(to_py)?.map(CoreEntry::region).collect())
    }

    /// Number of regions.
    #[getter]
    fn region_count(&self) -> usize {
        self.0.regions().len()
    }

    /// Return the entry of a region; None if the checkpoint has no such region.
    fn region(&self, name: &str) -> PyResult<Option<RegionEntry>> {
        let entry = self.0.regions().get(name).map_err(to_py)?;
        Ok(entry.cloned().map(RegionEntry))
    }

    /// Snapshots of the operator coordinators, by operator. A new dict each time.
    #[getter]
    fn coordinators<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let coordinators = PyDict::new(py);
        for (name, snapshot) in &self.facts().coordinators {
            coordinators.set_item(name, PyBytes::new(py, snapshot))?;
        }
        Ok(coordinators)
    }

    #[getter]
    fn consecutive_regional(&self) -> u64 {
        self.facts().consecutive_regional
    }

    #[getter]
    fn force_global(&self) -> bool {
        self.facts().force_global
    }

    #[getter]
    fn finished_operators<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.facts().finished_operators)
    }

    /// Other values that the pipeline must find again. A new dict each time.
    #[getter]
    fn properties(&self) -> BTreeMap<String, String> {
        self.facts().properties.clone()
    }

    /// Return whether no region fell back.
    #[getter]
    fn is_global(&self) -> bool {
        self.0.is_global()
    }

    /// The regions that fell back, with the origin of their state. A new dict each time.
    #[getter]
    fn failed(&self) -> BTreeMap<String, u64> {
        let failed = self.0.regions().notable().filter(|entry| entry.failed());
        failed
            .map(|entry| (entry.region().to_owned(), entry.origin().0))
            .collect()
    }

    /// Return every segment the checkpoint needs, as `SnapshotManager.restore` takes them.
    ///
    /// Returns
    /// -------
    /// list of (Owner, int, SegmentRef)
    ///     Owner, origin and segment, each once. State has the origin of its region, even if a
    ///     snapshot reused an older segment. In-flight data has the checkpoint that stored it.
    fn segments(&self, py: Python<'_>, pipeline: &str) -> PyResult<Vec<(Owner, u64, SegmentRef)>> {
        let restored = py.detach(|| self.0.restored(pipeline)).map_err(to_py)?;
        let segments = restored.segments.into_iter();
        Ok(segments
            .map(|(owner, origin, reference)| (Owner(owner), origin.0, SegmentRef(reference)))
            .collect())
    }

    /// Return the owners whose origin is not this checkpoint, as managers receive it.
    ///
    /// Parameters
    /// ----------
    /// usual : sequence of (str, str)
    ///     Operators and names of state under which regions that fell back may have written, too.
    ///
    /// Returns
    /// -------
    /// list of (Owner, int)
    ///     Each owner once, with its origin.
    fn at_rest(
        &self,
        py: Python<'_>,
        pipeline: &str,
        usual: Vec<(String, String)>,
    ) -> PyResult<Vec<(Owner, u64)>> {
        let owners = py
            .detach(|| self.0.at_rest(pipeline, &usual))
            .map_err(to_py)?;
        let named = owners
            .into_iter()
            .map(|(owner, origin)| (Owner(owner), origin.0));
        Ok(named.collect())
    }

    /// Return the names of regions that have not finished, in groups with the same states.
    ///
    /// Regions of a group have operators, and names, kinds and types of states in common. So many
    /// regions are in few groups, unless they have tables.
    fn alike(&self) -> PyResult<Vec<Vec<&str>>> {
        self.0.alike().map_err(to_py)
    }

    /// Return some of each group of `alike`, in groups; a group may be divided. Costs as much as
    /// checkpoints differ, unless there are many groups.
    fn samples(&self, py: Python<'_>) -> PyResult<Vec<Vec<RegionEntry>>> {
        let samples = py
            .detach(|| self.0.regions().samples())
            .map_err(to_py)?
            .into_iter();
        Ok(samples
            .map(|group| group.into_iter().map(RegionEntry).collect())
            .collect())
    }

    /// Return the outputs with files that regions staged, now or when they were first shared. Costs
    /// as much as checkpoints differ.
    fn outputs_at_most(&self, py: Python<'_>) -> PyResult<BTreeSet<String>> {
        py.detach(|| self.0.regions().outputs_at_most())
            .map_err(to_py)
    }

    /// Return a lower bound on the size of each physical file of its segments, in bytes.
    ///
    /// Parameters
    /// ----------
    /// at_most : bool, default False
    ///     Also name files that regions needed when they were first shared. Then it costs as much
    ///     as checkpoints differ.
    ///
    /// Returns
    /// -------
    /// dict of str to int
    ///     By the name of the file, as `SegmentRef.file` has it.
    #[pyo3(signature = (*, at_most = false))]
    fn file_bytes(&self, py: Python<'_>, at_most: bool) -> PyResult<BTreeMap<String, u64>> {
        let bytes = py.detach(|| match at_most {
            true => self.0.regions().files_at_most(),
            false => self.0.file_bytes(),
        });
        let named = bytes.map_err(to_py)?.into_iter();
        Ok(named
            .map(|(file, known)| (file.file_name(), known))
            .collect())
    }

    /// Write the file of this checkpoint, and return its path. It then survives a machine crash.
    ///
    /// After a crash the file is there whole or not at all. An error means that it is not there.
    /// Leftovers of a crashed write in the folder are removed. One writer per folder at a time.
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

    /// Read and verify the file of a checkpoint, and the file of regions that it may share.
    ///
    /// Parameters
    /// ----------
    /// like : CheckpointMetadata, optional
    ///     Another checkpoint of the folder. Regions that both share are not read again.
    ///
    /// Raises
    /// ------
    /// FileNotFoundError
    ///     If it is missing.
    /// CorruptSegmentError
    ///     If its bytes differ from the written ones, or belong to another checkpoint. The message
    ///     names file and offset.
    /// NewerFormatError
    ///     If a newer version of Holdfast wrote it.
    /// OSError
    ///     If storage failed.
    #[classmethod]
    #[pyo3(signature = (path, *, like = None))]
    fn read(
        _: &Bound<'_, PyType>,
        py: Python<'_>,
        path: PathBuf,
        like: Option<&Self>,
    ) -> PyResult<Self> {
        let Some(name) = path.file_name().and_then(OsStr::to_str) else {
            return Err(PyValueError::new_err(format!(
                "{} is not the name of a file",
                path.display()
            )));
        };
        let storage = LocalStorage::new(path.parent().unwrap_or(Path::new("")));
        py.detach(|| checkpoint::read_like(&storage, name, like.map(|like| &*like.0)))
            .map(|metadata| Self(Arc::new(metadata)))
            .map_err(to_py)
    }

    /// Name of the file with regions that this checkpoint shares with others; None if there is
    /// none. The file is kept as long as a checkpoint names it.
    #[getter]
    fn base_file(&self) -> Option<String> {
        self.0.regions().base_file().map(checkpoint::base_name)
    }

    /// Write the files of this checkpoint by a function, see `write`.
    ///
    /// Parameters
    /// ----------
    /// put : callable
    ///     Takes name and bytes of a file, and returns once it is durable. A file of regions,
    ///     ``.hfb``, comes first, and may be there. The checkpoint is there once its own file is.
    fn write_by(&self, py: Python<'_>, put: &Bound<'_, PyAny>) -> PyResult<()> {
        for file in py.detach(|| self.0.files()).map_err(to_py)? {
            put.call1((&file.name, PyBytes::new(py, &file.bytes)))?;
            self.0.note_stored(&file);
        }
        Ok(())
    }

    /// Decode the bytes of a checkpoint's file. Raises the errors of `from_bytes`.
    ///
    /// Parameters
    /// ----------
    /// read : callable
    ///     Returns the bytes of the file of regions with a name, if `data` names one.
    #[classmethod]
    fn read_by(
        _: &Bound<'_, PyType>,
        py: Python<'_>,
        data: &[u8],
        read: &Bound<'_, PyAny>,
    ) -> PyResult<Self> {
        let base = Metadata::base_of(data).map_err(to_py)?;
        let base = base.map(|base| read.call1((checkpoint::base_name(base),))?.extract());
        let base: Option<Vec<u8>> = base.transpose()?;
        py.detach(|| Metadata::from_files(data, base.as_deref()))
            .map(|metadata| Self(Arc::new(metadata)))
            .map_err(to_py)
    }

    /// Return the ids of checkpoints that have a file in a folder, ascending. Reads no file.
    #[classmethod]
    fn list(_: &Bound<'_, PyType>, py: Python<'_>, folder: PathBuf) -> PyResult<Vec<u64>> {
        let ids = in_folder(py, folder, |storage| checkpoint::list(storage))?;
        Ok(ids.into_iter().map(|id| id.0).collect())
    }

    /// Delete the file of a checkpoint, if there is one.
    #[classmethod]
    fn delete(_: &Bound<'_, PyType>, py: Python<'_>, folder: PathBuf, id: i64) -> PyResult<()> {
        let id = CheckpointId(natural("id", id)?);
        in_folder(py, folder, |storage| checkpoint::delete(storage, id))
    }

    /// Encode: the bytes of the file.
    fn to_bytes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let bytes = py.detach(|| self.0.to_bytes()).map_err(to_py)?;
        Ok(PyBytes::new(py, &bytes))
    }

    /// Verify and decode a result of `to_bytes`.
    ///
    /// Raises
    /// ------
    /// CorruptSegmentError
    ///     If `data` is something else. The message names the offset.
    /// NewerFormatError
    ///     If a newer version of Holdfast wrote it.
    #[classmethod]
    fn from_bytes(_: &Bound<'_, PyType>, py: Python<'_>, data: &[u8]) -> PyResult<Self> {
        py.detach(|| Metadata::from_bytes(data))
            .map(|metadata| Self(Arc::new(metadata)))
            .map_err(to_py)
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<Reduced<'py>> {
        as_bytes(slf)
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(format!(
            "<CheckpointMetadata {} of batch {}: {}, {} regions, failed {}>",
            self.id(),
            self.batch_id(),
            self.kind(),
            self.region_count(),
            self.failed().into_pyobject(py)?.repr()?,
        ))
    }
}

fn by_name<'a, 'py>(
    py: Python<'py>,
    entries: impl Iterator<Item = &'a CoreEntry>,
) -> PyResult<Bound<'py, PyDict>> {
    let regions = PyDict::new(py);
    for entry in entries {
        regions.set_item(entry.region(), RegionEntry(entry.clone()))?;
    }
    Ok(regions)
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
    let core = |entry: Bound<'_, PyAny>| Ok(entry.cast::<RegionEntry>()?.get().0.clone());
    if regions.cast::<PyMapping>().is_err() {
        return regions.try_iter()?.map(|entry| core(entry?)).collect();
    }
    let named = items(regions)?.into_iter().map(|(name, entry)| {
        let (name, entry) = (name.extract::<String>()?, core(entry)?);
        if entry.region() == name {
            return Ok(entry);
        }
        Err(PyValueError::new_err(format!(
            "regions: the entry under {name:?} is that of region {:?}",
            entry.region()
        )))
    });
    named.collect()
}
