//! Modes of new files and folders on local disks: by Hadoop's umask if one was set, else by that of
//! the process.

use std::fs::{File, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::sync::atomic::{AtomicU32, Ordering};

const OF_PROCESS: u32 = u32::MAX;

/// One per process, like the umask that it stands for.
static UMASK: AtomicU32 = AtomicU32::new(OF_PROCESS);

/// Sets the umask of new files and folders on local disks in the place of that of the process.
/// `None` goes back to that of the process.
pub fn set_local_umask(umask: Option<u32>) {
    let umask = umask.map_or(OF_PROCESS, |umask| umask & 0o777);
    UMASK.store(umask, Ordering::Relaxed);
}

/// The mode that is left of `all` rights; `None` if the umask of the process decides.
pub(super) fn wanted(all: u32) -> Option<u32> {
    let umask = UMASK.load(Ordering::Relaxed);
    (umask != OF_PROCESS).then_some(all & !umask)
}

/// Gives a new file or folder its mode. A folder keeps its set-group-ID bit.
pub(super) fn grant(made: &File, mode: Option<u32>) -> io::Result<()> {
    let Some(mode) = mode else { return Ok(()) };
    let found = made.metadata()?.mode() & 0o7777;
    let wanted = found & !0o777 | mode;
    if found == wanted {
        return Ok(());
    }
    made.set_permissions(Permissions::from_mode(wanted))
}
