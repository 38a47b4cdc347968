#![allow(clippy::unwrap_used, clippy::indexing_slicing)]
use super::*;

#[test]
fn what_was_written_is_read_across_chunks() {
    let bytes: Vec<u8> = (0..3 * CHUNK_BYTES + 17).map(|i| (i % 251) as u8).collect();
    let file = memory_file(&bytes).unwrap();
    assert_eq!(read_passed(&file, bytes.len() as u64).unwrap(), bytes);
    assert_eq!(read_passed(&file, 5).unwrap(), bytes[..5]);
    assert_eq!(read_passed(&file, 0).unwrap(), [0_u8; 0]);
}

#[test]
fn a_file_that_is_too_short_is_refused_before_memory_is_taken() {
    let file = memory_file(b"four").unwrap();
    let refused = read_passed(&file, MAX_PAYLOAD_BYTES).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidInput);
    assert!(refused.to_string().contains("found 4 bytes"), "{refused}");
}

#[test]
fn a_pipe_is_refused_instead_of_waited_for() {
    let (reader, _writer) = std::io::pipe().unwrap();
    let descriptor: std::os::fd::OwnedFd = reader.into();
    let refused = read_passed(&File::from(descriptor), 0).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidInput);
}

#[test]
fn more_than_any_payload_is_refused() {
    let refused = reserve(MAX_PAYLOAD_BYTES + 1).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::LimitExceeded);
}
