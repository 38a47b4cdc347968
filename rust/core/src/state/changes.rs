//! What single commits changed, read from their changelogs: for readers that look at a stream of
//! changes, or rebuild a version from an older one.

use super::commit_id::CommitId;
use super::entries::{Change, ChangeReader};
use super::families::{Layout, split_key};
use crate::error::{Error, ErrorKind, Result};
use crate::format::{Segment, SegmentKind, read_any_head, read_segment};
use crate::ids::Owner;
use crate::storage::Storage;

/// What happened to a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    /// It has this value now; in a family with several values, this first value.
    Put,
    /// It is gone, with all its values.
    Remove,
    /// This value was put behind the others.
    Append,
}

/// Which column family to look at.
#[derive(Clone, Copy, Debug)]
pub struct FamilyOfInterest {
    /// Its number.
    pub number: u32,
    /// It has several values per key.
    pub several_values: bool,
}

/// The changelog that the commit of `version` wrote for `owner`, found among the ids of all stores
/// of the partition; `None` when the commit changed nothing.
///
/// # Errors
/// `NotFound` or `Corrupt` for a segment that is gone or damaged; `Unsupported` for a commit that
/// wrote its whole content instead of its changes.
pub fn read_changelog(
    storage: &dyn Storage,
    owner: &Owner,
    version: u64,
    ids: &[CommitId],
) -> Result<Option<Segment>> {
    let of_version = ids.iter().filter(|id| id.version == version);
    for reference in of_version.filter_map(|id| id.segment) {
        let head = read_any_head(storage, &reference)?;
        if head.owner != *owner {
            continue;
        }
        if head.created.0 != version {
            return Ok(None);
        }
        if head.kind != SegmentKind::Changelog {
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!(
                    "{reference}: version {version} of {owner} was written as a whole, so what it \
                     changed is not known; start behind it"
                ),
            ));
        }
        return read_segment(storage, &reference, owner).map(Some);
    }
    Ok(None)
}

/// Calls `act` for every change of one family in a changelog.
///
/// # Errors
/// `Corrupt` when the payload is not a run of entries of this layout.
pub fn for_each_change(
    payload: &[u8],
    layout: Layout,
    family: FamilyOfInterest,
    mut act: impl FnMut(ChangeKind, &[u8], &[u8]),
) -> Result<()> {
    let mut reader = ChangeReader::new(payload);
    while let Some((key, change)) = reader.next()? {
        let (is_element, key) = match layout {
            Layout::Plain(_) => (false, key),
            Layout::Columns => {
                let (table, key) = split_key(key)?;
                if u32::from(table / 2) != family.number || table == 0 {
                    continue;
                }
                (table % 2 == 1, key)
            }
        };
        match change {
            Change::Remove if !is_element => act(ChangeKind::Remove, key, &[]),
            Change::Put(value) if is_element => {
                let (key, position) = key.split_last_chunk::<8>().ok_or_else(|| {
                    Error::corrupt("a value of a list without its position".to_owned())
                })?;
                let first = u64::from_be_bytes(*position) == 0;
                let kind = if first {
                    ChangeKind::Put
                } else {
                    ChangeKind::Append
                };
                act(kind, key, value);
            }
            Change::Put(value) if !family.several_values => act(ChangeKind::Put, key, value),
            // The number of values, and values that others took the place of.
            Change::Put(_) | Change::Remove => {}
        }
    }
    Ok(())
}
