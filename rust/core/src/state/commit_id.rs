//! The id a commit returns. It *is* the reference to the segment that holds the state, so Spark's
//! own commit log is the atomic root of a checkpoint and no manifest is needed.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::delta_runs::DeltaRuns;
use crate::error::{Error, ErrorKind, Result};
use crate::ids::{CheckpointId, OwnerTag, SEGMENT_REF_BYTES, SegmentRef};

/// Of ids without owner and checksum, which older builds wrote.
const PREFIX_1: &str = "hf1-";
const PREFIX_2: &str = "hf2-";
/// Of versions that have delta runs.
const PREFIX_3: &str = "hf3-";

/// State of one store at one version, as text in Spark's `commits/N`.
///
/// A commit without changes returns a new id (another version) for the same segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CommitId {
    /// Version of the store, Spark's batch id + 1.
    pub version: u64,
    /// `created` of the oldest segment needed to load this version. Segments of the owner that
    /// are older are dead as soon as no older version is retained.
    pub floor: CheckpointId,
    /// The runs of the lineage of `segment` above the oldest one. With them it is known which segments
    /// of the owner the newest of them stands for: the others that are older than it.
    pub deltas: DeltaRuns,
    /// Whose state it is; `None` in an id of an older build.
    pub owner: Option<OwnerTag>,
    /// The newest segment of the lineage; `None` for a store that was never written.
    pub segment: Option<SegmentRef>,
    /// Where `segment` is a run: the newest segment it replaced. The run's own head says so as well,
    /// but is lost with the run.
    pub replaced: Option<SegmentRef>,
}

impl fmt::Display for CommitId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut bytes = Vec::with_capacity(116);
        bytes.extend_from_slice(&self.version.to_le_bytes());
        bytes.extend_from_slice(&self.floor.0.to_le_bytes());
        if let Some(owner) = self.owner {
            bytes.extend_from_slice(&owner.0.to_le_bytes());
            if !self.deltas.is_empty() {
                bytes.push(self.deltas.len() as u8);
                for created in self.deltas.iter() {
                    bytes.extend_from_slice(&created.0.to_le_bytes());
                }
            }
        }
        for reference in self.segment.iter().chain(&self.replaced) {
            bytes.extend_from_slice(&reference.to_bytes());
        }
        let prefix = match self.owner {
            None => PREFIX_1,
            Some(_) if self.deltas.is_empty() => PREFIX_2,
            Some(_) => PREFIX_3,
        };
        if self.owner.is_some() {
            bytes.extend_from_slice(&crc32c::crc32c(&bytes).to_le_bytes());
        }
        write!(f, "{prefix}{}", URL_SAFE_NO_PAD.encode(bytes))
    }
}

impl FromStr for CommitId {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let prefixes = [PREFIX_1, PREFIX_2, PREFIX_3];
        let known = prefixes.iter().find(|prefix| text.starts_with(**prefix));
        let Some((prefix, encoded)) = known.map(|prefix| text.split_at(prefix.len())) else {
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!(
                    "state store checkpoint id {text:?} was not written by Holdfast, or by a newer \
                     one (expected it to start with one of {prefixes:?}); continue this checkpoint \
                     with what made it"
                ),
            ));
        };
        let checked = prefix != PREFIX_1;
        let damaged = || {
            Error::corrupt(format!(
                "state store checkpoint id {text:?} is damaged: the commit log of this checkpoint \
                 is not as it was written"
            ))
        };
        let bytes = URL_SAFE_NO_PAD.decode(encoded).map_err(|_| damaged())?;
        let bytes = if checked {
            unchecked(&bytes).ok_or_else(damaged)?
        } else {
            &bytes
        };
        let (version, rest) = bytes.split_first_chunk::<8>().ok_or_else(damaged)?;
        let (floor, rest) = rest.split_first_chunk::<8>().ok_or_else(damaged)?;
        let (owner, rest) = if checked {
            let (owner, rest) = rest.split_first_chunk::<8>().ok_or_else(damaged)?;
            (Some(OwnerTag(u64::from_le_bytes(*owner))), rest)
        } else {
            (None, rest)
        };
        let (deltas, rest) = if prefix == PREFIX_3 {
            take_deltas(rest).ok_or_else(damaged)?
        } else {
            (DeltaRuns::NONE, rest)
        };
        let mut references = rest
            .chunks(SEGMENT_REF_BYTES)
            .map(|bytes| SegmentRef::from_bytes(bytes).map_err(|_| damaged()));
        let segment = references.next().transpose()?;
        let replaced = references.next().transpose()?;
        if references.next().is_some() {
            return Err(damaged());
        }
        Ok(Self {
            version: u64::from_le_bytes(*version),
            floor: CheckpointId(u64::from_le_bytes(*floor)),
            deltas,
            owner,
            segment,
            replaced,
        })
    }
}

/// Reads a number of delta runs and when they were made; `None` where that cannot be.
fn take_deltas(bytes: &[u8]) -> Option<(DeltaRuns, &[u8])> {
    let (number, rest) = bytes.split_first()?;
    let (created, rest) = rest.split_at_checked(usize::from(*number) * 8)?;
    let (created, _) = created.as_chunks::<8>();
    let created = created.iter().map(|bytes| u64::from_le_bytes(*bytes));
    let deltas = DeltaRuns::of(created.map(CheckpointId)).ok()?;
    (!deltas.is_empty()).then_some((deltas, rest))
}

/// What stands before a checksum at the end; `None` where it does not match.
fn unchecked(bytes: &[u8]) -> Option<&[u8]> {
    let (bytes, checksum) = bytes.split_last_chunk::<4>()?;
    (crc32c::crc32c(bytes) == u32::from_le_bytes(*checksum)).then_some(bytes)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::*;
    use crate::ids::{FileId, Owner, Term};

    fn ids(owner: Option<OwnerTag>) -> Vec<CommitId> {
        let segment = SegmentRef {
            file: FileId {
                term: Term(0x1234_5678_9abc),
                seq: 7,
            },
            offset: 1 << 40,
            len: 99,
            digest: u128::MAX - 5,
        };
        let never_written = CommitId {
            version: 1,
            floor: CheckpointId(1),
            deltas: DeltaRuns::NONE,
            owner,
            segment: None,
            replaced: None,
        };
        let written = CommitId {
            version: 3,
            segment: Some(segment),
            ..never_written
        };
        let image = CommitId {
            floor: CheckpointId(3),
            replaced: Some(SegmentRef { len: 5, ..segment }),
            ..written
        };
        let mut ids = vec![never_written, written, image];
        if owner.is_some() {
            for deltas in [1..2, 3..11] {
                let deltas = DeltaRuns::of(deltas.map(CheckpointId)).unwrap();
                ids.extend([CommitId { deltas, ..written }, CommitId { deltas, ..image }]);
            }
        }
        ids
    }

    #[test]
    fn ids_read_back_and_foreign_ones_are_refused_by_name() {
        let owner = Owner::new("", "0", "17", "default").tag();
        for id in [ids(None), ids(Some(owner))].concat() {
            assert_eq!(id.to_string().parse::<CommitId>().unwrap(), id);
        }
        for foreign in ["6f1c2b9e-uuid", "hf4-AAAA"] {
            let error = foreign.parse::<CommitId>().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unsupported);
            assert!(error.to_string().contains("not written by Holdfast"));
        }
        for bad in [
            "hf1-",
            "hf1-!!",
            "hf1-AAAA",
            "hf2-",
            "hf2-AAAAAA",
            "hf3-AAAAAA",
        ] {
            assert_eq!(
                bad.parse::<CommitId>().unwrap_err().kind(),
                ErrorKind::Corrupt,
                "{bad}"
            );
        }
    }

    #[test]
    fn a_flip_of_any_bit_and_any_cut_is_reported() {
        let owner = Owner::new("", "0", "17", "default").tag();
        for id in ids(Some(owner)) {
            let text = id.to_string();
            for end in 0..text.len() {
                assert!(text[..end].parse::<CommitId>().is_err(), "{}", &text[..end]);
            }
            for bit in 0..text.len() * 8 {
                let mut bytes = text.clone().into_bytes();
                bytes[bit / 8] ^= 1 << (bit % 8);
                // Text that is no UTF-8 does not come out of a JSON file.
                if let Ok(flipped) = String::from_utf8(bytes) {
                    assert!(flipped.parse::<CommitId>().is_err(), "{flipped}");
                }
            }
        }
    }
}
