//! Base images of a store: when one is due, and when commits build on it.

use std::collections::{BTreeSet, HashSet};

use super::base_image::{BaseImage, BaseImageTask};
use super::position::Position;
use super::store::StateStore;
use crate::error::Result;
use crate::format::{NewSegment, RunReader, SegmentKind};
use crate::ids::{CheckpointId, FileId, SegmentRef};
use crate::segment::{Durability, SegmentWriter};

/// A base image is written at the latest when this many times the least number of changelogs have
/// gathered. Below 5, where Spark's coordinator begins to call a store lagging.
const MAX_WAIT: usize = 4;

/// Bound on the segments a version is made of: 256 references of 44 bytes are 11 KiB in the head of
/// every segment. Maintenance, once a minute, stays far below it unless batches take under 250 ms.
const MAX_LINEAGE_SEGMENTS: usize = 256;

impl StateStore {
    /// Writes a new base image if the opened version was rebuilt around a damaged one, so that what
    /// follows depends on sound segments only, or if it is made of too many segments. To be called
    /// before [`StateStore::begin`].
    ///
    /// # Errors
    /// Those of storage: nothing must be committed then.
    pub fn mend(&mut self, writer: &SegmentWriter) -> Result<()> {
        let Some(at) = &self.at else {
            return Ok(());
        };
        if at.rebuilt {
            return self.write_base_image(writer);
        }
        if is_long(at) {
            // Where every batch runs in a process of its own, no commit builds on the images that
            // commits and maintenance write. When this fails, the next session tries again.
            let _ = self.write_base_image(writer);
        }
        self.prepare_run(writer)
    }

    /// Where memory is short: a store that lies over no run is loaded anew over its base image, so that
    /// what that has needs no memory. One that lies over a run has the next session move to a base image
    /// that is new in the lineage.
    fn prepare_run(&mut self, writer: &SegmentWriter) -> Result<()> {
        self.settle_image(writer);
        let base = self.at.as_ref().and_then(|at| at.lineage.first().copied());
        let below = self.families.run_below();
        let is_new = |base: &SegmentRef| ![below, self.looked_at].contains(&Some(*base));
        let (Some(at), Some(base)) = (&self.at, base.filter(is_new)) else {
            return Ok(());
        };
        let floor = at.lineage_floor;
        let wanted = self.memory.is_short(0)
            && self.families.can_rest_on_run()
            && writer.durability(&base) == Durability::Durable;
        if !wanted {
            return Ok(());
        }
        // What is no run, or is damaged, stays what it is: loads find damage.
        let run = RunReader::open(writer.storage(), &base, &self.owner).ok();
        let run = run.filter(|run| run.head().lineage.is_empty());
        if below.is_some() {
            self.next_run = run.map(|run| (run, floor.0));
        } else if let Some(run) = run {
            self.load_over(writer.storage(), run)?;
        }
        self.looked_at = Some(base);
        Ok(())
    }

    /// Where memory is short: a store that was not used since this was last called gives up what its base
    /// image has, and the next to last version. To be called by maintenance, so that the memory of stores
    /// that rest goes to those that work.
    ///
    /// # Errors
    /// Those of loading it over a base image: the store has no version then.
    pub fn rest(&mut self, writer: &SegmentWriter) -> Result<()> {
        let was_used = std::mem::take(&mut self.is_used);
        let has_version = self.at.as_ref().is_some_and(|at| !at.rebuilt);
        let is_busy = was_used || self.in_session || !self.scans.is_empty();
        if is_busy || !has_version || !self.memory.is_short(0) {
            return Ok(());
        }
        self.prepare_run(writer)?;
        self.make_room(true)
    }

    /// Moves to the base image that comes next, and gives up what that has and the last sessions did not
    /// touch, if memory is short: its part of that, or everything. There is no way back to an older
    /// version then.
    ///
    /// # Errors
    /// `LimitExceeded`.
    pub(super) fn make_room(&mut self, all: bool) -> Result<()> {
        self.scans.clear();
        self.before = None;
        self.families.begin();
        if let Some((run, version)) = self.next_run.take() {
            self.families.rest_on(run, version);
        }
        let is_short = self.memory.is_short(0);
        if is_short {
            let part = self.memory.excess() as usize;
            self.families.evict(if all { usize::MAX } else { part });
        }
        self.count_memory()?;
        self.is_starved = is_short && self.memory.is_short(0) && self.families.is_mostly_dirty();
        Ok(())
    }

    /// The merge that is due: at least `min_changelogs` durable ones lie above the base image, and
    /// either they are half its size, so that a load is not much longer than it must be and images
    /// cost at most three times what commits write, or there are `MAX_WAIT` times as many, or memory is
    /// short and what takes it can leave it for a base image only. Also as
    /// soon as any segment lies in one of the `wasteful` files, which go once no version needs a
    /// segment in them. `None` while an earlier image waits for its file to become durable.
    pub fn base_image_task(
        &mut self,
        writer: &SegmentWriter,
        min_changelogs: usize,
        wasteful: &HashSet<FileId>,
    ) -> Option<BaseImageTask> {
        self.settle_image(writer);
        if self.pending_image.is_some() {
            return None;
        }
        let from = self.durable_position(writer)?;
        let least = min_changelogs.max(1);
        // The first segment is the base image, or the first changelog of a store without one.
        let (base, changelogs) = from.lineage.split_first()?;
        let bytes: u64 = changelogs.iter().map(|segment| segment.len).sum();
        let due = changelogs.len() >= least
            && (bytes >= base.len / 2
                || changelogs.len() >= least.saturating_mul(MAX_WAIT)
                || self.is_starved);
        let pins = |segment: &SegmentRef| wasteful.contains(&segment.file);
        (due || from.lineage.iter().any(pins)).then(|| BaseImageTask {
            owner: self.owner.clone(),
            layout: self.layout(),
            lineage: from.lineage.clone(),
            // Not when it last changed, but how far it is known not to have: what is older is not
            // needed any more once commits build on the image.
            created: CheckpointId(from.id.version),
        })
    }

    /// Takes an image over. Commits build on it once it is durable; it is dropped when it is lost,
    /// or when the store has moved to another lineage.
    pub fn accept(&mut self, image: BaseImage) {
        self.pending_image = Some(image);
        self.image_waits = false;
    }

    /// The file of an image that was pending when this was called before, too. Commits make durable
    /// what they refer to, and where all stores rest none refers to the file of an image: then
    /// maintenance has to sync it.
    pub fn overdue_image(&mut self, writer: &SegmentWriter) -> Option<FileId> {
        self.settle_image(writer);
        let image = self.pending_image.as_ref()?;
        let overdue = std::mem::replace(&mut self.image_waits, true);
        overdue.then_some(image.reference.file)
    }

    /// Gives back an image that no commit builds on yet, for another store of the same owner that
    /// is opened next.
    pub fn take_pending_image(&mut self) -> Option<BaseImage> {
        self.pending_image.take()
    }

    /// The newest version that is as good as a snapshot: the durable one, as long as fewer than
    /// `min_changelogs` lie above its base image, else that of the image. So it rises for a store
    /// that rests, too, which needs no new image.
    pub fn snapshot_version(
        &self,
        writer: &SegmentWriter,
        min_changelogs: usize,
    ) -> Option<CheckpointId> {
        let position = self.durable_position(writer)?;
        let near = position.lineage.len() <= min_changelogs.max(1);
        Some(if near {
            CheckpointId(position.id.version)
        } else {
            position.lineage_floor
        })
    }

    /// Writes the content as a base image from memory, for later commits to build on.
    pub(super) fn write_base_image(&mut self, writer: &SegmentWriter) -> Result<()> {
        let Some(at) = self.at.as_mut() else {
            return Ok(());
        };
        let new = NewSegment {
            owner: &self.owner,
            created: CheckpointId(at.id.version),
            kind: SegmentKind::Run,
            lineage: &[],
            replaced: at.replaced_by_image(),
            entries: 0,
            tables: &[],
        };
        let mut run = writer.begin_run(&new)?;
        self.families.snapshot(&mut run)?;
        let reference = run.finish()?;
        writer.sync_files(&BTreeSet::from([reference.file]))?;
        at.rest_on(reference);
        Ok(())
    }

    pub(super) fn settle_image(&mut self, writer: &SegmentWriter) {
        let Some(at) = self.at.as_mut() else {
            // The version that is opened next may be one that the image belongs to.
            return;
        };
        let durability = self
            .pending_image
            .as_ref()
            .map(|image| writer.durability(&image.reference));
        match durability {
            None | Some(Durability::Pending) => {}
            Some(Durability::Lost) => self.pending_image = None,
            Some(Durability::Durable) => {
                if let Some(image) = self.pending_image.take() {
                    at.install(&image);
                }
            }
        }
    }

    /// The newest version that is durable and builds on no damaged image. What is not durable may
    /// not even be readable yet, and its checkpoint may never complete.
    fn durable_position(&self, writer: &SegmentWriter) -> Option<&Position> {
        let durable = |position: &&Position| {
            let lost = |segment| writer.durability(segment) != Durability::Durable;
            !position.rebuilt && !position.lineage.last().is_some_and(lost)
        };
        [&self.at, &self.before].into_iter().flatten().find(durable)
    }
}

/// The version is made of more segments than one head may name.
pub(super) fn is_long(position: &Position) -> bool {
    position.lineage.len() > MAX_LINEAGE_SEGMENTS
}
