//! Writing and reading segments through a manager, whether it is in this process or in another one.

use std::sync::Arc;

use holdfast_core::format::NewSegment;
use holdfast_core::manager::SnapshotManager;
use holdfast_core::{CheckpointId, Error, Owner as CoreOwner, SegmentRef as CoreRef};
use holdfast_wire::Client;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::arguments;
use crate::buffer::Payload;
use crate::errors::to_py;
use crate::shared::Shared;
use crate::values::{Owner, SegmentRef, core_refs};

/// Where a program puts segments: a `SnapshotManager`, or a `ManagerClient` of one in another process.
///
/// All methods may be called from several threads; the GIL is released around work and I/O.
#[pyclass(frozen, subclass, module = "holdfast._core")]
pub(crate) struct SegmentStore(Place);

/// Where the manager is.
enum Place {
    Here(Arc<Shared<SnapshotManager>>),
    BehindSocket(Arc<Shared<Client>>),
}

/// A manager for one call.
enum Opened {
    Here(Arc<SnapshotManager>),
    BehindSocket(Arc<Client>),
}

impl Opened {
    fn append(&self, new: &NewSegment<'_>, payload: &[u8]) -> Result<CoreRef, Error> {
        match self {
            Self::Here(manager) => manager.append(new, payload),
            Self::BehindSocket(client) => client.append(new, payload),
        }
    }

    fn read(
        &self,
        segment: &CoreRef,
        owner: &CoreOwner,
        known_bytes: u64,
    ) -> Result<Vec<u8>, Error> {
        match self {
            Self::Here(manager) => {
                let segment = manager.read_known(segment, owner, known_bytes)?;
                Ok(segment.payload)
            }
            Self::BehindSocket(client) => client.read_known(segment, owner, known_bytes),
        }
    }

    fn persist_segments(
        &self,
        id: CheckpointId,
        owner: &CoreOwner,
        refs: &[CoreRef],
    ) -> Result<(), Error> {
        match self {
            Self::Here(manager) => manager.persist_segments(id, owner, refs),
            Self::BehindSocket(client) => client.persist_segments(id, owner, refs),
        }
    }

    fn lease(
        &self,
        owner: &CoreOwner,
        id: CheckpointId,
        refs: &[CoreRef],
    ) -> Result<Vec<bool>, Error> {
        match self {
            Self::Here(manager) => manager.lease(owner, id, refs),
            Self::BehindSocket(client) => client.lease(owner, id, refs),
        }
    }

    fn release(&self, owner: &CoreOwner, refs: &[CoreRef]) -> Result<(), Error> {
        match self {
            Self::Here(manager) => {
                manager.release(owner, refs);
                Ok(())
            }
            Self::BehindSocket(client) => client.release(owner, refs),
        }
    }
}

impl SegmentStore {
    pub(crate) fn here(manager: Arc<Shared<SnapshotManager>>) -> Self {
        Self(Place::Here(manager))
    }

    pub(crate) fn behind_socket(client: Arc<Shared<Client>>) -> Self {
        Self(Place::BehindSocket(client))
    }

    fn open(&self) -> PyResult<Opened> {
        match &self.0 {
            Place::Here(manager) => manager.open().map(Opened::Here),
            Place::BehindSocket(client) => client.open().map(Opened::BehindSocket),
        }
        .map_err(to_py)
    }

    /// Runs `work` with the GIL released.
    fn detached<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&Opened) -> Result<T, Error> + Send,
    ) -> PyResult<T> {
        let manager = self.open()?;
        py.detach(|| work(&manager)).map_err(to_py)
    }
}

#[pymethods]
impl SegmentStore {
    /// Append a segment for an open checkpoint attempt.
    ///
    /// Once this returns, the bytes survive the death of this process; `persist` and
    /// `persist_segments` make them survive the machine.
    ///
    /// Parameters
    /// ----------
    /// owner : Owner
    ///     Whose state it is.
    /// checkpoint : int
    ///     Id of the attempt.
    /// data : buffer
    ///     Any object with the buffer protocol: bytes, bytearray, memoryview, NumPy array, Arrow
    ///     buffer. It is not copied when it is C-contiguous; it must not be changed by another
    ///     thread during the call. To another process, data of more than 64 KiB cross in memory
    ///     that both processes see, not through the socket.
    /// kind : {"snapshot", "changelog", "base_image", "in_flight"}, default "snapshot"
    ///     What the segment holds.
    /// lineage : sequence of SegmentRef, default ()
    ///     Segments it builds on, oldest first.
    /// entries : int, default 0
    ///     Number of entries in the payload, for display.
    ///
    /// Returns
    /// -------
    /// SegmentRef
    ///     Keep it in the checkpoint's metadata: without it the segment cannot be read.
    ///
    /// Raises
    /// ------
    /// AttemptEndedError
    ///     If the attempt was decided already.
    /// FencedError
    ///     If a newer manager took the folder over.
    /// ValueError
    ///     If a name or the lineage is out of bounds, or the manager is closed.
    /// ConnectionError
    ///     If the connection to another process broke. The segment may have been written, but no
    ///     checkpoint refers to it.
    /// OSError
    ///     If storage failed. Nothing was appended, and other owners are not affected; a retry
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
        let manager = self.open()?;
        let kind = arguments::segment_kind(kind)?;
        let lineage = core_refs(&lineage);
        let payload = Payload::of(data)?;
        let new = NewSegment {
            owner: &owner.0,
            created: CheckpointId(checkpoint),
            kind,
            lineage: &lineage,
            replaced: None,
            entries,
            tables: &[],
            runs: 0,
        };
        payload
            .with_bytes(py, |bytes| manager.append(&new, bytes))
            .map(SegmentRef)
            .map_err(to_py)
    }

    /// Read a segment and verify all of it: digest, checksums, owner.
    ///
    /// Parameters
    /// ----------
    /// ref : SegmentRef
    ///     What `append` returned, in this or in an earlier incarnation.
    /// owner : Owner
    ///     Whose state it is.
    /// known_bytes : int, default 0
    ///     Bytes that the physical file is known to have, at least. On object stores that saves the
    ///     request for how many it has.
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
    ///     If the stored bytes differ from what was written, or belong to another owner. The
    ///     message names file, offset, owner, expected and found values.
    /// NotImplementedError
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
        let payload = self.detached(py, |manager| manager.read(&r#ref.0, &owner.0, known_bytes))?;
        Ok(PyBytes::new(py, &payload))
    }

    /// Make exactly these segments survive a machine crash.
    ///
    /// Parameters
    /// ----------
    /// checkpoint : int
    ///     Id of the attempt.
    /// owner : Owner
    ///     Whose segments they are.
    /// refs : sequence of SegmentRef
    ///     The segments of one acknowledgement.
    ///
    /// Raises
    /// ------
    /// AttemptEndedError
    ///     If the attempt was decided already.
    /// FencedError
    ///     If a newer manager took the folder over.
    /// FileNotFoundError
    ///     If a segment is not live any more, or its file is gone.
    /// OSError
    ///     If storage failed, or a segment was lost by an earlier failure: release it and write it
    ///     again. Or the connection to another process broke.
    fn persist_segments(
        &self,
        py: Python<'_>,
        checkpoint: u64,
        owner: Owner,
        refs: Vec<SegmentRef>,
    ) -> PyResult<()> {
        let (id, refs) = (CheckpointId(checkpoint), core_refs(&refs));
        self.detached(py, |manager| manager.persist_segments(id, &owner.0, &refs))
    }

    /// Ask to reuse segments in an open attempt instead of writing them again.
    ///
    /// Parameters
    /// ----------
    /// owner : Owner
    ///     Whose segments they are.
    /// checkpoint : int
    ///     Id of the attempt.
    /// refs : sequence of SegmentRef
    ///     Segments of earlier checkpoints.
    ///
    /// Returns
    /// -------
    /// list of bool
    ///     Per segment: True when it is kept until the attempt is decided, and longer if its
    ///     checkpoint contains it; False when it must be written again. Segments that the manager
    ///     of another executor wrote always must.
    ///
    /// Raises
    /// ------
    /// AttemptEndedError
    ///     If the attempt was decided already.
    /// FencedError
    ///     If a newer manager took the folder over.
    /// ConnectionError
    ///     If the connection to another process broke.
    fn lease(
        &self,
        py: Python<'_>,
        owner: Owner,
        checkpoint: u64,
        refs: Vec<SegmentRef>,
    ) -> PyResult<Vec<bool>> {
        let (id, refs) = (CheckpointId(checkpoint), core_refs(&refs));
        self.detached(py, |manager| manager.lease(&owner.0, id, &refs))
    }

    /// Give up segments whose acknowledgement was refused.
    ///
    /// What was written for it dies at once; segments that it only reused are left alone.
    ///
    /// Parameters
    /// ----------
    /// owner : Owner
    ///     Whose segments they are.
    /// refs : sequence of SegmentRef
    ///     The segments of the refused acknowledgement.
    ///
    /// Raises
    /// ------
    /// ConnectionError
    ///     If the connection to another process broke.
    fn release(&self, py: Python<'_>, owner: Owner, refs: Vec<SegmentRef>) -> PyResult<()> {
        let refs = core_refs(&refs);
        self.detached(py, |manager| manager.release(&owner.0, &refs))
    }

    /// Close a manager of this process, or the connection to one of another process. Closing twice
    /// does nothing.
    ///
    /// A manager of this process seals its open files and deletes what is due.
    ///
    /// Raises
    /// ------
    /// OSError
    ///     If a file could not be sealed. The manager is closed nevertheless, and what was persisted
    ///     remains readable.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        match &self.0 {
            Place::Here(manager) => {
                // In a child the files are those of its parent, which closes them itself.
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
