//! The version of a store, if it has one.

use super::position::Position;
use crate::state::commit_id::CommitId;

#[derive(Debug, Default)]
#[expect(
    clippy::large_enum_variant,
    reason = "a store has one, and mostly stands at a version"
)]
pub(crate) enum Standing {
    /// At no version: never opened, or after a failed load.
    #[default]
    Nowhere,
    At {
        now: Position,
        /// The version that undoing the last commit restores.
        before: Option<Position>,
    },
    /// At no version any more: a read of a key found a damaged run of this one. The next load reads
    /// all of the version, and goes around the damage if it can.
    Lost { was: Position },
}

impl Standing {
    pub fn at(now: Position) -> Self {
        Self::At { now, before: None }
    }

    pub fn now(&self) -> Option<&Position> {
        self.versions().next()
    }

    pub fn now_mut(&mut self) -> Option<&mut Position> {
        match self {
            Self::At { now, .. } => Some(now),
            Self::Nowhere | Self::Lost { .. } => None,
        }
    }

    pub fn versions(&self) -> impl Iterator<Item = &Position> {
        let (now, before) = match self {
            Self::At { now, before } => (Some(now), before.as_ref()),
            Self::Nowhere | Self::Lost { .. } => (None, None),
        };
        now.into_iter().chain(before)
    }

    pub fn has_content_of(&self, id: &CommitId) -> bool {
        self.now().is_some_and(|now| now.has_content_of(id))
    }

    pub fn advance(&mut self, next: Position) {
        let before = match std::mem::take(self) {
            Self::At { now, .. } => Some(now),
            Self::Nowhere | Self::Lost { .. } => None,
        };
        *self = Self::At { now: next, before };
    }

    /// Goes back to the version before, if `id` represents it, and adopts `id`.
    pub fn go_back_to(&mut self, id: &CommitId) -> bool {
        let Self::At { now, before } = self else {
            return false;
        };
        let Some(mut back) = before.take_if(|before| before.has_state_of(id)) else {
            return false;
        };
        back.adopt(*id);
        *now = back;
        true
    }

    pub fn forget_before(&mut self) {
        if let Self::At { before, .. } = self {
            *before = None;
        }
    }

    pub fn lose(&mut self) {
        *self = match std::mem::take(self) {
            Self::At { now: was, .. } => Self::Lost { was },
            other => other,
        };
    }
}
