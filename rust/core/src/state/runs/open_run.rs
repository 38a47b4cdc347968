//! A run for lookups of single keys.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::error::Result;
use crate::format::{Group, RunReader};

#[derive(Debug)]
pub(crate) struct OpenRun {
    pub reader: RunReader,
    groups: Mutex<Groups>,
}

/// Groups by number. They take 1 to 3 bytes for each of their keys.
#[derive(Debug, Default)]
struct Groups {
    read: Vec<Option<KeptGroup>>,
    bytes: usize,
}

#[derive(Debug)]
struct KeptGroup {
    group: Arc<Group>,
    /// It was used since unused groups were last evicted.
    is_used: bool,
}

impl OpenRun {
    pub fn new(reader: RunReader) -> Self {
        Self {
            reader,
            groups: Mutex::default(),
        }
    }

    pub fn memory_bytes(&self) -> usize {
        let groups = self.groups.lock();
        groups.bytes + groups.read.capacity() * size_of::<Option<KeptGroup>>()
    }

    /// Evicts the groups that were not used since this was last called.
    pub fn forget_unused_groups(&self) {
        let mut groups = self.groups.lock();
        let Groups { read, bytes } = &mut *groups;
        for place in read {
            if let Some(unused) = place.take_if(|kept| !std::mem::take(&mut kept.is_used)) {
                *bytes -= unused.group.memory_bytes();
            }
        }
    }

    /// Reads a group, which stays in memory.
    pub fn group(&self, number: usize) -> Result<Arc<Group>> {
        if let Some(Some(kept)) = self.groups.lock().read.get_mut(number) {
            kept.is_used = true;
            return Ok(Arc::clone(&kept.group));
        }
        let group = Arc::new(self.reader.group(number)?);
        let mut groups = self.groups.lock();
        groups.read.resize_with(self.reader.groups(), || None);
        if let Some(place @ None) = groups.read.get_mut(number) {
            *place = Some(KeptGroup {
                group: Arc::clone(&group),
                is_used: true,
            });
            groups.bytes += group.memory_bytes();
        }
        Ok(group)
    }
}
