#![allow(clippy::indexing_slicing)]
use super::*;
use proptest::prelude::*;

#[test]
fn what_is_merged_is_not_much_smaller_than_what_it_is_merged_with() {
    assert_eq!(keep_below(&[], 10), 0);
    assert_eq!(keep_below(&[100], 49), 1);
    assert_eq!(keep_below(&[100], 50), 0, "half the base image");
    assert_eq!(keep_below(&[100, 20, 10], 9), 3);
    assert_eq!(
        keep_below(&[100, 20, 10], 10),
        1,
        "10 and 10, then 20 and 20"
    );
    assert_eq!(keep_below(&[100, 21, 10], 10), 2);
    assert_eq!(keep_below(&[100, 30, 10], 10), 0, "half together");
}

proptest! {
    #[test]
    fn runs_stay_few_and_double(changes in prop::collection::vec(1u64..1000, 1..400)) {
        let (mut runs, mut written) = (vec![100_000], 0);
        for changed in &changes {
            let below = keep_below(&runs, *changed);
            let merged = runs.drain(below..).sum::<u64>() + changed;
            runs.push(merged);
            written += merged;
            prop_assert!(runs.len() <= 1 + MAX_DELTA_RUNS);
            let above: u64 = runs.iter().skip(1).sum();
            prop_assert!(runs.len() == 1 || above < runs[0] / 2);
            let deltas = runs.get(1..).unwrap_or_default();
            prop_assert!(deltas.windows(2).all(|pair| pair[0] > pair[1]));
        }
        // Each change as often as runs double, and three times for base images.
        let changed: u64 = changes.iter().sum();
        prop_assert!(written <= changed * 14, "{written} for {changed}");
    }
}

/// A base image of 100 bytes; four changelogs are worth a merge.
fn facts<'a>(changelogs: &'a [u64]) -> MergeFacts<'a> {
    MergeFacts {
        runs: &[100],
        changelogs,
        has_base_image: true,
        is_urgent: false,
        least: 4,
        wasteful: None,
    }
}

#[test]
fn changelogs_are_merged_where_they_are_many_or_half_the_base_image() {
    assert_eq!(due(&facts(&[100; 3])), None, "too few");
    assert_eq!(due(&facts(&[12; 4])), None, "too small");
    assert_eq!(due(&facts(&[13; 4])), Some(0), "half the base image");
    assert_eq!(due(&facts(&[1; 15])), None);
    assert_eq!(due(&facts(&[1; 16])), Some(1), "they have waited long");
}

#[test]
fn one_changelog_is_enough_where_a_merge_is_urgent() {
    let urgent = |changelogs| MergeFacts {
        is_urgent: true,
        ..facts(changelogs)
    };
    assert_eq!(due(&urgent(&[1])), Some(1));
    assert_eq!(due(&urgent(&[])), None, "there is nothing to merge");
    let first = MergeFacts {
        has_base_image: false,
        ..urgent(&[])
    };
    assert_eq!(
        due(&first),
        Some(0),
        "the first changelog becomes a base image"
    );
}

#[test]
fn a_segment_leaves_a_wasteful_file_with_all_above_it() {
    let wasteful = |place| MergeFacts {
        wasteful: Some(place),
        ..facts(&[1, 1])
    };
    assert_eq!(due(&wasteful(0)), Some(0));
    assert_eq!(due(&wasteful(2)), Some(1), "changelogs are merged together");
    let nothing = MergeFacts {
        runs: &[],
        ..facts(&[])
    };
    assert_eq!(due(&nothing), None);
}
