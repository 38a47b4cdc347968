//! Metadata files in a folder. Each appears whole, and nothing overwrites it.

use super::file::{StoredFile, base_name, file_name, parse_base_name, parse_name, read_base};
use super::metadata::Metadata;
use super::regions::{BaseFile, Regions};
use crate::error::{Error, ErrorKind, Result};
use crate::format::read_frames;
use crate::ids::CheckpointId;
use crate::storage::Storage;

const TEMPORARY_SUFFIX: &str = ".tmp";

fn is_temporary(name: &str) -> bool {
    let of = name.strip_suffix(TEMPORARY_SUFFIX);
    of.is_some_and(|name| parse_name(name).is_some() || parse_base_name(name).is_some())
}

/// Writes the metadata file and returns its name. The file is there whole or, after an error or a
/// crash, not at all. One writer at a time: a second one removes the temporary file of the first.
///
/// # Errors
/// `AlreadyExists` when the checkpoint has a file, `Unsupported` on a backend that can neither
/// publish whole objects nor rename, errors of storage.
pub fn write(storage: &dyn Storage, metadata: &Metadata) -> Result<String> {
    let id = metadata.id();
    write_files(storage, metadata).map_err(|e| e.context(format!("metadata of checkpoint {id}")))
}

fn write_files(storage: &dyn Storage, metadata: &Metadata) -> Result<String> {
    let name = file_name(metadata.id());
    let mut bases = Vec::new();
    for found in storage.list()? {
        if is_temporary(&found.name) {
            storage.delete(&found.name)?;
        } else if parse_base_name(&found.name).is_some() {
            bases.push(found.name);
        }
    }
    for file in metadata.files()? {
        // An attempt without metadata may have left the base.
        if !bases.contains(&file.name) || !has(storage, &file)? {
            write_bytes(storage, &file.name, &file.bytes)?;
        }
        metadata.note_stored(&file);
    }
    Ok(name)
}

/// Returns whether a file has these bytes; deletes any other.
fn has(storage: &dyn Storage, file: &StoredFile) -> Result<bool> {
    let input = storage.open(&file.name)?;
    let found = read_frames(input.as_ref(), 0, input.size_bytes())?;
    if found == file.bytes {
        return Ok(true);
    }
    storage.delete(&file.name)?;
    Ok(false)
}

fn write_bytes(storage: &dyn Storage, name: &str, bytes: &[u8]) -> Result<()> {
    let temporary = format!("{name}{TEMPORARY_SUFFIX}");
    // A backend may learn its capabilities from its first object.
    let mut file = storage.create(&temporary)?;
    if storage.capabilities().durable_append {
        let published = file
            .append(bytes)
            .and_then(|()| file.finish())
            .and_then(|()| storage.rename(&temporary, name));
        if published.is_err() {
            // The caller gets the first error, and the next writer retries.
            let _ = storage.delete(&temporary);
        }
        published?;
    } else {
        // Every object appears whole. A file dropped unfinished leaves no trace.
        drop(file);
        let mut file = storage.create(name)?;
        file.append(bytes)?;
        file.finish()?;
    }
    Ok(())
}

/// Reads and verifies the metadata of a checkpoint.
///
/// # Errors
/// `NotFound`; `Newer` when a newer version wrote it; `Corrupt` with file and offset.
pub fn read(storage: &dyn Storage, id: CheckpointId) -> Result<Metadata> {
    read_like(storage, &file_name(id), None)
}

/// Like [`read`], from a file with any name but the name of another checkpoint. Does not read
/// regions again that it shares with a checkpoint `like` it.
pub fn read_like(storage: &dyn Storage, name: &str, like: Option<&Metadata>) -> Result<Metadata> {
    let input = storage.open(name)?;
    let base = |base| match like.filter(|like| like.regions().base_file() == Some(base)) {
        Some(like) => Ok(like.regions().base()),
        None => open_base(storage, base),
    };
    read_frames(input.as_ref(), 0, input.size_bytes())
        .and_then(|bytes| decode(&bytes, name, base))
        .map_err(|e| e.context(format!("checkpoint metadata {}/{name}", storage.location())))
}

fn open_base(storage: &dyn Storage, base: BaseFile) -> Result<Regions> {
    let name = base_name(base);
    let read = || {
        let input = storage.open(&name)?;
        let bytes = read_frames(input.as_ref(), 0, input.size_bytes())?;
        read_base(bytes, base)
    };
    read().map_err(|e| match e.kind() {
        // The checkpoint is there, so this is damage.
        ErrorKind::NotFound => Error::corrupt(format!("its regions are missing: {name}")),
        _ => e.context(format!("its regions in {name}")),
    })
}

fn decode(
    bytes: &[u8],
    name: &str,
    base: impl FnOnce(BaseFile) -> Result<Regions>,
) -> Result<Metadata> {
    let metadata = Metadata::read(bytes, base)?;
    match parse_name(name) {
        Some(expected) if expected != metadata.id() => Err(Error::corrupt(format!(
            "header at offset 0: expected checkpoint {expected}, found {}",
            metadata.id()
        ))),
        _ => Ok(metadata),
    }
}

/// Ids of all checkpoints with a file, ascending. Reads no file.
pub fn list(storage: &dyn Storage) -> Result<Vec<CheckpointId>> {
    let objects = storage.list()?.into_iter();
    let mut ids: Vec<_> = objects.filter_map(|o| parse_name(&o.name)).collect();
    ids.sort_unstable();
    Ok(ids)
}

/// Removes the metadata of a checkpoint. Succeeds if there is none.
pub fn delete(storage: &dyn Storage, id: CheckpointId) -> Result<()> {
    storage.delete(&file_name(id))
}
