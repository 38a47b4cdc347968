//! Tables of regions: columns of Arrow arrays in and out.

use std::path::PathBuf;

use holdfast_core::manager::{self, SnapshotManager, TableAnswer, TableCall, TableCommit};
use holdfast_core::rows::{
    BuiltColumn, Column, ColumnType, count_entries, decode_entries, decode_entry_keys,
    decode_found, encode_entries, encode_keys, encode_prefix,
};
use holdfast_core::state::{KeyRange, VersionId};
use holdfast_core::storage::LocalStorage;
use holdfast_core::{CheckpointId, Error};
use holdfast_wire::Client;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyTuple};

use crate::buffer::Buffers;
use crate::errors::to_py;
use crate::place::Place;
use crate::values::{Owner, SegmentRef};

/// Bound on the entries that one call of a scan copies.
const SCAN_BYTES: usize = 4 << 20;

/// A column as Python has it: name, layout, rows, offset, and the buffers for validity, offsets and
/// values, any of which may be None.
pub(crate) struct ColumnArgument {
    name: String,
    layout: ColumnType,
    rows: usize,
    offset: usize,
    buffers: Buffers,
}

impl<'py> FromPyObject<'_, 'py> for ColumnArgument {
    type Error = PyErr;

    fn extract(obj: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        type Parts<'py> = (
            String,
            String,
            usize,
            usize,
            Option<Bound<'py, PyAny>>,
            Option<Bound<'py, PyAny>>,
            Option<Bound<'py, PyAny>>,
        );
        let (name, layout, rows, offset, validity, offsets, values): Parts<'_> = obj.extract()?;
        Ok(Self {
            name,
            layout: ColumnType::parse(&layout).map_err(to_py)?,
            rows,
            offset,
            buffers: Buffers::of([validity, offsets, values])?,
        })
    }
}

type Columns = Vec<ColumnArgument>;

/// Borrows columns for a call without the GIL.
fn views<'a>(py: Python<'_>, columns: &'a Columns) -> PyResult<Vec<Column<'a>>> {
    let view = |column: &'a ColumnArgument| {
        Column::new(
            &column.name,
            column.layout,
            column.rows,
            column.offset,
            column.buffers.bytes(py),
        )
    };
    let views = columns.iter().map(view);
    views.collect::<Result<_, _>>().map_err(to_py)
}

/// Number of nulls, and buffers for validity, offsets and values.
pub(crate) type BuiltParts<'py> = (
    usize,
    Option<Bound<'py, PyBytes>>,
    Option<Bound<'py, PyBytes>>,
    Bound<'py, PyBytes>,
);

pub(crate) fn built(py: Python<'_>, column: BuiltColumn) -> BuiltParts<'_> {
    let some = |bytes: &[u8]| (!bytes.is_empty()).then(|| PyBytes::new(py, bytes));
    let validity = some(&column.validity).filter(|_| column.nulls > 0);
    let offsets = some(&column.offsets);
    (
        column.nulls,
        validity,
        offsets,
        PyBytes::new(py, &column.values),
    )
}

pub(crate) fn key_columns<'py>(
    py: Python<'py>,
    keys: &[ColumnType],
    rows: u64,
    entries: &[u8],
) -> PyResult<Vec<BuiltParts<'py>>> {
    let rows = usize::try_from(rows).unwrap_or(usize::MAX);
    let columns = decode_entry_keys(keys, rows, entries).map_err(to_py)?;
    Ok(columns.into_iter().map(|one| built(py, one)).collect())
}

/// Id, segments, and number of keys.
pub(crate) type CommitParts<'py> = (String, Bound<'py, PyTuple>, u64);

pub(crate) fn commit_parts(py: Python<'_>, commit: TableCommit) -> PyResult<CommitParts<'_>> {
    let TableCommit { id, segments, keys } = commit;
    let segments = PyTuple::new(py, segments.into_iter().map(SegmentRef))?;
    Ok((id.to_string(), segments, keys))
}

/// A table in one attempt. `SegmentStore.open_table` opens it.
///
/// Columns are tuples `(name, layout, rows, offset, validity, offsets, values)`, with the buffers of
/// an Arrow array. The layout is ``b1`` (bits), ``i1`` to ``i16``, ``u1`` to ``u8``, ``f4``, ``f8``
/// or ``s`` (byte strings with offsets of 4 bytes). Columns come back as ``(nulls, validity,
/// offsets, values)``.
#[pyclass(frozen, module = "holdfast._core")]
pub(crate) struct TableSession {
    place: Place,
    session: u64,
    keys: Vec<ColumnType>,
    values: Vec<ColumnType>,
}

impl TableSession {
    pub(crate) fn open(
        py: Python<'_>,
        place: Place,
        owner: &Owner,
        checkpoint: u64,
        [keys, values]: [Vec<String>; 2],
        id: Option<&str>,
    ) -> PyResult<Self> {
        let (keys, values) = (parse(keys)?, parse(values)?);
        let id = id.map(str::parse::<VersionId>).transpose().map_err(to_py)?;
        let id = id.as_ref().map(|id| &id.state);
        let attempt = CheckpointId(checkpoint);
        let session = py
            .detach(|| {
                place.call(
                    |manager| manager.open_table(&owner.0, attempt, id),
                    |client| client.open_table(&owner.0, attempt, id),
                )
            })
            .map_err(to_py)?;
        Ok(Self {
            place,
            session,
            keys,
            values,
        })
    }

    fn call(&self, call: &TableCall<'_>) -> Result<TableAnswer, Error> {
        self.place.call(
            |manager: &SnapshotManager| manager.table(self.session, call),
            |client: &Client| client.table(self.session, call),
        )
    }

    /// Encodes keys, calls the table, and returns the bytes of its answer.
    fn flags<'py>(
        &self,
        py: Python<'py>,
        keys: &Columns,
        call: for<'a> fn(&'a [u8]) -> TableCall<'a>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let columns = views(py, keys)?;
        let answer = py.detach(|| self.call(&call(&encode_keys(&columns)?)));
        Ok(PyBytes::new(py, &answer.map_err(to_py)?.bytes))
    }

    fn scanned<'py>(&self, py: Python<'py>, call: &TableCall<'_>) -> PyResult<Scanned<'py>> {
        let found = py.detach(|| {
            let answer = self.call(call)?;
            let rows = usize::try_from(answer.rows).unwrap_or(0);
            let columns = decode_entries(&self.keys, &self.values, rows, &answer.bytes)?;
            Ok((answer.rows, columns, answer.scan))
        });
        let (rows, (keys, values), scan) = found.map_err(to_py)?;
        let columns = keys.into_iter().chain(values);
        let columns = columns.map(|column| built(py, column)).collect();
        Ok((rows, columns, scan))
    }
}

/// Rows, columns of keys and values, and the scan that has rows left.
type Scanned<'py> = (u64, Vec<BuiltParts<'py>>, Option<u32>);

#[pymethods]
impl TableSession {
    /// Return the columns of the values of keys, aligned with them: null where a key is not there.
    fn get<'py>(&self, py: Python<'py>, keys: Columns) -> PyResult<Vec<BuiltParts<'py>>> {
        let columns = views(py, &keys)?;
        let rows = columns.first().map_or(0, Column::rows);
        let found = py.detach(|| {
            let answer = self.call(&TableCall::Get(&encode_keys(&columns)?))?;
            decode_found(&self.values, rows, &answer.bytes)
        });
        let found = found.map_err(to_py)?.into_iter();
        Ok(found.map(|column| built(py, column)).collect())
    }

    /// Return a byte for each key: 1 if it is there, else 0.
    fn contains<'py>(&self, py: Python<'py>, keys: Columns) -> PyResult<Bound<'py, PyBytes>> {
        self.flags(py, &keys, |keys| TableCall::Contains(keys))
    }

    /// Set keys to values. The last row of a key counts.
    fn upsert(&self, py: Python<'_>, keys: Columns, values: Columns) -> PyResult<()> {
        let (keys, values) = (views(py, &keys)?, views(py, &values)?);
        let done = py.detach(|| self.call(&TableCall::Put(&encode_entries(&keys, &values)?)));
        done.map(drop).map_err(to_py)
    }

    /// Remove keys. Return a byte for each: 1 if it was there, else 0.
    fn delete<'py>(&self, py: Python<'py>, keys: Columns) -> PyResult<Bound<'py, PyBytes>> {
        self.flags(py, &keys, |keys| TableCall::Remove(keys))
    }

    /// Begin a scan in the order of the keys.
    ///
    /// Parameters
    /// ----------
    /// prefix, start, stop : columns of one row, optional
    ///     Values of the first columns of the key: all rows of the scan have `prefix`, and it goes
    ///     from `start`, included, to `stop`, excluded.
    ///
    /// Returns
    /// -------
    /// (int, list, int or None)
    ///     Number of rows, their columns, and the scan if it has more rows, for `scan_on`.
    #[pyo3(signature = (*, prefix = None, start = None, stop = None))]
    fn scan<'py>(
        &self,
        py: Python<'py>,
        prefix: Option<Columns>,
        start: Option<Columns>,
        stop: Option<Columns>,
    ) -> PyResult<Scanned<'py>> {
        let encoded = |columns: Option<Columns>| {
            let columns = columns
                .as_ref()
                .map(|columns| views(py, columns))
                .transpose()?;
            let bytes = columns.map(|columns| encode_prefix(&columns)).transpose();
            bytes.map_err(to_py)
        };
        let bounds = [encoded(prefix)?, encoded(start)?, encoded(stop)?];
        let call = TableCall::Scan {
            range: KeyRange::of(bounds.each_ref()),
            max_bytes: SCAN_BYTES,
        };
        self.scanned(py, &call)
    }

    /// Return the next rows of a scan, like `scan`.
    fn scan_on<'py>(&self, py: Python<'py>, scan: u32) -> PyResult<Scanned<'py>> {
        let max_bytes = SCAN_BYTES;
        self.scanned(py, &TableCall::ScanOn { scan, max_bytes })
    }

    /// End a scan before its last row.
    fn close_scan(&self, py: Python<'_>, scan: u32) -> PyResult<()> {
        let closed = py.detach(|| self.call(&TableCall::CloseScan(scan)));
        closed.map(drop).map_err(to_py)
    }

    /// Commit the changes for the attempt; the session ends.
    ///
    /// Returns
    /// -------
    /// (str, tuple of SegmentRef, int)
    ///     Id of the commit, all segments that the table is made of, number of keys.
    fn commit<'py>(&self, py: Python<'py>) -> PyResult<CommitParts<'py>> {
        let commit = py.detach(|| {
            self.place.call(
                |manager| manager.commit_table(self.session),
                |client| client.commit_table(self.session),
            )
        });
        commit_parts(py, commit.map_err(to_py)?)
    }

    /// End the session without its changes.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let closed = py.detach(|| {
            self.place.call(
                |manager| {
                    manager.close_table(self.session);
                    Ok(())
                },
                |client| client.close_table(self.session),
            )
        });
        closed.map_err(to_py)
    }

    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        let answer = py.detach(|| self.call(&TableCall::Len)).map_err(to_py)?;
        Ok(usize::try_from(answer.rows).unwrap_or(usize::MAX))
    }
}

/// Return all rows of a table in a folder, for `decode_rows`. The folder must not change.
///
/// Parameters
/// ----------
/// folder : str or os.PathLike
///     The folder of its segments.
/// owner, id : Owner, str
///     Owner of the table, and id of its commit.
///
/// Raises
/// ------
/// FileNotFoundError, CorruptSegmentError, NewerFormatError, OSError
///     In the same cases as `read_segment`.
#[pyfunction]
#[pyo3(signature = (folder, owner, id))]
pub(crate) fn read_table<'py>(
    py: Python<'py>,
    folder: PathBuf,
    owner: Owner,
    id: &str,
) -> PyResult<Bound<'py, PyBytes>> {
    let id = id.parse::<VersionId>().map_err(to_py)?.state;
    let storage = LocalStorage::new(folder);
    let entries = py.detach(|| manager::read_table(&storage, &owner.0, &id));
    Ok(PyBytes::new(py, &entries.map_err(to_py)?))
}

/// Return the columns of rows that `read_table` read.
///
/// Parameters
/// ----------
/// data : bytes
///     The rows.
/// keys, values : sequence of str
///     Layouts of the columns, as for `TableSession`.
///
/// Returns
/// -------
/// (int, list)
///     Number of rows, and their columns.
#[pyfunction]
#[pyo3(signature = (data, *, keys, values))]
pub(crate) fn decode_rows<'py>(
    py: Python<'py>,
    data: PyBackedBytes,
    keys: Vec<String>,
    values: Vec<String>,
) -> PyResult<(usize, Vec<BuiltParts<'py>>)> {
    let (keys, values) = (parse(keys)?, parse(values)?);
    let found = py.detach(|| {
        let rows = count_entries(&data)?;
        Ok((rows, decode_entries(&keys, &values, rows, &data)?))
    });
    let (rows, (keys, values)) = found.map_err(to_py)?;
    let columns = keys.into_iter().chain(values);
    Ok((rows, columns.map(|column| built(py, column)).collect()))
}

pub(crate) fn parse(codes: Vec<String>) -> PyResult<Vec<ColumnType>> {
    let types = codes.iter().map(|code| ColumnType::parse(code));
    types.collect::<Result<Vec<_>, _>>().map_err(to_py)
}
