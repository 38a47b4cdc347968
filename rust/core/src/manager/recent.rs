//! The newest segments, kept in memory: on remote storage each opening is a round trip. A region
//! whose task moved to another process of an executor reads the segments that it has just written.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::ids::SegmentRef;

#[derive(Debug)]
pub(super) struct RecentSegments {
    max_bytes: u64,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    bytes: u64,
    segments: BTreeMap<SegmentRef, Arc<[u8]>>,
    /// In the order of their appends.
    order: VecDeque<SegmentRef>,
}

impl RecentSegments {
    /// Keeps at most `max_bytes`; none with 0.
    pub fn new(max_bytes: u64) -> Self {
        Self {
            max_bytes,
            kept: Mutex::default(),
        }
    }

    pub fn keep(&self, reference: SegmentRef, bytes: Vec<u8>) {
        // Without room this takes no lock, which a thread may have held when a child was forked.
        if reference.len > self.max_bytes {
            return;
        }
        let mut kept = self.kept.lock();
        kept.bytes += reference.len;
        kept.segments.insert(reference, bytes.into());
        kept.order.push_back(reference);
        while kept.bytes > self.max_bytes
            && let Some(oldest) = kept.order.pop_front()
        {
            kept.segments.remove(&oldest);
            kept.bytes -= oldest.len;
        }
    }

    pub fn find(&self, reference: &SegmentRef) -> Option<Arc<[u8]>> {
        if self.max_bytes == 0 {
            return None;
        }
        self.kept.lock().segments.get(reference).cloned()
    }
}

#[cfg(test)]
#[path = "recent_tests.rs"]
mod tests;
