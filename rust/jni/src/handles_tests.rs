#![allow(clippy::unwrap_used)]
use super::*;

#[test]
fn a_closed_handle_is_refused_even_after_its_slot_was_reused() {
    let handles = Handles::new("store");
    let first = handles.insert(1);
    assert_ne!(first, 0);
    assert_eq!(*handles.get(first).unwrap(), 1);
    assert!(handles.remove(first).is_some());
    assert!(handles.remove(first).is_none());
    let second = handles.insert(2);
    assert_eq!(first & 0xffff_ffff, second & 0xffff_ffff);
    assert!(matches!(handles.get(first), Err(Failure::Closed("store"))));
    assert_eq!(*handles.get(second).unwrap(), 2);
    assert!(matches!(handles.get(0), Err(Failure::Closed(_))));
    assert!(matches!(handles.get(-1), Err(Failure::Closed(_))));
}

#[test]
fn a_slot_goes_on_after_its_last_generation() {
    let handles = Handles::new("store");
    let first = handles.insert(1);
    handles.remove(first).unwrap();
    let mut inner = handles.inner.write();
    inner.slots.get_mut(0).unwrap().generation = LAST_GENERATION - 1;
    drop(inner);
    let last = handles.insert(2);
    assert_eq!(*handles.get(last).unwrap(), 2);
    assert_eq!(last >> 32, i64::from(LAST_GENERATION));
    handles.remove(last).unwrap();
    let next = handles.insert(3);
    assert_eq!(*handles.get(next).unwrap(), 3);
    assert_eq!(next, first);
    assert!(matches!(handles.get(last), Err(Failure::Closed(_))));
    handles.remove(next).unwrap();
}
