//! Invariants after every decision: indexes agree with facts; judging all segments changes nothing.

use std::collections::{BTreeMap, BTreeSet};

use super::ledger::{Ledger, wanted_watch};
use super::rule::judge;
use super::space::space;

impl Ledger {
    pub(super) fn check(&self, max_space_amplification: f64) {
        let (mut owners, mut watched) = (BTreeMap::new(), BTreeMap::new());
        for (id, file) in &self.files {
            let (mut live_bytes, mut whole_bytes, mut fallen) = (0, 0, 0);
            for (offset, segment) in &file.segments {
                let what = || format!("{id} at offset {offset}: {segment:?}");
                let place = (*id, *offset);
                assert_eq!(judge(&self.view, segment), None, "not judged: {}", what());
                assert_eq!(
                    segment.watch,
                    wanted_watch(&self.view, segment),
                    "{}",
                    what()
                );
                assert!(segment.created <= segment.last_used, "reversed: {}", what());
                live_bytes += segment.len;
                // Segments that a restored checkpoint names may be gone, or cut.
                if offset + segment.len <= file.physical_bytes {
                    whole_bytes += segment.len;
                }
                fallen += usize::from(self.view.fell_back(&segment.owner));
                let places: &mut BTreeSet<_> = owners.entry(segment.owner.clone()).or_default();
                places.insert(place);
                for watch in segment.leases.iter().chain(&segment.watch) {
                    let places: &mut BTreeSet<_> = watched.entry(*watch).or_default();
                    places.insert(place);
                }
            }
            assert_eq!((file.live_bytes, file.fallen), (live_bytes, fallen), "{id}");
            assert!(
                !file.deleting || file.segments.is_empty(),
                "{id} is deleted while it is needed"
            );
            assert!(
                file.open || whole_bytes <= file.physical_bytes,
                "{id} has more live bytes than bytes"
            );
        }
        assert_eq!(self.owners, owners);
        assert_eq!(self.watched, watched);
        assert_eq!(self.space, space(&self.files, max_space_amplification));
    }
}
