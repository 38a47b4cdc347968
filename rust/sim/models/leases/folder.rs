//! Folders that the product reads: a function answers its requests.

use std::fmt;

use holdfast_core::storage::{AppendFile, Capabilities, ObjectMeta, ReadFile, Storage};
use holdfast_core::{Error, ErrorKind, Result};

/// The answer to a request.
pub enum Answer {
    Names(Vec<String>),
    Content(Vec<u8>),
}

/// The function gets the name of a file to read, or `None` for a list.
pub struct Folder<F>(pub F);

impl<F> fmt::Debug for Folder<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Folder")
    }
}

/// Only the product's readers use it.
fn refused<T>() -> Result<T> {
    Err(Error::new(ErrorKind::Unsupported, "only reads"))
}

pub fn not_found<T>() -> Result<T> {
    Err(Error::new(ErrorKind::NotFound, "no such file"))
}

impl<F: Fn(Option<&str>) -> Result<Answer> + Send + Sync> Storage for Folder<F> {
    fn location(&self) -> String {
        "folder".to_owned()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::default()
    }

    fn create(&self, _: &str) -> Result<Box<dyn AppendFile>> {
        refused()
    }

    fn open(&self, name: &str) -> Result<Box<dyn ReadFile>> {
        match (self.0)(Some(name))? {
            Answer::Content(bytes) => Ok(Box::new(Content(bytes))),
            Answer::Names(_) => refused(),
        }
    }

    fn len(&self, _: &str) -> Result<u64> {
        refused()
    }

    fn sync(&self, _: &str) -> Result<()> {
        refused()
    }

    fn delete(&self, _: &str) -> Result<()> {
        refused()
    }

    fn list(&self) -> Result<Vec<ObjectMeta>> {
        match (self.0)(None)? {
            Answer::Names(names) => Ok(names
                .into_iter()
                .map(|name| ObjectMeta { name, len: 0 })
                .collect()),
            Answer::Content(_) => refused(),
        }
    }
}

#[derive(Debug)]
struct Content(Vec<u8>);

impl ReadFile for Content {
    fn size_bytes(&self) -> u64 {
        self.0.len() as u64
    }

    fn read(&self, _: u64, _: u64) -> Result<Vec<u8>> {
        Ok(self.0.clone())
    }
}
