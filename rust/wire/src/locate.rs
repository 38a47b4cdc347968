//! Where an executor's socket is. The executor puts it where its workers look: both sides compute the
//! place from the user and the executor's process, so nothing has to be handed down.

#![expect(
    clippy::disallowed_methods,
    reason = "the sockets and the parents of a process are looked up in the file system"
)]

use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use holdfast_core::{Error, ErrorKind, Result};
use rustix::net::sockopt::socket_peercred;
use rustix::process::{Pid, geteuid, getuid};

/// Bound on the path of a Unix socket: `sun_path` has 108 bytes, the last is 0.
pub(super) const MAX_PATH_BYTES: usize = 107;

/// Where sockets are put when the JVM's folder for temporary files has too long a path, as those of
/// YARN's containers have.
const COMMON_FOLDER: &str = "/tmp";

/// Option of a JVM that names its folder for temporary files.
const JAVA_FOLDER: &str = "-Djava.io.tmpdir=";

/// Bound on the search: a worker is two steps below its executor, wrappers add one or two.
const MAX_ANCESTORS: usize = 32;

/// Folders that are tried in turn: the name of the first can be taken by another user, and the path in
/// it by a process of the same number in another container.
const FOLDERS: u32 = 8;

/// Where the socket of the executor that runs as `process` may be, in the folder for temporary files
/// `folder`; the first is the usual one.
fn sockets_of(folder: &Path, process: u32) -> impl Iterator<Item = PathBuf> + use<> {
    let user = getuid().as_raw();
    let folder = folder.to_path_buf();
    (0..FOLDERS).map(move |number| {
        let name = match number {
            0 => format!("holdfast-{user}"),
            _ => format!("holdfast-{user}-{number}"),
        };
        folder.join(name).join(format!("{process}.sock"))
    })
}

/// Paths of the socket that this process shall listen on, given its folder for temporary files: the
/// first that it can have.
pub fn socket_paths(folder: &Path) -> Vec<PathBuf> {
    let process = std::process::id();
    let mut wanted: Vec<_> = sockets_of(folder, process).collect();
    wanted.retain(|path| path.as_os_str().len() <= MAX_PATH_BYTES);
    if wanted.is_empty() {
        wanted = sockets_of(Path::new(COMMON_FOLDER), process).collect();
    }
    wanted
}

/// Socket of the executor that this process works for: of the nearest ancestor that has one.
///
/// # Errors
/// `NotFound` when no ancestor listens.
pub fn executor_socket() -> Result<PathBuf> {
    let mut process = std::process::id();
    let mut seen = Vec::new();
    while seen.len() < MAX_ANCESTORS {
        let Some(parent) = parent_of(process).filter(|parent| *parent > 0) else {
            break;
        };
        seen.push(parent.to_string());
        if let Some(found) = find_socket(&folders_of(parent), parent) {
            return Ok(found);
        }
        process = parent;
    }
    Err(Error::new(
        ErrorKind::NotFound,
        format!(
            "the Holdfast plugin is not running in this executor: none of the processes above this \
             one ({}) has a socket for its Python workers. spark.plugins must contain \
             io.holdfast.spark.HoldfastPlugin when the application starts; if it does, the \
             executor's log says why it does not listen",
            seen.join(", ")
        ),
    ))
}

fn find_socket(folders: &[PathBuf], process: u32) -> Option<PathBuf> {
    let mut paths = folders
        .iter()
        .flat_map(|folder| sockets_of(folder, process));
    paths.find(|path| listens(process, path))
}

/// Whether this very process listens there, for this user. Its number may have belonged to another
/// one, which left its socket behind, and a user who may write to the folder can put one there.
fn listens(process: u32, path: &Path) -> bool {
    let peer = || {
        let stream = UnixStream::connect(path).ok()?;
        socket_peercred(&stream).ok()
    };
    let process = i32::try_from(process).ok().and_then(Pid::from_raw);
    is_socket(path) && peer().is_some_and(|peer| peer.uid == geteuid() && Some(peer.pid) == process)
}

/// Folders for temporary files that a process may use: what it was started with, then the common one.
fn folders_of(process: u32) -> Vec<PathBuf> {
    let words = fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
    let named = words.split(|byte| *byte == 0).filter_map(|word| {
        let folder = std::str::from_utf8(word).ok()?.strip_prefix(JAVA_FOLDER)?;
        Some(PathBuf::from(folder))
    });
    // The last one counts, as it does for the JVM.
    let mut folders: Vec<_> = named.collect();
    folders.reverse();
    folders.truncate(1);
    folders.push(PathBuf::from(COMMON_FOLDER));
    folders
}

pub(super) fn is_socket(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket())
}

/// From `/proc/<pid>/stat`: `pid (name) state parent ...`, where the name may hold anything.
fn parent_of(process: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::os::unix::net::UnixListener;

    #[test]
    fn a_folder_with_a_long_path_is_replaced_by_the_common_one() {
        let first = |folder: &Path| socket_paths(folder).swap_remove(0);
        let short = first(Path::new("/var/tmp"));
        assert!(short.starts_with("/var/tmp"), "{}", short.display());
        let long = first(&Path::new("/hadoop").join("a".repeat(90)));
        assert!(long.starts_with("/tmp"), "{}", long.display());
        assert_eq!(long.file_name(), short.file_name());
    }

    #[test]
    fn the_socket_is_the_one_that_the_process_itself_listens_at() {
        let (old, new) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let folders = [old.path().to_path_buf(), new.path().to_path_buf()];
        let me = std::process::id();
        let at = |folder: &Path, number: usize, process| {
            let path = sockets_of(folder, process).nth(number).unwrap();
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            path
        };
        // Of a dead process that had the same number, and of another one that lives.
        drop(UnixListener::bind(at(old.path(), 0, me)).unwrap());
        let _other = UnixListener::bind(at(old.path(), 0, me + 1)).unwrap();
        assert_eq!(find_socket(&folders, me), None);
        assert_eq!(find_socket(&folders, me + 1), None);
        let live = at(new.path(), 1, me);
        let _listener = UnixListener::bind(&live).unwrap();
        assert_eq!(find_socket(&folders, me), Some(live));
    }

    #[test]
    fn the_parent_of_a_process_is_found_whatever_its_name() {
        let me = std::process::id();
        let parent = parent_of(me).unwrap();
        assert_eq!(parent, std::os::unix::process::parent_id());
        assert_eq!(parent_of(0), None);
    }
}
