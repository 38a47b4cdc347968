//! Storage in memory that can crash.
//!
//! A dead process keeps what it appended (where appends are durable at all) and loses its handles.
//! A crashed machine keeps what was synced and an arbitrary part of the rest.

use std::collections::BTreeMap;
use std::sync::Arc;

use holdfast_core::storage::{
    AppendFile, Capabilities, ObjectMeta, ReadFile, Storage, check_name, check_range,
};
use holdfast_core::{Error, ErrorKind, Result};
use parking_lot::Mutex;

use crate::rng::Rng;

#[derive(Debug, Default)]
struct Object {
    bytes: Vec<u8>,
    synced_bytes: usize,
    name_synced: bool,
    /// Readable: always where appends are durable, else once finished.
    visible: bool,
}

#[derive(Debug, Default)]
struct State {
    objects: BTreeMap<String, Object>,
    /// Counts process deaths: handles of an earlier one are dead.
    process: u64,
}

/// A flat folder in memory. Clones are the same folder.
#[derive(Clone, Debug)]
pub struct SimStorage {
    durable_append: bool,
    state: Arc<Mutex<State>>,
}

impl SimStorage {
    /// An empty folder. Without `durable_append` it behaves like an object store: an object
    /// becomes visible when it is finished.
    pub fn new(durable_append: bool) -> Self {
        Self {
            durable_append,
            state: Arc::default(),
        }
    }

    /// The process died: its open objects take no more bytes. Unfinished ones vanish where appends
    /// are not durable.
    pub fn kill_process(&self) {
        let mut state = self.state.lock();
        state.process += 1;
        state.objects.retain(|_, object| object.visible);
    }

    /// The machine crashed, and the process with it.
    pub fn crash_machine(&self, rng: &mut Rng) {
        self.kill_process();
        let mut state = self.state.lock();
        state
            .objects
            .retain(|_, object| object.name_synced || rng.percent(50));
        for object in state.objects.values_mut() {
            let unsynced = object.bytes.len() - object.synced_bytes;
            let kept = object.synced_bytes + rng.below(unsynced as u64 + 1) as usize;
            object.bytes.truncate(kept);
        }
    }

    fn with<T>(&self, name: &str, f: impl FnOnce(&mut Object) -> Result<T>) -> Result<T> {
        check_name(name)?;
        let mut state = self.state.lock();
        match state.objects.get_mut(name) {
            Some(object) if object.visible => f(object),
            _ => Err(Error::new(
                ErrorKind::NotFound,
                format!("{name} is not in memory"),
            )),
        }
    }
}

impl Storage for SimStorage {
    fn location(&self) -> String {
        "memory".to_owned()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            durable_append: self.durable_append,
            sync_by_name: self.durable_append,
        }
    }

    fn create(&self, name: &str) -> Result<Box<dyn AppendFile>> {
        check_name(name)?;
        let mut state = self.state.lock();
        if state.objects.contains_key(name) {
            return Err(Error::new(
                ErrorKind::AlreadyExists,
                format!("{name} exists"),
            ));
        }
        let object = Object {
            visible: self.durable_append,
            ..Object::default()
        };
        state.objects.insert(name.to_owned(), object);
        let process = state.process;
        Ok(Box::new(SimFile {
            storage: self.clone(),
            name: name.to_owned(),
            process,
        }))
    }

    fn open(&self, name: &str) -> Result<Box<dyn ReadFile>> {
        Ok(Box::new(SimReader {
            storage: self.clone(),
            name: name.to_owned(),
            size_bytes: self.len(name)?,
        }))
    }

    fn len(&self, name: &str) -> Result<u64> {
        self.with(name, |object| Ok(object.bytes.len() as u64))
    }

    fn sync(&self, name: &str) -> Result<()> {
        self.with(name, |object| {
            object.synced_bytes = object.bytes.len();
            object.name_synced = true;
            Ok(())
        })
    }

    fn delete(&self, name: &str) -> Result<()> {
        check_name(name)?;
        self.state.lock().objects.remove(name);
        Ok(())
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        check_name(from)?;
        check_name(to)?;
        let mut state = self.state.lock();
        if state.objects.contains_key(to) {
            return Err(Error::new(ErrorKind::AlreadyExists, format!("{to} exists")));
        }
        let Some(object) = state.objects.get(from).filter(|object| object.visible) else {
            return Err(Error::new(
                ErrorKind::NotFound,
                format!("{from} is not in memory"),
            ));
        };
        let object = Object {
            bytes: object.bytes.clone(),
            name_synced: true,
            ..*object
        };
        state.objects.remove(from);
        state.objects.insert(to.to_owned(), object);
        Ok(())
    }

    fn list(&self) -> Result<Vec<ObjectMeta>> {
        let state = self.state.lock();
        let visible = state.objects.iter().filter(|(_, object)| object.visible);
        Ok(visible
            .map(|(name, object)| ObjectMeta {
                name: name.clone(),
                len: object.bytes.len() as u64,
            })
            .collect())
    }
}

#[derive(Debug)]
struct SimReader {
    storage: SimStorage,
    name: String,
    size_bytes: u64,
}

impl ReadFile for SimReader {
    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn read(&self, offset: u64, len: u64) -> Result<Vec<u8>> {
        check_range(&self.name, self.size_bytes, offset, len)?;
        self.storage.with(&self.name, |object| {
            let range = offset as usize..(offset + len) as usize;
            Ok(object.bytes.get(range).unwrap_or_default().to_vec())
        })
    }
}

#[derive(Debug)]
struct SimFile {
    storage: SimStorage,
    name: String,
    process: u64,
}

impl SimFile {
    fn object<T>(&self, f: impl FnOnce(&mut Object) -> T) -> Result<T> {
        let mut state = self.storage.state.lock();
        if state.process != self.process {
            return Err(Error::new(
                ErrorKind::Storage,
                "the writing process is dead",
            ));
        }
        // An object deleted while it is open still takes bytes, which no call can read.
        Ok(f(state
            .objects
            .get_mut(&self.name)
            .unwrap_or(&mut Object::default())))
    }
}

impl AppendFile for SimFile {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.object(|object| object.bytes.extend_from_slice(bytes))
    }

    fn sync(&mut self) -> Result<()> {
        if !self.storage.durable_append {
            return Err(Error::new(
                ErrorKind::Unsupported,
                "an unfinished object cannot be synced",
            ));
        }
        self.object(|object| {
            object.synced_bytes = object.bytes.len();
            object.name_synced = true;
        })
    }

    fn finish(self: Box<Self>) -> Result<()> {
        self.object(|object| {
            object.synced_bytes = object.bytes.len();
            object.name_synced = true;
            object.visible = true;
        })
    }
}
