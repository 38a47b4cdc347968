//! The bounds of a model, its state and its invariants.

use stateright::Property;

use crate::driver::{Durable, Run};

pub const PARTITIONS: usize = 2;
/// Contents of rows. Content 0 throws only in a broken program.
pub const CONTENTS: usize = 2;
/// Actions of `foreachBatch`. Each output ignores a second write of batch N.
pub const JOBS: usize = 2;
pub const BATCHES_MAX: usize = 2;

/// Rows of a partition by content, as bits.
pub type Rows = u8;

/// Both partitions have a row with content 1.
pub const ROWS: [Rows; PARTITIONS] = [0b10, 0b11];

/// A change of the protocol that breaks it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    NoMarker,
    /// A re-run does not read the marker.
    ForgetsMarker,
    /// An attempt does not report the rows that it leaves out.
    SettlesNothing,
    /// A start does not write dead letters that are missing.
    ForgetsLetters,
    /// Dead letters that are there stay beside the new ones.
    RepeatsLetters,
    /// A re-run sets rows aside although another program may have delivered them.
    EveryProgramIsTheSame,
    /// The program is recorded at the end of its first batch.
    ProgramIsRecordedLate,
    /// A re-run with another program leaves the record as it is.
    SecondProgramIsNotRecorded,
    /// An attempt sets rows aside while another one may deliver them.
    SettlesBesideOthers,
    /// A partition that was delivered in one job is unknown in the next one.
    ForgetsDelivery,
    /// The first attempt of a later job does not ask.
    LaterJobAsksNobody,
    /// Too many rows are bad, and those that were found first stay in the marker.
    MarkerStays,
    NeverSearches,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Program {
    #[default]
    First,
    Repaired,
    Broken,
}

impl Program {
    pub const ALL: [Self; 3] = [Self::First, Self::Repaired, Self::Broken];

    /// The rows for which it throws.
    pub const fn throws(self) -> Rows {
        match self {
            Self::First => 0b10,
            Self::Repaired => 0,
            Self::Broken => 0b11,
        }
    }
}

/// The protocol or a mutant of it, and the bounds of its histories.
#[derive(Clone, Debug)]
pub struct Model {
    pub batches: u8,
    /// Rows of a batch that may be set aside.
    pub rows_max: u64,
    /// A row that throws may also pass, in any attempt.
    pub moods: bool,
    pub crashes: u8,
    /// Twins, and attempts that are killed.
    pub disturbances: u8,
    /// Starts with another program.
    pub changes: u8,
    pub mutant: Option<Mutant>,
}

impl Model {
    pub fn is(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    pub durable: Durable,
    /// Without a run the driver is down.
    pub run: Option<Run>,
    pub program: Program,
    pub crashes: u8,
    pub disturbances: u8,
    pub changes: u8,
}

impl State {
    /// How often each row of a committed batch is in each output, and how often in the dead letters.
    fn rows(&self) -> impl Iterator<Item = ([u8; JOBS], u8)> {
        let durable = &self.durable;
        (0..usize::from(durable.committed)).flat_map(move |batch| {
            (0..PARTITIONS).flat_map(move |p| {
                let contents = (0..CONTENTS).filter(move |k| ROWS[p] & bit(*k) != 0);
                contents.map(move |k| {
                    let counts = std::array::from_fn(|job| durable.outputs[job][batch][p][k]);
                    (counts, durable.letters[batch][p][k])
                })
            })
        })
    }
}

pub const fn bit(k: usize) -> Rows {
    1 << k
}

pub const NO_ROW_LOST: &str = "no row is lost";
pub const NO_ROW_TWICE: &str = "no row is in two places";
pub const GOES_ON: &str = "the query goes on";
pub const NOTHING_STAYS: &str = "a batch with too many bad rows leaves no marker";

type Claim = Property<Model>;

pub fn invariants() -> Vec<Claim> {
    vec![
        // Dead letters are written after the batch is committed.
        Claim::always(NO_ROW_LOST, |_, state| {
            let is_published = state.run.as_ref().is_some_and(|run| !run.publishes);
            let mut rows = state.rows();
            !is_published || rows.all(|(out, letters)| letters > 0 || out.iter().all(|n| *n > 0))
        }),
        Claim::always(NO_ROW_TWICE, |_, state| {
            let mut rows = state.rows();
            rows.all(|(out, letters)| out.iter().all(|count| count + letters <= 1))
        }),
        // Unless too many rows are bad, or an earlier program may have delivered a row that throws now.
        Claim::always(GOES_ON, |model, state| {
            let failed = state.run.as_ref().filter(|run| run.has_failed);
            failed
                .is_none_or(|run| model.moods || run.is_closed || run.exceeds(model, state.program))
        }),
        Claim::always(NOTHING_STAYS, |model, state| {
            let failed = state.run.as_ref().filter(|run| run.has_failed);
            failed.is_none_or(|run| {
                !run.exceeds(model, state.program)
                    || run.job > 0
                    || run.is_rerun
                    || state.durable.marker().is_none()
            })
        }),
    ]
}

/// Events that must happen in some history, or the histories are too tame.
pub fn reached() -> [Claim; 3] {
    [
        Claim::sometimes(
            "all batches are committed with dead letters",
            |model, state| {
                let is_done = state.durable.committed == model.batches;
                is_done && state.rows().filter(|(_, letters)| *letters > 0).count() > 2
            },
        ),
        Claim::sometimes("a repaired program repeats a marker", |_, state| {
            let is_repaired = state.program == Program::Repaired;
            let mut runs = state.run.iter();
            is_repaired && runs.any(|run| run.is_rerun && state.durable.marker().is_some())
        }),
        Claim::sometimes("a closed batch fails", |_, state| {
            let mut runs = state.run.iter();
            runs.any(|run| run.is_closed && run.has_failed)
        }),
    ]
}
