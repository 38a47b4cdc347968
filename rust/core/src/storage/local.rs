//! Objects as files of one local directory.
//!
//! Appends go straight to the operating system (one `write(2)`, no buffer of ours), so appended
//! bytes survive the death of this process. After `sync`, which also syncs the directory for the
//! name, they survive a machine crash.

#![expect(
    clippy::disallowed_methods,
    reason = "the storage of local paths is where files are opened"
)]

use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use super::{
    AppendFile, Capabilities, ObjectMeta, ReadFile, Storage, SyncFile, check_name, check_range,
};
use crate::error::{Error, Result};

/// A local directory. The first `create` makes it.
///
/// ```
/// use holdfast_core::storage::{LocalStorage, Storage};
/// # fn main() -> holdfast_core::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// let storage = LocalStorage::new(dir.path().join("holdfast"));
/// let mut file = storage.create("object")?;
/// file.append(b"bytes")?;
/// file.finish()?;
/// assert_eq!(storage.read("object", 1, 3)?, b"yte");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct LocalStorage {
    root: PathBuf,
}

impl LocalStorage {
    /// Storage in the directory `root`, which need not exist yet. A relative path starts at the
    /// working directory of this moment.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        let root = root.into();
        Self {
            root: std::path::absolute(&root).unwrap_or(root),
        }
    }

    /// The directory.
    pub fn root(&self) -> &Path {
        &self.root
    }

    fn path(&self, name: &str) -> Result<PathBuf> {
        check_name(name).map_err(|e| e.context(self.root.display()))?;
        Ok(self.root.join(name))
    }
}

impl Storage for LocalStorage {
    fn location(&self) -> String {
        self.root.display().to_string()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            durable_append: true,
            sync_by_name: true,
        }
    }

    fn create(&self, name: &str) -> Result<Box<dyn AppendFile>> {
        let path = self.path(name)?;
        // The folder first, so that a new file can be synced.
        let folder = match File::open(&self.root) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                create_durable_dir(&self.root)?;
                File::open(&self.root)
            }
            other => other,
        };
        let made = folder.and_then(|folder| Ok((folder, create_new(&path)?)));
        let (folder, file) =
            made.map_err(|e| Error::io(format!("creating {}", path.display()), e))?;
        Ok(Box::new(LocalFile(Arc::new(Handle {
            file,
            folder,
            path,
            name_durable: AtomicBool::new(false),
        }))))
    }

    fn open(&self, name: &str) -> Result<Box<dyn ReadFile>> {
        let path = self.path(name)?;
        let opened = File::open(&path).and_then(|file| Ok((file.metadata()?.len(), file)));
        let (size_bytes, file) =
            opened.map_err(|e| Error::io(format!("opening {}", path.display()), e))?;
        Ok(Box::new(LocalReader {
            file,
            path,
            size_bytes,
        }))
    }

    fn len(&self, name: &str) -> Result<u64> {
        let path = self.path(name)?;
        let meta = std::fs::metadata(&path)
            .map_err(|e| Error::io(format!("looking at {}", path.display()), e))?;
        Ok(meta.len())
    }

    fn sync(&self, name: &str) -> Result<()> {
        let path = self.path(name)?;
        File::open(&path)
            .and_then(|file| file.sync_data())
            .map_err(|e| Error::io(format!("syncing {}", path.display()), e))?;
        sync_dir(&self.root)
    }

    fn delete(&self, name: &str) -> Result<()> {
        let path = self.path(name)?;
        match std::fs::remove_file(&path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => {
                Err(Error::io(format!("deleting {}", path.display()), e))
            }
            _ => Ok(()),
        }
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        let (source, target) = (self.path(from)?, self.path(to)?);
        let what = || format!("renaming {} to {to}", source.display());
        // A second link never replaces an existing file, as rename(2) would.
        std::fs::hard_link(&source, &target).map_err(|e| Error::io(what(), e))?;
        if let Err(e) = sync_dir(&self.root) {
            // After an error no reader may see the new name.
            return Err(match std::fs::remove_file(&target) {
                Ok(()) => e.context(what()),
                Err(undo) => e.context(format!("{}, which could not be undone ({undo})", what())),
            });
        }
        // The new name is durable. A failure leaves both names, as a crash would.
        let _ = std::fs::remove_file(&source);
        Ok(())
    }

    fn list(&self) -> Result<Vec<ObjectMeta>> {
        let what = || format!("listing {}", self.root.display());
        let entries = match std::fs::read_dir(&self.root) {
            Ok(entries) => entries,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(e) => return Err(Error::io(what(), e)),
        };
        let mut objects = Vec::new();
        for entry in entries {
            let entry = entry.map_err(|e| Error::io(what(), e))?;
            let meta = match entry.metadata() {
                Ok(meta) => meta,
                // Deleted between the two calls: it is not there any more.
                Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
                Err(e) => return Err(Error::io(what(), e)),
            };
            // We make no name that is not UTF-8.
            if let (true, Ok(name)) = (meta.is_file(), entry.file_name().into_string()) {
                objects.push(ObjectMeta {
                    name,
                    len: meta.len(),
                });
            }
        }
        objects.sort();
        Ok(objects)
    }
}

#[derive(Debug)]
struct LocalReader {
    file: File,
    path: PathBuf,
    size_bytes: u64,
}

impl ReadFile for LocalReader {
    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn read(&self, offset: u64, len: u64) -> Result<Vec<u8>> {
        let what = || format!("reading {}", self.path.display());
        check_range(&what(), self.size_bytes, offset, len)?;
        let room = usize::try_from(len)
            .map_err(|_| Error::corrupt(format!("{}: {len} bytes do not fit in memory", what())))?;
        let mut bytes = vec![0; room];
        self.file
            .read_exact_at(&mut bytes, offset)
            .map_err(|e| Error::io(what(), e))?;
        Ok(bytes)
    }
}

/// A file open for appending, and its folder, which has its name.
#[derive(Debug)]
struct Handle {
    file: File,
    folder: File,
    path: PathBuf,
    name_durable: AtomicBool,
}

impl SyncFile for Handle {
    fn sync(&self) -> Result<()> {
        let failed = |e| Error::io(format!("syncing {}", self.path.display()), e);
        self.file.sync_data().map_err(failed)?;
        if !self.name_durable.load(Ordering::Acquire) {
            let named = self.folder.sync_all();
            named.map_err(|e| failed(e).context("its name in the folder"))?;
            self.name_durable.store(true, Ordering::Release);
        }
        Ok(())
    }
}

#[derive(Debug)]
struct LocalFile(Arc<Handle>);

impl AppendFile for LocalFile {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        (&self.0.file).write_all(bytes).map_err(|e| {
            let path = self.0.path.display();
            Error::io(format!("appending {} bytes to {path}", bytes.len()), e)
        })
    }

    fn cut(&mut self, len: u64) -> Result<()> {
        let what = || format!("cutting {} to {len} bytes", self.0.path.display());
        let found = self.0.file.metadata().map(|meta| meta.len());
        let found = found.map_err(|e| Error::io(what(), e))?;
        check_range(&what(), found, 0, len)?;
        self.0.file.set_len(len).map_err(|e| Error::io(what(), e))
    }

    fn sync(&mut self) -> Result<()> {
        self.0.sync()
    }

    fn syncer(&self) -> Option<Arc<dyn SyncFile>> {
        Some(Arc::clone(&self.0) as Arc<dyn SyncFile>)
    }

    fn finish(self: Box<Self>) -> Result<()> {
        self.0.sync()
    }
}

fn create_new(path: &Path) -> io::Result<File> {
    let mode = wanted_mode(0o666);
    let mut options = OpenOptions::new();
    options.mode(mode.unwrap_or(0o666));
    // In append mode not even a second writer by mistake could overwrite bytes.
    let file = options.append(true).create_new(true).open(path)?;
    grant_mode(&file, mode)?;
    Ok(file)
}

fn sync_dir(dir: &Path) -> Result<()> {
    File::open(dir)
        .and_then(|handle| handle.sync_all())
        .map_err(|e| Error::io(format!("syncing directory {}", dir.display()), e))
}

/// Makes a folder, unless another process was quicker.
fn create_dir(dir: &Path) -> io::Result<()> {
    let mode = wanted_mode(0o777);
    match DirBuilder::new().mode(mode.unwrap_or(0o777)).create(dir) {
        Ok(()) => grant_mode(&File::open(dir)?, mode),
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists && dir.is_dir() => Ok(()),
        Err(e) => Err(e),
    }
}

/// Makes `dir` with its parents, and syncs the parents: otherwise a machine crash could lose the
/// directory with everything in it.
fn create_durable_dir(dir: &Path) -> Result<()> {
    let ancestors = dir.ancestors().filter(|dir| !dir.as_os_str().is_empty());
    let missing: Vec<_> = ancestors.take_while(|dir| !dir.exists()).collect();
    for created in missing.iter().rev() {
        create_dir(created)
            .map_err(|e| Error::io(format!("creating directory {}", created.display()), e))?;
        match created.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => sync_dir(parent)?,
            _ => sync_dir(Path::new("."))?,
        }
    }
    Ok(())
}

const OF_PROCESS: u32 = u32::MAX;

/// One per process, like the umask that it replaces.
static UMASK: AtomicU32 = AtomicU32::new(OF_PROCESS);

/// Sets the umask of new local files and folders; with `None` the umask of the process decides.
pub fn set_local_umask(umask: Option<u32>) {
    let umask = umask.map_or(OF_PROCESS, |umask| umask & 0o777);
    UMASK.store(umask, Ordering::Relaxed);
}

/// The mode that is left of `all` rights; `None` if the umask of the process decides.
fn wanted_mode(all: u32) -> Option<u32> {
    let umask = UMASK.load(Ordering::Relaxed);
    (umask != OF_PROCESS).then_some(all & !umask)
}

/// Gives a new file or folder its mode. A folder keeps its set-group-ID bit.
fn grant_mode(made: &File, mode: Option<u32>) -> io::Result<()> {
    let Some(mode) = mode else { return Ok(()) };
    let found = made.metadata()?.mode() & 0o7777;
    let wanted = found & !0o777 | mode;
    if found == wanted {
        return Ok(());
    }
    made.set_permissions(Permissions::from_mode(wanted))
}
