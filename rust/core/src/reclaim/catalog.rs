//! Facts about finished files as bytes: their writers tell the driver, and the driver keeps them for
//! its next start. They are hints. A file that no entry describes, or whose length is another one, is
//! read. `FORMAT.md` is the text.

use std::collections::HashMap;
use std::sync::Arc;

use prost::Message;

use crate::error::{Error, Result};
use crate::format::frame::{self, FrameKind};
use crate::format::{Compression, FileIndex, decode_body};
use crate::ids::{CheckpointId, FileId, Owner, Term};
use crate::liveness::{ListedFile, ListedKind, ListedSegment};

/// A frame closes beyond this. With one more file it stays below 1 MiB.
const FRAME_BYTES: usize = 256 << 10;
/// A file that would take more is left out, and so it is read when it is judged. 10,000 segments of
/// 10,000 owners take some 300 KiB.
const MAX_FILE_BYTES: usize = 512 << 10;

#[derive(Clone, PartialEq, Message)]
struct CatalogMessage {
    #[prost(message, repeated, tag = "1")]
    owners: Vec<Owner>,
    #[prost(message, repeated, tag = "2")]
    files: Vec<FileMessage>,
}

/// The lists have an item for each segment.
#[derive(Clone, PartialEq, Message)]
struct FileMessage {
    #[prost(uint64, tag = "1")]
    term: u64,
    #[prost(uint32, tag = "2")]
    seq: u32,
    #[prost(uint64, tag = "3")]
    bytes: u64,
    /// Places in the list of owners.
    #[prost(uint32, repeated, tag = "4")]
    owners: Vec<u32>,
    #[prost(uint64, repeated, tag = "5")]
    created: Vec<u64>,
    #[prost(uint64, repeated, tag = "6")]
    lens: Vec<u64>,
    #[prost(uint32, repeated, tag = "7")]
    kinds: Vec<u32>,
}

/// A frame that is being filled.
#[derive(Default)]
struct Filling<'a> {
    message: CatalogMessage,
    bytes: usize,
    places: HashMap<&'a Owner, u32>,
}

impl<'a> Filling<'a> {
    fn add(&mut self, facts: &'a ListedFile) {
        let mut file = FileMessage {
            term: facts.file.term.0,
            seq: facts.file.seq,
            bytes: facts.physical_bytes,
            ..FileMessage::default()
        };
        for segment in facts.segments.iter() {
            let next = self.message.owners.len() as u32;
            let place = *self.places.entry(&segment.owner).or_insert(next);
            if place == next {
                self.bytes += segment.owner.encoded_len();
                self.message.owners.push(segment.owner.as_ref().clone());
            }
            file.owners.push(place);
            file.created.push(segment.created.0);
            file.lens.push(segment.len);
            file.kinds.push(tag(segment.kind));
        }
        self.bytes += file.encoded_len();
        self.message.files.push(file);
    }

    fn put(&self, out: &mut Vec<u8>) -> Result<()> {
        let body = self.message.encode_to_vec();
        frame::put(out, FrameKind::Catalog, Compression::Lz4, &body)
    }
}

/// The facts as bytes. Catalogs can be concatenated.
pub(super) fn encode<'a>(files: impl IntoIterator<Item = &'a ListedFile>) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    let mut filling = Filling::default();
    for facts in files {
        let mut alone = Filling::default();
        if filling.bytes > FRAME_BYTES {
            filling.put(&mut out)?;
            filling = Filling::default();
        }
        alone.add(facts);
        if alone.bytes <= MAX_FILE_BYTES {
            filling.add(facts);
        }
    }
    if !filling.message.files.is_empty() {
        filling.put(&mut out)?;
    }
    Ok(out)
}

/// The facts of files that their writer has finished, for [`IndexCache::learn_told`].
///
/// # Errors
/// Errors of compression.
///
/// [`IndexCache::learn_told`]: super::IndexCache::learn_told
pub fn encode_finished(files: Vec<FileIndex>) -> Result<Vec<u8>> {
    let files: Vec<_> = files
        .into_iter()
        .map(|index| listed(index, Arc::new))
        .collect();
    encode(&files)
}

/// The facts in an index. Owners may be shared.
pub(super) fn listed(index: FileIndex, mut share: impl FnMut(Owner) -> Arc<Owner>) -> ListedFile {
    let segments = index.segments.into_iter().map(|entry| ListedSegment {
        owner: share(entry.owner),
        created: entry.created,
        len: entry.reference.len,
        kind: entry.kind.into(),
    });
    ListedFile {
        file: index.file,
        sealed: index.sealed,
        damaged: index.damaged_bytes > 0,
        physical_bytes: index.file_bytes,
        segments: segments.collect(),
    }
}

/// Takes the facts of all files up to the first damage, which it reports.
pub(super) fn decode(
    mut bytes: &[u8],
    mut share: impl FnMut(Owner) -> Arc<Owner>,
    mut take: impl FnMut(ListedFile),
) -> Result<()> {
    while !bytes.is_empty() {
        let frame = frame::parse(bytes)?;
        bytes = bytes.get(frame.stored_len()..).unwrap_or_default();
        let CatalogMessage { owners, files } = decode_body(frame, FrameKind::Catalog)?;
        let owners: Vec<_> = owners.into_iter().map(&mut share).collect();
        for file in files {
            take(facts(file, &owners)?);
        }
    }
    Ok(())
}

fn facts(message: FileMessage, owners: &[Arc<Owner>]) -> Result<ListedFile> {
    let file = FileId {
        term: Term(message.term),
        seq: message.seq,
    };
    let wrong = |what: &str| Error::corrupt(format!("catalog entry of {file}: {what}"));
    let segments = message.owners.len();
    if [
        message.created.len(),
        message.lens.len(),
        message.kinds.len(),
    ] != [segments; 3]
    {
        return Err(wrong("lists of several lengths"));
    }
    let places = message.owners.iter().zip(&message.created);
    let rest = message.lens.iter().zip(&message.kinds);
    let segments = places.zip(rest).map(|((place, created), (len, kind))| {
        let owner = owners.get(*place as usize);
        Ok(ListedSegment {
            owner: Arc::clone(owner.ok_or_else(|| wrong("no such owner"))?),
            created: CheckpointId(*created),
            len: *len,
            kind: kind_of(*kind).ok_or_else(|| wrong("no such kind"))?,
        })
    });
    Ok(ListedFile {
        file,
        sealed: true,
        damaged: false,
        physical_bytes: message.bytes,
        segments: segments.collect::<Result<_>>()?,
    })
}

fn tag(kind: ListedKind) -> u32 {
    match kind {
        ListedKind::Other => 0,
        ListedKind::Run => 1,
        ListedKind::PendingInput => 2,
    }
}

fn kind_of(tag: u32) -> Option<ListedKind> {
    let kinds = [ListedKind::Other, ListedKind::Run, ListedKind::PendingInput];
    kinds.get(tag as usize).copied()
}
