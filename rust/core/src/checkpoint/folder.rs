//! Metadata files in a folder. Each appears whole, and nothing overwrites it.

use super::file;
use super::metadata::Metadata;
use super::regions::{BaseFile, Regions};
use crate::error::{Error, ErrorKind, Result};
use crate::format::read_frames;
use crate::ids::CheckpointId;
use crate::storage::Storage;

const SUFFIX: &str = ".hfc";
const BASE_SUFFIX: &str = ".hfb";
const TEMPORARY_SUFFIX: &str = ".tmp";

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

/// Name of a file of regions that several checkpoints share: `<id>-<digest>.hfb`, 16 and 32 hex
/// digits. The same name means the same bytes.
pub fn base_name(base: BaseFile) -> String {
    format!("{:016x}-{:032x}{BASE_SUFFIX}", base.id.0, base.digest)
}

/// Inverse of [`base_name`]; `None` for any other name.
pub fn parse_base_name(name: &str) -> Option<BaseFile> {
    let (id, digest) = name.strip_suffix(BASE_SUFFIX)?.split_once('-')?;
    let base = BaseFile {
        id: CheckpointId(u64::from_str_radix(id, 16).ok()?),
        digest: u128::from_str_radix(digest, 16).ok()?,
    };
    (base_name(base) == name).then_some(base)
}

fn is_temporary(name: &str) -> bool {
    let of = name.strip_suffix(TEMPORARY_SUFFIX);
    of.is_some_and(|name| parse_name(name).is_some() || parse_base_name(name).is_some())
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
        let left = bases.iter().any(|base| base == file.name());
        if !left || !has(storage, &file)? {
            write_bytes(storage, file.name(), file.bytes())?;
        }
        metadata.note_stored(&file);
    }
    Ok(name)
}

/// Returns whether a file has these bytes; deletes any other.
fn has(storage: &dyn Storage, file: &StoredFile) -> Result<bool> {
    let input = storage.open(file.name())?;
    let found = read_frames(input.as_ref(), 0, input.size_bytes())?;
    if found == file.bytes() {
        return Ok(true);
    }
    storage.delete(file.name())?;
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
            // The caller gets the first error, and the next writer tries again.
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
    read_file(storage, &file_name(id))
}

/// Like [`read`], from a file with any name but that of another checkpoint.
///
/// # Errors
/// Errors of [`read`].
pub fn read_file(storage: &dyn Storage, name: &str) -> Result<Metadata> {
    read_like(storage, name, None)
}

/// Like [`read_file`]. Regions that it shares with a checkpoint `like` it are not read again.
///
/// # Errors
/// Errors of [`read`].
pub fn read_like(storage: &dyn Storage, name: &str, like: Option<&Metadata>) -> Result<Metadata> {
    let input = storage.open(name)?;
    let base = |base| match like.filter(|like| like.base_file() == Some(base)) {
        Some(like) => Ok(like.regions().base()),
        None => read_base(storage, base),
    };
    read_frames(input.as_ref(), 0, input.size_bytes())
        .and_then(|bytes| decode(&bytes, name, base))
        .map_err(|e| e.context(format!("checkpoint metadata {}/{name}", storage.location())))
}

fn read_base(storage: &dyn Storage, base: BaseFile) -> Result<Regions> {
    let name = base_name(base);
    let read = || {
        let input = storage.open(&name)?;
        let bytes = read_frames(input.as_ref(), 0, input.size_bytes())?;
        file::read_base(bytes, base)
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

/// A file of a checkpoint.
#[derive(Clone, Debug)]
pub enum StoredFile {
    /// Regions that later checkpoints share.
    Base {
        /// Its identity.
        base: BaseFile,
        /// Its name.
        name: String,
        /// All its bytes.
        bytes: Vec<u8>,
    },
    /// The checkpoint.
    Checkpoint {
        /// Its name.
        name: String,
        /// All its bytes.
        bytes: Vec<u8>,
    },
}

impl StoredFile {
    /// Its name.
    pub fn name(&self) -> &str {
        match self {
            Self::Base { name, .. } | Self::Checkpoint { name, .. } => name,
        }
    }

    /// All its bytes.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Base { bytes, .. } | Self::Checkpoint { bytes, .. } => bytes,
        }
    }
}

impl Metadata {
    /// All of it in the bytes of one file.
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
        Self::from_files(bytes, None)
    }

    /// Decodes the bytes of its file, and those of the file of regions that it names.
    ///
    /// # Errors
    /// `Newer`, `Corrupt`.
    pub fn from_files(bytes: &[u8], base: Option<&[u8]>) -> Result<Self> {
        Self::read(bytes, |file| match base {
            Some(base) => file::read_base(base.to_vec(), file),
            None => Err(Error::corrupt(format!(
                "its regions are in another file, {}",
                base_name(file)
            ))),
        })
        .map_err(|e| e.context("checkpoint metadata"))
    }

    /// The file of regions that the bytes of a file name, if they name one.
    ///
    /// # Errors
    /// `Newer`, `Corrupt`.
    pub fn base_of(bytes: &[u8]) -> Result<Option<BaseFile>> {
        file::base_of(bytes).map_err(|e| e.context("checkpoint metadata"))
    }

    /// The file with regions that this checkpoint shares, if there is one. It stays as long as a
    /// checkpoint names it.
    pub fn base_file(&self) -> Option<BaseFile> {
        self.regions().base_file()
    }

    /// The files to write, in this order. The checkpoint is there once the last one is.
    ///
    /// # Errors
    /// `InvalidInput` when a record is too large to be encoded.
    pub fn files(&self) -> Result<Vec<StoredFile>> {
        let name = file_name(self.id());
        let Some(difference) = self.regions().difference() else {
            let bytes = self.to_bytes()?;
            return Ok(vec![StoredFile::Checkpoint { name, bytes }]);
        };
        let mut files = Vec::new();
        let base = match self.base_file() {
            Some(base) => base,
            None => {
                let (bytes, base) = file::encode_base(self.id(), self.regions())?;
                let name = base_name(base);
                files.push(StoredFile::Base { base, name, bytes });
                base
            }
        };
        let bytes = file::encode_difference(self.fields(), difference, base)?;
        files.push(StoredFile::Checkpoint { name, bytes });
        Ok(files)
    }

    /// Notes that a file of [`Metadata::files`] is durable: later checkpoints may name it.
    pub fn note_stored(&self, file: &StoredFile) {
        if let StoredFile::Base { base, .. } = file {
            self.regions().note_filed(*base);
        }
    }
}
