//! The core of a manager, which its Python object and its server share.

use std::path::Path;
use std::sync::Arc;

use holdfast_core::Error;
use holdfast_core::manager::SnapshotManager as Core;
use parking_lot::Mutex;

/// `None` once closed; a server of the manager sees that as well. The lock is held for a moment only,
/// never around work.
pub(crate) type SharedCore = Arc<Mutex<Option<Arc<Core>>>>;

/// The core, unless it was closed.
pub(crate) fn open_core(core: &SharedCore, path: &Path) -> Result<Arc<Core>, Error> {
    core.lock()
        .clone()
        .ok_or_else(|| Error::invalid_input(format!("the manager of {} is closed", path.display())))
}
