//! The bounds of a model, its state and its invariants.

use stateright::Property;

use crate::checkpoint::{Checkpoint, Provider, ROWS, rows};
use crate::command::{After, Command, Kind};
use crate::driver::Driver;

/// Partitions of a state, and versions that the old provider gets.
pub const PARTS: u8 = 2;
/// Commands at the same time.
pub const AT_ONCE: usize = 2;

/// A change of the protocol that breaks it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// The entry of `offsets` replaces one that is there.
    PlanReplaces,
    /// The batch takes rows.
    PlanTakesRows,
    NoPlan,
    /// The entry of `commits` is written before the entry of `offsets`.
    CommitsFirst,
    /// A partition is not written when the batch is committed.
    CommitsHalf,
    /// A command takes a batch that a driver planned for its own.
    TakesPlanned,
    /// A command does not continue a batch that a killed one planned.
    RefusesPending,
    /// A command does not list the log once it has its entry in `offsets`.
    DoesNotLookAgain,
    /// A driver re-runs the batch of an adoption without state to begin with.
    DriverTakesPending,
    /// An adoption is undone by deleting its entries.
    UndoDeletes,
    /// An adoption is undone although there were rows since.
    UndoesRows,
    /// State of the old provider is written before the batch is planned.
    WritesBeforePlan,
    /// Files are purged that an undo may still need.
    PurgesBeforeRows,
    /// All files of the old provider are purged, not only the files of the record.
    PurgesAll,
}

/// The protocol or a mutant of it, and the bounds of its histories.
#[derive(Clone, Debug)]
pub struct Model {
    pub commands: &'static [Kind],
    /// Commands of a history.
    pub starts: u8,
    /// Crashes of a driver or a command.
    pub crashes: u8,
    pub mutant: Option<Mutant>,
}

impl Model {
    pub fn is(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    pub checkpoint: Checkpoint,
    pub driver: Option<Driver>,
    pub commands: [Option<Command>; AT_ONCE],
    pub starts: u8,
    pub crashes: u8,
    /// For an invariant: the batch with which a command says that it moved the checkpoint.
    pub said: Option<usize>,
}

impl State {
    /// If all else ends here, and the command of a batch that is pending comes again, a driver processes
    /// the rest of the rows.
    fn goes_on(&self, model: &Model) -> bool {
        let mut checkpoint = self.checkpoint.clone();
        let plan = checkpoint.newest_plan();
        let is_pending = checkpoint.planned() != checkpoint.committed() && plan.is_move;
        let command = match plan.provider {
            Provider::New => Kind::Adopt,
            Provider::Old => Kind::Leave,
        };
        if is_pending && !finishes(model, &mut checkpoint, command) {
            return false;
        }
        let mut driver = Driver::start(model, &checkpoint);
        while let Some(running) = driver {
            if !running.has_work(&checkpoint) {
                return has_every_row(&checkpoint) && state_is_right(&checkpoint);
            }
            driver = running.step(model, &mut checkpoint);
        }
        false
    }
}

fn finishes(model: &Model, checkpoint: &mut Checkpoint, kind: Kind) -> bool {
    let mut command = Command::start(model, checkpoint, kind);
    while let Some(running) = command {
        command = match running.step(model, checkpoint) {
            After::GoesOn(command) => Some(command),
            After::Done(_) => return true,
            After::Refused => None,
        };
    }
    false
}

fn has_every_row(checkpoint: &Checkpoint) -> bool {
    let committed = checkpoint.offsets[checkpoint.committed()];
    let count = committed.map_or(0, |plan| plan.rows);
    let mut rows = checkpoint.sink.iter().take(count.into());
    rows.all(|count| *count > 0)
}

fn state_is_right(checkpoint: &Checkpoint) -> bool {
    let batch = checkpoint.committed();
    checkpoint.offsets[batch]
        .is_none_or(|plan| checkpoint.load(batch, plan.provider) == Some(rows(plan.rows)))
}

pub const NO_ROW_LOST: &str = "no row is lost";
pub const NO_ROW_TWICE: &str = "no row comes twice";
pub const STATE_RIGHT: &str = "the newest batch has its whole state";
pub const LOG_WHOLE: &str = "the newest committed batch is planned, and at most one more";
pub const SAYS_TRUTH: &str = "a command that says so moved the checkpoint";
pub const GOES_ON: &str = "the query goes on";

/// A claim about every state, or about some state.
type Claim = Property<Model>;

pub fn invariants() -> Vec<Claim> {
    vec![
        Claim::always(NO_ROW_LOST, |_, state| has_every_row(&state.checkpoint)),
        Claim::always(NO_ROW_TWICE, |_, state| {
            state.checkpoint.sink.iter().all(|count| *count < 2)
        }),
        Claim::always(STATE_RIGHT, |_, state| state_is_right(&state.checkpoint)),
        Claim::always(LOG_WHOLE, |_, state| {
            let checkpoint = &state.checkpoint;
            let (planned, committed) = (checkpoint.planned(), checkpoint.committed());
            checkpoint.offsets[committed].is_some() && planned <= committed + 1
        }),
        Claim::always(SAYS_TRUTH, |_, state| {
            let moved = state.checkpoint.moved;
            state.said.is_none_or(|batch| moved & (1 << batch) != 0)
        }),
        Claim::always(GOES_ON, |model, state| state.goes_on(model)),
    ]
}

/// Events that must happen in some history, or the histories are too tame.
pub fn reached(commands: &[Kind]) -> Vec<Claim> {
    let mut reached = vec![
        Claim::sometimes("an adopted checkpoint takes its last rows", |_, state| {
            let plan = state.checkpoint.newest_plan();
            plan.provider == Provider::New && !plan.is_move && plan.rows == ROWS
        }),
        Claim::sometimes("a driver starts beside two commands", |_, state| {
            state.driver.is_some() && state.commands.iter().all(Option::is_some)
        }),
        Claim::sometimes(
            "an adoption is pending and its command is gone",
            |_, state| {
                let plan = state.checkpoint.newest_plan();
                let is_pending = state.checkpoint.planned() != state.checkpoint.committed();
                is_pending
                    && (plan.is_move, plan.provider) == (true, Provider::New)
                    && state.commands.iter().all(Option::is_none)
            },
        ),
        Claim::sometimes("the old provider goes on behind a move back", |_, state| {
            let plan = state.checkpoint.newest_plan();
            let moved = state.checkpoint.moved;
            plan.provider == Provider::Old && !plan.is_move && moved.count_ones() > 1
        }),
    ];
    if commands.contains(&Kind::Purge) {
        reached.push(Claim::sometimes("old files are purged", |_, state| {
            state.checkpoint.files & 1 == 0
        }));
    }
    reached
}
