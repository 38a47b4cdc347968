//! The open files of large runs, for the writer and for `large_runs`.

use std::sync::Arc;

use super::open_file::OpenFile;

#[derive(Debug, Default)]
pub(super) struct RunFiles {
    /// Files that wait for a run.
    pub waiting: Vec<Arc<OpenFile>>,
    /// Files to which a run is written.
    pub lent: Vec<Arc<OpenFile>>,
}

impl RunFiles {
    pub fn all(&self) -> impl Iterator<Item = &Arc<OpenFile>> {
        self.waiting.iter().chain(&self.lent)
    }
}
