//! The bounds of a model, its state and its invariants.

use stateright::Property;

use crate::driver::{Durable, PARKED_MAX, Run, bit};
use crate::store::Key;
use crate::tasks::{ALL, Attempt, Keys, Phase, is_part};

pub const PARTITIONS: usize = 2;
/// Keys of a partition.
pub const KEYS: usize = 2;
pub const BATCHES_MAX: usize = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sink {
    /// A sink that writes through `BatchWrite`. It commits batch N once, and the driver knows before.
    Transactional,
    /// A function for `foreachBatch` with two actions. Each output ignores a second write of batch N.
    Idempotent,
    /// Such a function, and each output takes all that it gets.
    AtLeastOnce,
}

/// A change of the protocol that breaks it. The last ones divide partitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd)]
pub enum Mutant {
    NoMarker,
    MarkerAfterSink,
    SealAfterSink,
    /// The marker names a partition when an attempt begins, and not at its end.
    SettlesAtAnswer,
    /// A re-run parks although the sink may hold the rows.
    RerunParks,
    /// A failure in such a re-run opens the marker.
    RerunMarksFailure,
    /// A decision holds for one job of the batch.
    ForgetsPark,
    ForgetsDelivery,
    /// The first attempt of a later job does not ask for a partition that is parked.
    LaterJobAsksNobody,
    /// Failures are counted by the number of the attempt, which begins again in a stage attempt.
    CountsAttemptNumber,
    /// An attempt parks while another one may deliver.
    ParksBesideOthers,
    /// Attempts that ask wait for each other.
    WaitsForAskers,
    /// No limit on parked partitions.
    ParksAll,
    /// The driver takes the commit info of an attempt whose result it does not take.
    TakesInfoOfZombie,
    PassesReversed,
    /// No pass for a batch in which the partition got no rows.
    SkipsBatchWithoutRows,
    /// The name of stored input lacks the batch, so the next one replaces it.
    InputNamedByPartition,
    /// Input is still pending after its pass.
    InputStaysPending,
    /// While a part of the keys waits, their new rows are processed.
    NewRowsOvertake,
    /// A commit of a part keeps no older input of the keys that wait,
    PartIsNotKept,
    /// or also the input of the keys that it processed.
    PartKeepsAll,
    /// Another part is tried while an attempt may deliver the last one.
    DividesBesideOthers,
    /// A marker does not say which keys wait.
    MarkerLacksPart,
    /// The part holds for one job of the batch.
    ForgetsPart,
    /// If a key fails that did not wait, the partition is not parked.
    NewKeyIsNoSuspect,
}

/// The protocol or a mutant of it, and the bounds of its histories.
#[derive(Clone, Debug)]
pub struct Model {
    pub sink: Sink,
    /// Keys, by partition, of which any attempt may fail.
    pub poison: [Keys; PARTITIONS],
    /// The operator treats keys independently, so a part of them may wait.
    pub divides: bool,
    /// The last batch comes when the code is fixed, and replays what is pending.
    pub batches: u8,
    pub crashes: u8,
    /// Twins, attempts that are killed, and stage attempts that begin for other reasons.
    pub disturbances: u8,
    pub mutant: Option<Mutant>,
}

impl Model {
    pub fn is(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    pub fn jobs(&self) -> u8 {
        match self.sink {
            Sink::Transactional => 1,
            Sink::Idempotent | Sink::AtLeastOnce => 2,
        }
    }

    /// Returns whether an earlier run may have given the sink rows of the batch that must not come
    /// again, by all that is durable.
    pub fn sink_may_hold_rows(&self, durable: &Durable) -> bool {
        match self.sink {
            Sink::Transactional => durable.marker().is_none_or(|marker| marker.sealed),
            Sink::Idempotent => !self.is(Mutant::RerunParks),
            Sink::AtLeastOnce => false,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    pub durable: Durable,
    /// Without a run the driver is down.
    pub run: Option<Run>,
    pub crashes: u8,
    pub disturbances: u8,
    /// No attempt fails any more.
    pub is_fixed: bool,
    /// For an invariant: whether any batch ran again.
    pub has_rerun: bool,
    /// For an invariant: partitions whose rows of this batch may be in the sink, as bits.
    pub exposed: u8,
    /// For an invariant: partitions that an attempt was through with in this batch, as bits.
    pub through: u8,
}

impl State {
    fn attempts(&self) -> impl Iterator<Item = &Attempt> {
        let partitions = self.run.iter().flat_map(|run| &run.partitions);
        partitions.flat_map(|partition| &partition.attempts)
    }

    /// Each key of each partition.
    fn keys(&self) -> impl Iterator<Item = (usize, usize, &Key)> {
        let stores = self.durable.stores.iter().enumerate();
        stores
            .flat_map(|(p, store)| (store.keys.iter().enumerate()).map(move |(k, key)| (p, k, key)))
    }

    /// Returns whether each committed result is in each output, unless its input is pending.
    fn has_every_row(&self, jobs: u8) -> bool {
        let durable = &self.durable;
        self.keys().all(|(p, k, key)| {
            let mut done = (1..=durable.committed).filter(|batch| !key.pending.contains(batch));
            done.all(|batch| {
                let mut outputs = durable.outputs.iter().take(jobs.into());
                outputs.all(|output| output[p][k][usize::from(batch) - 1] > 0)
            })
        })
    }

    fn has_a_row_twice(&self) -> bool {
        let mut counts = self
            .durable
            .outputs
            .as_flattened()
            .as_flattened()
            .as_flattened()
            .iter();
        counts.any(|count| *count > 1)
    }

    /// Spark may end the query, as it does without isolation: for a partition whose rows are in the
    /// sink or may be there, and if too many partitions fail.
    fn may_fail(&self, model: &Model, run: &Run, p: usize) -> bool {
        let is_pending = self.durable.stores[p].is_parked();
        let is_unknown = run.is_rerun
            && model.sink_may_hold_rows(&self.durable)
            && (!is_pending || self.through & bit(p) != 0);
        self.exposed & bit(p) != 0
            || (is_unknown && self.durable.settled(p) != Some(ALL))
            || run.partitions[p].is_full
    }
}

pub const NO_ROW_LOST: &str = "no row is lost";
pub const NO_ROW_TWICE: &str = "no row comes twice";
pub const GOES_ON: &str = "the query goes on";
pub const FEW_PARKED: &str = "only a share of the partitions is parked";
pub const ONE_PLACE: &str = "each input is applied or pending, and once";
pub const SAME_STATE: &str = "the state is that of an undisturbed run";
pub const COMPLETES: &str = "every batch completes";

/// A claim about every state, or about some state.
type Claim = Property<Model>;

pub fn invariants() -> Vec<Claim> {
    vec![
        Claim::always(NO_ROW_LOST, |model, state| {
            state.has_every_row(model.jobs())
        }),
        Claim::always(NO_ROW_TWICE, |model, state| {
            let may_repeat = model.sink == Sink::AtLeastOnce && state.has_rerun;
            may_repeat || !state.has_a_row_twice()
        }),
        Claim::always(GOES_ON, |model, state| {
            let run = state.run.as_ref();
            let failed = run.and_then(|run| Some((run, run.failed?)));
            failed.is_none_or(|(run, p)| state.may_fail(model, run, p))
        }),
        Claim::always(FEW_PARKED, |_, state| {
            let durable = &state.durable;
            let stores = durable.stores.iter();
            let parked = stores.filter(|store| {
                let mut keys = store.keys.iter();
                keys.any(|key| key.pending.contains(&durable.committed))
            });
            parked.count() <= PARKED_MAX
        }),
        Claim::always(ONE_PLACE, |_, state| {
            state.keys().all(|(_, _, key)| {
                let mut inputs = [&key.applied[..], &key.pending].concat();
                inputs.sort_unstable();
                inputs.into_iter().eq(1..=state.durable.committed)
            })
        }),
        Claim::always(SAME_STATE, |model, state| {
            let mut keys = state.keys();
            state.durable.committed < model.batches
                || keys.all(|(_, _, key)| key.applied.iter().copied().eq(1..=model.batches))
        }),
        // A query that stands still breaks this one: every history is finite.
        Claim::eventually(COMPLETES, |model, state| {
            state.durable.committed == model.batches
        }),
    ]
}

/// Events that must happen in some history, or the histories are too tame.
pub fn reached() -> [Claim; 4] {
    [
        Claim::sometimes("input of two batches is pending", |_, state| {
            state.keys().any(|(_, _, key)| key.pending.len() == 2)
        }),
        Claim::sometimes("a re-run parks what its marker names", |_, state| {
            let runs = state.run.iter().filter(|run| run.is_rerun);
            runs.flat_map(|run| &run.partitions)
                .any(|p| p.failed == 0 && p.accepted == Some(ALL))
        }),
        Claim::sometimes("a zombie is about to ask", |_, state| {
            let mut attempts = state.attempts();
            attempts.any(|one| one.ended && one.number > 0 && one.phase == Phase::Launched)
        }),
        Claim::sometimes("an attempt waits for an older stage attempt", |_, state| {
            let (mut asking, mut delivering) = (state.attempts(), state.attempts());
            asking.any(|attempt| attempt.phase == Phase::Asking && attempt.stage_attempt > 0)
                && delivering
                    .any(|attempt| attempt.phase == Phase::Delivering && attempt.stage_attempt == 0)
        }),
    ]
}

/// Events of histories in which partitions are divided.
pub fn reached_by_parts() -> [Claim; 3] {
    [
        Claim::sometimes("one key waits, and the other has all rows", |_, state| {
            let committed = state.durable.committed;
            state.durable.stores.iter().any(|store| {
                let [waits, other] = &store.keys;
                waits.pending.len() > 1 && other.applied.iter().copied().eq(1..=committed)
            })
        }),
        Claim::sometimes(
            "a re-run repeats the part that its marker names",
            |_, state| {
                let runs = state.run.iter().filter(|run| run.is_rerun);
                runs.flat_map(|run| &run.partitions)
                    .any(|p| p.failed == 0 && p.accepted.is_some_and(is_part))
            },
        ),
        Claim::sometimes("a key fails that did not wait", |_, state| {
            let runs = state
                .run
                .iter()
                .flat_map(|run| run.partitions.iter().enumerate());
            runs.filter(|(p, _)| is_part(state.durable.stores[*p].waiting()))
                .any(|(_, partition)| partition.answer == Some(ALL) && partition.failed > 0)
        }),
    ]
}
