//! The filter of a group: says of most keys that are not in it that they are not.

use xorf::{BinaryFuse8, Filter};

use super::FilterMessage;

/// The filter of keys with these hashes; `None` where none could be made, so that a reader looks into
/// the block.
pub(super) fn filter_of(mut hashes: Vec<u64>) -> Option<FilterMessage> {
    // The construction wants distinct keys. Two keys of one hash are one to the filter.
    hashes.sort_unstable();
    hashes.dedup();
    let filter = BinaryFuse8::try_from(hashes.as_slice()).ok()?;
    // A filter that denies a key loses it for every reader: this is looked at before it is written.
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
