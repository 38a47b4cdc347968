//! Python extension module `holdfast._core`: a thin face of `holdfast-core`.
//!
//! Every call into the core runs with the GIL released. Every error of the core becomes the builtin
//! Python exception that says what to do (see `errors`).

mod arguments;
mod buffer;
mod checkpoint;
mod client;
mod digest;
mod errors;
mod inspect;
mod leases;
mod manager;
mod manager_message;
mod modes;
mod opened_files;
mod orphans;
mod parts;
mod place;
mod segment_store;
mod segments;
mod shared;
mod state_reader;
mod status;
mod table;
mod values;

#[cfg(feature = "testing")]
#[path = "tests/server.rs"]
mod server;

use pyo3::prelude::*;

/// The compiled half of Holdfast.
#[pymodule]
mod _core {
    #[pymodule_export]
    #[allow(non_upper_case_globals, reason = "the name Python expects")]
    const __version__: &str = env!("CARGO_PKG_VERSION");

    #[pymodule_export]
    use crate::checkpoint::{
        CheckpointMetadata, InFlight, OperatorEntry, Piece, RegionEntry, Staged, StateEntry,
    };
    #[pymodule_export]
    use crate::client::ManagerClient;
    #[pymodule_export]
    use crate::digest::chunk_digests;
    #[pymodule_export]
    use crate::errors::{AttemptEndedError, CorruptSegmentError, FencedError, NewerFormatError};
    #[pymodule_export]
    use crate::inspect::{CommitId, SegmentReport, inspect_segment};
    #[pymodule_export]
    use crate::leases::{
        lease_from_bytes, lease_step, lease_to_bytes, parent_from_bytes, parent_to_bytes,
    };
    #[pymodule_export]
    use crate::manager::SnapshotManager;
    #[pymodule_export]
    use crate::manager_message::manager_message;
    #[pymodule_export]
    use crate::modes::set_local_umask;
    #[pymodule_export]
    use crate::orphans::OrphanReclaimer;
    #[pymodule_export]
    use crate::segment_store::SegmentStore;
    #[pymodule_export]
    use crate::segments::read_segment;
    #[pymodule_export]
    use crate::state_reader::{DifferenceScan, StateReader, StateScan};
    #[pymodule_export]
    use crate::status::{FileStatus, Stats};
    #[pymodule_export]
    use crate::table::{TableSession, decode_rows, read_table};
    #[pymodule_export]
    use crate::values::{Owner, SegmentRef};

    #[cfg(feature = "testing")]
    #[pymodule_export]
    use crate::server::{ManagerServer, serve};
}
