//! Checkpoints that share the regions which did not change.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::collections::BTreeMap;

use crate::common::metadata::{empty_region, facts, metadata};
use holdfast_core::checkpoint::{Metadata, NewRegion, RegionEntry};
use holdfast_core::{CheckpointId, ErrorKind};
use proptest::prelude::*;

fn entry(region: u8, origin: u64, failed: bool, finished: bool) -> RegionEntry {
    RegionEntry::new(NewRegion {
        failed,
        finished,
        ..empty_region(&format!("{region:02}"), origin)
    })
    .unwrap()
}

fn next(before: &Metadata, id: u64, regions: Vec<RegionEntry>, gone: &[&str]) -> Metadata {
    let gone = gone.iter().copied();
    before.next(facts(id), regions, gone).unwrap()
}

#[test]
fn a_checkpoint_builds_on_an_older_one() {
    let before = metadata(42);
    let after = next(&before, 43, vec![entry(7, 43, false, false)], &["west"]);
    let names: Vec<_> = after
        .regions()
        .iter()
        .unwrap()
        .map(RegionEntry::region)
        .collect();
    assert_eq!(names, ["07", "east"]);
    assert_eq!(before.regions().len(), 2, "it stays as it was");
    let error = before.next(facts(42), Vec::new(), []).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(error.to_string().contains("newer than 42"), "{error}");
    let late = vec![entry(7, 44, false, false)];
    let made = before.next(facts(43), late, []);
    assert!(made.is_err(), "an origin in its future");
}

type Step = Vec<(u8, Option<(bool, bool)>)>;

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let change = (
        0..40u8,
        proptest::option::weighted(0.8, any::<(bool, bool)>()),
    );
    proptest::collection::vec(proptest::collection::vec(change, 0..6), 1..20)
}

proptest! {
    #[test]
    fn what_is_shared_is_what_a_whole_one_has(
        first in proptest::collection::btree_set(0..40u8, 0..40),
        steps in steps(),
    ) {
        let begun = first.into_iter().map(|region| (region, entry(region, 1, false, false)));
        let mut model: BTreeMap<u8, RegionEntry> = begun.collect();
        let regions = model.values().cloned().collect();
        let mut found = Metadata::new(facts(3), regions).unwrap();
        for (id, step) in (4..).zip(steps) {
            let step: BTreeMap<u8, _> = step.into_iter().collect();
            let (mut changed, mut gone) = (Vec::new(), Vec::new());
            for (region, change) in step {
                match change {
                    Some((failed, finished)) => {
                        let origin = if failed { id - 1 } else { id };
                        let one = entry(region, origin, failed, finished);
                        model.insert(region, one.clone());
                        changed.push(one);
                    }
                    None => {
                        model.remove(&region);
                        gone.push(format!("{region:02}"));
                    }
                }
            }
            let gone: Vec<&str> = gone.iter().map(String::as_str).collect();
            found = next(&found, id, changed, &gone);
            let whole = Metadata::new(facts(id), model.values().cloned().collect()).unwrap();
            prop_assert_eq!(&found, &whole);
            prop_assert_eq!(found.to_bytes().unwrap(), whole.to_bytes().unwrap());
            prop_assert_eq!(found.regions().len(), model.len());
            prop_assert_eq!(found.is_global(), !model.values().any(RegionEntry::failed));
            for region in 0..40 {
                let name = format!("{region:02}");
                prop_assert_eq!(found.regions().get(&name).unwrap(), model.get(&region));
            }
            let since = found.regions().since(CheckpointId(id)).unwrap();
            let since: BTreeMap<_, _> = since.map(|e| (e.region(), e)).collect();
            let expected = model.values().filter(|e| e.origin().0 == id);
            prop_assert_eq!(since, expected.map(|e| (e.region(), e)).collect());
            let notable = found.regions().notable();
            let notable: BTreeMap<_, _> = notable.map(|e| (e.region(), e)).collect();
            let expected = model.values().filter(|e| e.failed() || e.finished());
            prop_assert_eq!(notable, expected.map(|e| (e.region(), e)).collect());
        }
    }
}
