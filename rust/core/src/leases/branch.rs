//! The storage of a branch: its own files, and those of its parent.

use std::path::PathBuf;
use std::sync::Arc;

use super::records::Parent;
use crate::error::{ErrorKind, Result};
use crate::ids::{FileId, Term};
use crate::storage::{AppendFile, Capabilities, LocalStorage, ObjectMeta, ReadFile, Storage};

/// The record of the parent, beside the physical files of a branch.
const PARENT: &str = "parent";

/// Reads where a folder of physical files finds the segments that it began with; `None` unless it is
/// that of a branch.
///
/// # Errors
/// `Corrupt` and `Newer`, with its place; errors of storage.
pub fn read_parent(own: &dyn Storage) -> Result<Option<Parent>> {
    let read = own.open(PARENT).and_then(|file| {
        let bytes = file.read(0, file.size_bytes())?;
        Parent::from_bytes(&bytes)
    });
    match read {
        Ok(parent) => Ok(Some(parent)),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e.context(format!("{}/{PARENT}", own.location()))),
    }
}

/// A local folder of physical files for reading: a branch finds files in the folder of its parent, too.
///
/// # Errors
/// Errors of [`read_parent`].
pub fn open_local(folder: impl Into<PathBuf>) -> Result<Arc<dyn Storage>> {
    let own: Arc<dyn Storage> = Arc::new(LocalStorage::new(folder));
    Ok(match read_parent(own.as_ref())? {
        None => own,
        Some(parent) => {
            let until = parent.until();
            let parent = Arc::new(LocalStorage::new(parent.folder));
            Arc::new(BranchStorage::new(own, parent, until))
        }
    })
}

/// Reads files of terms up to one in the parent's folder. Everything else is in its own, where all
/// names are newer, and nothing of the parent changes.
#[derive(Debug)]
pub struct BranchStorage {
    own: Arc<dyn Storage>,
    parent: Arc<dyn Storage>,
    until: Term,
}

impl BranchStorage {
    /// The files of `own`, and those of `parent` with terms up to `until`.
    pub fn new(own: Arc<dyn Storage>, parent: Arc<dyn Storage>, until: Term) -> Self {
        Self { own, parent, until }
    }

    fn read_by<T>(&self, name: &str, read: impl FnOnce(&dyn Storage) -> Result<T>) -> Result<T> {
        if FileId::parse(name).is_none_or(|file| file.term > self.until) {
            return read(self.own.as_ref());
        }
        read(self.parent.as_ref()).map_err(|e| match e.kind() {
            ErrorKind::NotFound => e.context(format!(
                "{} is a branch, and needs the file of its parent",
                self.own.location()
            )),
            _ => e,
        })
    }
}

impl Storage for BranchStorage {
    fn location(&self) -> String {
        self.own.location()
    }

    fn capabilities(&self) -> Capabilities {
        self.own.capabilities()
    }

    fn create(&self, name: &str) -> Result<Box<dyn AppendFile>> {
        self.own.create(name)
    }

    fn open(&self, name: &str) -> Result<Box<dyn ReadFile>> {
        self.read_by(name, |storage| storage.open(name))
    }

    fn open_known(&self, name: &str, len: u64) -> Result<Box<dyn ReadFile>> {
        self.read_by(name, |storage| storage.open_known(name, len))
    }

    fn len(&self, name: &str) -> Result<u64> {
        self.read_by(name, |storage| storage.len(name))
    }

    fn sync(&self, name: &str) -> Result<()> {
        self.read_by(name, |storage| storage.sync(name))
    }

    fn delete(&self, name: &str) -> Result<()> {
        self.own.delete(name)
    }

    fn delete_all(&self, names: &[String]) -> Vec<Result<()>> {
        self.own.delete_all(names)
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.own.rename(from, to)
    }

    fn list(&self) -> Result<Vec<ObjectMeta>> {
        self.own.list()
    }
}
