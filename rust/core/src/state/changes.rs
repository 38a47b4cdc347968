//! What single commits changed, read from their changelogs and journals: for readers that look at a
//! stream of changes, or rebuild a version from an older one.

use std::collections::HashMap;

use super::commit_id::CommitId;
use super::content::{Layout, split_key};
use super::entries::{Change, ChangeReader};
use super::family::Begun;
use super::journal::{for_each_operation, read_journal};
use crate::error::{Error, ErrorKind, Result};
use crate::format::{Segment, SegmentKind, read_any_head, read_segment};
use crate::ids::{Owner, SegmentRef};
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

impl ChangeKind {
    /// Stable number of the kind, as stored and for Java.
    pub fn tag(self) -> u8 {
        match self {
            Self::Put => 0,
            Self::Remove => 1,
            Self::Append => 2,
        }
    }

    /// Inverse of [`ChangeKind::tag`].
    pub fn from_tag(tag: u8) -> Option<Self> {
        [Self::Put, Self::Remove, Self::Append]
            .into_iter()
            .find(|kind| kind.tag() == tag)
    }
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
    let found = find_changelog(storage, owner, version, ids)?;
    found
        .map(|reference| read_segment(storage, &reference, owner))
        .transpose()
}

/// As [`read_changelog`], with every operation of the commit if it recorded them.
///
/// # Errors
/// As [`read_changelog`].
pub fn read_changes(
    storage: &dyn Storage,
    owner: &Owner,
    version: u64,
    ids: &[CommitId],
) -> Result<Option<Changes>> {
    let Some(reference) = find_changelog(storage, owner, version, ids)? else {
        return Ok(None);
    };
    let changelog = read_segment(storage, &reference, owner)?;
    let journal = read_journal(storage, &reference, &changelog.head)?;
    Ok(Some(match journal {
        None => Changes::OfKeys(changelog),
        Some(journal) => Changes::Operations(journal),
    }))
}

/// What a commit changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Changes {
    /// Its changelog: what it did to each key in the end.
    OfKeys(Segment),
    /// Its journal: everything that it did.
    Operations(Segment),
}

impl Changes {
    /// Calls `act` for every change of one family: of a journal in the order of the operations, else as
    /// [`for_each_change`].
    ///
    /// # Errors
    /// `Corrupt` when the entries are not those of such a segment.
    pub fn for_each(
        &self,
        layout: Layout,
        family: FamilyOfInterest,
        act: impl FnMut(ChangeKind, &[u8], &[u8]),
    ) -> Result<()> {
        match self {
            Self::OfKeys(changelog) => for_each_change(&changelog.payload, layout, family, act),
            Self::Operations(journal) => for_each_operation(&journal.payload, family.number, act),
        }
    }
}

fn find_changelog(
    storage: &dyn Storage,
    owner: &Owner,
    version: u64,
    ids: &[CommitId],
) -> Result<Option<SegmentRef>> {
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
        return Ok(Some(reference));
    }
    Ok(None)
}

/// The id of `owner` at `version` among the ids of all stores of the partition; `None` without one.
///
/// # Errors
/// `NotFound` or `Corrupt` where an id of an older build does not say whose it is, and the segment
/// that does is gone or damaged.
pub fn find_own(
    storage: &dyn Storage,
    owner: &Owner,
    version: u64,
    ids: &[CommitId],
) -> Result<Option<CommitId>> {
    let mut empty = None;
    for id in ids.iter().filter(|id| id.version == version) {
        let own = match (id.owner, id.segment) {
            (Some(tag), _) => tag == owner.tag(),
            (None, Some(reference)) => read_any_head(storage, &reference)?.owner == *owner,
            (None, None) => {
                // Whose it is makes no difference: there is nothing in the store.
                empty = Some(*id);
                false
            }
        };
        if own {
            return Ok(Some(*id));
        }
    }
    Ok(empty)
}

/// Calls `act` for every change of one family in a changelog: what the commit did to each key in the
/// end. Of a list that was set, the first value is a [`ChangeKind::Put`]; the values of a list that
/// was begun by appending are all [`ChangeKind::Append`], behind a [`ChangeKind::Remove`] where the
/// commit first removed the key.
///
/// # Errors
/// `Corrupt` when the payload is not a run of entries of this layout.
pub fn for_each_change(
    payload: &[u8],
    layout: Layout,
    family: FamilyOfInterest,
    mut act: impl FnMut(ChangeKind, &[u8], &[u8]),
) -> Result<()> {
    let mut begun = HashMap::new();
    if family.several_values {
        // A mark may stand behind the values it is about.
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
            // The number of values, values that others took the place of, and marks.
            Change::Put(_) | Change::Remove => {}
        }
        Ok(())
    })
}

/// Calls `act` for every entry of one family with whether it is one of the values of a list, and its
/// key in the table.
fn each_entry<'p>(
    payload: &'p [u8],
    layout: Layout,
    family: FamilyOfInterest,
    mut act: impl FnMut(bool, &'p [u8], Change<'p>) -> Result<()>,
) -> Result<()> {
    let mut reader = ChangeReader::new(payload);
    while let Some((key, change)) = reader.next()? {
        match layout {
            Layout::Plain(_) => act(false, key, change)?,
            Layout::Columns => {
                let (table, key) = split_key(key)?;
                if u32::from(table / 2) == family.number && table != 0 {
                    act(table % 2 == 1, key, change)?;
                }
            }
        }
    }
    Ok(())
}

/// Key and position of a value of a list.
fn split_element(key: &[u8]) -> Result<(&[u8], u64)> {
    let (key, position) = key
        .split_last_chunk::<8>()
        .ok_or_else(|| Error::corrupt("a value of a list without its position".to_owned()))?;
    Ok((key, u64::from_be_bytes(*position)))
}
