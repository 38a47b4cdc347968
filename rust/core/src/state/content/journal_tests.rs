#![allow(clippy::unwrap_used, clippy::indexing_slicing)]
use super::*;
use crate::error::ErrorKind;
use proptest::prelude::*;

fn journal() -> Vec<u8> {
    let mut journal = Journal::default();
    journal.push(1, ChangeKind::Put, b"key", b"value");
    journal.push(1, ChangeKind::Append, b"key", b"");
    journal.push(1, ChangeKind::Remove, b"key", b"");
    journal.last_part().payload.to_vec()
}

fn read(payload: &[u8]) -> Result<usize> {
    let mut seen = 0;
    for_each_operation(payload, &mut 0, 1, |_, _, _| seen += 1)?;
    Ok(seen)
}

fn refused(payload: &[u8]) -> String {
    let error = read(payload).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    error.to_string()
}

#[test]
fn entries_that_are_no_operations_are_refused() {
    assert_eq!(read(&journal()).unwrap(), 3);
    let mut first = Vec::new();
    put_entry(&mut first, &[0; 10], b"", Some(b"value"));
    assert!(refused(&first).contains("cut"));
    for (number, kind, value, said) in [
        (1, 0, Some(b"value".as_slice()), "another number"),
        (0, 3, Some(b"value"), "no kind 3"),
        (0, 0, None, "not with this value"),
        (0, 1, Some(b"value"), "not with this value"),
        (0, 2, None, "not with this value"),
    ] {
        let mut payload = Vec::new();
        let prefix = [0, 0, 0, 0, 0, 0, 0, number, 0, 1, kind];
        put_entry(&mut payload, &prefix, b"key", value);
        let text = refused(&payload);
        assert!(
            text.contains(said) && text.contains("operation 0"),
            "{text}"
        );
    }
}

#[test]
fn a_journal_that_was_cut_is_refused_unless_an_operation_ends_there() {
    let whole = journal();
    let readable = (0..whole.len()).filter(|cut| read(&whole[..*cut]).is_ok());
    assert_eq!(readable.count(), 3, "before each of the operations");
}

proptest! {
    #[test]
    fn garbage_never_panics(
        entries in prop::collection::vec(
            (prop::collection::vec(0u8..3, 0..14), prop::option::of(prop::collection::vec(any::<u8>(), 0..5))),
            0..5),
        rest in prop::collection::vec(any::<u8>(), 0..30),
    ) {
        let mut payload = Vec::new();
        for (key, value) in &entries {
            put_entry(&mut payload, &[], key, value.as_deref());
        }
        let _ = read(&payload);
        payload.extend(rest);
        let _ = read(&payload);
    }
}
