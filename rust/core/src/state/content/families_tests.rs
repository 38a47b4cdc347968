#![allow(clippy::unwrap_used, clippy::indexing_slicing)]
use super::*;
use crate::error::ErrorKind;
use crate::state::runs::entry_stream::written;
use crate::state::runs::key_range::KeyRange;

fn segment(entries: &[(&str, Change<'_>)]) -> EntryStream {
    let mut out = ChangeWriter::default();
    for (key, change) in entries {
        out.push(&[], key.as_bytes(), *change);
    }
    written(out)
}

fn plain() -> Families {
    Families::new(KeyLayout::Plain(FamilyOptions::default()))
}

#[test]
fn entries_out_of_order_are_reported() {
    let put = Change::Put(b"1");
    for keys in [["b", "a"], ["a", "a"]] {
        let error = plain().apply(&mut segment(&keys.map(|key| (key, put))));
        assert_eq!(error.unwrap_err().kind(), ErrorKind::Corrupt);
    }
}

#[test]
fn every_key_of_a_large_segment_is_found_and_in_order() {
    let keys: Vec<String> = (0..30_000).map(|n| format!("{n:06}")).collect();
    let entries: Vec<_> = keys
        .iter()
        .map(|key| (key.as_str(), Change::Put(key.as_bytes())))
        .collect();
    let mut content = Families::new(KeyLayout::Plain(FamilyOptions {
        ordered: true,
        ..FamilyOptions::default()
    }));
    content.apply(&mut segment(&entries)).unwrap();
    let family = content.family_mut(FIRST_FAMILY).unwrap();
    assert_eq!(family.len(), keys.len());
    for key in &keys {
        assert_eq!(family.get(key.as_bytes()), Some(key.as_bytes()));
        assert_eq!(family.get(&key.as_bytes()[1..]), None);
    }
    let range = KeyRange::Prefix(b"0123");
    let found = family.heads.select(range).unwrap();
    let found: Vec<_> = found
        .iter()
        .map(|at| family.entry(*at, None).unwrap().0)
        .collect();
    let expected: Vec<_> = keys[12_300..12_400].iter().map(String::as_bytes).collect();
    assert_eq!(found, expected);
    // Every key is there once: what is removed is gone.
    for key in &keys {
        assert!(family.remove(key.as_bytes()).unwrap());
        assert_eq!(family.get(key.as_bytes()), None);
    }
    content.commit();
    content.begin();
    assert_eq!(content.keys(), 0);
}

#[test]
fn a_key_that_was_removed_a_moment_ago_is_there_once_after_a_load() {
    let mut content = plain();
    content
        .apply(&mut segment(&[("a", Change::Put(b"1"))]))
        .unwrap();
    content.begin();
    let family = content.family_mut(FIRST_FAMILY).unwrap();
    family.remove(b"a").unwrap();
    content.commit();
    // The undo log still knows the key.
    content
        .apply(&mut segment(&[("a", Change::Put(b"2"))]))
        .unwrap();
    let family = content.family_mut(FIRST_FAMILY).unwrap();
    assert_eq!(family.get(b"a"), Some(b"2".as_slice()));
    assert!(family.remove(b"a").unwrap());
    assert_eq!(family.get(b"a"), None);
    assert!(family.is_empty());
}
