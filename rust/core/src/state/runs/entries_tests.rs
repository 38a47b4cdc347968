#![allow(clippy::unwrap_used, clippy::indexing_slicing)]
use super::*;
use proptest::prelude::*;

proptest! {
    #[test]
    fn every_run_reads_back(entries in prop::collection::vec(
        (prop::collection::vec(any::<u8>(), 0..200), prop::option::of(prop::collection::vec(any::<u8>(), 0..300))), 0..40)
    ) {
        let mut writer = ChangeWriter::default();
        for (key, value) in &entries {
            writer.push(&[], key, value.as_deref().map_or(Change::Remove, Change::Put));
        }
        prop_assert_eq!(writer.entries(), entries.len() as u64);
        let bytes = writer.into_bytes();
        let mut reader = ChangeReader::new(&bytes);
        for (key, value) in &entries {
            let (k, c) = reader.next().unwrap().unwrap();
            prop_assert_eq!(k, key.as_slice());
            prop_assert_eq!(c, value.as_deref().map_or(Change::Remove, Change::Put));
        }
        prop_assert!(reader.next().unwrap().is_none());
    }

    #[test]
    fn garbage_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let mut reader = ChangeReader::new(&bytes);
        while let Ok(Some(_)) = reader.next() {}
    }
}

#[test]
fn a_cut_run_is_reported_with_its_offset() {
    let mut writer = ChangeWriter::default();
    writer.push(b"", b"a", Change::Put(b"1"));
    writer.push(b"b", b"", Change::Put(b"22"));
    let bytes = writer.into_bytes();
    let mut reader = ChangeReader::new(&bytes[..bytes.len() - 1]);
    assert!(reader.next().unwrap().is_some());
    let error = reader.next().unwrap_err();
    assert!(error.to_string().contains("offset 4"), "{error}");
}
