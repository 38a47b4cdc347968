//! The newest segments, kept in memory, because on remote storage each opening is a round trip. A
//! region whose task moved to another process of an executor reads the segments that it has just
//! written.

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
    /// In the order in which they were appended.
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
mod tests {
    use super::*;
    use crate::ids::{FileId, Term};

    fn reference(offset: u64, len: u64) -> SegmentRef {
        SegmentRef {
            file: FileId {
                term: Term(1),
                seq: 1,
            },
            offset,
            len,
            digest: 0,
        }
    }

    #[test]
    fn the_newest_segments_stay_within_the_bound() {
        let recent = RecentSegments::new(10);
        for offset in [0, 4, 8] {
            recent.keep(reference(offset, 4), vec![offset as u8; 4]);
        }
        assert!(recent.find(&reference(0, 4)).is_none());
        assert_eq!(recent.find(&reference(4, 4)).as_deref(), Some(&[4; 4][..]));
        assert_eq!(recent.find(&reference(8, 4)).as_deref(), Some(&[8; 4][..]));
        recent.keep(reference(12, 11), vec![0; 11]);
        assert!(recent.find(&reference(12, 11)).is_none());
        assert!(recent.find(&reference(8, 4)).is_some());
    }

    #[test]
    fn without_room_nothing_is_kept() {
        let recent = RecentSegments::new(0);
        recent.keep(reference(0, 4), vec![0; 4]);
        assert!(recent.find(&reference(0, 4)).is_none());
    }
}
