//! Changes of single commits, for readers of changes and to rebuild a version from an older one.

use std::collections::HashMap;

use super::families::{KeyLayout, split_key};
use super::family::Begun;
use super::journal::{for_each_operation, read_journal};
use crate::error::{Error, ErrorKind, Result};
use crate::format::{Segment, SegmentHead, SegmentKind, read_any_head, read_segment};
use crate::ids::{Owner, SegmentRef};
use crate::state::commit_id::CommitId;
use crate::state::runs::entries::{Change, ChangeKind, ChangeReader};
use crate::storage::Storage;

/// A column family to look at.
#[derive(Clone, Copy, Debug)]
pub struct FamilyOfInterest {
    /// Its number.
    pub number: u32,
    /// It has several values per key.
    pub several_values: bool,
}

/// The changes that the commit of `version` wrote for `owner`, or its operations if it recorded
/// them. `ids` are the ids of all stores of the partition. `None` if the commit changed nothing.
///
/// # Errors
/// `NotFound` or `Corrupt` for a segment; `Unsupported` for a commit that wrote all content.
pub fn read_changes(
    storage: &dyn Storage,
    owner: &Owner,
    version: u64,
    ids: &[CommitId],
) -> Result<Option<Changes>> {
    let found = find_changes(storage, owner, version, ids)?;
    let Some(changelog) = found.last() else {
        return Ok(None);
    };
    let segments = found
        .iter()
        .map(|reference| read_segment(storage, reference, owner))
        .collect::<Result<Vec<_>>>()?;
    let journal = match segments.last() {
        Some(segment) => read_journal(storage, changelog, &segment.head)?,
        None => None,
    };
    Ok(Some(match journal {
        None => Changes::OfKeys(segments),
        Some(journal) => Changes::Operations(journal),
    }))
}

/// The changes of a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Changes {
    /// Spilled runs, oldest first, then its changelog, each with the last change of each key.
    OfKeys(Vec<Segment>),
    /// Its journal, in parts: all operations.
    Operations(Vec<Segment>),
}

impl Changes {
    /// Calls `act` for every change of one family: operations in order, or as [`for_each_change`].
    ///
    /// # Errors
    /// `Corrupt` for wrong entries.
    pub fn for_each(
        &self,
        layout: KeyLayout,
        family: FamilyOfInterest,
        mut act: impl FnMut(ChangeKind, &[u8], &[u8]),
    ) -> Result<()> {
        match self {
            Self::OfKeys(segments) => segments.iter().try_for_each(|segment| {
                for_each_change(&segment.payload, layout, family, &mut act)
            }),
            Self::Operations(parts) => {
                let mut next = 0;
                parts.iter().try_for_each(|part| {
                    for_each_operation(&part.payload, &mut next, family.number, &mut act)
                })
            }
        }
    }
}

/// The runs that the session spilled, oldest first, then its changelog. Empty without changes.
pub(crate) fn find_changes(
    storage: &dyn Storage,
    owner: &Owner,
    version: u64,
    ids: &[CommitId],
) -> Result<Vec<SegmentRef>> {
    let of_version = ids.iter().filter(|id| id.version == version);
    for reference in of_version.filter_map(|id| id.segment) {
        let head = read_any_head(storage, &reference)?;
        if head.owner != *owner {
            continue;
        }
        if head.created.0 != version {
            return Ok(Vec::new());
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
        let mut found = runs_of_session(storage, &head)?;
        found.push(reference);
        return Ok(found);
    }
    Ok(Vec::new())
}

/// The runs in the lineage of a changelog that its own session wrote. There are some if the newest
/// run replaces only itself: no older segment has its content.
pub(crate) fn runs_of_session(
    storage: &dyn Storage,
    changelog: &SegmentHead,
) -> Result<Vec<SegmentRef>> {
    let runs = changelog.lineage.get(..changelog.most_runs());
    let runs = runs.unwrap_or_default();
    let mut found = Vec::new();
    if changelog.replaced.is_some() && changelog.replaced.as_ref() == runs.last() {
        for run in runs.iter().rev() {
            if read_any_head(storage, run)?.created != changelog.created {
                break;
            }
            found.insert(0, *run);
        }
    }
    Ok(found)
}

/// The id of `owner` at `version`, among the ids of all stores of the partition.
pub fn find_own(owner: &Owner, version: u64, ids: &[CommitId]) -> Option<CommitId> {
    let mut own = ids.iter().filter(|id| id.owner == owner.tag());
    own.find(|id| id.version == version).copied()
}

/// Calls `act` for every change of one family in a changelog, the last one of each key. A list that
/// was set begins with [`ChangeKind::Put`]. A list that was begun by appending has only
/// [`ChangeKind::Append`], after a [`ChangeKind::Remove`] if the commit first removed the key.
///
/// # Errors
/// `Corrupt` if the payload has no entries of this layout.
pub fn for_each_change(
    payload: &[u8],
    layout: KeyLayout,
    family: FamilyOfInterest,
    mut act: impl FnMut(ChangeKind, &[u8], &[u8]),
) -> Result<()> {
    let mut begun = HashMap::new();
    if family.several_values {
        // A mark may follow the values of its list.
        each_entry(payload, layout, family, |is_element, key, change| {
            if is_element && change == Change::Remove {
                let (key, position) = split_element(key)?;
                begun.extend(Begun::of_position(position).map(|how| (key, how)));
            }
            Ok(())
        })?;
    }
    each_entry(payload, layout, family, |is_element, key, change| {
        match change {
            Change::Remove if !is_element => act(ChangeKind::Remove, key, &[]),
            Change::Put(value) if is_element => {
                let (key, position) = split_element(key)?;
                let first = (position == 0).then(|| begun.get(key));
                if first == Some(Some(&Begun::Anew)) {
                    act(ChangeKind::Remove, key, &[]);
                }
                let kind = match first {
                    Some(None) => ChangeKind::Put,
                    _ => ChangeKind::Append,
                };
                act(kind, key, value);
            }
            Change::Put(value) if !family.several_values => act(ChangeKind::Put, key, value),
            // The number of values, replaced values, and marks.
            Change::Put(_) | Change::Remove => {}
        }
        Ok(())
    })
}

/// Calls `act(is_list_value, key_in_table, change)` for every entry of one family.
fn each_entry<'p>(
    payload: &'p [u8],
    layout: KeyLayout,
    family: FamilyOfInterest,
    mut act: impl FnMut(bool, &'p [u8], Change<'p>) -> Result<()>,
) -> Result<()> {
    let mut reader = ChangeReader::new(payload);
    while let Some((key, change)) = reader.next()? {
        match layout {
            KeyLayout::Plain(_) => act(false, key, change)?,
            KeyLayout::Columns => {
                let (table, key) = split_key(key)?;
                if u32::from(table / 2) == family.number && table != 0 {
                    act(table % 2 == 1, key, change)?;
                }
            }
        }
    }
    Ok(())
}

pub(crate) fn split_element(key: &[u8]) -> Result<(&[u8], u64)> {
    let (key, position) = key
        .split_last_chunk::<8>()
        .ok_or_else(|| Error::corrupt("a value of a list without its position".to_owned()))?;
    Ok((key, u64::from_be_bytes(*position)))
}
