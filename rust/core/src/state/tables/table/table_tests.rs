#![allow(clippy::unwrap_used)]
use super::*;

#[test]
fn a_slot_of_an_old_session_does_not_look_touched_when_numbers_begin_again() {
    let mut table = Table::default();
    table.begin();
    table.begin();
    let first = table.session;
    table.put(b"key", b"1").unwrap();
    table.put(b"gone", b"1").unwrap();
    table.remove(b"gone");
    table.commit();
    table.session = SESSIONS - 1;
    while table.session != first {
        table.begin();
    }
    table.put(b"key", b"2").unwrap();
    table.put(b"gone", b"2").unwrap();
    table.abort();
    assert_eq!(table.get(b"key"), Some(b"1".as_slice()));
    assert_eq!(table.get(b"gone"), None);
    assert_eq!(table.len(), 1);
}

#[test]
fn a_load_can_not_be_undone() {
    let mut table = Table::default();
    table.load(b"a", b"1").unwrap();
    table.load(b"a", b"2").unwrap();
    table.load(b"a", b"longer").unwrap();
    table.load(b"b", b"1").unwrap();
    table.remove(b"b");
    table.load(b"b", b"2").unwrap();
    table.begin();
    table.put(b"a", b"3").unwrap();
    table.remove(b"b");
    table.abort();
    assert_eq!(table.get(b"a"), Some(b"longer".as_slice()));
    assert_eq!(table.get(b"b"), Some(b"2".as_slice()));
}
