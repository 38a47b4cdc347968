//! The id a commit returns. It *is* the reference to the segment that holds the state, so Spark's
//! own commit log is the atomic root of a checkpoint and no manifest is needed.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::error::{Error, ErrorKind, Result};
use crate::ids::{CheckpointId, SEGMENT_REF_BYTES, SegmentRef};

const PREFIX: &str = "hf1-";

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
    /// The newest segment of the lineage; `None` for a store that was never written.
    pub segment: Option<SegmentRef>,
    /// Where `segment` is a base image: the newest segment it replaced. The image's own head says
    /// so as well, but is lost with the image.
    pub replaced: Option<SegmentRef>,
}

impl fmt::Display for CommitId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut bytes = Vec::with_capacity(104);
        bytes.extend_from_slice(&self.version.to_le_bytes());
        bytes.extend_from_slice(&self.floor.0.to_le_bytes());
        for reference in self.segment.iter().chain(&self.replaced) {
            bytes.extend_from_slice(&reference.to_bytes());
        }
        write!(f, "{PREFIX}{}", URL_SAFE_NO_PAD.encode(bytes))
    }
}

impl FromStr for CommitId {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let Some(encoded) = text.strip_prefix(PREFIX) else {
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!(
                    "state store checkpoint id {text:?} was not written by Holdfast \
                     (expected it to start with {PREFIX:?}); \
                     continue this checkpoint with the provider that made it"
                ),
            ));
        };
        let malformed = || Error::corrupt(format!("malformed state store checkpoint id {text:?}"));
        let bytes = URL_SAFE_NO_PAD.decode(encoded).map_err(|_| malformed())?;
        let (version, rest) = bytes.split_first_chunk::<8>().ok_or_else(malformed)?;
        let (floor, rest) = rest.split_first_chunk::<8>().ok_or_else(malformed)?;
        let mut references = rest
            .chunks(SEGMENT_REF_BYTES)
            .map(|bytes| SegmentRef::from_bytes(bytes).map_err(|_| malformed()));
        let segment = references.next().transpose()?;
        let replaced = references.next().transpose()?;
        if references.next().is_some() {
            return Err(malformed());
        }
        Ok(Self {
            version: u64::from_le_bytes(*version),
            floor: CheckpointId(u64::from_le_bytes(*floor)),
            segment,
            replaced,
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::ids::{FileId, Term};

    #[test]
    fn ids_read_back_and_foreign_ones_are_refused_by_name() {
        let segment = SegmentRef {
            file: FileId {
                term: Term(0x1234_5678_9abc),
                seq: 7,
            },
            offset: 1 << 40,
            len: 99,
            digest: u128::MAX - 5,
        };
        for id in [
            CommitId {
                version: 3,
                floor: CheckpointId(1),
                segment: Some(segment),
                replaced: None,
            },
            CommitId {
                version: 3,
                floor: CheckpointId(3),
                segment: Some(segment),
                replaced: Some(SegmentRef { len: 5, ..segment }),
            },
            CommitId {
                version: 1,
                floor: CheckpointId(1),
                segment: None,
                replaced: None,
            },
        ] {
            assert_eq!(id.to_string().parse::<CommitId>().unwrap(), id);
        }
        let error = "6f1c2b9e-uuid".parse::<CommitId>().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains("not written by Holdfast"));
        for bad in ["hf1-", "hf1-!!", "hf1-AAAA"] {
            assert_eq!(
                bad.parse::<CommitId>().unwrap_err().kind(),
                ErrorKind::Corrupt,
                "{bad}"
            );
        }
    }
}
