//! Waiting of the server for tests. An executor leaves it to Java.

use std::time::Duration;

use rustix::event::Timespec;

use super::*;

impl Listener {
    /// Waits before a client is accepted after the system refused one, for want of descriptors;
    /// false when it was stopped during the wait.
    pub(in super::super) fn pause(&self, time: Duration) -> bool {
        let mut events = [PollFd::from_borrowed_fd(
            self.stopping.as_fd(),
            PollFlags::IN,
        )];
        let timeout = Timespec::try_from(time).ok();
        // A signal ends the pause early, which does no harm.
        let _ = poll(&mut events, timeout.as_ref());
        self.running.lock().is_some()
    }

    /// Waits until no connection is served any more.
    pub(in super::super) fn wait(&self) {
        let mut open = self.connections.state.lock();
        while !open.streams.is_empty() || !open.silent.is_empty() {
            self.connections.left.wait(&mut open);
        }
    }
}
