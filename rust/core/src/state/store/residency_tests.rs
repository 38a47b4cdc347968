use super::*;
use crate::ids::{FileId, Term};

fn run(seq: u32) -> Option<SegmentRef> {
    Some(SegmentRef {
        file: FileId { term: Term(1), seq },
        offset: 0,
        len: 1,
        digest: 0,
    })
}

#[test]
fn a_store_follows_its_runs_and_leaves_memory_for_them_where_it_is_short() {
    let next = |newest: Option<SegmentRef>, below, is_short| {
        next(&RunFacts {
            newest,
            below,
            looked_at: run(9),
            is_short,
        })
    };
    assert!(matches!(next(run(2), run(1), false), Step::Follow(_)));
    assert_eq!(next(run(2), run(2), true), Step::Stay, "it lies over them");
    assert_eq!(
        next(run(9), run(1), true),
        Step::Stay,
        "they were looked at"
    );
    assert_eq!(next(run(2), None, false), Step::Stay, "all fits");
    assert!(matches!(next(run(2), None, true), Step::Leave(_)));
    assert_eq!(next(None, None, true), Step::Stay, "there are none");
}
