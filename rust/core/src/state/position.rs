//! Where a store stands: a version, and the segments that make it up. Pure: each change of the
//! position is a function of facts.

use super::base_image::BaseImage;
use super::commit_id::CommitId;
use crate::format::SegmentHead;
use crate::ids::{CheckpointId, SegmentRef};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Position {
    /// As it was returned to the caller, so that a retry finds this position by it.
    pub id: CommitId,
    /// What the next changelog builds on, oldest first: an optional base image, then changelogs.
    /// Runs ahead of `id` once a base image is installed.
    pub lineage: Vec<SegmentRef>,
    /// `created` of the oldest segment in `lineage`.
    pub lineage_floor: CheckpointId,
    /// Newest of the segments that the base image in `lineage` stands for.
    pub replaced: Option<SegmentRef>,
    /// The base image in `lineage` is damaged: nothing may build on it.
    pub rebuilt: bool,
}

impl Position {
    pub fn empty(version: u64) -> Self {
        let created = CheckpointId(version);
        let id = CommitId {
            version,
            floor: created,
            owner: None,
            segment: None,
            replaced: None,
        };
        Self {
            id,
            lineage: Vec::new(),
            lineage_floor: created,
            replaced: None,
            rebuilt: false,
        }
    }

    /// The position of a version that was read: `head` is that of the segment it was read from.
    pub fn read(id: CommitId, segment: SegmentRef, head: SegmentHead, rebuilt: bool) -> Self {
        let mut lineage = head.lineage;
        lineage.push(segment);
        Self {
            id,
            lineage,
            lineage_floor: id.floor,
            replaced: head.replaced,
            rebuilt,
        }
    }

    /// The position after a commit that changed nothing.
    pub fn unchanged(&self) -> Self {
        let version = self.id.version + 1;
        let id = match self.lineage.as_slice() {
            [] => return Self::empty(version),
            // The whole state is one segment, possibly a base image installed since.
            [only] => CommitId {
                version,
                floor: self.lineage_floor,
                segment: Some(*only),
                replaced: self.replaced,
                ..self.id
            },
            // The segment of the last id names its own, older lineage: its floor stays.
            _ => CommitId { version, ..self.id },
        };
        Self { id, ..self.clone() }
    }

    /// Makes `id`, which stands for the same state, the one this position goes by. Where a batch ran
    /// twice (a sink with two actions), the driver keeps the first run's id, and only that run's
    /// segments are made durable: the next commit must build on them.
    pub fn adopt(&mut self, id: CommitId) {
        if let (Some(own), Some(wanted)) = (self.id.segment, id.segment)
            && let Some(newest) = self.lineage.last_mut().filter(|newest| **newest == own)
        {
            *newest = wanted;
        }
        self.id = id;
    }

    /// The position after a commit that wrote `segment` on top of the lineage.
    pub fn with_segment(&self, segment: SegmentRef) -> Self {
        let version = self.id.version + 1;
        let created = CheckpointId(version);
        let (floor, replaced) = if self.lineage.is_empty() {
            (created, None)
        } else {
            (self.lineage_floor, self.replaced)
        };
        let id = CommitId {
            version,
            floor,
            owner: self.id.owner,
            segment: Some(segment),
            replaced: None,
        };
        Self {
            id,
            lineage: [self.lineage.as_slice(), &[segment]].concat(),
            lineage_floor: floor,
            replaced,
            rebuilt: false,
        }
    }

    /// The next commit builds on `image`, which stands for segments that lie in the lineage. Nothing
    /// happens where they do not: the store has moved to another lineage.
    pub fn install(&mut self, image: &BaseImage) {
        let Some(rest) = self.lineage.strip_prefix(image.replaces.as_slice()) else {
            return;
        };
        let mut lineage = Vec::with_capacity(1 + rest.len());
        lineage.push(image.reference);
        lineage.extend_from_slice(rest);
        self.lineage = lineage;
        self.lineage_floor = image.created;
        self.replaced = image.replaces.last().copied();
    }

    /// Newest of the segments that an image of this position's content stands for. A damaged image
    /// stands for nothing: then it is what that one had replaced.
    pub fn replaced_by_image(&self) -> Option<SegmentRef> {
        let changelog = self.lineage.get(1..).and_then(<[SegmentRef]>::last);
        changelog.copied().or(self.replaced)
    }

    /// The next commit builds on `image` alone, which was written of this position's content.
    pub fn rest_on(&mut self, image: SegmentRef) {
        self.replaced = self.replaced_by_image();
        self.lineage = vec![image];
        self.lineage_floor = CheckpointId(self.id.version);
        self.rebuilt = false;
    }

    /// `id` stands for the same content of the same version: the digest of a segment covers its owner,
    /// checkpoint, lineage and changes, wherever it was written.
    pub fn has_state_of(&self, id: &CommitId) -> bool {
        let content = |id: &CommitId| id.segment.map(|segment| (segment.len, segment.digest));
        self.id.version == id.version && content(&self.id) == content(id)
    }
}
