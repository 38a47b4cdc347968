//! A message about a checkpoint as bytes, from the driver to managers in other processes.

use std::collections::BTreeMap;

use holdfast_core::manager::{Fallbacks, Retained, SnapshotManager};
use holdfast_core::{CheckpointId, Error, Owner, Result, SegmentRef};
use prost::Message;

use super::PROTOCOL_VERSION;
use super::protocol::{check_version, owner_from, ref_bytes, refs_from};

/// What happened to a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageKind {
    /// [`SnapshotManager::started`].
    Started,
    /// [`SnapshotManager::completed`].
    Completed,
    /// [`SnapshotManager::partially_completed`].
    PartiallyCompleted,
    /// [`SnapshotManager::aborted`].
    Aborted,
    /// [`SnapshotManager::subsumed`].
    Subsumed,
}

/// Stable number of a kind.
const KINDS: [(u32, MessageKind); 5] = [
    (1, MessageKind::Started),
    (2, MessageKind::Completed),
    (3, MessageKind::PartiallyCompleted),
    (4, MessageKind::Aborted),
    (5, MessageKind::Subsumed),
];

/// Segments by their owner.
pub type Released = BTreeMap<Owner, Vec<SegmentRef>>;

/// A message about a checkpoint, for any manager.
///
/// ```
/// use holdfast_core::CheckpointId;
/// use holdfast_core::manager::Retained;
/// use holdfast_wire::{ManagerMessage, MessageKind};
/// # fn main() -> holdfast_core::Result<()> {
/// let id = CheckpointId(7);
/// let message = ManagerMessage {
///     kind: MessageKind::Completed,
///     checkpoint: id,
///     fallbacks: Default::default(),
///     retained: Retained { decided: id, checkpoints: [(id, Default::default())].into() },
///     released: Default::default(),
/// };
/// assert_eq!(ManagerMessage::from_bytes(&message.to_bytes())?, message);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManagerMessage {
    /// What happened.
    pub kind: MessageKind,
    /// To which checkpoint.
    pub checkpoint: CheckpointId,
    /// Of a checkpoint that completed partially: the owners that fell back.
    pub fallbacks: Fallbacks,
    /// What is retained at that moment.
    pub retained: Retained,
    /// What was written for the checkpoint, which does not hold it: a manager releases it before
    /// it takes in the rest, see [`SnapshotManager::release`].
    pub released: Released,
}

#[derive(Clone, PartialEq, Message)]
struct Wire {
    #[prost(uint32, tag = "1")]
    version: u32,
    #[prost(uint32, tag = "2")]
    kind: u32,
    #[prost(uint64, tag = "3")]
    checkpoint: u64,
    #[prost(message, repeated, tag = "4")]
    fallbacks: Vec<FallbackMessage>,
    #[prost(uint64, tag = "5")]
    decided: u64,
    #[prost(message, repeated, tag = "6")]
    retained: Vec<RetainedMessage>,
    #[prost(message, repeated, tag = "7")]
    released: Vec<ReleasedMessage>,
}

#[derive(Clone, PartialEq, Message)]
struct FallbackMessage {
    #[prost(message, optional, tag = "1")]
    owner: Option<Owner>,
    #[prost(uint64, tag = "2")]
    origin: u64,
}

#[derive(Clone, PartialEq, Message)]
struct RetainedMessage {
    #[prost(uint64, tag = "1")]
    checkpoint: u64,
    #[prost(message, repeated, tag = "2")]
    fallbacks: Vec<FallbackMessage>,
}

#[derive(Clone, PartialEq, Message)]
struct ReleasedMessage {
    #[prost(message, optional, tag = "1")]
    owner: Option<Owner>,
    #[prost(bytes = "vec", repeated, tag = "2")]
    refs: Vec<Vec<u8>>,
}

impl ManagerMessage {
    /// Encodes it.
    pub fn to_bytes(&self) -> Vec<u8> {
        let kind = KINDS.iter().find(|(_, kind)| *kind == self.kind);
        let retained = self.retained.checkpoints.iter();
        let released = self.released.iter();
        Wire {
            version: PROTOCOL_VERSION,
            kind: kind.map_or(0, |(number, _)| *number),
            checkpoint: self.checkpoint.0,
            fallbacks: fallback_messages(&self.fallbacks),
            decided: self.retained.decided.0,
            retained: retained
                .map(|(id, fallbacks)| RetainedMessage {
                    checkpoint: id.0,
                    fallbacks: fallback_messages(fallbacks),
                })
                .collect(),
            released: released
                .map(|(owner, refs)| ReleasedMessage {
                    owner: Some(owner.clone()),
                    refs: ref_bytes(refs),
                })
                .collect(),
        }
        .encode_to_vec()
    }

    /// Inverse of [`ManagerMessage::to_bytes`].
    ///
    /// # Errors
    /// `InvalidInput` for other bytes, `Unsupported` for those of another version.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let wire = Wire::decode(bytes).map_err(|e| {
            Error::invalid_input(format!("a message for managers cannot be decoded: {e}"))
        })?;
        check_version("driver", wire.version)?;
        let kind = KINDS.iter().find(|(number, _)| *number == wire.kind);
        let (_, kind) = kind.ok_or_else(|| {
            Error::invalid_input(format!(
                "kind of a message for managers: expected 1 to 5, found {}",
                wire.kind
            ))
        })?;
        let retained = wire.retained.into_iter().map(|entry| {
            Ok((
                CheckpointId(entry.checkpoint),
                fallbacks_from(entry.fallbacks)?,
            ))
        });
        let released = wire
            .released
            .into_iter()
            .map(|entry| Ok((owner_from(entry.owner)?, refs_from(&entry.refs)?)));
        Ok(Self {
            kind: *kind,
            checkpoint: CheckpointId(wire.checkpoint),
            fallbacks: fallbacks_from(wire.fallbacks)?,
            retained: Retained {
                decided: CheckpointId(wire.decided),
                checkpoints: retained.collect::<Result<BTreeMap<_, _>>>()?,
            },
            released: released.collect::<Result<Released>>()?,
        })
    }

    /// Tells a manager.
    ///
    /// # Errors
    /// Those of the manager's method of that name.
    pub fn tell(&self, manager: &SnapshotManager) -> Result<()> {
        let (id, retained) = (self.checkpoint, &self.retained);
        for (owner, refs) in &self.released {
            manager.release(owner, refs);
        }
        match self.kind {
            MessageKind::Started => {
                manager.started(id);
                Ok(())
            }
            MessageKind::Completed => manager.completed(id, retained),
            MessageKind::PartiallyCompleted => {
                manager.partially_completed(id, &self.fallbacks, retained)
            }
            MessageKind::Aborted => manager.aborted(id, retained),
            MessageKind::Subsumed => manager.subsumed(id, retained),
        }
    }
}

fn fallback_messages(fallbacks: &Fallbacks) -> Vec<FallbackMessage> {
    let entries = fallbacks.iter();
    entries
        .map(|(owner, origin)| FallbackMessage {
            owner: Some(owner.clone()),
            origin: origin.0,
        })
        .collect()
}

fn fallbacks_from(messages: Vec<FallbackMessage>) -> Result<Fallbacks> {
    let entries = messages.into_iter();
    entries
        .map(|entry| -> Result<(Owner, CheckpointId)> {
            Ok((owner_from(entry.owner)?, CheckpointId(entry.origin)))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::*;
    use holdfast_core::ErrorKind;
    use holdfast_core::SEGMENT_REF_BYTES;
    use holdfast_core::format::{NewSegment, SegmentKind};
    use holdfast_core::manager::ManagerOptions;
    use holdfast_core::storage::LocalStorage;
    use std::sync::Arc;

    fn message(kind: MessageKind) -> ManagerMessage {
        let fallbacks: Fallbacks = [
            (Owner::new("p", "stats", "east", "default"), CheckpointId(3)),
            (Owner::new("p", "in-flight", "east", "5"), CheckpointId(5)),
        ]
        .into();
        let id = CheckpointId(6);
        let refused = SegmentRef::from_bytes(&[1; SEGMENT_REF_BYTES]).unwrap();
        ManagerMessage {
            kind,
            checkpoint: id,
            fallbacks: fallbacks.clone(),
            retained: Retained {
                decided: CheckpointId(7),
                checkpoints: [(CheckpointId(5), Fallbacks::new()), (id, fallbacks)].into(),
            },
            released: [(
                Owner::new("p", "stats", "west", "default"),
                vec![refused, refused],
            )]
            .into(),
        }
    }

    #[test]
    fn every_kind_is_read_back_as_it_was_written() {
        for (_, kind) in KINDS {
            let message = message(kind);
            assert_eq!(
                ManagerMessage::from_bytes(&message.to_bytes()).unwrap(),
                message
            );
        }
    }

    #[test]
    fn what_it_releases_is_not_part_of_the_checkpoint_that_completes() {
        let folder = tempfile::tempdir().unwrap();
        let storage = Arc::new(LocalStorage::new(folder.path().join("segments")));
        let manager =
            SnapshotManager::open_next_term(storage, ManagerOptions::default(), 1).unwrap();
        let (owner, id) = (Owner::new("p", "stats", "east", "default"), CheckpointId(6));
        let new = NewSegment {
            owner: &owner,
            created: id,
            kind: SegmentKind::Snapshot,
            lineage: &[],
            replaced: None,
            entries: 1,
            tables: &[],
            runs: 0,
        };
        manager.started(id);
        let acknowledged = manager.append(&new, b"acknowledged").unwrap();
        let refused = manager.append(&new, b"refused").unwrap();
        let message = ManagerMessage {
            kind: MessageKind::Completed,
            checkpoint: id,
            fallbacks: Fallbacks::new(),
            retained: Retained {
                decided: id,
                checkpoints: [(id, Fallbacks::new())].into(),
            },
            released: [(owner.clone(), vec![refused])].into(),
        };
        message.tell(&manager).unwrap();
        assert_eq!(manager.stats().live_segments, 1);
        assert!(manager.read(&acknowledged, &owner).is_ok());
    }

    #[test]
    fn other_bytes_and_other_versions_are_refused() {
        let garbage = ManagerMessage::from_bytes(b"no message").unwrap_err();
        assert_eq!(garbage.kind(), ErrorKind::InvalidInput);
        let bytes = message(MessageKind::Aborted).to_bytes();
        let of = |change: fn(&mut Wire)| {
            let mut wire = Wire::decode(bytes.as_slice()).unwrap();
            change(&mut wire);
            ManagerMessage::from_bytes(&wire.encode_to_vec()).map_err(|e| e.kind())
        };
        assert_eq!(of(|wire| wire.version += 1), Err(ErrorKind::Unsupported));
        assert_eq!(of(|wire| wire.kind = 6), Err(ErrorKind::InvalidInput));
        assert_eq!(
            of(|wire| wire.fallbacks[0].owner = None),
            Err(ErrorKind::InvalidInput)
        );
        assert_eq!(
            of(|wire| wire.released[0].owner = None),
            Err(ErrorKind::InvalidInput)
        );
        assert_eq!(
            of(|wire| {
                wire.released[0].refs[0].pop();
            }),
            Err(ErrorKind::InvalidInput)
        );
        assert!(of(|_| {}).is_ok());
    }
}
