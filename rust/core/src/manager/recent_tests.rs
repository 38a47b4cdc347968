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
