//! Values of the core in messages.

use holdfast_core::format::SegmentKind;
use holdfast_core::{Error, Owner, Result, SegmentRef};

pub(super) fn owner_from(found: Option<Owner>) -> Result<Owner> {
    found.ok_or_else(|| Error::invalid_input("a request without an owner"))
}

pub(super) fn kind_from(tag: u32) -> Result<SegmentKind> {
    u8::try_from(tag)
        .ok()
        .and_then(SegmentKind::from_tag)
        .ok_or_else(|| {
            Error::invalid_input(format!("segment kind: expected 1, 3 or 4, found {tag}"))
        })
}

pub(super) fn ref_bytes(refs: &[SegmentRef]) -> Vec<Vec<u8>> {
    refs.iter().map(|r| r.to_bytes().to_vec()).collect()
}

pub(super) fn refs_from(refs: &[Vec<u8>]) -> Result<Vec<SegmentRef>> {
    refs.iter().map(|r| SegmentRef::from_bytes(r)).collect()
}
