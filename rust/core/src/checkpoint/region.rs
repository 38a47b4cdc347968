//! The entry of a region: an immutable value that stays encoded until a caller reads it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use prost::Message;
use prost::bytes::{Bytes, BytesMut};

use super::encoding::{
    RegionMessage, decode_in_flight, decode_operators, decode_staged, encode_in_flight,
    encode_operators, encode_staged,
};
use super::entry::{InFlight, InFlightPlace, OperatorEntry, Staged};
use super::{IN_FLIGHT_OPERATOR, MAX_CAUSE_BYTES, MAX_NAME_BYTES, check_length, check_unique};
use crate::error::{Error, Result};
use crate::format::decode;
use crate::ids::{CheckpointId, FileId, Owner, SegmentRef};

/// A new entry of a region.
#[derive(Clone, Debug)]
pub struct NewRegion {
    /// Name of the region.
    pub region: String,
    /// Checkpoint whose snapshot produced the state.
    pub origin: CheckpointId,
    /// States.
    pub operators: Vec<OperatorEntry>,
    /// Pending rows of the region, oldest first.
    pub in_flight: Vec<InFlight>,
    /// Files that sinks staged up to this checkpoint.
    pub staged: Vec<Staged>,
    /// The region has seen the end of its data.
    pub finished: bool,
    /// The region fell back in this checkpoint.
    pub failed: bool,
    /// Number of fallbacks since its last snapshot.
    pub fallbacks: u64,
    /// Time of the first of these fallbacks, in milliseconds since the epoch.
    pub stale_since_ms: Option<u64>,
    /// Cause of the last fallback.
    pub cause: String,
}

/// The entry of one region in a checkpoint. Clones share all of it.
///
/// ```
/// use holdfast_core::CheckpointId;
/// use holdfast_core::checkpoint::{NewRegion, RegionEntry};
/// # fn main() -> holdfast_core::Result<()> {
/// let entry = RegionEntry::new(NewRegion {
///     region: "shard-7".to_owned(),
///     origin: CheckpointId(4),
///     operators: Vec::new(),
///     in_flight: Vec::new(),
///     staged: Vec::new(),
///     finished: false,
///     failed: false,
///     fallbacks: 0,
///     stale_since_ms: None,
///     cause: String::new(),
/// })?;
/// let fallen = entry.fell_back("disk full", 1_000, &[])?;
/// assert_eq!((fallen.origin(), fallen.fallbacks()), (CheckpointId(4), 1));
/// assert_eq!(RegionEntry::from_bytes(fallen.to_bytes())?, fallen);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RegionEntry(Arc<RegionMessage>);

impl RegionEntry {
    /// Checks and encodes.
    ///
    /// # Errors
    /// `InvalidInput` for a wrong name, type or path, or one that occurs twice.
    pub fn new(new: NewRegion) -> Result<Self> {
        let in_flight_bytes = check_parts(&new.region, &new.operators, &new.in_flight, &new.staged)
            .map_err(|e| name_region(&new.region, e))?;
        Ok(Self::from_message(RegionMessage {
            operators: encode_operators(&new.operators),
            in_flight: encode_in_flight(&new.in_flight),
            staged: encode_staged(&new.staged),
            region: new.region,
            origin: new.origin.0,
            failed: new.failed,
            finished: new.finished,
            fallbacks: new.fallbacks,
            stale_since_ms: new.stale_since_ms,
            cause: cut_cause(&new.cause),
            in_flight_bytes,
        }))
    }

    /// Inverse of [`RegionEntry::to_bytes`]; checks all of the entry.
    pub fn from_bytes(bytes: impl Into<Bytes>) -> Result<Self> {
        let entry = Self::from_message(decode("entry of a region", bytes.into())?);
        let about = |message| name_region(entry.region(), Error::corrupt(message));
        let (operators, in_flight) = (entry.operators()?, entry.in_flight()?);
        let found = check_parts(entry.region(), &operators, &in_flight, &entry.staged()?)
            .map_err(|e| about(e.to_string()))?;
        let expected = entry.in_flight_bytes();
        if found != expected {
            return Err(about(format!(
                "in-flight bytes: expected {expected}, found {found}"
            )));
        }
        Ok(entry)
    }

    /// The entry of a verified file, whose lists stay encoded.
    pub(super) fn from_message(message: RegionMessage) -> Self {
        Self(Arc::new(message))
    }

    pub(super) fn message(&self) -> &RegionMessage {
        &self.0
    }

    /// Encodes, for example for an acknowledgement.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.0.encode_to_vec()
    }

    /// Name of the region.
    pub fn region(&self) -> &str {
        &self.0.region
    }

    /// Checkpoint whose snapshot produced the state.
    pub fn origin(&self) -> CheckpointId {
        CheckpointId(self.0.origin)
    }

    /// The region fell back in this checkpoint.
    pub fn failed(&self) -> bool {
        self.0.failed
    }

    /// The region has seen the end of its data.
    pub fn finished(&self) -> bool {
        self.0.finished
    }

    /// Number of fallbacks since its last snapshot.
    pub fn fallbacks(&self) -> u64 {
        self.0.fallbacks
    }

    /// Time of the first of these fallbacks, in milliseconds since the epoch.
    pub fn stale_since_ms(&self) -> Option<u64> {
        self.0.stale_since_ms
    }

    /// Cause of the last fallback.
    pub fn cause(&self) -> &str {
        &self.0.cause
    }

    /// Size in bytes of all its in-flight data.
    pub fn in_flight_bytes(&self) -> u64 {
        self.0.in_flight_bytes
    }

    /// The region fell back, finished, or has pending rows. Decisions on checkpoints use it.
    pub fn is_notable(&self) -> bool {
        self.failed() || self.finished() || self.fallbacks() > 0 || self.in_flight_bytes() > 0
    }

    /// States of its operators.
    pub fn operators(&self) -> Result<Vec<OperatorEntry>> {
        decode_operators(&self.0.operators).map_err(|e| name_region(self.region(), e))
    }

    /// Its in-flight data, oldest first.
    pub fn in_flight(&self) -> Result<Vec<InFlight>> {
        decode_in_flight(&self.0.in_flight).map_err(|e| name_region(self.region(), e))
    }

    /// Files that sinks staged.
    pub fn staged(&self) -> Result<Vec<Staged>> {
        decode_staged(&self.0.staged).map_err(|e| name_region(self.region(), e))
    }

    /// The entry of a failed region: its earlier state, and `in_flight` after its pending rows
    /// (R16, R30). Its staged files are not part of the checkpoint (R80).
    ///
    /// # Errors
    /// `InvalidInput` for wrong in-flight data.
    pub fn fell_back(&self, cause: &str, now_ms: u64, in_flight: &[InFlight]) -> Result<Self> {
        let owed = check_in_flight(self.0.in_flight_bytes, in_flight)
            .map_err(|e| name_region(self.region(), e))?;
        Ok(Self::from_message(RegionMessage {
            failed: true,
            fallbacks: self.0.fallbacks.saturating_add(1),
            stale_since_ms: Some(self.0.stale_since_ms.unwrap_or(now_ms)),
            cause: cut_cause(cause),
            in_flight_bytes: owed,
            in_flight: joined(&self.0.in_flight, encode_in_flight(in_flight)),
            staged: Bytes::new(),
            region: self.0.region.clone(),
            operators: self.0.operators.clone(),
            ..*self.0
        }))
    }

    /// The unchanged entry of an idle region, without the staged files of the checkpoint before.
    #[must_use]
    pub fn carried(&self) -> Self {
        Self::from_message(RegionMessage {
            staged: Bytes::new(),
            ..(*self.0).clone()
        })
    }

    /// Every segment it needs, some of them more than once.
    pub fn segments(&self) -> Result<Vec<SegmentRef>> {
        let mut found = Vec::new();
        for state in self
            .operators()?
            .iter()
            .flat_map(|operator| &operator.states)
        {
            found.extend(state.content.pieces().iter().map(|piece| piece.reference));
        }
        for in_flight in self.in_flight()? {
            if let InFlightPlace::Segment(reference) = in_flight.place {
                found.push(reference);
            }
        }
        Ok(found)
    }

    /// Raises the least size in bytes of each file with its segments.
    pub(super) fn note_files(&self, files: &mut BTreeMap<FileId, u64>) -> Result<()> {
        for segment in self.segments()? {
            let known = files.entry(segment.file).or_default();
            *known = (*known).max(segment.end());
        }
        Ok(())
    }

    /// Adds the outputs that it staged files for.
    pub(super) fn note_outputs(&self, outputs: &mut BTreeSet<String>) -> Result<()> {
        outputs.extend(self.staged()?.into_iter().map(|one| one.output));
        Ok(())
    }

    /// Every segment it needs, each once per owner: owner, origin of that owner's state, segment.
    pub fn references(&self, pipeline: &str) -> Result<Vec<(Owner, CheckpointId, SegmentRef)>> {
        let owner =
            |operator: &str, store: &str| Owner::new(pipeline, operator, self.region(), store);
        let mut found = Vec::new();
        for operator in self.operators()? {
            for state in operator.states {
                let pieces = state.content.pieces().iter();
                let mut segments: Vec<_> = pieces.map(|p| p.reference).collect();
                segments.sort_unstable();
                segments.dedup();
                let owner = owner(&operator.name, &state.name);
                let segments = segments.into_iter();
                found.extend(segments.map(|one| (owner.clone(), self.origin(), one)));
            }
        }
        let mut owed = Vec::new();
        for in_flight in self.in_flight()? {
            if let InFlightPlace::Segment(reference) = in_flight.place {
                let owner = owner(IN_FLIGHT_OPERATOR, &in_flight.created.to_string());
                owed.push((owner, in_flight.created, reference));
            }
        }
        // One segment serves all channels of a region (R56).
        owed.sort_unstable();
        owed.dedup();
        found.append(&mut owed);
        Ok(found)
    }
}

/// Checks all parts; returns the size of the in-flight data.
fn check_parts(
    region: &str,
    operators: &[OperatorEntry],
    in_flight: &[InFlight],
    staged: &[Staged],
) -> Result<u64> {
    check_length("name of a region", region, MAX_NAME_BYTES)?;
    operators.iter().try_for_each(OperatorEntry::check)?;
    check_unique("operator", operators.iter().map(|o| o.name.as_str()))?;
    staged.iter().try_for_each(Staged::check)?;
    check_in_flight(0, in_flight)
}

/// Checks in-flight data; returns its size on top of `owed`.
fn check_in_flight(owed: u64, in_flight: &[InFlight]) -> Result<u64> {
    in_flight.iter().try_fold(owed, |sum, item| {
        item.check()?;
        sum.checked_add(item.bytes)
            .ok_or_else(|| Error::invalid_input("sizes of in-flight data add up to more than 2^64"))
    })
}

fn joined(front: &Bytes, back: Bytes) -> Bytes {
    if front.is_empty() {
        return back;
    }
    let mut both = BytesMut::with_capacity(front.len() + back.len());
    both.extend_from_slice(front);
    both.extend_from_slice(&back);
    both.freeze()
}

fn cut_cause(cause: &str) -> String {
    let mut end = cause.len().min(MAX_CAUSE_BYTES);
    while !cause.is_char_boundary(end) {
        end -= 1;
    }
    cause.get(..end).unwrap_or_default().to_owned()
}

fn name_region(region: &str, error: Error) -> Error {
    // A name that is too long would fill the screen.
    let shown: String = region.chars().take(64).collect();
    error.context(format!("region {shown:?}"))
}
