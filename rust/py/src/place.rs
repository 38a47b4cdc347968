//! The place of segments: a manager in this process, or in another one.

use std::sync::Arc;

use holdfast_core::Error;
use holdfast_core::manager::SnapshotManager;
use holdfast_wire::Client;

use crate::shared::Shared;

#[derive(Clone)]
pub(crate) enum Place {
    Here(Arc<Shared<SnapshotManager>>),
    BehindSocket(Arc<Shared<Client>>),
}

impl Place {
    /// Calls the manager here, or the client of a manager in another process.
    pub(crate) fn call<T>(
        &self,
        here: impl FnOnce(&SnapshotManager) -> Result<T, Error>,
        behind_socket: impl FnOnce(&Client) -> Result<T, Error>,
    ) -> Result<T, Error> {
        match self {
            Self::Here(manager) => here(&*manager.open()?),
            Self::BehindSocket(client) => behind_socket(&*client.open()?),
        }
    }
}
