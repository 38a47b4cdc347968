//! Metadata files in a folder. Each appears whole, and nothing overwrites it.

use super::file;
use super::metadata::Metadata;
use crate::error::{Error, Result};
use crate::format::read_frames;
use crate::ids::CheckpointId;
use crate::storage::Storage;

const SUFFIX: &str = ".hfc";
const TEMPORARY_SUFFIX: &str = ".hfc.tmp";

/// Name of the metadata file of a checkpoint, for example `000000000000002a.hfc`.
pub fn file_name(id: CheckpointId) -> String {
    format!("{:016x}{SUFFIX}", id.0)
}

/// Inverse of [`file_name`]; `None` for a name that is not a metadata file's.
pub fn parse_name(name: &str) -> Option<CheckpointId> {
    let digits = name.strip_suffix(SUFFIX)?;
    let id = CheckpointId(u64::from_str_radix(digits, 16).ok()?);
    // `from_str_radix` takes signs, capitals and any length: only the canonical spelling is a name.
    (file_name(id) == name).then_some(id)
}

fn temporary_name(id: CheckpointId) -> String {
    format!("{:016x}{TEMPORARY_SUFFIX}", id.0)
}

fn is_temporary(name: &str) -> bool {
    name.strip_suffix(TEMPORARY_SUFFIX)
        .is_some_and(|digits| parse_name(&format!("{digits}{SUFFIX}")).is_some())
}

/// Writes the metadata file and returns its name. The file is there whole or, after an error or a
/// crash, not at all. Also removes the temporary files of crashed writers, so there must be one
/// writer at a time: a second one could make the write of the first one fail.
///
/// # Errors
/// `AlreadyExists` when the checkpoint has a file, `Unsupported` on a backend that can neither
/// publish whole objects nor rename, those of storage.
pub fn write(storage: &dyn Storage, metadata: &Metadata) -> Result<String> {
    let id = metadata.id();
    write_bytes(storage, id, &file::encode(metadata.fields())?)
        .map_err(|e| e.context(format!("metadata of checkpoint {id}")))
}

fn write_bytes(storage: &dyn Storage, id: CheckpointId, bytes: &[u8]) -> Result<String> {
    for leftover in storage.list()? {
        if is_temporary(&leftover.name) {
            storage.delete(&leftover.name)?;
        }
    }
    let (name, temporary) = (file_name(id), temporary_name(id));
    // A backend may learn its capabilities from its first object.
    let mut file = storage.create(&temporary)?;
    if storage.capabilities().durable_append {
        let published = file
            .append(bytes)
            .and_then(|()| file.finish())
            .and_then(|()| storage.rename(&temporary, &name));
        if published.is_err() {
            // The caller gets the first error, and the next writer tries again.
            let _ = storage.delete(&temporary);
        }
        published?;
    } else {
        // Every object appears whole. A file dropped unfinished leaves no trace.
        drop(file);
        let mut file = storage.create(&name)?;
        file.append(bytes)?;
        file.finish()?;
    }
    Ok(name)
}

/// Reads and verifies the metadata of a checkpoint.
///
/// # Errors
/// `NotFound`; `Newer` when a newer version wrote it; `Corrupt` with file and offset.
pub fn read(storage: &dyn Storage, id: CheckpointId) -> Result<Metadata> {
    read_file(storage, &file_name(id))
}

/// Like [`read`], from a file with any name but that of another checkpoint.
///
/// # Errors
/// Errors of [`read`].
pub fn read_file(storage: &dyn Storage, name: &str) -> Result<Metadata> {
    let input = storage.open(name)?;
    read_frames(input.as_ref(), 0, input.size_bytes())
        .and_then(|bytes| decode(&bytes, name))
        .map_err(|e| e.context(format!("checkpoint metadata {}/{name}", storage.location())))
}

fn decode(bytes: &[u8], name: &str) -> Result<Metadata> {
    let metadata = Metadata::read(bytes)?;
    match parse_name(name) {
        Some(expected) if expected != metadata.id() => Err(Error::corrupt(format!(
            "header at offset 0: expected checkpoint {expected}, found {}",
            metadata.id()
        ))),
        _ => Ok(metadata),
    }
}

/// Ids of all checkpoints with a file, ascending. Reads no file.
///
/// # Errors
/// Errors of storage.
pub fn list(storage: &dyn Storage) -> Result<Vec<CheckpointId>> {
    let objects = storage.list()?.into_iter();
    let mut ids: Vec<_> = objects.filter_map(|o| parse_name(&o.name)).collect();
    ids.sort_unstable();
    Ok(ids)
}

/// Removes the metadata of a checkpoint. Succeeds if there is none.
///
/// # Errors
/// Errors of storage.
pub fn delete(storage: &dyn Storage, id: CheckpointId) -> Result<()> {
    storage.delete(&file_name(id))
}

impl Metadata {
    /// The bytes of its file.
    ///
    /// # Errors
    /// `InvalidInput` when a record is too large to be encoded.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        file::encode(self.fields())
    }

    /// Inverse of [`Metadata::to_bytes`].
    ///
    /// # Errors
    /// `Newer`, `Corrupt`.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        Self::read(bytes).map_err(|e| e.context("checkpoint metadata"))
    }
}
