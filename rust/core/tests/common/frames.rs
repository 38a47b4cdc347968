//! Metadata files made by hand from the text of FORMAT.md.

use xxhash_rust::xxh3::xxh3_128;

pub const HEADER: u8 = 6;
pub const REGIONS: u8 = 7;
pub const COORDINATORS: u8 = 8;
pub const TRAILER: u8 = 9;

/// A raw frame.
pub fn frame(version: u16, kind: u8, body: &[u8]) -> Vec<u8> {
    let mut out = b"HLDF".to_vec();
    out.extend_from_slice(&version.to_le_bytes());
    out.extend_from_slice(&[kind, 0]);
    for _ in 0..2 {
        out.extend_from_slice(&(body.len() as u32).to_le_bytes());
    }
    let crc = crc32c::crc32c_append(crc32c::crc32c(&out), body);
    out.extend_from_slice(&crc.to_le_bytes());
    out.extend_from_slice(body);
    out
}

/// The frame with which a file of these bytes ends.
pub fn trailer(before: &[u8], regions: u64, coordinators: u64) -> Vec<u8> {
    let mut body = Vec::new();
    for number in [regions, coordinators, before.len() as u64] {
        body.extend_from_slice(&number.to_le_bytes());
    }
    body.extend_from_slice(&xxh3_128(before).to_le_bytes());
    frame(1, TRAILER, &body)
}

/// A file of these frames and the trailer that fits them.
pub fn file(frames: &[(u8, &[u8])], regions: u64, coordinators: u64) -> Vec<u8> {
    let mut out: Vec<u8> = frames
        .iter()
        .flat_map(|(kind, body)| frame(1, *kind, body))
        .collect();
    let trailer = trailer(&out, regions, coordinators);
    out.extend_from_slice(&trailer);
    out
}

/// Start of each frame, and its type.
pub fn positions(bytes: &[u8]) -> Vec<(usize, u8)> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        found.push((at, bytes[at + 6]));
        let stored = u32::from_le_bytes(bytes[at + 8..at + 12].try_into().unwrap());
        at += 20 + stored as usize;
    }
    found
}

/// A record: a length and a message, both short.
pub fn record(message: &[u8]) -> Vec<u8> {
    assert!(message.len() < 128, "the length is one byte");
    let mut out = vec![message.len() as u8];
    out.extend_from_slice(message);
    out
}

/// A field of a message: bytes or text.
pub fn bytes_field(tag: u8, value: &[u8]) -> Vec<u8> {
    assert!(tag < 16 && value.len() < 128, "both are one byte");
    let mut out = vec![tag << 3 | 2, value.len() as u8];
    out.extend_from_slice(value);
    out
}

/// A field of a message: a small number.
pub fn number_field(tag: u8, value: u8) -> Vec<u8> {
    assert!(tag < 16 && value < 128, "both are one byte");
    vec![tag << 3, value]
}
