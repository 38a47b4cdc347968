//! The state of an operator of an ordinary query as columns of Arrow arrays.

use std::path::PathBuf;
use std::sync::Arc;

use holdfast_core::Error;
use holdfast_core::leases::open_local;
use holdfast_core::rows::Column;
use holdfast_core::rows::spark::{
    ArrowArray, Field, KeyColumn, RowColumns, SparkType, write_keys, write_prefix,
};
use holdfast_core::state::{OperatorScan, OperatorState, RowsOf, StateDifferences};
use holdfast_core::storage::{NearbyStorage, Storage};
use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

use crate::buffer::Buffers;
use crate::errors::to_py;
use crate::opened_files::opened;
use crate::table::built;

/// Bound on the parts of files that a reader keeps in memory, if Python opens them.
const NEARBY_BYTES: u64 = 32 << 20;

/// Bound on the entries of a batch of a scan.
const BATCH_BYTES: usize = 4 << 20;

/// A column of keys as Python has it: rows, offset, the buffers for validity, offsets and values, any
/// of which may be None, and the fields of a struct.
struct KeyArgument {
    rows: usize,
    offset: usize,
    buffers: Buffers,
    children: Vec<KeyArgument>,
}

impl<'py> FromPyObject<'_, 'py> for KeyArgument {
    type Error = PyErr;

    fn extract(obj: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        type Parts<'py> = (
            usize,
            usize,
            [Option<Bound<'py, PyAny>>; 3],
            Vec<KeyArgument>,
        );
        let (rows, offset, buffers, children): Parts<'_> = obj.extract()?;
        Ok(Self {
            rows,
            offset,
            buffers: Buffers::of(buffers)?,
            children,
        })
    }
}

impl KeyArgument {
    fn view<'a>(
        &'a self,
        py: Python<'_>,
        name: &'a str,
        kind: &SparkType,
    ) -> Result<KeyColumn<'a>, Error> {
        let buffers = self.buffers.bytes(py);
        let kinds = match kind {
            SparkType::Struct(kinds) => kinds.as_slice(),
            _ => &[],
        };
        let children = self.children.iter().zip(kinds);
        Ok(KeyColumn {
            kind: kind.clone(),
            column: Column::new(name, kind.column(), self.rows, self.offset, buffers)?,
            children: children
                .map(|(child, kind)| child.view(py, name, kind))
                .collect::<Result<_, _>>()?,
        })
    }
}

fn views<'a>(
    py: Python<'_>,
    columns: &'a [KeyArgument],
    fields: &'a [Field],
) -> PyResult<Vec<KeyColumn<'a>>> {
    let columns = columns.iter().zip(fields);
    let views = columns.map(|(column, field)| column.view(py, &field.name, &field.kind));
    views.collect::<Result<_, _>>().map_err(to_py)
}

/// Rows, nulls, the three buffers and the children of each array.
fn parts(py: Python<'_>, arrays: Vec<ArrowArray>) -> PyResult<Bound<'_, PyList>> {
    let parts = arrays.into_iter().map(|ArrowArray { own, children }| {
        let rows = own.rows();
        let (nulls, validity, offsets, values) = built(py, own);
        let buffers = (validity, offsets, values);
        (rows, nulls, buffers, parts(py, children)?).into_pyobject(py)
    });
    PyList::new(py, parts.collect::<PyResult<Vec<_>>>()?)
}

/// The stores of one operator and name at one version. Takes no term, changes no file.
///
/// Parameters
/// ----------
/// folder : str, os.PathLike or object
///     The folder of the segments: a path, or an object whose method `open` takes the name of a file
///     and returns one with the methods `size` and `read_at` of `pyarrow.NativeFile`. Its method `at`
///     returns another folder by its URI.
/// operator, store : str
///     The operator, and the name of its stores.
/// ids : sequence of (int, str)
///     Partition and id of each store of the operator, from the commit log.
/// keys, values : sequence of (str, str)
///     Names and types of the columns; `SparkType::parse` of the core has the codes of types.
/// prefix : int, optional
///     Number of the first columns of the key that the store keeps together, for scans.
/// checksums : bool
///     Spark wrote a checksum before each value.
/// hashed : int
///     Number of the first columns of the key that say in which partition it is.
/// family : (str, bool), optional
///     Column family, and whether it has lists of values, for stores with column families.
///
/// Raises
/// ------
/// FileNotFoundError
///     If a partition has no such store.
/// CorruptSegmentError, NewerFormatError, NotImplementedError
///     If an id was damaged, or Holdfast, or this version of it, did not write it.
#[pyclass(frozen, module = "holdfast._core")]
pub(crate) struct StateReader {
    state: Arc<OperatorState>,
    columns: Arc<RowColumns>,
    hashed: usize,
}

#[pymethods]
impl StateReader {
    #[new]
    #[pyo3(signature = (folder, operator, store, ids, *, keys, values, prefix, checksums, hashed, family))]
    #[allow(clippy::too_many_arguments, reason = "keywords in Python")]
    fn new(
        folder: &Bound<'_, PyAny>,
        operator: &str,
        store: &str,
        ids: Vec<(u32, String)>,
        keys: Vec<(String, String)>,
        values: Vec<(String, String)>,
        prefix: Option<usize>,
        checksums: bool,
        hashed: usize,
        family: Option<(String, bool)>,
    ) -> PyResult<Self> {
        let field = |(name, code): (String, String)| {
            SparkType::parse(&code).map(|kind| Field { name, kind })
        };
        let fields = |columns: Vec<_>| columns.into_iter().map(field).collect::<Result<_, _>>();
        let columns = RowColumns {
            keys: fields(keys).map_err(to_py)?,
            values: fields(values).map_err(to_py)?,
            prefix,
            checksums,
        };
        let storage: Arc<dyn Storage> = match folder.extract::<PathBuf>() {
            Ok(folder) => open_local(folder).map_err(to_py)?,
            Err(_) => Arc::new(NearbyStorage::new(opened(folder)?, NEARBY_BYTES)),
        };
        let rows = family.map_or(RowsOf::Store, |(name, several_values)| RowsOf::Family {
            name,
            several_values,
        });
        let state = OperatorState::find(storage, operator, store, rows, &ids).map_err(to_py)?;
        Ok(Self {
            state: Arc::new(state),
            columns: Arc::new(columns),
            hashed,
        })
    }

    /// Return the columns of the values of `rows` keys: null where a key is not there.
    ///
    /// A column is a tuple of rows, offset, the buffers of an Arrow array, and the same of the fields
    /// of a struct. Columns come back as ``(rows, nulls, buffers, children)``.
    ///
    /// Raises
    /// ------
    /// FileNotFoundError, CorruptSegmentError, NewerFormatError, OSError
    ///     If the state cannot be read.
    /// NotImplementedError
    ///     If a text is not UTF-8.
    fn get<'py>(
        &self,
        py: Python<'py>,
        keys: Vec<KeyArgument>,
        rows: usize,
    ) -> PyResult<Bound<'py, PyList>> {
        let columns = views(py, &keys, &self.columns.keys)?;
        let found = py.detach(|| {
            let keys = write_keys(&columns, rows, self.columns.prefix, self.hashed)?;
            let found = self.state.get(&keys)?;
            let values = found.iter().enumerate();
            self.columns
                .read_values(values.map(|(row, value)| (keys.key(row), value)))
        });
        parts(py, found.map_err(to_py)?)
    }

    /// Return the number of the rows whose first columns are the row of `prefix`, and the columns of
    /// their keys and values.
    fn with_prefix<'py>(
        &self,
        py: Python<'py>,
        prefix: Vec<KeyArgument>,
    ) -> PyResult<(u32, Bound<'py, PyList>)> {
        let columns = views(py, &prefix, &self.columns.keys)?;
        let found = py.detach(|| {
            let (prefix, hash) = write_prefix(&columns)?;
            let mut entries = Vec::new();
            let rows = self.state.with_prefix(&prefix, hash, &mut entries)?;
            Ok((rows, self.columns.read_entries(rows as usize, &entries)?))
        });
        let (rows, columns) = found.map_err(to_py)?;
        Ok((rows, parts(py, columns)?))
    }

    /// Begin a scan of all rows.
    fn scan(&self) -> StateScan {
        StateScan {
            scan: Mutex::new(self.state.scan()),
            columns: Arc::clone(&self.columns),
        }
    }

    /// Begin a comparison with `after`, which may follow directly.
    ///
    /// Raises
    /// ------
    /// NotImplementedError
    ///     If the numbers of partitions differ.
    fn differences(&self, after: &Self, follows: bool) -> PyResult<DifferenceScan> {
        let found = self.state.differences(&after.state, follows);
        Ok(DifferenceScan {
            scan: Mutex::new(found.map_err(to_py)?),
            columns: Arc::clone(&after.columns),
        })
    }

    /// Return the number of keys; the errors are those of `get`.
    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        let keys = py.detach(|| self.state.keys()).map_err(to_py)?;
        Ok(usize::try_from(keys).unwrap_or(usize::MAX))
    }
}

/// A scan of `StateReader`.
#[pyclass(frozen, module = "holdfast._core")]
pub(crate) struct StateScan {
    scan: Mutex<OperatorScan>,
    columns: Arc<RowColumns>,
}

#[pymethods]
impl StateScan {
    /// Return the number of the next rows and their columns, of keys and values; no rows at the end.
    /// Columns and errors are those of `StateReader.get`.
    fn read<'py>(&self, py: Python<'py>) -> PyResult<(u32, Bound<'py, PyList>)> {
        let read = py.detach(|| {
            let mut entries = Vec::new();
            let rows = self.scan.lock().next(BATCH_BYTES, &mut entries)?;
            let columns = self.columns.read_entries(rows as usize, &entries)?;
            Ok((rows, columns))
        });
        let (rows, columns) = read.map_err(to_py)?;
        Ok((rows, parts(py, columns)?))
    }
}

/// A comparison of `StateReader.differences`.
#[pyclass(frozen, module = "holdfast._core")]
pub(crate) struct DifferenceScan {
    scan: Mutex<StateDifferences>,
    columns: Arc<RowColumns>,
}

/// The number of values of each key, and the columns of the values.
type SideParts<'py> = (Bound<'py, PyBytes>, Bound<'py, PyList>);

#[pymethods]
impl DifferenceScan {
    /// Return the number of the next keys that differ, the columns of the keys, and for the values
    /// before and after: the number of values of each key (int32), and their columns, which have a
    /// null for a key without values. No keys at the end. Columns and errors are those of
    /// `StateReader.get`.
    fn read<'py>(
        &self,
        py: Python<'py>,
    ) -> PyResult<(usize, Bound<'py, PyList>, [SideParts<'py>; 2])> {
        let read = py.detach(|| {
            let found = self.scan.lock().next(BATCH_BYTES)?;
            let keys = self.columns.read_keys(found.keys())?;
            let values = |side| self.columns.read_values(found.values(side).into_iter());
            let values = [values(0)?, values(1)?];
            Ok((found, keys, values))
        });
        let (found, keys, [before, after]) = read.map_err(to_py)?;
        let side = |side, values| {
            let counts = found.counts(side);
            let counts: Vec<u8> = counts.flat_map(|n| (n as i32).to_ne_bytes()).collect();
            PyResult::Ok((PyBytes::new(py, &counts), parts(py, values)?))
        };
        let sides = [side(0, before)?, side(1, after)?];
        Ok((found.rows(), parts(py, keys)?, sides))
    }
}
