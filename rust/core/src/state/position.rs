//! Where a store stands: a version, and the segments that make it up. Pure: each change of the
//! position is a function of facts.

use super::commit_id::CommitId;
use super::delta_runs::DeltaRuns;
use super::load::runs_of;
use super::merge_task::MergedRun;
use crate::format::{SegmentHead, SegmentKind};
use crate::ids::{CheckpointId, SegmentRef};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Position {
    /// As it was returned to the caller, so that a retry finds this position by it.
    pub id: CommitId,
    /// What the next changelog builds on, oldest first: an optional base image, delta runs above it,
    /// then changelogs. Runs ahead of `id` once a run is installed.
    pub lineage: Vec<SegmentRef>,
    /// The delta runs in `lineage`. There are none without a base image.
    pub deltas: DeltaRuns,
    /// `created` of the newest of the changelogs, oldest first: of as many as are known.
    pub changed: Vec<CheckpointId>,
    /// `created` of the oldest segment in `lineage`.
    pub lineage_floor: CheckpointId,
    /// Newest of the segments that the newest run in `lineage` stands for. Where one is damaged, newest of
    /// the segments that the content was read from.
    pub replaced: Option<SegmentRef>,
    /// A run in `lineage` is damaged: nothing may build on it.
    pub rebuilt: bool,
}

impl Position {
    pub fn empty(version: u64) -> Self {
        let created = CheckpointId(version);
        let id = CommitId {
            version,
            floor: created,
            deltas: DeltaRuns::NONE,
            owner: None,
            segment: None,
            replaced: None,
        };
        Self {
            id,
            lineage: Vec::new(),
            deltas: DeltaRuns::NONE,
            changed: Vec::new(),
            lineage_floor: created,
            replaced: None,
            rebuilt: false,
        }
    }

    /// The position of a version that was read: `head` is that of the segment it was read from. Where it was
    /// rebuilt that may be another one than its id names. `changed` is `created` of the newest changelogs.
    pub fn read(
        id: CommitId,
        segment: SegmentRef,
        head: SegmentHead,
        changed: Vec<CheckpointId>,
        rebuilt: bool,
    ) -> Self {
        let deltas = runs_of(&head).saturating_sub(1);
        // An id of another lineage: nothing builds on what it says.
        let rebuilt = rebuilt || deltas != id.deltas.len();
        let replaced = match head.kind {
            SegmentKind::Run => head.replaced,
            _ if rebuilt => Some(segment),
            _ => head.replaced,
        };
        let mut lineage = head.lineage;
        lineage.push(segment);
        Self {
            id,
            lineage,
            deltas: id.deltas,
            changed,
            lineage_floor: id.floor,
            replaced,
            rebuilt,
        }
    }

    /// The segments that may be runs: a base image, or the changelog that is there in its place, and
    /// the delta runs.
    pub fn runs(&self) -> &[SegmentRef] {
        let runs = self.lineage.len().min(1 + self.deltas.len());
        self.lineage.get(..runs).unwrap_or_default()
    }

    /// The segments above the runs.
    pub fn changelogs(&self) -> &[SegmentRef] {
        self.lineage.get(self.runs().len()..).unwrap_or_default()
    }

    /// `created` of the newest of its runs, whose content they have together.
    pub fn newest_run(&self) -> CheckpointId {
        self.deltas.newest().unwrap_or(self.lineage_floor)
    }

    /// What the head of the next changelog says of its runs, see [`SegmentHead::runs`].
    pub fn runs_in_head(&self) -> u32 {
        match self.deltas.len() {
            0 => 0,
            deltas => 1 + deltas as u32,
        }
    }

    /// The position after a commit that changed nothing.
    pub fn unchanged(&self) -> Self {
        let version = self.id.version + 1;
        let id = match (self.lineage.last(), self.changelogs()) {
            (None, _) => return Self::empty(version),
            // The last run leads to the whole state, possibly one that was installed since.
            (Some(newest), []) => CommitId {
                version,
                floor: self.lineage_floor,
                deltas: self.deltas,
                segment: Some(*newest),
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
            deltas: self.deltas,
            owner: self.id.owner,
            segment: Some(segment),
            replaced: None,
        };
        Self {
            id,
            lineage: [self.lineage.as_slice(), &[segment]].concat(),
            deltas: self.deltas,
            changed: [self.changed.as_slice(), &[created]].concat(),
            lineage_floor: floor,
            replaced,
            rebuilt: false,
        }
    }

    /// The next commit builds on `run`, which stands for segments that lie in the lineage. Nothing
    /// happens where they do not: the store has moved to another lineage. Nor where the run was made at a
    /// version that changed nothing and was taken back: what is there instead of it may change something.
    pub fn install(&mut self, run: &MergedRun) {
        let above = self.lineage.strip_prefix(run.below.as_slice());
        let Some(rest) = above.and_then(|above| above.strip_prefix(run.replaces.as_slice())) else {
            return;
        };
        if !self.has_changed_after(run.created, rest.len()) {
            return;
        }
        let deltas = match run.below.len() {
            0 => Ok(DeltaRuns::NONE),
            below => self.deltas.oldest(below - 1).and(run.created),
        };
        // There is room: a task merges where there would be too many.
        let Ok(deltas) = deltas else {
            return;
        };
        let known = self.changed.len().saturating_sub(rest.len());
        self.changed.drain(..known);
        self.lineage = [run.below.as_slice(), &[run.reference], rest].concat();
        if run.below.is_empty() {
            self.lineage_floor = run.created;
        }
        self.deltas = deltas;
        self.replaced = run.replaces.last().copied();
    }

    /// Whether the newest `changelogs` were all made after a version that has what lies below them.
    fn has_changed_after(&self, version: CheckpointId, changelogs: usize) -> bool {
        if changelogs == 0 {
            return version <= CheckpointId(self.id.version);
        }
        let first = self.changed.len().checked_sub(changelogs);
        let first = first.and_then(|first| self.changed.get(first));
        first.is_some_and(|first| version < *first)
    }

    /// Newest of the segments that an image of this position's content stands for: none that is damaged.
    pub fn replaced_by_image(&self) -> Option<SegmentRef> {
        if self.rebuilt {
            return self.replaced;
        }
        self.changelogs().last().copied().or(self.replaced)
    }

    /// The next commit builds on `image` alone, which was written of this position's content.
    pub fn rest_on(&mut self, image: SegmentRef) {
        self.replaced = self.replaced_by_image();
        self.lineage = vec![image];
        self.changed = Vec::new();
        self.deltas = DeltaRuns::NONE;
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
