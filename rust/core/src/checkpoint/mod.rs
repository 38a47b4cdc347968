//! Metadata of a checkpoint: one file with the parts of each region's state and the snapshot that
//! produced it (`FORMAT.md`, "Checkpoint metadata"). It appears whole and never changes.
//!
//! Entries stay encoded until a caller reads them. Functions that decode bytes return `Corrupt` for
//! other bytes, and `Newer` for bytes of a newer version.

mod encoding;
mod entry;
mod file;
mod folder;
mod metadata;
mod outline;
mod region;
mod regions;
mod sections;

pub use entry::{
    InFlight, InFlightPlace, OperatorEntry, Piece, Staged, StateContent, StateEntry, StateKind,
};
pub use file::{StoredFile, base_name, file_name, parse_base_name, parse_name};
pub use folder::{delete, list, read, read_like, write};
pub use metadata::{CheckpointFacts, CheckpointKind, Metadata};
pub use region::{NewRegion, RegionEntry};
pub use regions::{BaseFile, Regions};

use crate::error::{Error, Result};

/// Operator part of the owners of in-flight data, so no operator may have this name.
pub const IN_FLIGHT_OPERATOR: &str = "in-flight";

/// Bound on names, in bytes: they become parts of owners.
pub const MAX_NAME_BYTES: usize = 1024;

/// Bound on the paths of staged files, in bytes: Linux's bound.
pub const MAX_PATH_BYTES: usize = 4096;

/// Bound on a cause, in bytes, which is cut there: a stack trace has no bound.
pub const MAX_CAUSE_BYTES: usize = 4096;

fn check_length(what: &str, text: &str, max_bytes: usize) -> Result<()> {
    if text.len() <= max_bytes {
        return Ok(());
    }
    Err(Error::invalid_input(format!(
        "{what}: expected at most {max_bytes} bytes, found {}",
        text.len()
    )))
}

fn check_name(what: &str, name: &str) -> Result<()> {
    if name.is_empty() {
        return Err(Error::invalid_input(format!("{what} is empty")));
    }
    check_length(what, name, MAX_NAME_BYTES)
}

/// Refuses the first name that occurs twice.
fn check_unique<'a>(what: &str, names: impl Iterator<Item = &'a str>) -> Result<()> {
    let mut seen = std::collections::BTreeSet::new();
    for name in names {
        if !seen.insert(name) {
            return Err(Error::invalid_input(format!(
                "{what} {name:?} occurs twice"
            )));
        }
    }
    Ok(())
}
