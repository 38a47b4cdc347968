//! A run of which keys are looked up one by one.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::error::Result;
use crate::format::{Group, RunReader};
use crate::ids::SegmentRef;

/// A run, and those of its groups that were needed so far.
#[derive(Debug)]
pub(super) struct OpenRun {
    reader: RunReader,
    groups: Mutex<Groups>,
}

/// By number. They take 1 to 3 bytes for each of their keys.
#[derive(Debug, Default)]
struct Groups {
    read: Vec<Option<KeptGroup>>,
    bytes: usize,
}

#[derive(Debug)]
struct KeptGroup {
    group: Arc<Group>,
    /// Since groups were last given up.
    is_used: bool,
}

impl OpenRun {
    pub fn new(reader: RunReader) -> Self {
        Self {
            reader,
            groups: Mutex::default(),
        }
    }

    /// The segment that it is.
    pub fn reference(&self) -> SegmentRef {
        self.reader.reference()
    }

    /// What reads it.
    pub fn reader(&self) -> &RunReader {
        &self.reader
    }

    /// Bytes taken from the allocator.
    pub fn memory_bytes(&self) -> usize {
        let groups = self.groups.lock();
        groups.bytes + groups.read.capacity() * size_of::<Option<KeptGroup>>()
    }

    /// Gives up the groups that were not used since this was last called.
    pub fn forget_unused_groups(&self) {
        let mut groups = self.groups.lock();
        let Groups { read, bytes } = &mut *groups;
        for place in read {
            if let Some(unused) = place.take_if(|kept| !std::mem::take(&mut kept.is_used)) {
                *bytes -= unused.group.memory_bytes();
            }
        }
    }

    /// A group, which stays in memory.
    ///
    /// # Errors
    /// `Corrupt`, with file, offset and owner, where it is damaged; those of storage.
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
