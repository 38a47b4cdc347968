//! Names and bytes of the files of a checkpoint. `FORMAT.md` is the text.

use std::collections::BTreeMap;

use prost::Message;
use xxhash_rust::xxh3::xxh3_128;

use super::metadata::{CheckpointFacts, CheckpointKind, Metadata, check_origins};
use super::outline::Outline;
use super::regions::{BaseFile, Regions};
use super::sections::{
    BaseMessage, CoordinatorMessage, Frames, HeaderMessage, VERSION, base_entries, entries, put,
    records,
};
use crate::error::{Error, Result};
use crate::format::decode;
use crate::format::frame::FrameKind;
use crate::ids::CheckpointId;

/// Larger outlines are not written: the header has a bound.
const MOST_OUTLINE_BYTES: usize = 256 << 10;

const SUFFIX: &str = ".hfc";
const BASE_SUFFIX: &str = ".hfb";

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

/// A file of a checkpoint.
#[derive(Clone, Debug)]
pub struct StoredFile {
    /// Its name.
    pub name: String,
    /// All its bytes.
    pub bytes: Vec<u8>,
    /// Its identity, if it has regions that later checkpoints share.
    pub base: Option<BaseFile>,
}

impl Metadata {
    /// All of it in the bytes of one file.
    ///
    /// # Errors
    /// `InvalidInput` when a record is too large to be encoded.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let header = self.facts().header();
        put(&header, self.regions().iter()?, &self.facts().coordinators)
    }

    /// Inverse of [`Metadata::to_bytes`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        Self::from_files(bytes, None)
    }

    /// Decodes the bytes of its file, and of the file of regions that it names.
    pub fn from_files(bytes: &[u8], base: Option<&[u8]>) -> Result<Self> {
        Self::read(bytes, |file| match base {
            Some(base) => read_base(base.to_vec(), file),
            None => Err(Error::corrupt(format!(
                "its regions are in another file, {}",
                base_name(file)
            ))),
        })
        .map_err(|e| e.context("checkpoint metadata"))
    }

    /// The file of regions that the bytes of a file name, if they name one.
    pub fn base_of(bytes: &[u8]) -> Result<Option<BaseFile>> {
        let header = Frames::of(bytes).header();
        let base = header.and_then(|header| base_in(&header));
        base.map_err(|e| e.context("checkpoint metadata"))
    }

    /// The files to write, in this order. The checkpoint is there once the last one is.
    ///
    /// # Errors
    /// `InvalidInput` when a record is too large to be encoded.
    pub fn files(&self) -> Result<Vec<StoredFile>> {
        let file = |bytes| StoredFile {
            name: file_name(self.id()),
            bytes,
            base: None,
        };
        let Some(difference) = self.regions().difference() else {
            return Ok(vec![file(self.to_bytes()?)]);
        };
        let mut files = Vec::new();
        let base = match self.regions().base_file() {
            Some(base) => base,
            None => {
                let (bytes, base) = encode_base(self.id(), self.regions())?;
                files.push(StoredFile {
                    name: base_name(base),
                    bytes,
                    base: Some(base),
                });
                base
            }
        };
        let header = HeaderMessage {
            base: Some(BaseMessage {
                id: base.id.0,
                digest: base.digest.to_le_bytes().to_vec(),
            }),
            gone: difference.gone,
            regions: self.regions().len() as u64,
            ..self.facts().header()
        };
        let entries = difference.entries.into_iter();
        files.push(file(put(&header, entries, &self.facts().coordinators)?));
        Ok(files)
    }

    /// Notes that a file of [`Metadata::files`] is durable: later checkpoints may name it.
    pub fn note_stored(&self, file: &StoredFile) {
        if let Some(base) = file.base {
            self.regions().note_filed(base);
        }
    }

    /// Verifies and decodes all bytes of a file. `base` reads the file of regions that it names.
    /// `Newer` for a newer version, else `Corrupt` with the bad frame's offset; errors of `base`.
    pub(super) fn read(
        bytes: &[u8],
        base: impl FnOnce(BaseFile) -> Result<Regions>,
    ) -> Result<Self> {
        let mut frames = Frames::of(bytes);
        let header = frames.header()?;
        let regions = frames.section(FrameKind::Regions)?;
        let coordinators = frames.section(FrameKind::Coordinators)?;
        let trailer = frames.trailer()?;
        let entries = entries(regions, &trailer)?;
        let mut snapshots = BTreeMap::new();
        for record in records(coordinators, trailer.coordinators, "coordinators")? {
            let message: CoordinatorMessage = decode("snapshot of a coordinator", record)?;
            if let Some(twice) = snapshots.insert(message.name.clone(), message.snapshot) {
                return Err(Error::corrupt(format!(
                    "coordinator {:?} occurs twice, first with {} bytes",
                    message.name,
                    twice.len()
                )));
            }
        }
        let kind = CheckpointKind::from_tag(header.kind).ok_or_else(|| {
            let found = header.kind;
            Error::corrupt(format!(
                "kind of a checkpoint: expected 1 to 3, found {found}"
            ))
        })?;
        let base = base_in(&header)?.map(base).transpose()?;
        let (gone, len) = (header.gone, header.regions as usize);
        let facts = CheckpointFacts {
            id: CheckpointId(header.id),
            batch_id: header.batch_id,
            kind,
            created_ms: header.created_ms,
            topology: header.topology,
            coordinators: snapshots,
            consecutive_regional: header.consecutive_regional,
            force_global: header.force_global,
            finished_operators: header.finished_operators,
            properties: header.properties,
        };
        let made = match base {
            None => Self::new(facts, entries),
            Some(base) => Self::checked(facts, |id| {
                let regions = base.differing(entries, gone, len)?;
                check_origins(id, &regions)?;
                Ok(regions)
            }),
        };
        made.map_err(|e| Error::corrupt(e.to_string()))
    }
}

/// All bytes of a file with the base of `regions`, with an outline if all regions are merely idle.
fn encode_base(id: CheckpointId, regions: &Regions) -> Result<(Vec<u8>, BaseFile)> {
    let base = regions.base();
    let is_short = |outline: &&Outline| outline.encoded_len() <= MOST_OUTLINE_BYTES;
    let header = HeaderMessage {
        version: VERSION,
        id: id.0,
        regions: base.len() as u64,
        outline: regions.outline_of_base()?.filter(is_short).cloned(),
        ..HeaderMessage::default()
    };
    let bytes = put(&header, base.iter()?, &BTreeMap::new())?;
    let digest = xxh3_128(&bytes);
    Ok((bytes, BaseFile { id, digest }))
}

fn base_in(header: &HeaderMessage) -> Result<Option<BaseFile>> {
    let base = header.base.as_ref().map(|base| {
        let digest = base.digest.as_slice().try_into();
        let digest = digest.map_err(|_| Error::corrupt("digest of a base: expected 16 bytes"))?;
        Ok(BaseFile {
            id: CheckpointId(base.id),
            digest: u128::from_le_bytes(digest),
        })
    });
    base.transpose()
}

/// Verifies a file that only has regions; `Corrupt` for another. Decodes it if it has no outline.
pub(super) fn read_base(bytes: Vec<u8>, file: BaseFile) -> Result<Regions> {
    let found = xxh3_128(&bytes);
    if found != file.digest {
        return Err(Error::corrupt(format!(
            "xxh3-128 digest of the whole file: expected {:032x}, found {found:032x}",
            file.digest
        )));
    }
    let header = Frames::of(&bytes).header()?;
    let regions = match header.outline {
        Some(outline) => Regions::of_file(bytes, header.regions as usize, outline),
        None => Regions::new(base_entries(&bytes)?)?,
    };
    regions.note_filed(file);
    Ok(regions)
}
