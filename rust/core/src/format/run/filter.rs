//! The filter of a group denies most keys that are not in it.

use xorf::{BinaryFuse8, Descriptor, Filter};
use xxhash_rust::xxh3::xxh3_64;

use super::FilterMessage;
use crate::error::{Error, Result};

/// `None` without keys, or if no filter could be made: readers look into the block then.
pub(super) fn filter_of(mut hashes: Vec<u64>) -> Option<FilterMessage> {
    if hashes.is_empty() {
        return None;
    }
    // The construction needs distinct keys. Two keys of one hash are one to the filter.
    hashes.sort_unstable();
    hashes.dedup();
    let filter = BinaryFuse8::try_from(hashes.as_slice()).ok()?;
    // A filter that denies a key loses it for every reader.
    if !hashes.iter().all(|hash| filter.contains(hash)) {
        return None;
    }
    Some(FilterMessage {
        seed: filter.descriptor.seed,
        segment_length: filter.descriptor.segment_length,
        segment_count_length: filter.descriptor.segment_count_length,
        fingerprints: filter.fingerprints.into_vec(),
    })
}

#[derive(Debug)]
pub(crate) struct KeyFilter(BinaryFuse8);

impl KeyFilter {
    pub(super) fn new(message: FilterMessage) -> Result<Self> {
        let FilterMessage {
            seed,
            segment_length,
            segment_count_length,
            fingerprints,
        } = message;
        let expected = u64::from(segment_count_length) + 2 * u64::from(segment_length);
        let fits = segment_length.is_power_of_two()
            && segment_count_length > 0
            && segment_count_length.is_multiple_of(segment_length)
            && fingerprints.len() as u64 == expected
            && u32::try_from(expected).is_ok();
        if !fits {
            return Err(Error::corrupt(format!(
                "filter of a run: expected fingerprints of 2 segments of {segment_length} and of \
                 {segment_count_length} in others, found {}",
                fingerprints.len()
            )));
        }
        let descriptor = Descriptor {
            seed,
            segment_length,
            segment_length_mask: segment_length - 1,
            segment_count_length,
        };
        let fingerprints = fingerprints.into_boxed_slice();
        Ok(Self(BinaryFuse8 {
            descriptor,
            fingerprints,
        }))
    }

    /// False for most keys that are not in the group, and for none that is.
    pub fn may_have(&self, key: &[u8]) -> bool {
        self.0.contains(&xxh3_64(key))
    }

    pub fn bytes(&self) -> usize {
        self.0.len()
    }
}
