//! A server with threads of its own, for tests. An executor brings Java's threads.

use std::cell::Cell;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use holdfast_core::{Error, Result};
use parking_lot::Mutex;

use super::address::Address;
use super::connection::Host;
use super::listener::{Connection, Listener};

/// Between two attempts to accept a client after the system refused one.
const REFUSED_PAUSE: Duration = Duration::from_millis(50);

thread_local! {
    /// This thread serves a client: it must not wait for all clients to be served.
    static SERVING: Cell<bool> = const { Cell::new(false) };
}

/// Serves clients until it is stopped: a thread that listens, and one per client.
///
/// ```
/// use std::sync::Arc;
/// use holdfast_core::format::{NewSegment, SegmentKind};
/// use holdfast_core::manager::{ManagerOptions, SnapshotManager};
/// use holdfast_core::segment::WriterOptions;
/// use holdfast_core::storage::LocalStorage;
/// use holdfast_wire::{Client, Hello, Host, Server, Session};
/// use holdfast_core::{CheckpointId, Owner, Result};
///
/// struct Everybody(Arc<SnapshotManager>);
///
/// impl Host for Everybody {
///     fn open(&self, _: &Hello) -> Result<Box<dyn Session>> {
///         Ok(Box::new(Everybody(Arc::clone(&self.0))))
///     }
/// }
///
/// impl Session for Everybody {
///     fn manager(&self) -> Result<Arc<SnapshotManager>> {
///         Ok(Arc::clone(&self.0))
///     }
///     fn send(&self, _: Vec<u8>) -> Result<()> {
///         Ok(())
///     }
/// }
///
/// # fn main() -> Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// let storage = Arc::new(LocalStorage::new(dir.path().join("segments")));
/// let manager = SnapshotManager::open_next_term(storage, ManagerOptions::default(), 1)?;
/// let host = Arc::new(Everybody(Arc::new(manager)));
/// let server = Server::start(dir.path().join("private/manager.sock"), host)?;
///
/// let hello = Hello::new("sales", "segments", &WriterOptions::default());
/// let client = Client::connect(server.address().clone(), hello)?;
/// let owner = Owner::new("sales", "stats", "east", "default");
/// let new = NewSegment {
///     owner: &owner,
///     created: CheckpointId(1),
///     kind: SegmentKind::Snapshot,
///     lineage: &[],
///     replaced: None,
///     entries: 1,
///     tables: &[],
///     runs: 0,
/// };
/// let reference = client.append(&new, b"state")?;
/// client.persist_segments(CheckpointId(1), &owner, &[reference])?;
/// assert_eq!(client.read(&reference, &owner, 0)?, b"state");
/// # Ok(())
/// # }
/// ```
pub struct Server {
    listener: Arc<Listener>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Server").field(self.address()).finish()
    }
}

impl Server {
    /// Listens at `address`, see [`Listener::bind`].
    ///
    /// # Errors
    /// Errors of [`Listener::bind`].
    pub fn start(address: impl Into<Address>, host: Arc<dyn Host>) -> Result<Self> {
        let listener = Arc::new(Listener::bind(address)?);
        let accepting = Arc::clone(&listener);
        let thread = spawn("holdfast-listen", move || {
            loop {
                match accepting.accept() {
                    // Without a thread for it the client loses its connection, and tries again.
                    Ok(Some(connection)) => drop(serve_apart(connection, &host)),
                    Ok(None) => break,
                    // No descriptor is free, for example: clients wait until one is.
                    Err(_) if accepting.pause(REFUSED_PAUSE) => {}
                    Err(_) => break,
                }
            }
            accepting.stop();
        });
        let thread = thread.map_err(|e| Error::io("a thread that listens", e))?;
        Ok(Self {
            listener,
            thread: Mutex::new(Some(thread)),
        })
    }

    /// The address at which it listens.
    pub fn address(&self) -> &Address {
        self.listener.address()
    }

    /// Stops, and waits until no client is served any more, unless a client's own request stops it.
    /// Stopping twice does nothing.
    pub fn stop(&self) {
        if self.listener.is_inherited() {
            // The threads belong to the process that listens, which continues.
            return;
        }
        self.listener.stop();
        let thread = self.thread.lock().take();
        if let Some(thread) = thread {
            // It ends with a panic only if there is a bug in it, and then it does not listen either.
            let _ = thread.join();
        }
        if !SERVING.get() {
            self.listener.wait();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

fn serve_apart(connection: Connection, host: &Arc<dyn Host>) -> io::Result<JoinHandle<()>> {
    let host = Arc::clone(host);
    spawn("holdfast-serve", move || {
        SERVING.set(true);
        connection.serve(host.as_ref());
    })
}

#[expect(
    clippy::disallowed_methods,
    reason = "the threads of a server, which joins them"
)]
fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    thread::Builder::new().name(name.to_owned()).spawn(work)
}
