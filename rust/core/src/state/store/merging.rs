//! The merges of a store, and the decision which one is due.

use crate::state::content::merge_task::MergedRun;
use crate::state::delta_runs::MAX_DELTA_RUNS;

/// Bound on waiting changelogs, as a multiple of the least. At 5 Spark calls a store lagging.
const MAX_WAIT: usize = 4;

#[derive(Debug, Default)]
pub(crate) struct Merging {
    /// A run that may not be durable yet: no commit may name it. `has_waited`: maintenance saw it.
    pub pending: Option<PendingRun>,
    pub is_starved: bool,
}

#[derive(Debug)]
pub(crate) struct PendingRun {
    pub run: MergedRun,
    pub has_waited: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct MergeFacts<'a> {
    /// Lengths of its runs, oldest first; `changelogs` are the lengths of those above them.
    pub runs: &'a [u64],
    pub changelogs: &'a [u64],
    /// The first of the runs is a base image, and not the first changelog.
    pub has_base_image: bool,
    /// One changelog is enough, not `least`: memory is short or unmerged segments near their bound.
    pub is_urgent: bool,
    pub least: usize,
    /// Place in the lineage of the first segment in a wasteful file.
    pub wasteful: Option<usize>,
}

/// Number of the oldest segments that a merge leaves unchanged; `None` if no merge is due.
pub(crate) fn due(facts: &MergeFacts<'_>) -> Option<usize> {
    let MergeFacts {
        runs, changelogs, ..
    } = *facts;
    let above = changelogs.iter().chain(runs.iter().skip(1)).sum::<u64>();
    let has_some = !facts.has_base_image || !changelogs.is_empty();
    let is_due = changelogs.len() >= facts.least
        && (above >= runs.first()? / 2 || changelogs.len() >= facts.least.saturating_mul(MAX_WAIT))
        || has_some && facts.is_urgent;
    if !is_due && facts.wasteful.is_none() {
        return None;
    }
    let kept = if facts.has_base_image {
        keep_below(runs, changelogs.iter().sum())
    } else {
        0
    };
    Some(kept.min(facts.wasteful.unwrap_or(kept)))
}

/// Number of the oldest segments that the merge before a spill leaves unchanged. All of the version
/// must be in runs, and half of the places are left to the session.
pub(crate) fn before_spill(facts: &MergeFacts<'_>) -> usize {
    let MergeFacts {
        runs, changelogs, ..
    } = *facts;
    let most = 1 + MAX_DELTA_RUNS / 2;
    match facts.has_base_image {
        false => 0,
        true if changelogs.is_empty() => runs.len().min(most),
        true => keep_below(runs, changelogs.iter().sum()).min(most),
    }
}

/// Number of newest runs that a session merges if it has no place for another. `runs` are lengths,
/// oldest first. Each takes in older ones that are not larger, so most bytes are written twice.
pub(crate) fn merged_of_session(runs: &[u64]) -> usize {
    let mut merged = 0;
    let mut bytes = 0;
    for run in runs.iter().rev() {
        if merged >= 2 && *run > bytes {
            break;
        }
        merged += 1;
        bytes += run;
    }
    merged
}

/// Number of the oldest segments that a merge leaves unchanged. `runs` are the lengths of the runs,
/// oldest first; `changelogs` is the length of all changelogs above them.
/// Once the segments above the base image have half its size, all is merged: loads read at most
/// half as much again, and base images cost at most three times the bytes of commits. Otherwise a
/// merge takes in each delta run that is not larger than all it merges already. So runs double in
/// size towards the oldest, and a change is rewritten as often as its run can double.
fn keep_below(runs: &[u64], changelogs: u64) -> usize {
    let Some((base, deltas)) = runs.split_first() else {
        return 0;
    };
    let above = deltas.iter().sum::<u64>().saturating_add(changelogs);
    if above >= base / 2 {
        return 0;
    }
    let mut merged = changelogs;
    let mut kept = deltas.len();
    while let Some(delta) = kept.checked_sub(1).and_then(|newest| deltas.get(newest))
        && (*delta <= merged || kept >= MAX_DELTA_RUNS)
    {
        merged += delta;
        kept -= 1;
    }
    1 + kept
}

#[cfg(test)]
#[path = "merging_tests.rs"]
mod tests;
