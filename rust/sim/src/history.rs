//! One random history: attempts one after the other, with everything else in between.

use std::collections::BTreeSet;

use holdfast_core::{CheckpointId, SegmentRef};

use crate::network::Message;
use crate::task::{Answer, Task};
use crate::truth::OwnerState;
use crate::world::World;

/// The events of a history that went well.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Checkpoints to which every region contributed.
    pub global: u64,
    /// Checkpoints in which some regions fell back.
    pub partial: u64,
    /// Attempts without a checkpoint.
    pub aborted: u64,
    /// Managers that died.
    pub restarts: u64,
    /// Segments written.
    pub segments: u64,
    /// Segments kept at the end by the interval over-approximation.
    pub strays: u64,
    /// Segments needed at the end.
    pub needed: u64,
}

impl Summary {
    /// Adds another history's counts.
    pub fn add(&mut self, other: &Self) {
        self.global += other.global;
        self.partial += other.partial;
        self.aborted += other.aborted;
        self.restarts += other.restarts;
        self.segments += other.segments;
        self.strays += other.strays;
        self.needed += other.needed;
    }
}

/// Runs the history of `seed`.
///
/// # Errors
/// The failure; with `trace` also everything that happened before.
pub fn run(seed: u64, trace: bool) -> Result<Summary, String> {
    let mut world = World::new(seed, trace)?;
    let mut summary = Summary::default();
    let outcome = play(&mut world, &mut summary);
    outcome
        .map(|()| summary)
        .map_err(|e| format!("{}\nseed {seed}: {e}", world.trace()))
}

fn play(world: &mut World, summary: &mut Summary) -> Result<(), String> {
    let mut hopes: Vec<Vec<SegmentRef>> = vec![Vec::new(); world.truth.owners.len()];
    let mut next_id = 1;
    for _ in 0..world.params.attempts {
        let id = next_id;
        // Ids are monotonic, not dense.
        next_id += world.rng.between(1, 2);
        let started = Message::Started(CheckpointId(id));
        world.network.send(&mut world.rng, started);
        let mut tasks: Vec<Task> = Vec::new();
        for (owner, hopes) in hopes.iter_mut().enumerate() {
            tasks.push(Task::new(world, owner, id, std::mem::take(hopes)));
        }
        if run_tasks(world, &mut tasks, false, summary)? {
            // The tasks died with the manager.
            decide_aborted(world, id, summary);
        } else {
            decide(world, id, &tasks, summary);
            for task in tasks.iter().filter(|task| task.answer.is_some()) {
                if let Some(hopes) = hopes.get_mut(task.owner) {
                    *hopes = task.segments();
                }
            }
            world.receive(2)?;
            if !run_tasks(world, &mut tasks, true, summary)? {
                refuse_late_answers(world, &tasks);
            }
        }
        world.check()?;
        world.receive(3)?;
    }
    finish(world, next_id, summary)
}

/// Runs the tasks in any order until they have answered; the slow ones only when `late`. True when
/// the manager died in between.
fn run_tasks(
    world: &mut World,
    tasks: &mut [Task],
    late: bool,
    summary: &mut Summary,
) -> Result<bool, String> {
    loop {
        let runnable = |task: &&mut Task| task.answer.is_none() && task.silent == late;
        let mut open: Vec<_> = tasks.iter_mut().filter(runnable).collect();
        let chosen = world.rng.below(open.len() as u64) as usize;
        let Some(task) = open.get_mut(chosen) else {
            return Ok(false);
        };
        world.maybe_break_storage();
        task.step(world)?;
        world.maybe_delete();
        world.check()?;
        world.receive(1)?;
        if world.rng.below(1000) < world.params.restart_permille {
            summary.restarts += 1;
            world.restart()?;
            return Ok(true);
        }
        if world.rng.percent(1) {
            world.restore_region()?;
        }
    }
}

fn decide_aborted(world: &mut World, id: u64, summary: &mut Summary) {
    summary.aborted += 1;
    // A late decision never moves the truth back.
    world.truth.decided = world.truth.decided.max(id);
    world.note(|| format!("attempt {id} aborted"));
    let message = Message::Aborted(CheckpointId(id), world.truth.view());
    world.network.send(&mut world.rng, message);
}

fn decide(world: &mut World, id: u64, tasks: &[Task], summary: &mut Summary) {
    let acknowledged = |task: &Task| matches!(task.answer, Some(Answer::Acknowledged(_)));
    let region = |task: &Task| world.region_of.get(task.owner).copied().unwrap_or(0);
    let failed: BTreeSet<u64> = tasks
        .iter()
        .filter(|task| !acknowledged(task))
        .map(region)
        .collect();
    let base = world
        .truth
        .retained
        .last_key_value()
        .map(|(_, states)| states.clone());
    let all_failed = failed.len() as u64 == world.params.regions;
    let no_base = base.is_none() && !failed.is_empty();
    if all_failed || no_base || world.rng.percent(5) {
        return decide_aborted(world, id, summary);
    }
    let base = base.unwrap_or_default();
    let states = tasks.iter().map(|task| match &task.answer {
        Some(Answer::Acknowledged(segments)) if !failed.contains(&region(task)) => OwnerState {
            origin: id,
            segments: segments.clone(),
        },
        _ => base.get(task.owner).cloned().unwrap_or_default(),
    });
    let states: Vec<_> = states.collect();
    world.note(|| format!("checkpoint {id} completes, failed regions {failed:?}"));
    world.truth.publish(id, states);
    let before = world.truth.view();
    let mut dropped = Vec::new();
    while world.truth.retained.len() > world.params.num_retained {
        let older: Vec<u64> = world
            .truth
            .retained
            .keys()
            .copied()
            .filter(|k| *k < id)
            .collect();
        // Any subset may be subsumed, in any order; mostly it is the oldest.
        let oldest = older.first().copied();
        let victim = if world.rng.percent(80) {
            oldest
        } else {
            world.rng.pick(&older)
        };
        let Some(victim) = victim else { break };
        world.truth.retained.remove(&victim);
        dropped.push((victim, world.truth.view()));
    }
    let view = if world.rng.percent(50) {
        before
    } else {
        world.truth.view()
    };
    let fallbacks = world.truth.fallbacks(id);
    let message = if failed.is_empty() {
        summary.global += 1;
        Message::Completed(CheckpointId(id), view)
    } else {
        summary.partial += 1;
        Message::Partial(CheckpointId(id), fallbacks, view)
    };
    world.network.send(&mut world.rng, message);
    for (victim, view) in dropped {
        world.network.send(
            &mut world.rng,
            Message::Subsumed(CheckpointId(victim), view),
        );
    }
}

/// An acknowledgement that comes after the decision is refused.
fn refuse_late_answers(world: &mut World, tasks: &[Task]) {
    for task in tasks.iter().filter(|task| task.silent) {
        if let Some(Answer::Acknowledged(segments)) = &task.answer {
            let message = Message::Release(world.owner(task.owner), segments.clone());
            world.network.send(&mut world.rng, message);
        }
    }
}

/// All messages arrive, the last one for certain: then nothing else may be kept.
fn finish(world: &mut World, next_id: u64, summary: &mut Summary) -> Result<(), String> {
    while !world.network.is_empty() {
        world.receive(10)?;
    }
    world.heal_storage();
    world.truth.decided = next_id;
    let last = Message::Aborted(CheckpointId(next_id), world.truth.view());
    last.deliver(&world.manager)
        .map_err(|e| format!("last message: {e}"))?;
    world.note(|| format!("last message: {last:?}"));
    world.manager.wait_for_deletes();
    world.check()?;
    summary.strays = world.check_nothing_else()?;
    summary.needed = world.truth.needed().len() as u64;
    summary.segments = world.truth.written.len() as u64;
    Ok(())
}
