use super::*;

/// Sessions of the remaining slots, of ten slots of 10 bytes in each of the sessions 1 to 3.
fn left(bytes: usize) -> [usize; 3] {
    let mut eviction = Eviction::of(bytes, (1..4).map(|session| (session, 100)).collect());
    [3, 1, 2].map(|session| (0..10).filter(|_| !eviction.takes(session, 10)).count())
}

#[test]
fn what_was_not_touched_for_longest_goes_and_of_the_last_session_a_part() {
    assert_eq!(left(0), [10, 10, 10]);
    assert_eq!(left(1), [10, 9, 10]);
    assert_eq!(left(100), [10, 0, 10]);
    assert_eq!(left(101), [10, 0, 9]);
    assert_eq!(left(245), [5, 0, 0]);
    assert_eq!(left(usize::MAX), [0, 0, 0]);
}
