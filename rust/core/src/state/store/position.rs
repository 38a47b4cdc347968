//! The position of a store: a version, and the segments that make it.

use crate::error::Result;
use crate::format::{SegmentHead, SegmentKind};
use crate::ids::{CheckpointId, OwnerTag, SegmentRef};
use crate::state::commit_id::CommitId;
use crate::state::content::merge_task::MergedRun;
use crate::state::delta_runs::{DeltaMarks, DeltaRuns};

/// 256 references of 44 bytes are 11 KiB in every head. Stores ask for a merge at a quarter of it.
pub(crate) const MAX_LINEAGE_SEGMENTS: usize = 256;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Position {
    /// The id that the caller has, by which a retry finds this position.
    pub id: CommitId,
    /// The lineage of the next changelog, oldest first: an optional base image, delta runs, then
    /// changelogs. An installed run is here before it is in `id`.
    pub lineage: Vec<SegmentRef>,
    /// The delta runs in `lineage`. There are none without a base image.
    pub deltas: DeltaRuns,
    /// `created` of the newest changelogs, oldest first, as far as they are known.
    pub changed: Vec<CheckpointId>,
    /// Number of the oldest changelogs that a load skips: large runs, each below an empty one.
    pub ready: usize,
    pub lineage_floor: CheckpointId,
    /// The newest segment that the newest run replaced or, around damage, that content is from.
    pub replaced: Option<SegmentRef>,
    /// A run in `lineage` is damaged: nothing may build on it.
    pub rebuilt: bool,
}

impl Position {
    pub fn empty(owner: OwnerTag, version: u64) -> Self {
        let created = CheckpointId(version);
        let id = CommitId {
            version,
            floor: created,
            deltas: DeltaMarks::NONE,
            owner,
            segment: None,
            replaced: None,
        };
        Self {
            id,
            lineage: Vec::new(),
            deltas: DeltaRuns::NONE,
            changed: Vec::new(),
            ready: 0,
            lineage_floor: created,
            replaced: None,
            rebuilt: false,
        }
    }

    /// A version read from `segment` with this `head`. `runs` are `created` of its runs, oldest
    /// first; without them, or if rebuilt, nothing builds on this position.
    pub fn read(
        id: CommitId,
        segment: SegmentRef,
        head: SegmentHead,
        runs: &[CheckpointId],
        changed: Vec<CheckpointId>,
        rebuilt: bool,
    ) -> Self {
        let (base, above) = runs.split_first().unwrap_or((&id.floor, &[]));
        let deltas = DeltaRuns::of(above.iter().copied());
        // The same holds for an id of another lineage.
        let is_known = runs.len() == head.most_runs() && above.len() == id.deltas.len();
        let rebuilt = rebuilt || !is_known || deltas.is_err();
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
            deltas: deltas.unwrap_or(DeltaRuns::NONE),
            changed,
            ready: 0,
            lineage_floor: *base,
            replaced,
            rebuilt,
        }
    }

    /// The segments that may be runs: a base image, or the changelog in its place, and delta runs.
    pub fn runs(&self) -> &[SegmentRef] {
        let runs = self.lineage.len().min(1 + self.deltas.len());
        self.lineage.get(..runs).unwrap_or_default()
    }

    pub fn changelogs(&self) -> &[SegmentRef] {
        self.lineage.get(self.runs().len()..).unwrap_or_default()
    }

    /// The changelogs that a load applies, with the first one if no base image is below it.
    pub fn unready(&self) -> &[SegmentRef] {
        match self.replaced {
            Some(_) => self.changelogs().get(self.ready..).unwrap_or_default(),
            None => &self.lineage,
        }
    }

    pub fn is_long(&self) -> bool {
        self.lineage.len() > MAX_LINEAGE_SEGMENTS
    }

    pub fn newest_run(&self) -> CheckpointId {
        self.deltas.newest().unwrap_or(self.lineage_floor)
    }

    pub fn runs_in_head(&self) -> u32 {
        match self.deltas.len() {
            0 => 0,
            deltas => 1 + deltas as u32,
        }
    }

    /// Returns whether the newest run is in no id, or in one that also names what it replaced. A
    /// changelog on top names both, in fewer bytes than an id, so the next commit writes one.
    pub fn is_untold(&self) -> bool {
        let newest = self.lineage.last();
        self.changelogs().is_empty()
            && (newest != self.id.segment.as_ref() || self.id.replaced.is_some())
    }

    pub fn unchanged(&self) -> Self {
        let version = self.id.version + 1;
        if self.lineage.is_empty() {
            return Self::empty(self.id.owner, version);
        }
        // Its segment may name an older lineage: the floor is that of the id.
        let id = CommitId { version, ..self.id };
        Self { id, ..self.clone() }
    }

    /// Moves to the version with this `id` and the same content, parked `since` an older one.
    pub fn follow(&mut self, since: u64, id: &CommitId) {
        let versions = since.saturating_sub(1)..id.version;
        if versions.contains(&self.id.version) && self.has_content_of(id) {
            self.id.version = id.version;
        }
    }

    /// Gives this position the `id` of the same state. If a batch ran twice (a sink with two
    /// actions), the driver makes only the first run durable: the next commit must build on it.
    pub fn adopt(&mut self, id: CommitId) {
        if let (Some(own), Some(wanted)) = (self.id.segment, id.segment)
            && own != wanted
            && let Some(newest) = self.lineage.last_mut().filter(|newest| **newest == own)
        {
            *newest = wanted;
        }
        self.id = id;
    }

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
            deltas: self.deltas.marks(floor),
            segment: Some(segment),
            replaced: None,
            ..self.id
        };
        Self {
            id,
            lineage: [self.lineage.as_slice(), &[segment]].concat(),
            deltas: self.deltas,
            changed: [self.changed.as_slice(), &[created]].concat(),
            ready: self.ready,
            lineage_floor: floor,
            replaced,
            rebuilt: false,
        }
    }

    /// Has the next commit build on `run`. Ignores a run of another lineage, or of a version that
    /// changed nothing and was rolled back: the version in its place may have changes.
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
        // There is room, because a task merges if there would be too many.
        let Ok(deltas) = deltas else {
            return;
        };
        let known = self.changed.len().saturating_sub(rest.len());
        let gone = self.changelogs().len().saturating_sub(rest.len());
        self.ready = self.ready.saturating_sub(gone);
        self.changed.drain(..known);
        self.lineage = [run.below.as_slice(), &[run.reference], rest].concat();
        if run.below.is_empty() {
            self.lineage_floor = run.created;
        }
        self.deltas = deltas;
        self.replaced = run.replaces.last().copied();
    }

    fn has_changed_after(&self, version: CheckpointId, changelogs: usize) -> bool {
        if changelogs == 0 {
            return version <= CheckpointId(self.id.version);
        }
        let first = self.changed.len().checked_sub(changelogs);
        let first = first.and_then(|first| self.changed.get(first));
        first.is_some_and(|first| version < *first)
    }

    /// The position of an open session that wrote `run`. Damage is final: only `run` has its data.
    pub fn with_spilled(&self, run: SegmentRef) -> Result<Self> {
        let created = CheckpointId(self.id.version + 1);
        let mut next = self.clone();
        if self.lineage.is_empty() {
            next.lineage_floor = created;
        } else {
            next.deltas = self.deltas.and(created)?;
        }
        next.lineage.push(run);
        next.replaced = Some(run);
        Ok(next)
    }

    /// Replaces all above the oldest `kept` by `run`, a changelog as a run. A load lies over it.
    pub fn put_ready(&mut self, kept: usize, run: SegmentRef, created: CheckpointId) {
        let gone = self.lineage.len().saturating_sub(kept);
        self.lineage.truncate(kept);
        self.lineage.push(run);
        self.changed
            .truncate(self.changed.len().saturating_sub(gone));
        self.changed.push(created);
        self.ready = self.changelogs().len();
    }

    /// Newest of the sound segments that an image of this content would replace.
    pub fn replaced_by_image(&self) -> Option<SegmentRef> {
        if self.rebuilt {
            return self.replaced;
        }
        self.changelogs().last().copied().or(self.replaced)
    }

    pub fn build_on(&mut self, image: SegmentRef) {
        self.replaced = self.replaced_by_image();
        self.lineage = vec![image];
        self.changed = Vec::new();
        self.ready = 0;
        self.deltas = DeltaRuns::NONE;
        self.lineage_floor = CheckpointId(self.id.version);
        self.rebuilt = false;
    }

    /// The digest covers owner, checkpoint, lineage and changes, wherever the segment was written.
    pub fn has_state_of(&self, id: &CommitId) -> bool {
        self.id.version == id.version && self.has_content_of(id)
    }

    pub fn has_content_of(&self, id: &CommitId) -> bool {
        let half = SegmentRef::half;
        let content = |id: &CommitId| id.segment.map(|one| (one.len, half(one.digest)));
        content(&self.id) == content(id)
    }
}
