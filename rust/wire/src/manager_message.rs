//! A message about a checkpoint as bytes, from the driver to managers in other processes.

use std::collections::BTreeMap;

use holdfast_core::manager::{Fallbacks, Retained, SnapshotManager};
use holdfast_core::{CheckpointId, Error, Owner, Result, SegmentRef};
use prost::{Enumeration, Message};

use super::PROTOCOL_VERSION;
use super::protocol::check_version;
use super::values::{owner_from, ref_bytes, refs_from};

/// The event that a message reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enumeration)]
#[repr(i32)]
pub enum MessageKind {
    /// [`SnapshotManager::completed`].
    Completed = 2,
    /// [`SnapshotManager::partially_completed`].
    PartiallyCompleted = 3,
    /// [`SnapshotManager::aborted`].
    Aborted = 4,
}

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
    /// The event.
    pub kind: MessageKind,
    /// The checkpoint that it happened to.
    pub checkpoint: CheckpointId,
    /// The owners that fell back, if the checkpoint completed partially.
    pub fallbacks: Fallbacks,
    /// The checkpoints that are retained at that moment.
    pub retained: Retained,
    /// Segments that were written for the checkpoint but are not part of it. A manager releases
    /// them before it takes in the rest, see [`SnapshotManager::release`].
    pub released: Released,
}

#[derive(Clone, PartialEq, Message)]
struct Wire {
    #[prost(uint32, tag = "1")]
    version: u32,
    #[prost(int32, tag = "2")]
    kind: i32,
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
        let retained = self.retained.checkpoints.iter();
        let released = self.released.iter();
        Wire {
            version: PROTOCOL_VERSION,
            kind: self.kind.into(),
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
    /// `InvalidInput` for other bytes, `Unsupported` for bytes of another version.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let wire = Wire::decode(bytes).map_err(|e| {
            Error::invalid_input(format!("a message for managers cannot be decoded: {e}"))
        })?;
        check_version("driver", wire.version)?;
        let kind = MessageKind::try_from(wire.kind).map_err(|_| {
            Error::invalid_input(format!(
                "kind of a message for managers: expected 2 to 4, found {}",
                wire.kind
            ))
        })?;
        let retained = wire.retained.into_iter().map(|entry| {
            let id = CheckpointId(entry.checkpoint);
            Ok((id, fallbacks_from(entry.fallbacks)?))
        });
        let released = wire.released.into_iter();
        let released =
            released.map(|entry| Ok((owner_from(entry.owner)?, refs_from(&entry.refs)?)));
        Ok(Self {
            kind,
            checkpoint: CheckpointId(wire.checkpoint),
            fallbacks: fallbacks_from(wire.fallbacks)?,
            retained: Retained {
                decided: CheckpointId(wire.decided),
                checkpoints: retained.collect::<Result<_>>()?,
            },
            released: released.collect::<Result<_>>()?,
        })
    }

    /// Calls the method of `manager` for this message, and returns its errors.
    pub fn tell(&self, manager: &SnapshotManager) -> Result<()> {
        let (id, retained) = (self.checkpoint, &self.retained);
        for (owner, refs) in &self.released {
            manager.release(owner, refs);
        }
        match self.kind {
            MessageKind::Completed => manager.completed(id, retained),
            MessageKind::PartiallyCompleted => {
                manager.partially_completed(id, &self.fallbacks, retained)
            }
            MessageKind::Aborted => manager.aborted(id, retained),
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
        .map(|entry| Ok((owner_from(entry.owner)?, CheckpointId(entry.origin))))
        .collect()
}

#[cfg(test)]
#[path = "manager_message_tests.rs"]
mod tests;
