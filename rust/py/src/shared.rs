//! A value that Python objects and threads of the core share until one of them closes it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use holdfast_core::Error;
use parking_lot::Mutex;

/// A manager, client or server, and the folder or socket that names it in messages.
pub(crate) struct Shared<T> {
    what: &'static str,
    path: PathBuf,
    /// `None` once closed. The lock is held for a moment only, never around work.
    opened: Mutex<Option<Arc<T>>>,
}

impl<T> Shared<T> {
    pub(crate) fn new(what: &'static str, path: PathBuf, opened: T) -> Arc<Self> {
        Arc::new(Self {
            what,
            path,
            opened: Mutex::new(Some(Arc::new(opened))),
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// # Errors
    /// `InvalidInput` once it is closed.
    pub(crate) fn open(&self) -> Result<Arc<T>, Error> {
        self.while_open().ok_or_else(|| {
            Error::invalid_input(format!(
                "the {} of {} is closed",
                self.what,
                self.path.display()
            ))
        })
    }

    pub(crate) fn while_open(&self) -> Option<Arc<T>> {
        self.opened.lock().clone()
    }

    /// Marks it closed. The first caller gets the value.
    pub(crate) fn take(&self) -> Option<Arc<T>> {
        self.opened.lock().take()
    }

    /// `<ManagerClient at /run/m.sock>`, for one `class` of Python objects.
    pub(crate) fn repr(&self, class: &str) -> String {
        let closed = if self.while_open().is_some() {
            ""
        } else {
            "closed "
        };
        format!("<{closed}{class} at {}>", self.path.display())
    }
}
