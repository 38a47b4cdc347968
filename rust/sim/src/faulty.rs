//! Scripted failures in front of another backend: a tool for tests, also of other crates.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use holdfast_core::storage::{AppendFile, Capabilities, ObjectMeta, ReadFile, Storage, SyncFile};
use holdfast_core::{Error, Result};
use parking_lot::Mutex;

/// Number of the error of a full disk, on Linux.
const ENOSPC: i32 = 28;

/// A kind of call that can be made to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operation {
    /// [`Storage::create`].
    Create,
    /// [`AppendFile::append`].
    Append,
    /// [`AppendFile::cut`].
    Cut,
    /// [`Storage::sync`], [`AppendFile::sync`], [`SyncFile::sync`] and [`AppendFile::finish`].
    Sync,
    /// [`Storage::open`], which [`Storage::read`] begins with, and [`Storage::len`], which remote
    /// storage finds out by opening.
    Open,
    /// [`Storage::open_known`]. Nothing is looked for, as on storage where that is a round trip.
    OpenKnown,
    /// [`ReadFile::read`], which [`Storage::read`] ends with.
    Read,
    /// [`Storage::rename`].
    Rename,
    /// [`Storage::delete`].
    Delete,
    /// [`Storage::list`].
    List,
}

#[derive(Clone, Copy, Debug)]
enum Fault {
    /// Nothing happens but the error.
    Refuse,
    /// An append writes this many bytes and then fails.
    Short(usize),
    /// Like `Short`, because the disk is full.
    Full(usize),
}

#[derive(Debug, Default)]
struct Script {
    calls: BTreeMap<Operation, u64>,
    faults: BTreeMap<(Operation, u64), Fault>,
}

/// Passes every call on, except those that a test chose to fail.
///
/// ```
/// use std::sync::Arc;
/// use holdfast_core::storage::{LocalStorage, Storage};
/// use holdfast_sim::{FaultyStorage, Operation};
/// # let dir = tempfile::tempdir().unwrap();
/// let storage = FaultyStorage::new(Arc::new(LocalStorage::new(dir.path())));
/// storage.fail_nth(Operation::List, 2);
/// assert!(storage.list().is_ok());
/// assert!(storage.list().is_err());
/// assert!(storage.list().is_ok());
/// ```
#[derive(Clone, Debug)]
pub struct FaultyStorage {
    inner: Arc<dyn Storage>,
    script: Arc<Mutex<Script>>,
}

impl FaultyStorage {
    /// Wraps `inner`; without a script nothing fails.
    pub fn new(inner: Arc<dyn Storage>) -> Self {
        Self {
            inner,
            script: Arc::default(),
        }
    }

    /// The `nth` call of `operation` from now on fails without effect; 1 is the next one.
    pub fn fail_nth(&self, operation: Operation, nth: u64) {
        self.script(operation, nth, Fault::Refuse);
    }

    /// The `nth` append from now on writes `bytes` bytes and then fails; 1 is the next one.
    pub fn short_append_nth(&self, nth: u64, bytes: usize) {
        self.script(Operation::Append, nth, Fault::Short(bytes));
    }

    /// The `nth` append from now on writes `bytes` bytes and then finds the disk full; 1 is the next
    /// one.
    pub fn full_append_nth(&self, nth: u64, bytes: usize) {
        self.script(Operation::Append, nth, Fault::Full(bytes));
    }

    /// Forgets all failures that did not happen yet.
    pub fn heal(&self) {
        self.script.lock().faults.clear();
    }

    /// Calls of `operation` so far, failed ones included.
    pub fn calls(&self, operation: Operation) -> u64 {
        self.script
            .lock()
            .calls
            .get(&operation)
            .copied()
            .unwrap_or(0)
    }

    fn script(&self, operation: Operation, nth: u64, fault: Fault) {
        let mut script = self.script.lock();
        let call = script.calls.get(&operation).copied().unwrap_or(0) + nth;
        script.faults.insert((operation, call), fault);
    }

    fn check(&self, operation: Operation, name: &str) -> Result<()> {
        match self.next_fault(operation) {
            None => Ok(()),
            Some(_) => Err(injected(operation, name)),
        }
    }

    fn next_fault(&self, operation: Operation) -> Option<Fault> {
        let mut script = self.script.lock();
        let calls = script.calls.entry(operation).or_insert(0);
        *calls += 1;
        let call = *calls;
        script.faults.remove(&(operation, call))
    }
}

fn injected(operation: Operation, name: &str) -> Error {
    Error::io(
        format!("{operation:?} of {name}"),
        io::Error::other("injected failure"),
    )
}

impl Storage for FaultyStorage {
    fn location(&self) -> String {
        self.inner.location()
    }

    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn create(&self, name: &str) -> Result<Box<dyn AppendFile>> {
        self.check(Operation::Create, name)?;
        let inner = self.inner.create(name)?;
        Ok(Box::new(FaultyFile {
            inner,
            name: name.to_owned(),
            storage: self.clone(),
        }))
    }

    fn open(&self, name: &str) -> Result<Box<dyn ReadFile>> {
        self.check(Operation::Open, name)?;
        let inner = self.inner.open(name)?;
        Ok(Box::new(FaultyReader {
            size_bytes: inner.size_bytes(),
            inner,
            name: name.to_owned(),
            storage: self.clone(),
        }))
    }

    fn open_known(&self, name: &str, len: u64) -> Result<Box<dyn ReadFile>> {
        self.check(Operation::OpenKnown, name)?;
        Ok(Box::new(FaultyReader {
            inner: self.inner.open_known(name, len)?,
            size_bytes: len,
            name: name.to_owned(),
            storage: self.clone(),
        }))
    }

    fn len(&self, name: &str) -> Result<u64> {
        self.check(Operation::Open, name)?;
        self.inner.len(name)
    }

    fn sync(&self, name: &str) -> Result<()> {
        self.check(Operation::Sync, name)?;
        self.inner.sync(name)
    }

    fn delete(&self, name: &str) -> Result<()> {
        self.check(Operation::Delete, name)?;
        self.inner.delete(name)
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.check(Operation::Rename, from)?;
        self.inner.rename(from, to)
    }

    fn list(&self) -> Result<Vec<ObjectMeta>> {
        self.check(Operation::List, &self.inner.location())?;
        self.inner.list()
    }
}

#[derive(Debug)]
struct FaultyReader {
    inner: Box<dyn ReadFile>,
    /// The length that it seems to have.
    size_bytes: u64,
    name: String,
    storage: FaultyStorage,
}

impl ReadFile for FaultyReader {
    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn read(&self, offset: u64, len: u64) -> Result<Vec<u8>> {
        self.storage.check(Operation::Read, &self.name)?;
        self.inner.read(offset, len)
    }
}

#[derive(Debug)]
struct FaultyFile {
    inner: Box<dyn AppendFile>,
    name: String,
    storage: FaultyStorage,
}

impl AppendFile for FaultyFile {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        match self.storage.next_fault(Operation::Append) {
            None => self.inner.append(bytes),
            Some(Fault::Refuse) => Err(injected(Operation::Append, &self.name)),
            Some(Fault::Short(kept)) => {
                self.inner.append(bytes.get(..kept).unwrap_or(bytes))?;
                Err(injected(Operation::Append, &self.name))
            }
            Some(Fault::Full(kept)) => {
                self.inner.append(bytes.get(..kept).unwrap_or(bytes))?;
                let full = io::Error::from_raw_os_error(ENOSPC);
                Err(Error::io(format!("Append of {}", self.name), full))
            }
        }
    }

    fn cut(&mut self, len: u64) -> Result<()> {
        self.storage.check(Operation::Cut, &self.name)?;
        self.inner.cut(len)
    }

    fn sync(&mut self) -> Result<()> {
        self.storage.check(Operation::Sync, &self.name)?;
        self.inner.sync()
    }

    fn syncer(&self) -> Option<Arc<dyn SyncFile>> {
        Some(Arc::new(FaultySyncer {
            inner: self.inner.syncer()?,
            name: self.name.clone(),
            storage: self.storage.clone(),
        }))
    }

    fn finish(self: Box<Self>) -> Result<()> {
        self.storage.check(Operation::Sync, &self.name)?;
        self.inner.finish()
    }
}

#[derive(Debug)]
struct FaultySyncer {
    inner: Arc<dyn SyncFile>,
    name: String,
    storage: FaultyStorage,
}

impl SyncFile for FaultySyncer {
    fn sync(&self) -> Result<()> {
        self.storage.check(Operation::Sync, &self.name)?;
        self.inner.sync()
    }
}
