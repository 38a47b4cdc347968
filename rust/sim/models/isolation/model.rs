//! The bounds of a model, its state and its invariants.

use stateright::Property;

use crate::driver::{Durable, PARKED_MAX, Run, bit};
use crate::tasks::{Attempt, Decision, Phase};

pub const PARTITIONS: usize = 2;
/// The last batch comes when the code is fixed, and replays what is pending.
pub const BATCHES: u8 = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sink {
    /// A sink that writes through `BatchWrite`. It commits batch N once, and the driver knows before.
    Transactional,
    /// A function for `foreachBatch` with two actions. Each output ignores a second write of batch N.
    Idempotent,
    /// Such a function, and each output takes all that it gets.
    AtLeastOnce,
}

/// A change of the protocol that breaks it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    NoMarker,
    MarkerAfterSink,
    SealAfterSink,
    /// A re-run parks although the sink may hold the rows.
    RerunParks,
    /// A failure in such a re-run opens the marker.
    RerunMarksFailure,
    /// A decision holds for one job of the batch.
    ForgetsPark,
    ForgetsDelivery,
    /// The first attempt of a later job does not ask for a partition that is parked.
    LaterJobAsksNobody,
    /// Failures are counted by the number of the attempt.
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
}

/// The protocol or a mutant of it, and the bounds of its histories.
#[derive(Clone, Debug)]
pub struct Model {
    pub sink: Sink,
    /// Partitions of which any attempt may fail.
    pub poison: [bool; PARTITIONS],
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
            Sink::Transactional => durable.marker.is_none_or(|marker| marker.sealed),
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
}

impl State {
    fn attempts(&self) -> impl Iterator<Item = &Attempt> {
        let partitions = self.run.iter().flat_map(|run| &run.partitions);
        partitions.flat_map(|partition| &partition.attempts)
    }

    /// Returns whether each committed result is in each output, unless its input is pending.
    fn has_every_row(&self, jobs: u8) -> bool {
        let durable = &self.durable;
        let results = (0..PARTITIONS).flat_map(|p| (1..=durable.committed).map(move |n| (p, n)));
        results
            .filter(|(p, batch)| !durable.stores[*p].pending.contains(batch))
            .all(|(p, batch)| {
                let mut outputs = durable.outputs.iter().take(jobs.into());
                outputs.all(|output| output[p][usize::from(batch) - 1] > 0)
            })
    }

    fn has_a_row_twice(&self) -> bool {
        let mut counts = self.durable.outputs.iter().flatten().flatten();
        counts.any(|count| *count > 1)
    }

    /// Spark may end the query, as it does without isolation: for a partition whose rows are in the
    /// sink or may be there, and if too many partitions fail.
    fn may_fail(&self, model: &Model, run: &Run, p: usize) -> bool {
        let is_unknown = run.is_rerun && model.sink_may_hold_rows(&self.durable);
        self.exposed & bit(p) != 0
            || (is_unknown && !self.durable.marks(p))
            || (run.parked() & !bit(p)).count_ones() == PARKED_MAX
    }
}

pub const NO_ROW_LOST: &str = "no row is lost";
pub const NO_ROW_TWICE: &str = "no row comes twice";
pub const GOES_ON: &str = "the query goes on";
pub const FEW_PARKED: &str = "only a share of the partitions is parked";
pub const ONE_PLACE: &str = "each input is applied or pending, and once";
pub const SAME_STATE: &str = "the state is that of an undisturbed run";
pub const COMPLETES: &str = "every batch completes";

/// Says what a state is, which closures do not find out.
type Test = fn(&Model, &State) -> bool;

fn always(name: &'static str, test: Test) -> Property<Model> {
    Property::always(name, test)
}

fn sometimes(name: &'static str, test: Test) -> Property<Model> {
    Property::sometimes(name, test)
}

pub fn invariants() -> Vec<Property<Model>> {
    vec![
        always(NO_ROW_LOST, |model, state| {
            state.has_every_row(model.jobs())
        }),
        always(NO_ROW_TWICE, |model, state| {
            let may_repeat = model.sink == Sink::AtLeastOnce && state.has_rerun;
            may_repeat || !state.has_a_row_twice()
        }),
        always(GOES_ON, |model, state| {
            let run = state.run.as_ref();
            let failed = run.and_then(|run| Some((run, run.failed?)));
            failed.is_none_or(|(run, p)| state.may_fail(model, run, p))
        }),
        always(FEW_PARKED, |_, state| {
            let durable = &state.durable;
            let stores = durable.stores.iter();
            let parked = stores.filter(|store| store.pending.contains(&durable.committed));
            parked.count() as u32 <= PARKED_MAX
        }),
        always(ONE_PLACE, |_, state| {
            state.durable.stores.iter().all(|store| {
                let mut inputs = [&store.applied[..], &store.pending].concat();
                inputs.sort_unstable();
                inputs.into_iter().eq(1..=state.durable.committed)
            })
        }),
        always(SAME_STATE, |_, state| {
            let mut stores = state.durable.stores.iter();
            state.durable.committed < BATCHES
                || stores.all(|store| store.applied.iter().copied().eq(1..=BATCHES))
        }),
        // A query that stands still breaks this one: every history is finite.
        Property::eventually(COMPLETES, |_, state: &State| {
            state.durable.committed == BATCHES
        }),
    ]
}

/// Events that must happen in some history, or the histories are too tame.
pub fn reached() -> [Property<Model>; 4] {
    [
        sometimes("input of two batches is pending", |_, state| {
            let mut stores = state.durable.stores.iter();
            stores.any(|store| store.pending.len() == 2)
        }),
        sometimes("a re-run parks what its marker names", |_, state| {
            let runs = state.run.iter().filter(|run| run.is_rerun);
            runs.flat_map(|run| &run.partitions)
                .any(|p| p.failures == 0 && p.accepted == Some(Decision::Park))
        }),
        sometimes("a zombie asks", |_, state| {
            let mut attempts = state.attempts();
            attempts.any(|attempt| attempt.ended && attempt.phase == Phase::Asking)
        }),
        sometimes("an attempt waits for an older stage attempt", |_, state| {
            let (mut asking, mut delivering) = (state.attempts(), state.attempts());
            asking.any(|attempt| attempt.phase == Phase::Asking && attempt.stage_attempt > 0)
                && delivering
                    .any(|attempt| attempt.phase == Phase::Delivering && attempt.stage_attempt == 0)
        }),
    ]
}
