//! The way from the coordinator to the manager: it loses, repeats and reorders.

use std::collections::VecDeque;

use holdfast_core::manager::{Fallbacks, Retained, SnapshotManager};
use holdfast_core::{CheckpointId, Owner, Result, SegmentRef};

use crate::rng::Rng;

/// A message to the manager.
#[derive(Clone, Debug)]
pub enum Message {
    /// An attempt starts.
    Started(CheckpointId),
    /// Every owner contributed.
    Completed(CheckpointId, Retained),
    /// Some owners fell back.
    Partial(CheckpointId, Fallbacks, Retained),
    /// Nothing was published.
    Aborted(CheckpointId, Retained),
    /// A checkpoint is not retained any more.
    Subsumed(CheckpointId, Retained),
    /// An acknowledgement was refused.
    Release(Owner, Vec<SegmentRef>),
}

impl Message {
    /// Hands it to the manager.
    ///
    /// # Errors
    /// Errors of the manager.
    pub fn deliver(&self, manager: &SnapshotManager) -> Result<()> {
        match self {
            Self::Started(id) => manager.started(*id),
            Self::Release(owner, refs) => manager.release(owner, refs),
            Self::Completed(id, view) => manager.completed(*id, view)?,
            Self::Partial(id, fallbacks, view) => {
                manager.partially_completed(*id, fallbacks, view)?;
            }
            Self::Aborted(id, view) => manager.aborted(*id, view)?,
            Self::Subsumed(id, view) => manager.subsumed(*id, view)?,
        }
        Ok(())
    }
}

/// Messages on their way.
#[derive(Debug, Default)]
pub struct Network {
    queue: VecDeque<Message>,
}

impl Network {
    /// Sends a message: 5 % are lost, 5 % repeated, 5 % overtaken by or overtaking others.
    pub fn send(&mut self, rng: &mut Rng, message: Message) {
        match rng.below(100) {
            0..5 => {}
            5..10 => {
                self.put_anywhere(rng, message.clone());
                self.queue.push_back(message);
            }
            10..15 => self.put_anywhere(rng, message),
            _ => self.queue.push_back(message),
        }
    }

    /// The message that arrives next; rarely it stays on its way and arrives again later.
    pub fn receive(&mut self, rng: &mut Rng) -> Option<Message> {
        let message = self.queue.pop_front()?;
        if rng.percent(3) {
            self.put_anywhere(rng, message.clone());
        }
        Some(message)
    }

    /// Messages on their way.
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// Nothing is on its way.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    fn put_anywhere(&mut self, rng: &mut Rng, message: Message) {
        let at = rng.below(self.queue.len() as u64 + 1) as usize;
        self.queue.insert(at, message);
    }
}
