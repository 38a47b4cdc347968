//! Writing and reading segments through a manager in this process or in another one.

use holdfast_core::format::NewSegment;
use holdfast_core::manager::SnapshotManager;
use holdfast_core::{CheckpointId, Error};
use holdfast_wire::Client;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::arguments::{SEGMENT_KINDS, one_of};
use crate::buffer::Payload;
use crate::errors::to_py;
use crate::place::Place;
use crate::table::TableSession;
use crate::values::{Owner, SegmentRef, core_refs};

/// A place for segments: a `SnapshotManager`, or a `ManagerClient` of a manager in another process.
///
/// All methods may be called from several threads; the GIL is released around work and I/O.
#[pyclass(frozen, subclass, module = "holdfast._core")]
pub(crate) struct SegmentStore(pub(crate) Place);

impl SegmentStore {
    /// Like `call`, with the GIL released.
    fn detached<T: Send>(
        &self,
        py: Python<'_>,
        here: impl FnOnce(&SnapshotManager) -> Result<T, Error> + Send,
        behind_socket: impl FnOnce(&Client) -> Result<T, Error> + Send,
    ) -> PyResult<T> {
        py.detach(|| self.0.call(here, behind_socket))
            .map_err(to_py)
    }
}

#[pymethods]
impl SegmentStore {
    /// Append a segment for an open checkpoint attempt.
    ///
    /// Once this returns, the bytes survive the death of this process. `persist` and
    /// `persist_segments` make them survive a crash of the machine.
    ///
    /// Parameters
    /// ----------
    /// owner : Owner
    ///     The owner of the state.
    /// checkpoint : int
    ///     Id of the attempt.
    /// data : buffer
    ///     Any object with the buffer protocol: bytes, bytearray, memoryview, NumPy array, Arrow
    ///     buffer. C-contiguous data is not copied. No other thread may change it during the call.
    ///     More than 64 KiB reach another process through shared memory, not through the socket.
    /// kind : {"snapshot", "changelog", "in_flight"}, default "snapshot"
    ///     Content of the segment.
    /// lineage : sequence of SegmentRef, default ()
    ///     Segments it builds on, oldest first.
    /// entries : int, default 0
    ///     Number of entries in the payload, for display.
    ///
    /// Returns
    /// -------
    /// SegmentRef
    ///     Keep it in the checkpoint's metadata: a read of the segment needs it.
    ///
    /// Raises
    /// ------
    /// AttemptEndedError, FencedError
    ///     If the attempt was decided, or a newer manager took the folder over.
    /// ValueError
    ///     If a name or the lineage is out of bounds, or the manager is closed.
    /// ConnectionError
    ///     If the connection to another process broke. The segment may have been written, but no
    ///     checkpoint refers to it.
    /// OSError
    ///     If storage failed. Nothing was appended, and other owners are not affected. A retry
    ///     goes to a new file.
    #[pyo3(signature = (owner, checkpoint, data, *, kind = "snapshot", lineage = Vec::new(), entries = 0))]
    #[pyo3(
        text_signature = "($self, owner, checkpoint, data, *, kind=\"snapshot\", lineage=(), entries=0)"
    )]
    #[allow(clippy::too_many_arguments, reason = "keywords in Python")]
    fn append(
        &self,
        py: Python<'_>,
        owner: Owner,
        checkpoint: u64,
        data: &Bound<'_, PyAny>,
        kind: &str,
        lineage: Vec<SegmentRef>,
        entries: u64,
    ) -> PyResult<SegmentRef> {
        let kind = one_of("kind", kind, &SEGMENT_KINDS)?;
        let lineage = core_refs(&lineage);
        let new = NewSegment {
            lineage: &lineage,
            entries,
            ..NewSegment::of(&owner.0, CheckpointId(checkpoint), kind)
        };
        let appended = Payload::of(data)?.with_bytes(py, |bytes| {
            self.0
                .call(|m| m.append(&new, bytes), |c| c.append(&new, bytes))
        });
        appended.map(SegmentRef).map_err(to_py)
    }

    /// Read a segment and verify all of it: digest, checksums, owner.
    ///
    /// Parameters
    /// ----------
    /// ref : SegmentRef
    ///     Return value of `append`, in this or in an earlier incarnation.
    /// owner : Owner
    ///     The owner of the state.
    /// known_bytes : int, default 0
    ///     Lower bound on the size of the physical file in bytes. On object stores it saves the
    ///     request for the size.
    ///
    /// Returns
    /// -------
    /// bytes
    ///     The payload, uncompressed.
    ///
    /// Raises
    /// ------
    /// FileNotFoundError
    ///     If the physical file is missing.
    /// CorruptSegmentError
    ///     If the stored bytes differ from the written ones, or belong to another owner. The
    ///     message names file, offset, owner, expected and found values.
    /// NewerFormatError
    ///     If a newer version of Holdfast wrote the segment.
    /// OSError
    ///     If storage failed, or the connection to another process broke.
    #[pyo3(signature = (r#ref, owner, *, known_bytes = 0))]
    fn read<'py>(
        &self,
        py: Python<'py>,
        r#ref: SegmentRef,
        owner: Owner,
        known_bytes: u64,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let payload = self.detached(
            py,
            |manager| Ok(manager.read_known(&r#ref.0, &owner.0, known_bytes)?.payload),
            |client| client.read(&r#ref.0, &owner.0, known_bytes),
        )?;
        Ok(PyBytes::new(py, &payload))
    }

    /// Make exactly these segments survive a machine crash.
    ///
    /// Parameters
    /// ----------
    /// checkpoint, owner
    ///     The same as in `append`.
    /// refs : sequence of SegmentRef
    ///     The segments of one acknowledgement.
    ///
    /// Raises
    /// ------
    /// AttemptEndedError, FencedError
    ///     If the attempt was decided, or a newer manager took the folder over.
    /// FileNotFoundError
    ///     If a segment is not live any more, or its file is gone.
    /// OSError
    ///     If storage failed, or the connection to another process broke. Or if an earlier failure
    ///     lost a segment: release it and write it again.
    fn persist_segments(
        &self,
        py: Python<'_>,
        checkpoint: u64,
        owner: Owner,
        refs: Vec<SegmentRef>,
    ) -> PyResult<()> {
        let (id, refs) = (CheckpointId(checkpoint), core_refs(&refs));
        self.detached(
            py,
            |manager| manager.persist_segments(id, &owner.0, &refs),
            |client| client.persist_segments(id, &owner.0, &refs),
        )
    }

    /// Ask to reuse segments in an open attempt instead of writing them again.
    ///
    /// Parameters
    /// ----------
    /// owner, checkpoint
    ///     The same as in `append`.
    /// refs : sequence of SegmentRef
    ///     Segments of earlier checkpoints.
    ///
    /// Returns
    /// -------
    /// list of bool
    ///     Per segment: True if it is kept until the attempt is decided, and longer if the
    ///     checkpoint contains it. False if it must be written again, as must every segment that
    ///     the manager of another executor wrote.
    ///
    /// Raises
    /// ------
    /// AttemptEndedError, FencedError, ConnectionError
    ///     In the same cases as `append`.
    fn lease(
        &self,
        py: Python<'_>,
        owner: Owner,
        checkpoint: u64,
        refs: Vec<SegmentRef>,
    ) -> PyResult<Vec<bool>> {
        let (id, refs) = (CheckpointId(checkpoint), core_refs(&refs));
        self.detached(
            py,
            |manager| manager.lease(&owner.0, id, &refs),
            |client| client.lease(&owner.0, id, &refs),
        )
    }

    /// Release the segments of a refused acknowledgement.
    ///
    /// Segments that were written for it die at once. Segments that it only reused remain.
    ///
    /// Raises
    /// ------
    /// ConnectionError
    ///     If the connection to another process broke.
    fn release(&self, py: Python<'_>, owner: Owner, refs: Vec<SegmentRef>) -> PyResult<()> {
        let refs = core_refs(&refs);
        self.detached(
            py,
            |manager| {
                manager.release(&owner.0, &refs);
                Ok(())
            },
            |client| client.release(&owner.0, &refs),
        )
    }

    /// Open a table for an attempt, see `TableSession`.
    ///
    /// An older session of the same table ends, with its changes.
    ///
    /// Parameters
    /// ----------
    /// owner, checkpoint
    ///     The same as in `append`.
    /// keys, values : sequence of str
    ///     Layouts of the columns.
    /// id : str, optional
    ///     The commit to begin with. By default the table is empty.
    ///
    /// Raises
    /// ------
    /// AttemptEndedError, FencedError
    ///     If the attempt was decided, or a newer manager took the folder over.
    /// FileNotFoundError, CorruptSegmentError, OSError
    ///     If the table cannot be read.
    #[pyo3(signature = (owner, checkpoint, *, keys, values, id = None))]
    fn open_table(
        &self,
        py: Python<'_>,
        owner: Owner,
        checkpoint: u64,
        keys: Vec<String>,
        values: Vec<String>,
        id: Option<&str>,
    ) -> PyResult<TableSession> {
        TableSession::open(py, self.0.clone(), &owner, checkpoint, [keys, values], id)
    }

    /// Close a manager of this process, or the connection to another one; twice is allowed.
    ///
    /// A manager of this process seals its open files and deletes the files that are due.
    ///
    /// Raises
    /// ------
    /// OSError
    ///     If a file could not be sealed. The manager is closed nevertheless, and everything
    ///     persisted remains readable.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        match &self.0 {
            Place::Here(manager) => {
                // In a forked child the files belong to its parent, which closes them itself.
                let own = manager.take().filter(|manager| !manager.is_inherited());
                py.detach(|| own.map_or(Ok(()), |manager| manager.seal()))
                    .map_err(to_py)
            }
            Place::BehindSocket(client) => {
                let client = client.take();
                py.detach(|| drop(client));
                Ok(())
            }
        }
    }

    fn __enter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    #[pyo3(signature = (exc_type, exc_value, traceback, /))]
    fn __exit__(
        &self,
        py: Python<'_>,
        exc_type: &Bound<'_, PyAny>,
        exc_value: &Bound<'_, PyAny>,
        traceback: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let _ = (exc_type, exc_value, traceback);
        self.close(py)
    }
}
