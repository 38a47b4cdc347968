//! Leases and the parents of branches.

use holdfast_core::leases::{self, Facts, Record, Step, next_step};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::errors::to_py;

/// Keeps the state of one batch: a tag, or a branch in the folder `branch`.
///
/// `stores` has operator, partition and id of each store, as the commit log has them. A lease ends once
/// the batch `until` is the oldest retained one, or at the time `expires_ms`.
#[pyclass(frozen, get_all, module = "holdfast._core")]
pub(crate) struct Lease {
    batch: u64,
    id: String,
    branch: Option<String>,
    made_ms: u64,
    until: Option<u64>,
    expires_ms: Option<u64>,
    stores: Vec<(u32, u32, String)>,
}

#[pymethods]
impl Lease {
    #[new]
    #[pyo3(signature = (*, batch, id, branch, made_ms, stores, until=None, expires_ms=None))]
    fn new(
        batch: u64,
        id: String,
        branch: Option<String>,
        made_ms: u64,
        stores: Vec<(u32, u32, String)>,
        until: Option<u64>,
        expires_ms: Option<u64>,
    ) -> Self {
        Self {
            batch,
            id,
            branch,
            made_ms,
            until,
            expires_ms,
            stores,
        }
    }

    /// Return the content of the file of a lease.
    ///
    /// Raises
    /// ------
    /// CorruptSegmentError, NewerFormatError, NotImplementedError
    ///     If the file or an id in it is damaged, or Holdfast, or this version of it, did not write it.
    #[staticmethod]
    fn from_bytes(data: &[u8]) -> PyResult<Self> {
        let read = leases::Lease::from_bytes(data).map_err(to_py)?;
        Ok(Self {
            batch: read.batch,
            id: read.id,
            branch: read.branch,
            made_ms: read.made_ms,
            until: read.until,
            expires_ms: read.expires_ms,
            stores: read.stores,
        })
    }

    /// Return the content for its file.
    fn to_bytes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let lease = leases::Lease {
            batch: self.batch,
            id: self.id.clone(),
            branch: self.branch.clone(),
            made_ms: self.made_ms,
            until: self.until,
            expires_ms: self.expires_ms,
            stores: self.stores.clone(),
        };
        Ok(PyBytes::new(py, &lease.to_bytes().map_err(to_py)?))
    }
}

/// Where a branch finds the segments that it began with: files of terms up to `until` in the folder,
/// and the name of the lease on them.
#[pyclass(frozen, get_all, module = "holdfast._core")]
pub(crate) struct Parent {
    folder: String,
    until: u64,
    lease: String,
}

#[pymethods]
impl Parent {
    #[new]
    #[pyo3(signature = (*, folder, until, lease))]
    fn new(folder: String, until: u64, lease: String) -> Self {
        Self {
            folder,
            until,
            lease,
        }
    }

    /// Return the content of the file of a parent; the errors are those of `Lease.from_bytes`.
    #[staticmethod]
    fn from_bytes(data: &[u8]) -> PyResult<Self> {
        let leases::Parent {
            folder,
            until,
            lease,
        } = leases::Parent::from_bytes(data).map_err(to_py)?;
        Ok(Self::new(folder, until, lease))
    }

    /// Return the content for its file.
    fn to_bytes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let parent = leases::Parent {
            folder: self.folder.clone(),
            until: self.until,
            lease: self.lease.clone(),
        };
        Ok(PyBytes::new(py, &parent.to_bytes().map_err(to_py)?))
    }
}

/// Return the next step of a command that makes a lease: "record", "copy", "look", "hold", "publish",
/// "done", "give up" or "refuse". `same` is None without a lease of the name, and else whether it is
/// for the same.
#[pyfunction]
#[pyo3(signature = (*, same, held, copied, retained, published))]
pub(crate) fn lease_step(
    same: Option<bool>,
    held: bool,
    copied: bool,
    retained: Option<bool>,
    published: bool,
) -> &'static str {
    let record = match same {
        None => Record::Absent,
        Some(true) => Record::Same,
        Some(false) => Record::Other,
    };
    match next_step(&Facts {
        record,
        held,
        copied,
        retained,
        published,
    }) {
        Step::Record => "record",
        Step::Copy => "copy",
        Step::Look => "look",
        Step::Hold => "hold",
        Step::Publish => "publish",
        Step::Done => "done",
        Step::GiveUp => "give up",
        Step::Refuse => "refuse",
    }
}
