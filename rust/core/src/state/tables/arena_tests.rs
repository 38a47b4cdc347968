#![allow(clippy::unwrap_used, clippy::indexing_slicing)]
use super::*;

#[test]
fn records_survive_page_growth_and_oversized_neighbours() {
    let mut arena = Arena::default();
    let big = vec![7u8; 3 << 20];
    let mut at = Vec::new();
    for i in 0..5_000u32 {
        at.push(
            arena
                .push(&i.to_le_bytes(), &vec![i as u8; (i % 90) as usize])
                .unwrap(),
        );
        if i == 2_000 {
            at.push(arena.push(b"big", &big).unwrap());
        }
    }
    let big_record = arena.get(at[2_001]).unwrap();
    assert_eq!(
        (big_record.key, big_record.value),
        (b"big".as_slice(), big.as_slice())
    );
    at.remove(2_001);
    for (i, at) in at.into_iter().enumerate() {
        let record = arena.get(at).unwrap();
        assert_eq!(record.key, (i as u32).to_le_bytes());
        assert_eq!(record.value, vec![i as u8; i % 90]);
    }
}

#[test]
fn overwrite_is_refused_when_the_size_differs() {
    let mut arena = Arena::default();
    let at = arena.push(b"k", b"123").unwrap();
    assert!(!arena.overwrite(at, b"1234"));
    assert!(arena.overwrite(at, b"456"));
    assert_eq!(arena.get(at).unwrap().value, b"456");
    assert!(!arena.overwrite(RecordAt::NONE, b""));
}
