//! The socket, for this user only.

#![expect(
    clippy::disallowed_methods,
    reason = "a socket is a path with permissions, beside storage"
)]

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, Permissions};
use std::io::{self, PipeReader, PipeWriter};
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;

use holdfast_core::{Error, ErrorKind, Result};
use parking_lot::{Condvar, Mutex};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::sockopt::socket_peercred;
use rustix::process::geteuid;

use super::address::Address;
use super::budget::Budget;
use super::channel::Channel;
use super::connection::{Host, close, serve};
use super::failure::Fate;

/// Bound on clients that are served at once, each by a thread of its own: an executor has at most
/// one Python worker per core, and a worker needs one connection.
pub(super) const MAX_CONNECTIONS: usize = 256;

/// Bound on clients that connected and did not introduce themselves. Beyond it, the oldest of them
/// loses its connection, so they take no place from clients that introduce themselves.
const MAX_SILENT: usize = 64;

/// A socket that clients of the same user connect to.
///
/// The folder of a path must be private to this user. It is made if it is missing. A socket that a
/// dead process left at the path is replaced. The socket's own mode is 0600.
#[derive(Debug)]
pub struct Listener {
    address: Address,
    socket: UnixListener,
    /// `stop` closes this end. A thread that waits for clients watches the other end.
    running: Mutex<Option<PipeWriter>>,
    stopping: PipeReader,
    connections: Arc<Connections>,
    /// The process that listens. A forked child must not stop it.
    process: u32,
}

impl Listener {
    /// Listens at `address`.
    ///
    /// # Errors
    /// `InvalidInput` when the folder is not private or the path too long; errors of the system.
    pub fn bind(address: impl Into<Address>) -> Result<Self> {
        let address = address.into();
        let place = address.socket()?;
        if let Some(path) = place.as_pathname() {
            make_private(path)?;
            remove_stale(path);
        }
        let failed = |e| Error::io(format!("listening at {address}"), e);
        let socket = UnixListener::bind_addr(&place).map_err(failed)?;
        if let Some(path) = place.as_pathname() {
            // The folder keeps others out between these two calls.
            fs::set_permissions(path, Permissions::from_mode(0o600)).map_err(failed)?;
        }
        // A client that left between `poll` and `accept` must not hold the listener.
        socket.set_nonblocking(true).map_err(failed)?;
        let (stopping, running) = io::pipe().map_err(failed)?;
        let connections = Connections {
            key: address.key().to_owned(),
            ..Connections::default()
        };
        Ok(Self {
            address,
            socket,
            running: Mutex::new(Some(running)),
            stopping,
            connections: Arc::new(connections),
            process: std::process::id(),
        })
    }

    /// The address at which it listens.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Waits for the next client of this user; `None` once it was stopped.
    pub fn accept(&self) -> Result<Option<Connection>> {
        let failed = |e| Error::io(format!("accepting at {}", self.address), e);
        while self.wait_for_a_client().map_err(failed)? {
            match self.socket.accept() {
                Ok((stream, _)) => {
                    if let Some(connection) = self.admit(stream) {
                        return Ok(Some(connection));
                    }
                }
                Err(e) if is_passing(e.kind()) => {}
                Err(e) => return Err(failed(e)),
            }
        }
        Ok(None)
    }

    /// Returns whether this process is a forked child of the one that listens.
    pub(super) fn is_inherited(&self) -> bool {
        self.process != std::process::id()
    }

    fn wait_for_a_client(&self) -> io::Result<bool> {
        let mut events = [
            PollFd::from_borrowed_fd(self.stopping.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.socket.as_fd(), PollFlags::IN),
        ];
        loop {
            match poll(&mut events, None) {
                Err(rustix::io::Errno::INTR) => {}
                Err(e) => return Err(e.into()),
                Ok(_) => {
                    let [stopping, _] = &events;
                    return Ok(stopping.revents().is_empty());
                }
            }
        }
    }

    fn admit(&self, stream: UnixStream) -> Option<Connection> {
        let peer = socket_peercred(&stream).ok()?;
        if peer.uid != geteuid() {
            return None;
        }
        stream.set_nonblocking(false).ok()?;
        match Connections::enter(&self.connections, &stream) {
            Ok(place) => Some(Connection {
                channel: Channel::new(stream),
                place,
            }),
            Err(why) => {
                close(Channel::new(stream), &why, Fate::Closes);
                None
            }
        }
    }

    /// Closes all connections and takes no more. A request that is being served ends first.
    pub fn stop(&self) {
        if self.is_inherited() {
            return;
        }
        if self.running.lock().take().is_some()
            && let Address::Path(path) = &self.address
        {
            // The file may be gone already. The next process removes a file that is left.
            let _ = fs::remove_file(path);
        }
        self.connections.end();
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.stop();
    }
}

/// A client that was accepted.
#[derive(Debug)]
pub struct Connection {
    channel: Channel,
    /// Left when the connection was served.
    place: Place,
}

impl Connection {
    /// Serves the client until it leaves, breaks the protocol, or the listener stops.
    pub fn serve(self, host: &dyn Host) {
        let Self { channel, place } = self;
        serve(channel, host, &place.connections.budget, &|key| {
            place.keep(key)
        });
    }
}

#[derive(Debug, Default)]
struct Connections {
    /// Clients show it, see [`Address`].
    key: String,
    state: Mutex<Open>,
    left: Condvar,
    budget: Budget,
}

#[derive(Debug, Default)]
struct Open {
    ended: bool,
    last: u64,
    streams: BTreeMap<u64, UnixStream>,
    /// Clients that did not introduce themselves yet, the oldest first.
    silent: BTreeMap<u64, UnixStream>,
}

#[derive(Debug)]
struct Place {
    number: u64,
    connections: Arc<Connections>,
}

impl Connections {
    fn enter(connections: &Arc<Self>, stream: &UnixStream) -> Result<Place> {
        let mut open = connections.state.lock();
        if open.ended {
            return Err(Error::new(ErrorKind::Fenced, "the executor is stopping"));
        }
        open.check_room()?;
        let stream = stream
            .try_clone()
            .map_err(|e| Error::io("a descriptor for a client", e))?;
        open.last += 1;
        let number = open.last;
        open.silent.insert(number, stream);
        if open.silent.len() > MAX_SILENT
            && let Some((_, oldest)) = open.silent.pop_first()
        {
            // A failure means that it has left.
            let _ = oldest.shutdown(Shutdown::Both);
        }
        Ok(Place {
            number,
            connections: Arc::clone(connections),
        })
    }

    fn end(&self) {
        let mut open = self.state.lock();
        open.ended = true;
        for stream in open.streams.values().chain(open.silent.values()) {
            // A failure means that the client has left.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

impl Open {
    fn check_room(&self) -> Result<()> {
        if self.streams.len() < MAX_CONNECTIONS {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::LimitExceeded,
            format!("{MAX_CONNECTIONS} clients are connected to this executor already"),
        ))
    }
}

impl Place {
    /// The client introduced itself: it is served until it leaves.
    fn keep(&self, key: &str) -> Result<()> {
        if key != self.connections.key {
            return Err(Error::invalid_input(
                "this process does not know the key of the executor: it is no Python worker of it",
            ));
        }
        let mut open = self.connections.state.lock();
        open.check_room()?;
        let silent = open
            .silent
            .remove(&self.number)
            .ok_or_else(|| Error::new(ErrorKind::LimitExceeded, "too many clients were silent"))?;
        open.streams.insert(self.number, silent);
        Ok(())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut open = self.connections.state.lock();
        open.streams.remove(&self.number);
        open.silent.remove(&self.number);
        drop(open);
        self.connections.left.notify_all();
    }
}

/// Returns whether an error is not about the listener: the client left, or a signal arrived.
fn is_passing(kind: io::ErrorKind) -> bool {
    matches!(
        kind,
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted
    )
}

/// Makes the folder of `path`. Refuses one that others can enter: they could replace the socket.
fn make_private(path: &Path) -> Result<()> {
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => {
            return Err(Error::io(format!("making {}", folder.display()), e));
        }
        _ => {}
    }
    let found = fs::symlink_metadata(folder)
        .map_err(|e| Error::io(format!("looking at {}", folder.display()), e))?;
    let (owner, mode) = (found.uid(), found.mode() & 0o777);
    let own = geteuid().as_raw();
    if found.is_dir() && owner == own && mode & 0o077 == 0 {
        return Ok(());
    }
    Err(Error::invalid_input(format!(
        "{} must be a folder of user {own} with mode 700, for no one else: found owner {owner}, mode \
         {mode:o}{}. Remove it, or choose another folder",
        folder.display(),
        if found.is_dir() { "" } else { ", no folder" }
    )))
}

/// Removes the socket at `path` if no process listens there any more.
fn remove_stale(path: &Path) {
    let socket = fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket());
    let refused = |e: io::Error| e.kind() == io::ErrorKind::ConnectionRefused;
    if socket && UnixStream::connect(path).is_err_and(refused) {
        // If the file is left, the next call fails because the path is in use.
        let _ = fs::remove_file(path);
    }
}

#[cfg(feature = "testing")]
#[path = "tests/waiting.rs"]
mod waiting;

#[cfg(test)]
#[path = "listener_tests.rs"]
mod tests;
