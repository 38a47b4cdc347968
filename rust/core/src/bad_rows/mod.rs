//! Bad rows before the shuffle: which rows of a source are set aside because the stage behind it
//! throws for them, and what has to be durable before a task may continue. [`Run`] is a pure machine
//! for one source in one run of a query: [`Fact`]s go in, [`Action`]s come out. It has no clock, no
//! lock and no I/O. The driver carries out the actions, and reports durable markers. The model in
//! rust/sim/models/bad_rows drives the same machine.

mod decisions;
mod marker;
mod messages;
mod run;

pub use marker::{Letter, Marker};
pub use messages::{Action, Answer, Fact, Found, Limits, Plan};
pub use run::Run;
