//! One owner's part in one attempt: lease, write, persist, answer; with retries.

use holdfast_core::format::{NewSegment, SegmentKind};
use holdfast_core::{CheckpointId, ErrorKind, SegmentRef};

use crate::world::World;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Lease,
    Write,
    Persist,
    Answer,
}

/// The answer of a task to the coordinator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    Acknowledged(Vec<SegmentRef>),
    Declined,
}

#[derive(Debug)]
pub struct Task {
    pub owner: usize,
    /// It is slow: it continues after the decision.
    pub silent: bool,
    pub answer: Option<Answer>,
    attempt: u64,
    phase: Phase,
    /// Segments of an earlier attempt whose fate this task does not know.
    hopes: Vec<SegmentRef>,
    kept: Vec<SegmentRef>,
    new: Vec<SegmentRef>,
    writes_left: u64,
    retries_left: u64,
}

impl Task {
    pub fn new(world: &mut World, owner: usize, attempt: u64, hopes: Vec<SegmentRef>) -> Self {
        Self {
            owner,
            silent: world.rng.percent(5),
            answer: None,
            attempt,
            phase: Phase::Lease,
            hopes,
            kept: Vec::new(),
            new: Vec::new(),
            writes_left: 0,
            retries_left: 3,
        }
    }

    /// Everything its acknowledgement cites.
    pub fn segments(&self) -> Vec<SegmentRef> {
        self.kept.iter().chain(&self.new).copied().collect()
    }

    /// One step. Returns after every call of the manager, so that anything may happen in between.
    pub fn step(&mut self, world: &mut World) -> Result<(), String> {
        match self.phase {
            Phase::Lease => self.lease(world),
            Phase::Write if self.writes_left == 0 => {
                self.phase = Phase::Persist;
                Ok(())
            }
            Phase::Write => self.write(world),
            Phase::Persist => self.persist(world),
            Phase::Answer => {
                let healthy = !world.rng.percent(world.params.decline_percent);
                self.answer = Some(match healthy {
                    true => Answer::Acknowledged(self.segments()),
                    false => Answer::Declined,
                });
                Ok(())
            }
        }
    }

    fn lease(&mut self, world: &mut World) -> Result<(), String> {
        let base = world
            .truth
            .base(self.owner)
            .map(|state| state.segments.clone());
        let mut offered: Vec<_> = base.unwrap_or_default();
        offered.retain(|_| world.rng.percent(60));
        if world.rng.percent(20) {
            offered.append(&mut self.hopes);
        }
        let owner = world.owner(self.owner);
        let leased = world
            .manager
            .lease(&owner, CheckpointId(self.attempt), &offered);
        world.note(|| format!("{} leases {offered:?}: {leased:?}", self.name()));
        match leased {
            Ok(leased) => {
                let refused = leased.iter().filter(|kept| !**kept).count() as u64;
                for (reference, _) in offered.into_iter().zip(leased).filter(|(_, kept)| *kept) {
                    world.truth.leased(self.owner, self.attempt, reference);
                    self.kept.push(reference);
                }
                self.writes_left = refused + world.rng.below(3);
                self.phase = Phase::Write;
                Ok(())
            }
            Err(e) if e.kind() == ErrorKind::AttemptEnded => self.decline(),
            // The first change of a manager takes the folder over: it is tried again.
            Err(e) if e.kind() == ErrorKind::Storage => Ok(()),
            Err(e) => Err(format!("lease: {e}")),
        }
    }

    fn write(&mut self, world: &mut World) -> Result<(), String> {
        if world.rng.percent(4) {
            return self.again(world);
        }
        let payload = world.payload();
        let owner = world.owner(self.owner);
        let new = NewSegment {
            owner: &owner,
            created: CheckpointId(self.attempt),
            kind: SegmentKind::Snapshot,
            lineage: &self.kept,
            replaced: None,
            entries: 1,
            tables: &[],
            runs: 0,
        };
        let appended = world.manager.append(&new, &payload);
        world.note(|| format!("{} appends: {appended:?}", self.name()));
        match appended {
            Ok(reference) => {
                world
                    .truth
                    .wrote(self.owner, self.attempt, reference, payload);
                self.new.push(reference);
                self.writes_left -= 1;
                Ok(())
            }
            Err(e) => match e.kind() {
                ErrorKind::AttemptEnded => self.decline(),
                ErrorKind::Storage if world.rng.percent(70) => Ok(()),
                ErrorKind::Storage => self.decline(),
                _ => Err(format!("append: {e}")),
            },
        }
    }

    fn persist(&mut self, world: &mut World) -> Result<(), String> {
        let id = CheckpointId(self.attempt);
        let owner = world.owner(self.owner);
        let persisted = match world.rng.percent(50) {
            true => world.manager.persist(id),
            false => world.manager.persist_segments(id, &owner, &self.segments()),
        };
        world.note(|| format!("{} persists: {persisted:?}", self.name()));
        match persisted {
            Ok(()) => {
                self.phase = Phase::Answer;
                Ok(())
            }
            Err(e) => match e.kind() {
                ErrorKind::AttemptEnded => self.decline(),
                ErrorKind::Storage | ErrorKind::Poisoned if world.rng.percent(60) => {
                    self.again(world)
                }
                ErrorKind::Storage | ErrorKind::Poisoned => self.decline(),
                _ => Err(format!("persist: {e}")),
            },
        }
    }

    /// The task is run again and writes everything a second time; what it wrote before is released
    /// or simply forgotten.
    fn again(&mut self, world: &mut World) -> Result<(), String> {
        if self.retries_left == 0 {
            return self.decline();
        }
        self.retries_left -= 1;
        let owner = world.owner(self.owner);
        if world.rng.percent(50) {
            world.manager.release(&owner, &self.segments());
        }
        world.note(|| format!("{} starts again", self.name()));
        self.kept.clear();
        self.new.clear();
        self.phase = Phase::Lease;
        Ok(())
    }

    fn decline(&mut self) -> Result<(), String> {
        self.answer = Some(Answer::Declined);
        Ok(())
    }

    fn name(&self) -> String {
        format!("owner {} in attempt {}", self.owner, self.attempt)
    }
}
