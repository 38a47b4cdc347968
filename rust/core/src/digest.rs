//! Digests of fixed-size chunks, which show the parts of a large state that changed.

use std::num::NonZeroUsize;

use xxhash_rust::xxh3::xxh3_128;

/// Bytes of a chunk's digest.
pub const DIGEST_BYTES: usize = 16;

/// The xxh3-128 digest of every chunk of `bytes`, one after the other, [`DIGEST_BYTES`] each. The
/// last chunk may be shorter; without bytes there are no chunks.
///
/// # Examples
/// ```
/// use std::num::NonZeroUsize;
///
/// use holdfast_core::digest::{DIGEST_BYTES, chunk_digests};
///
/// let four = NonZeroUsize::new(4).unwrap();
/// let digests = chunk_digests(b"abcdabcdab", four);
/// assert_eq!(digests.len(), 3 * DIGEST_BYTES);
/// assert_eq!(digests[..16], digests[16..32]);
/// ```
pub fn chunk_digests(bytes: &[u8], chunk_bytes: NonZeroUsize) -> Vec<u8> {
    let chunks = bytes.chunks(chunk_bytes.get());
    let mut digests = Vec::with_capacity(chunks.len() * DIGEST_BYTES);
    for chunk in chunks {
        digests.extend_from_slice(&xxh3_128(chunk).to_le_bytes());
    }
    digests
}
