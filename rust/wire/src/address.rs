//! Addresses of servers.
//!
//! An executor listens at an abstract socket that has the name of its local folder. Spark tells
//! every Python worker this folder in `SPARK_LOCAL_DIRS`, so workers need not search. An abstract
//! socket has no file that a cleaner of temporary folders could remove.
//!
//! Every process of the same network namespace can list and reach abstract sockets, even a process
//! of the same user in another container. So the address has only half of the folder's random name.
//! The other half is a key that a client must show.

use std::fmt;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::SocketAddr;
use std::path::{Path, PathBuf};

use holdfast_core::{Error, ErrorKind, Result};

/// Bound on the path of a Unix socket: `sun_path` has 108 bytes, and the last is 0.
const MAX_PATH_BYTES: usize = 107;

/// Variable in which Spark tells a Python worker the local folders of its executor.
const LOCAL_DIRS: &str = "SPARK_LOCAL_DIRS";

/// The address at which a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A path in a folder that is private to this user.
    Path(PathBuf),
    /// The abstract socket of an executor.
    Executor {
        /// Its name, without the leading 0.
        name: String,
        /// A client must show it.
        key: String,
    },
}

impl Address {
    /// Address of the executor that has these local folders, as `SPARK_LOCAL_DIRS` lists them.
    ///
    /// # Errors
    /// `InvalidInput` without a folder.
    pub fn of_executor(local_dirs: &str) -> Result<Self> {
        // Spark makes each folder for one executor, under a random name: blockmgr-<UUID>.
        let folder = local_dirs.rsplit('/').next().unwrap_or_default();
        let (name, key) = folder
            .split_at_checked(folder.len() / 2)
            .filter(|(name, _)| !name.is_empty())
            .ok_or_else(|| {
                Error::invalid_input(format!("{local_dirs:?} names no folder of an executor"))
            })?;
        Ok(Self::Executor {
            name: format!("holdfast-{name}"),
            key: key.to_owned(),
        })
    }

    /// Address of the executor that this Python worker belongs to.
    ///
    /// # Errors
    /// `NotFound` in a process that is no Python worker.
    pub fn of_this_worker() -> Result<Self> {
        match std::env::var(LOCAL_DIRS) {
            Ok(folders) if !folders.is_empty() => Self::of_executor(&folders),
            _ => Err(Error::new(
                ErrorKind::NotFound,
                format!(
                    "this process is no Python worker of a Spark executor: Spark sets {LOCAL_DIRS} in \
                     each of them, and here it is not set"
                ),
            )),
        }
    }

    pub(super) fn key(&self) -> &str {
        match self {
            Self::Path(_) => "",
            Self::Executor { key, .. } => key,
        }
    }

    pub(super) fn socket(&self) -> Result<SocketAddr> {
        let made = match self {
            Self::Path(path) => {
                check_length(path)?;
                SocketAddr::from_pathname(path)
            }
            Self::Executor { name, .. } => SocketAddr::from_abstract_name(name),
        };
        made.map_err(|e| Error::invalid_input(format!("{self} is no address of a socket: {e}")))
    }

    /// The reason why a client could not connect.
    pub(super) fn unreachable(&self, error: io::Error) -> Error {
        match self {
            Self::Executor { .. } if error.kind() == io::ErrorKind::ConnectionRefused => {
                Error::new(
                    ErrorKind::NotFound,
                    format!(
                        "the executor of this Python worker does not listen at {self}. If spark.plugins \
                     had io.holdfast.spark.HoldfastPlugin when the application started, the \
                     executor's log says why: \"Holdfast does not listen for Python workers\""
                    ),
                )
            }
            _ => Error::io(format!("connecting to {self}"), error),
        }
    }
}

impl fmt::Display for Address {
    /// Puts `@` before the name of an abstract socket, as `ss` and systemd do.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(path) => path.display().fmt(f),
            Self::Executor { name, .. } => write!(f, "@{name}"),
        }
    }
}

impl<P: AsRef<Path>> From<P> for Address {
    fn from(path: P) -> Self {
        Self::Path(path.as_ref().to_owned())
    }
}

fn check_length(path: &Path) -> Result<()> {
    let bytes = path.as_os_str().len();
    if (1..=MAX_PATH_BYTES).contains(&bytes) {
        return Ok(());
    }
    Err(Error::invalid_input(format!(
        "the path of a socket has at least 1 and at most {MAX_PATH_BYTES} bytes, {:?} has {bytes}",
        path.display().to_string()
    )))
}

#[cfg(test)]
#[path = "address_tests.rs"]
mod tests;
