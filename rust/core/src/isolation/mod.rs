//! Partition isolation: which partition of a query is parked when its task keeps failing, which of
//! its keys are tried again, and what has to be durable before a task or the sink may continue.
//! [`Run`] is a pure machine for one run of a query: [`Fact`]s go in, [`Action`]s come out. It has
//! no clock, no lock and no I/O. The driver carries out the actions, and reports durable markers.
//! The model in rust/sim/models/isolation drives the same machine.

mod decisions;
mod groups;
mod known;
pub(crate) mod marker;
mod messages;
mod run;

pub use groups::Groups;
pub use marker::{Marker, Parked};
pub use messages::{Action, Answer, Attempt, Fact, Limits, Part, Plan};
pub use run::Run;
