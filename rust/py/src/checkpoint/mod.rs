//! Metadata of checkpoints as immutable values.

mod metadata;
mod region;
mod state;

pub(crate) use metadata::CheckpointMetadata;
pub(crate) use region::{InFlight, RegionEntry, Staged};
pub(crate) use state::{OperatorEntry, Piece, StateEntry};
