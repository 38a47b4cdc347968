//! Files of a folder that Python opens, such as those of `pyarrow.fs`, for reading alone.

use std::fmt;
use std::sync::Arc;

use holdfast_core::leases::{BranchStorage, read_parent};
use holdfast_core::storage::{
    AppendFile, Capabilities, ObjectMeta, ReadFile, Storage, check_name, check_range,
};
use holdfast_core::{Error, ErrorKind, Result};
use pyo3::exceptions::PyFileNotFoundError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::errors::to_py;

/// A folder with a method `open`, which takes the name of a file. It returns an object with the
/// methods `size` and `read_at` (number of bytes, offset) of `pyarrow.NativeFile`.
pub(crate) struct OpenedFiles {
    folder: Py<PyAny>,
    location: String,
}

/// The folder of the segments of a checkpoint: a branch finds files in the folder of its parent, too.
pub(crate) fn opened(folder: &Bound<'_, PyAny>) -> PyResult<Arc<dyn Storage>> {
    let own: Arc<dyn Storage> = Arc::new(OpenedFiles::new(folder)?);
    let Some(parent) = read_parent(own.as_ref()).map_err(to_py)? else {
        return Ok(own);
    };
    let reached = folder.call_method1("at", (&parent.folder,))?;
    let files = Arc::new(OpenedFiles::new(&reached)?);
    Ok(Arc::new(BranchStorage::new(own, files, parent.until())))
}

impl OpenedFiles {
    fn new(folder: &Bound<'_, PyAny>) -> PyResult<Self> {
        Ok(Self {
            location: folder.str()?.to_string(),
            folder: folder.clone().unbind(),
        })
    }

    fn is_read_only<T>(&self, what: &str) -> Result<T> {
        let said = format!("{}: expected only reads, found {what}", self.location);
        Err(Error::new(ErrorKind::Unsupported, said))
    }
}

impl fmt::Debug for OpenedFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OpenedFiles").field(&self.location).finish()
    }
}

impl Storage for OpenedFiles {
    fn location(&self) -> String {
        self.location.clone()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::default()
    }

    fn create(&self, name: &str) -> Result<Box<dyn AppendFile>> {
        self.is_read_only(&format!("a new file {name}"))
    }

    fn open(&self, name: &str) -> Result<Box<dyn ReadFile>> {
        check_name(name)?;
        let place = format!("{}/{name}", self.location);
        Python::attach(|py| {
            let file = self.folder.bind(py).call_method1("open", (name,))?;
            Ok((file.call_method0("size")?.extract()?, file.unbind()))
        })
        .map(|(size, file)| {
            Box::new(OpenedFile {
                place: place.clone(),
                file,
                size,
            }) as _
        })
        .map_err(|error| failure(&place, &error))
    }

    fn len(&self, name: &str) -> Result<u64> {
        Ok(self.open(name)?.size_bytes())
    }

    fn sync(&self, name: &str) -> Result<()> {
        self.is_read_only(&format!("a sync of {name}"))
    }

    fn delete(&self, name: &str) -> Result<()> {
        self.is_read_only(&format!("the deletion of {name}"))
    }

    fn list(&self) -> Result<Vec<ObjectMeta>> {
        self.is_read_only("a list")
    }
}

struct OpenedFile {
    place: String,
    file: Py<PyAny>,
    size: u64,
}

impl fmt::Debug for OpenedFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OpenedFile").field(&self.place).finish()
    }
}

impl ReadFile for OpenedFile {
    fn size_bytes(&self) -> u64 {
        self.size
    }

    fn read(&self, offset: u64, len: u64) -> Result<Vec<u8>> {
        check_range(&self.place, self.size, offset, len)?;
        let bytes = Python::attach(|py| {
            let bytes = self.file.bind(py).call_method1("read_at", (len, offset))?;
            Ok(bytes.cast_into::<PyBytes>()?.as_bytes().to_vec())
        })
        .map_err(|error| failure(&self.place, &error))?;
        // A file that was cut since it was opened.
        check_range(&self.place, offset + bytes.len() as u64, offset, len)?;
        Ok(bytes)
    }
}

fn failure(place: &str, error: &PyErr) -> Error {
    let is_missing = Python::attach(|py| error.is_instance_of::<PyFileNotFoundError>(py));
    let kind = if is_missing {
        ErrorKind::NotFound
    } else {
        ErrorKind::Storage
    };
    Error::new(kind, format!("{place}: {error}"))
}
