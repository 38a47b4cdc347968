//! Spark's hash of the columns of a row, which says in which partition a key is.

use super::types::SparkType;

/// The hash of no columns, where Spark begins.
pub(super) const SEED: u32 = 42;

/// The partition of a hash: Spark's `pmod`, which is never negative.
pub fn partition_of(hash: u32, partitions: u32) -> u32 {
    (hash as i32).rem_euclid(partitions.max(1).min(i32::MAX as u32) as i32) as u32
}

/// The hash after a value as a column has it, little-endian. A null changes nothing.
pub(super) fn hash_value(kind: &SparkType, value: &[u8], seed: u32) -> u32 {
    match kind {
        SparkType::Integer(8) | SparkType::Decimal | SparkType::Float(8) => {
            hash_long(number(value), seed)
        }
        SparkType::Text | SparkType::Binary => hash_bytes(value, seed),
        SparkType::LongDecimal => {
            let bytes: Vec<u8> = value.iter().rev().copied().collect();
            hash_bytes(shortest(&bytes), seed)
        }
        _ => hash_int(number(value) as u32, seed),
    }
}

/// The low 8 bytes of a signed number.
fn number(value: &[u8]) -> u64 {
    let is_negative = value.last().is_some_and(|last| last & 0x80 != 0);
    let mut bytes = [if is_negative { 0xFF } else { 0 }; 8];
    for (to, from) in bytes.iter_mut().zip(value) {
        *to = *from;
    }
    u64::from_le_bytes(bytes)
}

/// The fewest bytes with the same number, as Java's `BigInteger` has it, big-endian.
pub(super) fn shortest(mut bytes: &[u8]) -> &[u8] {
    while let [sign @ (0 | 0xFF), next, ..] = bytes
        && sign >> 7 == next >> 7
    {
        bytes = bytes.get(1..).unwrap_or_default();
    }
    bytes
}

fn hash_int(value: u32, seed: u32) -> u32 {
    finish(mix(seed, value), 4)
}

fn hash_long(value: u64, seed: u32) -> u32 {
    finish(mix(mix(seed, value as u32), (value >> 32) as u32), 8)
}

/// Unlike other implementations, Spark takes each byte of the rest for a number with a sign.
fn hash_bytes(bytes: &[u8], seed: u32) -> u32 {
    let (words, rest) = bytes.as_chunks::<4>();
    let words = words.iter().map(|word| u32::from_le_bytes(*word));
    let rest = rest.iter().map(|byte| i32::from(*byte as i8) as u32);
    finish(words.chain(rest).fold(seed, mix), bytes.len() as u32)
}

fn mix(hash: u32, value: u32) -> u32 {
    let value = value.wrapping_mul(0xcc9e_2d51).rotate_left(15);
    let hash = (hash ^ value.wrapping_mul(0x1b87_3593)).rotate_left(13);
    hash.wrapping_mul(5).wrapping_add(0xe654_6b64)
}

fn finish(hash: u32, bytes: u32) -> u32 {
    let hash = hash ^ bytes;
    let hash = (hash ^ (hash >> 16)).wrapping_mul(0x85eb_ca6b);
    let hash = (hash ^ (hash >> 13)).wrapping_mul(0xc2b2_ae35);
    hash ^ (hash >> 16)
}
