//! Messages about checkpoints as bytes.

use holdfast_wire::{ManagerMessage, MessageKind};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::arguments::{FallbacksArgument, ReleasedArgument, RetainedArgument, one_of};

/// Encode a message about a checkpoint, for managers in other processes.
///
/// Parameters
/// ----------
/// kind : {"completed", "partially_completed", "aborted"}
///     Method of `SnapshotManager` that is called there.
/// fallbacks : mapping of Owner to int
///     The argument of `SnapshotManager.partially_completed`; empty for every other kind.
/// retained, decided
///     The arguments of `SnapshotManager.completed`.
/// released : mapping of Owner to sequence of SegmentRef, optional
///     The argument of `SnapshotManager.release`, which is called first.
///
/// Returns
/// -------
/// bytes
///     For ``RegionalPipelines.tellManagers``.
///
/// Raises
/// ------
/// ValueError
///     If there is no such kind, or there are fallbacks that the kind does not have.
#[pyfunction]
#[pyo3(signature = (kind, checkpoint, fallbacks, retained, decided = None, released = None))]
pub(crate) fn manager_message<'py>(
    py: Python<'py>,
    kind: &str,
    checkpoint: u64,
    fallbacks: FallbacksArgument,
    retained: RetainedArgument,
    decided: Option<u64>,
    released: Option<ReleasedArgument>,
) -> PyResult<Bound<'py, PyBytes>> {
    let known = [
        ("completed", MessageKind::Completed),
        ("partially_completed", MessageKind::PartiallyCompleted),
        ("aborted", MessageKind::Aborted),
    ];
    let kind = one_of("kind", kind, &known)?;
    if kind != MessageKind::PartiallyCompleted && !fallbacks.0.is_empty() {
        return Err(PyValueError::new_err(format!(
            "a message of {} fallbacks is partially_completed",
            fallbacks.0.len()
        )));
    }
    let (checkpoint, retained) = retained.at(checkpoint, decided);
    let message = ManagerMessage {
        kind,
        checkpoint,
        fallbacks: fallbacks.0,
        retained,
        released: released.map(|released| released.0).unwrap_or_default(),
    };
    Ok(PyBytes::new(py, &py.detach(|| message.to_bytes())))
}
