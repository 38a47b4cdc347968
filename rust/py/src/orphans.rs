//! The clean-up by a pipeline's driver of files whose managers are gone.

use std::collections::BTreeSet;
use std::path::PathBuf;

use holdfast_core::reclaim::{self, reclaim_orphans};
use holdfast_core::storage::LocalStorage;
use holdfast_core::{Error, FileId, Term};
use pyo3::prelude::*;

use crate::checkpoint::CheckpointMetadata;
use crate::errors::to_py;

/// Deletes the physical files of managers that are gone, once no retained checkpoint needs them.
///
/// For the driver of a pipeline whose managers are on executors, where each manager deletes its own
/// files. The terms of all files in the folder at its construction count as known.
#[pyclass(frozen, module = "holdfast._core")]
pub(crate) struct OrphanReclaimer {
    storage: LocalStorage,
    pipeline: String,
    found: Term,
}

#[pymethods]
impl OrphanReclaimer {
    #[new]
    fn new(py: Python<'_>, folder: PathBuf, pipeline: String) -> PyResult<Self> {
        let storage = LocalStorage::new(folder);
        let found = py
            .detach(|| reclaim::newest_term(&storage))
            .map_err(to_py)?;
        Ok(Self {
            storage,
            pipeline,
            found: found.unwrap_or(Term(0)),
        })
    }

    /// Delete files that no retained checkpoint needs. No attempt may be under way.
    ///
    /// Parameters
    /// ----------
    /// live_terms : set of int
    ///     Terms whose managers may still be at work. Their files are not touched.
    /// newest_term : int
    ///     The newest term that the application gave to a manager, 0 if none. Read before
    ///     `live_terms`.
    ///
    /// Returns
    /// -------
    /// (str, list of str)
    ///     A summary for the log, empty if there was nothing to do. Files that waste too much:
    ///     their owners should write the needed part again.
    ///
    /// Raises
    /// ------
    /// FencedError
    ///     If a file has a newer term: another application writes to the folder. Nothing is
    ///     deleted.
    /// FileNotFoundError
    ///     If segments that a checkpoint needs are missing. Nothing is deleted.
    /// ValueError
    ///     If a checkpoint contradicts itself. Nothing is deleted.
    /// OSError
    ///     If the folder cannot be listed.
    #[pyo3(signature = (retained, *, live_terms, newest_term))]
    fn reclaim(
        &self,
        py: Python<'_>,
        retained: Vec<Py<CheckpointMetadata>>,
        live_terms: BTreeSet<u64>,
        newest_term: u64,
    ) -> PyResult<(String, Vec<String>)> {
        py.detach(|| {
            let report = reclaim_orphans(
                &self.storage,
                || {
                    let checkpoints = retained.iter().map(Py::get);
                    checkpoints
                        .map(|checkpoint| checkpoint.0.restored(&self.pipeline))
                        .collect()
                },
                &|term| live_terms.contains(&term.0),
                self.found.max(Term(newest_term)),
            )?;
            let wasteful = report.space.wasteful.iter().map(FileId::file_name);
            Ok::<_, Error>((report.summary(), wasteful.collect()))
        })
        .map_err(to_py)
    }
}
