//! The socket: in a private folder, for this user alone.

#![expect(
    clippy::disallowed_methods,
    reason = "a socket is a path with permissions, beside storage"
)]

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, Permissions};
use std::io::{self, PipeReader, PipeWriter};
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use holdfast_core::{Error, ErrorKind, Result};
use parking_lot::{Condvar, Mutex};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::socket_peercred;
use rustix::process::geteuid;

use super::budget::Budget;
use super::channel::Channel;
use super::connection::{Host, refuse, serve};
use super::locate::{MAX_PATH_BYTES, is_socket};

/// Bound on clients that are served at once, each by a thread of its own: an executor has at most one
/// Python worker per core, and a worker needs one connection.
pub(super) const MAX_CONNECTIONS: usize = 256;

/// Bound on clients that connected and did not introduce themselves. They take no place from those
/// that do: beyond it, the one that is silent for longest loses its connection.
const MAX_SILENT: usize = 64;

/// A socket that clients of the same user connect to.
///
/// Its folder must be private to this user; it is made if it is missing. What dead processes left in
/// it is removed. The socket's own mode is 0600.
#[derive(Debug)]
pub struct Listener {
    path: PathBuf,
    socket: UnixListener,
    /// Closed to stop: a thread that waits for clients waits for the other end of it as well.
    running: Mutex<Option<PipeWriter>>,
    stopping: PipeReader,
    connections: Arc<Connections>,
    /// The process that listens: a child must not end it.
    process: u32,
}

impl Listener {
    /// Listens at `path`.
    ///
    /// # Errors
    /// `InvalidInput` when the folder is not private or the path too long; those of the system.
    pub fn bind(path: impl Into<PathBuf>) -> Result<Self> {
        let path = path.into();
        let bytes = path.as_os_str().len();
        if bytes > MAX_PATH_BYTES {
            return Err(Error::invalid_input(format!(
                "the path of a socket has at most {MAX_PATH_BYTES} bytes, {} has {bytes}",
                path.display()
            )));
        }
        let folder = path
            .parent()
            .filter(|folder| !folder.as_os_str().is_empty())
            .unwrap_or(Path::new("."));
        make_private(folder)?;
        remove_stale(folder, &path);
        let failed = |e| Error::io(format!("listening at {}", path.display()), e);
        let socket = UnixListener::bind(&path).map_err(failed)?;
        // The folder keeps others out between these two calls.
        fs::set_permissions(&path, Permissions::from_mode(0o600)).map_err(failed)?;
        // A client that left between `poll` and `accept` must not hold the listener.
        socket.set_nonblocking(true).map_err(failed)?;
        let (stopping, running) = io::pipe().map_err(failed)?;
        Ok(Self {
            path,
            socket,
            running: Mutex::new(Some(running)),
            stopping,
            connections: Arc::default(),
            process: std::process::id(),
        })
    }

    /// Listens at the first of these paths where it can.
    ///
    /// # Errors
    /// As [`Listener::bind`], of the first path, when there is none.
    pub fn bind_first(paths: impl IntoIterator<Item = PathBuf>) -> Result<Self> {
        let mut first = None;
        for path in paths {
            match Self::bind(path) {
                Ok(listener) => return Ok(listener),
                Err(e) => first = first.or(Some(e)),
            }
        }
        Err(first.unwrap_or_else(|| Error::invalid_input("no path for a socket was given")))
    }

    /// Where it listens.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Waits for the next client; `None` once it was stopped. Clients of other users are not served.
    ///
    /// # Errors
    /// Those of the system.
    pub fn accept(&self) -> Result<Option<Connection>> {
        let failed = |e| Error::io(format!("accepting at {}", self.path.display()), e);
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

    /// Waits before a client is accepted after the system refused one, for want of descriptors; false
    /// when it was stopped meanwhile.
    pub(super) fn pause(&self, time: Duration) -> bool {
        let mut events = [PollFd::from_borrowed_fd(
            self.stopping.as_fd(),
            PollFlags::IN,
        )];
        let timeout = Timespec::try_from(time).ok();
        // A signal ends the pause early, which does no harm.
        let _ = poll(&mut events, timeout.as_ref());
        self.running.lock().is_some()
    }

    /// This process is a child of the one that listens.
    pub(super) fn is_inherited(&self) -> bool {
        self.process != std::process::id()
    }

    /// False when it was stopped.
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
                refuse(Channel::new(stream), &why);
                None
            }
        }
    }

    /// Stops: no client is accepted any more, and those that are connected lose their connection. A
    /// request that is being served ends first.
    pub fn stop(&self) {
        if self.is_inherited() {
            return;
        }
        if self.running.lock().take().is_some() {
            // It may be gone already; the next process removes a file that stays.
            let _ = fs::remove_file(&self.path);
        }
        self.connections.end();
    }

    /// Waits until no connection is served any more.
    pub(super) fn wait(&self) {
        self.connections.wait();
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
        serve(channel, host, &place.connections.budget, &|| place.keep());
    }
}

/// The connections that are open.
#[derive(Debug, Default)]
struct Connections {
    state: Mutex<Open>,
    left: Condvar,
    budget: Budget,
}

#[derive(Debug, Default)]
struct Open {
    ended: bool,
    last: u64,
    /// Clients that introduced themselves.
    streams: BTreeMap<u64, UnixStream>,
    /// Clients that did not yet, the oldest first.
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

    fn wait(&self) {
        let mut open = self.state.lock();
        while !open.streams.is_empty() || !open.silent.is_empty() {
            self.left.wait(&mut open);
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
    fn keep(&self) -> Result<()> {
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

/// Says nothing about the listener: the client left, or a signal came.
fn is_passing(kind: io::ErrorKind) -> bool {
    matches!(
        kind,
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted
    )
}

/// Makes the folder unless it is there, and refuses one that others can enter: they could put a socket
/// of their own in the place of ours.
fn make_private(folder: &Path) -> Result<()> {
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

/// Removes sockets of processes that died without doing so: `own`, and `<process>.sock` of others.
/// Best effort: what stays does no harm.
fn remove_stale(folder: &Path, own: &Path) {
    let Ok(entries) = fs::read_dir(folder) else {
        return;
    };
    for path in entries.flatten().map(|entry| entry.path()) {
        let process = path.extension().is_some_and(|suffix| suffix == "sock")
            && path
                .file_stem()
                .and_then(|name| name.to_str()?.parse::<u32>().ok())
                .is_some_and(|process| !Path::new(&format!("/proc/{process}")).exists());
        // A process of another container may use the same folder and not be seen in /proc: only a
        // socket that no process listens at is stale.
        if (process || path == own) && is_socket(&path) && is_stale(&path) {
            let _ = fs::remove_file(&path);
        }
    }
}

fn is_stale(path: &Path) -> bool {
    UnixStream::connect(path).is_err_and(|e| e.kind() == io::ErrorKind::ConnectionRefused)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::*;

    fn private_folder() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), Permissions::from_mode(0o700)).unwrap();
        folder
    }

    fn mode(path: &Path) -> u32 {
        fs::symlink_metadata(path).unwrap().mode() & 0o777
    }

    #[test]
    fn folder_and_socket_are_for_this_user_alone() {
        let parent = tempfile::tempdir().unwrap();
        let listener = Listener::bind(parent.path().join("private/1.sock")).unwrap();
        assert_eq!(mode(listener.path()), 0o600);
        assert_eq!(mode(listener.path().parent().unwrap()), 0o700);
    }

    #[test]
    fn a_folder_that_others_can_enter_is_refused() {
        let parent = tempfile::tempdir().unwrap();
        let open = parent.path().join("open");
        fs::create_dir(&open).unwrap();
        fs::set_permissions(&open, Permissions::from_mode(0o750)).unwrap();
        let refused = Listener::bind(open.join("1.sock")).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidInput);
        assert!(refused.to_string().contains("mode 750"), "{refused}");
    }

    #[test]
    fn a_link_in_the_place_of_the_folder_is_refused() {
        let parent = tempfile::tempdir().unwrap();
        let link = parent.path().join("link");
        std::os::unix::fs::symlink(parent.path(), &link).unwrap();
        let refused = Listener::bind(link.join("1.sock")).unwrap_err();
        assert!(refused.to_string().contains("no folder"), "{refused}");
    }

    #[test]
    fn a_path_too_long_for_a_socket_is_refused_by_its_length() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("a".repeat(MAX_PATH_BYTES));
        let refused = Listener::bind(path).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidInput);
    }

    #[test]
    fn sockets_of_dead_processes_are_removed_and_others_stay() {
        let parent = private_folder();
        let at = |name: &str| parent.path().join(name);
        // No process has such a number: /proc/sys/kernel/pid_max is at most 2^22.
        drop(UnixListener::bind(at("4194999.sock")).unwrap());
        drop(UnixListener::bind(at("own.sock")).unwrap());
        drop(UnixListener::bind(at("somebody.sock")).unwrap());
        drop(UnixListener::bind(at("1.sock")).unwrap());
        let elsewhere = UnixListener::bind(at("4194998.sock")).unwrap();
        fs::write(at("4194997.sock"), b"a file").unwrap();
        let listener = Listener::bind(at("own.sock")).unwrap();
        let mut names: Vec<_> = fs::read_dir(parent.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        let kept = [
            "1.sock",
            "4194997.sock",
            "4194998.sock",
            "own.sock",
            "somebody.sock",
        ];
        assert_eq!(names, kept);
        drop((listener, elsewhere));
    }

    #[test]
    fn a_folder_that_is_another_users_is_passed_over() {
        let parent = tempfile::tempdir().unwrap();
        let path = |folder: &str| parent.path().join(folder).join("1.sock");
        fs::create_dir(parent.path().join("open")).unwrap();
        fs::set_permissions(parent.path().join("open"), Permissions::from_mode(0o755)).unwrap();
        let paths = ["open", "next"].map(path);
        let listener = Listener::bind_first(paths.clone()).unwrap();
        assert_eq!(listener.path(), paths[1]);
        let none = Listener::bind_first([path("open")]).unwrap_err();
        assert!(none.to_string().contains("mode 755"), "{none}");
    }

    #[test]
    fn two_listeners_cannot_share_a_path() {
        let parent = private_folder();
        let path = parent.path().join("1.sock");
        let first = Listener::bind(&path).unwrap();
        assert!(Listener::bind(&path).is_err());
        drop(first);
        assert!(!path.exists());
        Listener::bind(&path).unwrap();
    }
}
