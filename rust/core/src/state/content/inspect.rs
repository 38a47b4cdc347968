//! Reports on segments, for people who look at a checkpoint. Verifies all of a segment, with the
//! separators and filters by which readers find single keys in a run.

use prost::Message;

use super::journal::{for_each_operation, read_journal};
use crate::error::{Error, Result};
use crate::format::{
    RunReader, SegmentHead, SegmentKind, SegmentReader, decode, parse_entry, read_any_head,
};
use crate::ids::{Owner, SegmentRef};
use crate::state::runs::entry_stream::EntryStream;
use crate::storage::Storage;

const READ_AHEAD_BYTES: u64 = 4 << 20;

/// A segment of a state store after all of it was verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentReport {
    /// Its head.
    pub head: SegmentHead,
    /// The index of a run; `None` for other kinds.
    pub index: Option<RunIndex>,
}

/// Sizes of the index of a run.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct RunIndex {
    /// Groups of blocks.
    #[prost(uint64, tag = "1")]
    pub groups: u64,
    /// Blocks of entries.
    #[prost(uint64, tag = "2")]
    pub blocks: u64,
    /// Size of the separators of all blocks, in bytes.
    #[prost(uint64, tag = "3")]
    pub separator_bytes: u64,
    /// Groups that have a filter.
    #[prost(uint64, tag = "4")]
    pub filters: u64,
    /// Size of the fingerprints of all filters, in bytes.
    #[prost(uint64, tag = "5")]
    pub filter_bytes: u64,
}

#[derive(Clone, PartialEq, Message)]
struct ReportMessage {
    #[prost(bytes = "vec", tag = "1")]
    head: Vec<u8>,
    #[prost(message, optional, tag = "2")]
    index: Option<RunIndex>,
}

impl SegmentReport {
    /// The report as a message, for another process.
    pub fn to_bytes(&self) -> Vec<u8> {
        let message = ReportMessage {
            head: self.head.to_bytes(),
            index: self.index,
        };
        message.encode_to_vec()
    }

    /// Inverse of [`SegmentReport::to_bytes`].
    ///
    /// # Errors
    /// `Corrupt` when the bytes are no report.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let message: ReportMessage = decode("report on a segment", bytes)?;
        Ok(Self {
            head: SegmentHead::from_bytes(&message.head)?,
            index: message.index,
        })
    }
}

/// Reads and verifies all of a segment of a state store, and the journal of a changelog.
///
/// # Errors
/// `NotFound` when the file is missing, `Newer` when a newer version wrote it, `Corrupt` for every
/// other difference. The message names file, offset, owner, expected and found values.
pub fn inspect_segment(storage: &dyn Storage, reference: &SegmentRef) -> Result<SegmentReport> {
    let owner = read_any_head(storage, reference)?.owner;
    let mut segments = SegmentReader::new(storage);
    let mut stream = segments.stream(reference, &owner, READ_AHEAD_BYTES)?;
    let head = stream.head.clone();
    let about = |e: Error| {
        e.context(format!(
            "segment {}/{reference} of {owner}",
            storage.location()
        ))
    };
    if head.kind == SegmentKind::InFlight {
        // Pending input, which is opaque.
        let mut page = Vec::new();
        while stream.next_page(&mut page)? {
            page.clear();
        }
        return Ok(SegmentReport { head, index: None });
    }
    let mut entries = EntryStream::new(stream);
    entries.for_each(|_, _| Ok(())).map_err(about)?;
    if let Some(journal) = read_journal(storage, reference, &head)? {
        let mut next = 0;
        for part in &journal {
            for_each_operation(&part.payload, &mut next, 0, |_, _, _| {})
                .map_err(|e| about(e).context("journal"))?;
        }
    }
    let index = match head.kind {
        SegmentKind::Run => Some(inspect_index(storage, reference, &owner).map_err(about)?),
        _ => None,
    };
    Ok(SegmentReport { head, index })
}

fn inspect_index(storage: &dyn Storage, reference: &SegmentRef, owner: &Owner) -> Result<RunIndex> {
    let run = RunReader::look_at(storage, reference, owner)?;
    let mut index = RunIndex {
        groups: run.groups() as u64,
        ..RunIndex::default()
    };
    let mut last_key: Option<Vec<u8>> = None;
    let mut reached = 0;
    for number in 0..run.groups() {
        let group = run.group(number)?;
        index.blocks += group.blocks.len() as u64;
        if let Some(filter) = &group.filter {
            index.filters += 1;
            index.filter_bytes += filter.bytes() as u64;
        }
        for (place, block) in group.blocks.iter().enumerate() {
            index.separator_bytes += block.separator.len() as u64;
            if last_key.is_some_and(|last| last >= block.separator) {
                return Err(Error::corrupt(
                    "separator of a block: expected one above the keys before it",
                ));
            }
            let entries = run.block(block)?;
            let (mut at, mut last) = (0, 0..0);
            while let Some(entry) = parse_entry(&entries, at) {
                let key = entries.get(entry.key.clone()).unwrap_or_default();
                if run.group_of(key) != Some(number) || group.block_of(key) != Some(place) {
                    return Err(Error::corrupt(format!(
                        "index of a run: expected it to lead to the entry {at} bytes into a block, \
                         found that its separators or filter deny the key"
                    )));
                }
                (at, last) = (entry.end, entry.key);
                reached += 1;
            }
            last_key = entries.get(last).map(<[u8]>::to_vec);
        }
    }
    if reached != run.head.entries {
        return Err(Error::corrupt(format!(
            "entries that the index of a run leads to: expected {}, found {reached}",
            run.head.entries
        )));
    }
    Ok(index)
}
