//! All files and live segments, with indexes by which a message costs as much as it changes.
//!
//! Every segment watches the checkpoints that keep it alive:
//! - its `created`, as long as that attempt is undecided,
//! - each attempt that holds a lease on it,
//! - afterwards, if the live set of its owner is the common one, the oldest retained checkpoint in
//!   `[created, last_used]`.
//!
//! A message wakes the segments that watch a checkpoint which it decides or which is retained no
//! more, and the segments of owners whose own live set it changes. The verdict on all others stays:
//! no live set gains an origin that would revive a segment which is gone.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use super::facts::{Fallbacks, FileFacts, SegmentFacts};
use super::rule::{Verdict, judge};
use super::space::{Space, space};
use super::view::{Change, Retained, View};
use crate::error::Result;
use crate::ids::{CheckpointId, FileId, Owner, SegmentRef};

/// No file is longer. Sums over segments that only metadata names stay within 64 bits.
const MAX_FILE_BYTES: u64 = 1 << 48;

/// Has the lease of a held segment: an attempt that is never decided.
const HELD: CheckpointId = CheckpointId(u64::MAX);

/// File and offset of a segment.
pub(super) type Place = (FileId, u64);

/// Work on files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Actions {
    /// Files to delete: closed, and without a live segment.
    pub delete: Vec<FileId>,
    /// Open files to close without a footer: every segment in them is dead.
    pub abandon: Vec<FileId>,
    /// Open files to seal: their only checkpoint is decided, or they waste too much.
    pub seal: Vec<FileId>,
}

/// The occasion of a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Occasion {
    /// A message. Only now are wasteful open files sealed: the next segment begins another file.
    Message,
    /// A change between messages.
    Between,
}

/// A manager's memory of files and segments.
#[derive(Debug, Default)]
pub struct Ledger {
    pub(super) view: View,
    pub(super) files: BTreeMap<FileId, FileFacts>,
    pub(super) owners: BTreeMap<Arc<Owner>, BTreeSet<Place>>,
    pub(super) watched: BTreeMap<CheckpointId, BTreeSet<Place>>,
    due: Vec<Place>,
    /// Files that changed since the last decision.
    touched: BTreeSet<FileId>,
    pub(super) space: Space,
    judgements: u64,
    /// Files whose segments are not known yet, and their sizes: all of it is needed until then.
    postponed: BTreeMap<FileId, u64>,
    /// Leases on segments in them.
    early: BTreeMap<SegmentRef, BTreeSet<CheckpointId>>,
}

impl Ledger {
    /// The newest view that was received.
    pub fn view(&self) -> &View {
        &self.view
    }

    /// All files.
    pub fn files(&self) -> &BTreeMap<FileId, FileFacts> {
        &self.files
    }

    /// Number of owners with a live segment.
    pub fn owners(&self) -> usize {
        self.owners.len()
    }

    /// Number of judgements so far.
    pub fn judgements(&self) -> u64 {
        self.judgements
    }

    /// Returns whether segments of the file are not offered for reuse, so that it can go.
    pub fn is_wasteful(&self, file: FileId) -> bool {
        self.space.wasteful.contains(&file)
    }

    /// Returns whether only owners that fell back keep the file alive.
    pub fn is_pinned(&self, file: FileId) -> bool {
        self.space.pinned.contains(&file)
    }

    /// Exactly this segment, of any owner.
    pub fn segment(&self, reference: &SegmentRef) -> Option<&SegmentFacts> {
        let file = self.files.get(&reference.file)?;
        let segment = file.segments.get(&reference.offset)?;
        let found = segment_ref(reference.file, reference.offset, segment);
        (found == *reference).then_some(segment)
    }

    /// Files with segments that the open attempt wrote or leased, and that are not durable.
    pub fn not_durable(&self, attempt: CheckpointId) -> BTreeSet<FileId> {
        let mut found = BTreeSet::new();
        let places = self.watched.get(&attempt);
        // Bytes become durable in their order, so the last segment in each file represents all.
        let mut last = places.and_then(|places| places.last());
        while let (Some(places), Some((file, offset))) = (places, last) {
            if self.files.get(file).is_some_and(|f| !f.is_durable(*offset)) {
                found.insert(*file);
            }
            last = places.range(..(*file, 0)).next_back();
        }
        found
    }

    /// Segments that the open attempt wrote or leased.
    pub fn of_attempt(
        &self,
        attempt: CheckpointId,
    ) -> impl Iterator<Item = (SegmentRef, &SegmentFacts)> {
        let places = self.watched.get(&attempt).into_iter().flatten();
        places.filter_map(|(file, offset)| {
            let segment = self.files.get(file)?.segments.get(offset)?;
            Some((segment_ref(*file, *offset, segment), segment))
        })
    }

    /// Adds a file, unless it is known.
    pub fn add_file(&mut self, file: FileId, facts: FileFacts) {
        self.files.entry(file).or_insert(facts);
        self.touched.insert(file);
    }

    /// Forgets a file that is gone.
    pub fn forget_file(&mut self, file: FileId) {
        let facts = self.files.get(&file).into_iter();
        let offsets: Vec<u64> = facts.flat_map(|f| f.segments.keys().copied()).collect();
        for offset in offsets {
            self.remove((file, offset));
        }
        self.files.remove(&file);
    }

    /// Changes the facts about a file, but not its segments.
    pub fn change_file(&mut self, file: FileId, change: impl FnOnce(&mut FileFacts)) {
        if let Some(facts) = self.files.get_mut(&file) {
            change(facts);
            self.touched.insert(file);
        }
    }

    /// Adds a segment that was written for an open attempt.
    pub fn append(&mut self, owner: &Owner, reference: &SegmentRef, created: CheckpointId) {
        let place = (reference.file, reference.offset);
        let owner = self.shared(owner);
        let Some(file) = self.files.get_mut(&reference.file) else {
            return;
        };
        let mut segment = SegmentFacts::new(owner.clone(), reference, created);
        let watch = wanted_watch(&self.view, &segment);
        segment.watch = watch;
        file.used = true;
        file.live_bytes += segment.len;
        file.fallen += usize::from(self.view.fell_back(&owner));
        file.segments.insert(reference.offset, segment);
        self.owners.entry(owner).or_default().insert(place);
        self.watch(place, watch);
    }

    /// Gives an open attempt a lease on a segment that it will reuse.
    pub fn lease(&mut self, reference: &SegmentRef, attempt: CheckpointId) {
        if self.postponed.contains_key(&reference.file) {
            self.early.entry(*reference).or_default().insert(attempt);
            return;
        }
        let place = (reference.file, reference.offset);
        if let Some(segment) = self.segment_mut(place) {
            segment.leases.insert(attempt);
            self.watched.entry(attempt).or_default().insert(place);
        }
    }

    /// Keeps a segment until [`Ledger::let_go`], whatever is decided.
    pub fn hold(&mut self, reference: &SegmentRef) {
        self.lease(reference, HELD);
    }

    /// Ends [`Ledger::hold`].
    pub fn let_go(&mut self, reference: &SegmentRef) {
        if let Some(leases) = self.early.get_mut(reference) {
            leases.remove(&HELD);
        }
        let place = (reference.file, reference.offset);
        let Some(segment) = self.segment_mut(place) else {
            return;
        };
        if segment.leases.remove(&HELD) {
            self.unwatch(place, Some(HELD));
            self.due.push(place);
        }
    }

    /// Adds a segment that a restored checkpoint has as state of `origin`, or widens its interval.
    /// A segment after the end of a closed file keeps the rest of the file. False if the file is
    /// gone, or has another segment in its place.
    pub fn restore(&mut self, owner: &Owner, origin: CheckpointId, reference: &SegmentRef) -> bool {
        let place = (reference.file, reference.offset);
        match self.files.get_mut(&reference.file) {
            _ if reference.end() > MAX_FILE_BYTES => return false,
            Some(file) if file.open && reference.end() > file.physical_bytes => return false,
            Some(file) if !file.deleting => file.used = true,
            _ => return false,
        }
        if self.segment_mut(place).is_none() {
            self.append(owner, reference, origin);
        }
        let Some(segment) = self.segment_mut(place) else {
            return false;
        };
        let known = segment_ref(reference.file, reference.offset, segment);
        if known != *reference || *segment.owner != *owner {
            return false;
        }
        segment.created = segment.created.min(origin);
        segment.last_used = segment.last_used.max(origin);
        self.due.push(place);
        true
    }

    /// Takes in files of restored checkpoints; [`Ledger::take_in_postponed`] takes in their
    /// segments later. Attempts up to `decided` are decided.
    pub fn postpone(&mut self, files: BTreeMap<FileId, u64>, decided: Option<CheckpointId>) {
        self.postponed = files;
        let change = self.view.note_decided(decided);
        self.wake(change);
    }

    /// Files whose segments are not known yet, and their sizes.
    pub fn postponed(&self) -> &BTreeMap<FileId, u64> {
        &self.postponed
    }

    /// Sets the leases on segments that were postponed, and are restored by now.
    pub fn take_in_postponed(&mut self) {
        self.postponed.clear();
        for (reference, attempts) in std::mem::take(&mut self.early) {
            for attempt in attempts {
                self.lease(&reference, attempt);
            }
        }
    }

    /// Forgets a segment that nothing needs.
    pub fn release(&mut self, reference: &SegmentRef) {
        self.remove((reference.file, reference.offset));
    }

    /// Takes in a message.
    ///
    /// # Errors
    /// Errors of [`View::check`]; nothing is changed then.
    pub fn merge(&mut self, message: &Retained) -> Result<()> {
        self.view.check(message)?;
        let change = self.view.merge(message);
        self.wake(change);
        Ok(())
    }

    /// Takes in restored checkpoints, as `View::restore`.
    pub fn restore_checkpoints(
        &mut self,
        checkpoints: impl IntoIterator<Item = (CheckpointId, Fallbacks)>,
    ) {
        let change = self.view.restore(checkpoints);
        self.wake(change);
    }

    /// Decides: judges the segments that are due, and returns the work on the files that changed.
    pub fn settle(&mut self, occasion: Occasion, max_space_amplification: f64) -> Actions {
        let mut due = std::mem::take(&mut self.due);
        due.sort_unstable();
        due.dedup();
        for place in due {
            self.judge(place);
        }
        let touched = std::mem::take(&mut self.touched);
        let mut actions = Actions::default();
        for id in &touched {
            let Some(file) = self.files.get_mut(id) else {
                continue;
            };
            let ended = file.only_for.is_some_and(|only| self.view.is_decided(only));
            match (file.segments.is_empty(), file.open) {
                (false, true) if ended && !file.sealing => {
                    file.sealing = true;
                    actions.seal.push(*id);
                }
                // An open file without any segment so far is about to get one.
                (true, true) if file.used => actions.abandon.push(*id),
                (true, false) if !file.deleting => actions.delete.push(*id),
                _ => {}
            }
        }
        if !touched.is_empty() {
            self.space = space(&self.files, max_space_amplification);
        }
        if occasion == Occasion::Message && !self.space.full.is_empty() {
            for id in std::mem::take(&mut self.space.full) {
                if let Some(file) = self.files.get_mut(&id) {
                    file.sealing = true;
                    actions.seal.push(id);
                }
            }
            self.space = space(&self.files, max_space_amplification);
        }
        #[cfg(any(test, debug_assertions))]
        self.check(max_space_amplification);
        actions
    }

    fn wake(&mut self, change: Change) {
        let (before, now) = (change.decided_before, self.view.decided());
        if before != now
            && let Some(now) = now
        {
            let before = before.map_or(Bound::Unbounded, Bound::Excluded);
            let decided = self.watched.range((before, Bound::Included(now)));
            let decided: Vec<CheckpointId> = decided.map(|(id, _)| *id).collect();
            decided.into_iter().for_each(|id| self.wake_watchers(id));
        }
        for id in change.left {
            self.wake_watchers(id);
        }
        for owner in &change.moved {
            let places = self.owners.get(owner).into_iter().flatten();
            self.due.extend(places);
        }
        for owner in &change.fallen {
            let fell_back = self.view.fell_back(owner);
            for (file, _) in self.owners.get(owner).into_iter().flatten() {
                if let Some(facts) = self.files.get_mut(file) {
                    match fell_back {
                        true => facts.fallen += 1,
                        false => facts.fallen -= 1,
                    }
                    self.touched.insert(*file);
                }
            }
        }
    }

    fn wake_watchers(&mut self, id: CheckpointId) {
        for place in self.watched.remove(&id).unwrap_or_default() {
            if let Some(segment) = self.segment_mut(place).filter(|s| s.watch == Some(id)) {
                segment.watch = None;
            }
            self.due.push(place);
        }
    }

    fn judge(&mut self, place: Place) {
        let (file, offset) = place;
        let view = &self.view;
        let facts = self.files.get_mut(&file);
        let Some(segment) = facts.and_then(|facts| facts.segments.get_mut(&offset)) else {
            return;
        };
        self.judgements += 1;
        self.touched.insert(file);
        match judge(view, segment) {
            Some(Verdict::Dead) => return self.remove(place),
            // Decided attempts watch nothing any more.
            Some(Verdict::Renewed { last_used, leases }) => {
                segment.last_used = last_used;
                segment.leases = leases;
            }
            None => {}
        }
        let wanted = wanted_watch(view, segment);
        let watch = std::mem::replace(&mut segment.watch, wanted);
        if watch != wanted {
            self.unwatch(place, watch);
            self.watch(place, wanted);
        }
    }

    fn remove(&mut self, place: Place) {
        let (id, offset) = place;
        let facts = self.files.get_mut(&id);
        let Some((file, segment)) =
            facts.and_then(|file| file.segments.remove(&offset).map(|segment| (file, segment)))
        else {
            return;
        };
        file.live_bytes -= segment.len;
        file.fallen -= usize::from(self.view.fell_back(&segment.owner));
        self.touched.insert(id);
        if let Some(places) = self.owners.get_mut(&*segment.owner) {
            places.remove(&place);
            if places.is_empty() {
                self.owners.remove(&*segment.owner);
            }
        }
        for watch in segment.leases.into_iter().chain(segment.watch) {
            self.unwatch(place, Some(watch));
        }
    }

    fn watch(&mut self, place: Place, id: Option<CheckpointId>) {
        if let Some(id) = id {
            self.watched.entry(id).or_default().insert(place);
        }
    }

    fn unwatch(&mut self, place: Place, id: Option<CheckpointId>) {
        let Some((id, places)) = id.and_then(|id| Some((id, self.watched.get_mut(&id)?))) else {
            return;
        };
        places.remove(&place);
        if places.is_empty() {
            self.watched.remove(&id);
        }
    }

    fn segment_mut(&mut self, (file, offset): Place) -> Option<&mut SegmentFacts> {
        self.files.get_mut(&file)?.segments.get_mut(&offset)
    }

    /// Many segments share one owner.
    fn shared(&self, owner: &Owner) -> Arc<Owner> {
        let known = self.owners.get_key_value(owner);
        known.map_or_else(|| Arc::new(owner.clone()), |(known, _)| known.clone())
    }
}

/// The checkpoint that a live segment should watch in addition to its leases.
pub(super) fn wanted_watch(view: &View, segment: &SegmentFacts) -> Option<CheckpointId> {
    if !view.is_decided(segment.created) {
        return Some(segment.created);
    }
    if view.is_special(&segment.owner) {
        // Each change of its owner's live set wakes it.
        return None;
    }
    let origins = segment.created..=segment.last_used;
    view.live_set(&segment.owner).range(origins).next().copied()
}

pub(crate) fn segment_ref(file: FileId, offset: u64, segment: &SegmentFacts) -> SegmentRef {
    SegmentRef {
        file,
        offset,
        len: segment.len,
        digest: segment.digest,
    }
}
