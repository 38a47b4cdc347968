//! Where an executor's socket is. The executor puts it where its workers look: both sides compute the
//! place from the user and the executor's process, so nothing has to be handed down.

use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use crate::error::{Error, ErrorKind, Result};

/// Bound on the path of a Unix socket: `sun_path` has 108 bytes, the last is 0.
pub(super) const MAX_PATH_BYTES: usize = 107;

/// Where sockets are put when the JVM's folder for temporary files has too long a path, as those of
/// YARN's containers have.
const COMMON_FOLDER: &str = "/tmp";

/// Option of a JVM that names its folder for temporary files.
const JAVA_FOLDER: &str = "-Djava.io.tmpdir=";

/// Bound on the search: a worker is two steps below its executor, wrappers add one or two.
const MAX_ANCESTORS: usize = 32;

/// Path of the socket of the executor that runs as `process`, in the folder for temporary files
/// `folder`.
pub fn socket_of(folder: &Path, process: u32) -> PathBuf {
    let user = rustix::process::getuid().as_raw();
    folder
        .join(format!("holdfast-{user}"))
        .join(format!("{process}.sock"))
}

/// Path of the socket that this process shall listen on, given its folder for temporary files.
pub fn socket_path(folder: &Path) -> PathBuf {
    let process = std::process::id();
    let wanted = socket_of(folder, process);
    if wanted.as_os_str().len() <= MAX_PATH_BYTES {
        return wanted;
    }
    socket_of(Path::new(COMMON_FOLDER), process)
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
        if let Some(found) = folders_of(parent)
            .iter()
            .map(|folder| socket_of(folder, parent))
            .find(|path| is_socket(path))
        {
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

    #[test]
    fn a_folder_with_a_long_path_is_replaced_by_the_common_one() {
        let short = socket_path(Path::new("/var/tmp"));
        assert!(short.starts_with("/var/tmp"), "{}", short.display());
        let long = Path::new("/hadoop").join("a".repeat(90));
        let replaced = socket_path(&long);
        assert!(replaced.starts_with("/tmp"), "{}", replaced.display());
        assert_eq!(replaced.file_name(), short.file_name());
    }

    #[test]
    fn the_parent_of_a_process_is_found_whatever_its_name() {
        let me = std::process::id();
        let parent = parent_of(me).unwrap();
        assert_eq!(parent, std::os::unix::process::parent_id());
        assert_eq!(parent_of(0), None);
    }
}
