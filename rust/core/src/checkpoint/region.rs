//! The entry of a region: an immutable value that stays encoded until a caller reads it.

use prost::Message;
use prost::bytes::{Bytes, BytesMut};

use super::encoding::{
    RegionMessage, decode, decode_in_flight, decode_operators, decode_staged, encode_in_flight,
    encode_operators, encode_staged,
};
use super::entry::{InFlight, InFlightPlace, OperatorEntry, Staged, StateContent};
use super::{IN_FLIGHT_OPERATOR, MAX_CAUSE_BYTES, MAX_NAME_BYTES, check_length, check_unique};
use crate::error::{Error, Result};
use crate::ids::{CheckpointId, SegmentRef};

/// A region's entry to be made.
#[derive(Clone, Debug)]
pub struct NewRegion {
    /// Name of the region.
    pub region: String,
    /// Checkpoint whose snapshot really produced the state.
    pub origin: CheckpointId,
    /// States.
    pub operators: Vec<OperatorEntry>,
    /// Rows that the checkpoint covers and the state does not reflect, oldest first.
    pub in_flight: Vec<InFlight>,
    /// What sinks staged up to this checkpoint.
    pub staged: Vec<Staged>,
    /// The region has seen the end of its data.
    pub finished: bool,
    /// The region fell back in this checkpoint.
    pub failed: bool,
    /// How often it fell back since its last snapshot.
    pub fallbacks: u64,
    /// When it began to fall back, in milliseconds since the epoch.
    pub stale_since_ms: Option<u64>,
    /// Why it fell back last.
    pub cause: String,
}

/// A segment that a region needs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RegionReference {
    /// Operator part of the owner.
    pub operator: String,
    /// Store part of the owner.
    pub store: String,
    /// Origin of what it belongs to.
    pub origin: CheckpointId,
    /// The segment.
    pub reference: SegmentRef,
}

/// What a checkpoint holds for one region. Clones share the encoded lists.
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
pub struct RegionEntry(RegionMessage);

impl RegionEntry {
    /// Checks and encodes.
    ///
    /// # Errors
    /// `InvalidInput` for a name, a type or a path that cannot be, or that occurs twice.
    pub fn new(new: NewRegion) -> Result<Self> {
        let in_flight_bytes = check_parts(&new).map_err(|e| name_region(&new.region, e))?;
        Ok(Self(RegionMessage {
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

    /// Decodes what [`RegionEntry::to_bytes`] gave and checks all of it.
    ///
    /// # Errors
    /// `Corrupt` when it is something else.
    pub fn from_bytes(bytes: impl Into<Bytes>) -> Result<Self> {
        let entry = Self(decode("entry of a region", bytes.into())?);
        entry.parts().and_then(|parts| {
            let found = check_parts(&parts)
                .map_err(|e| name_region(entry.region(), Error::corrupt(e.to_string())))?;
            if found == entry.in_flight_bytes() {
                return Ok(());
            }
            Err(name_region(
                entry.region(),
                Error::corrupt(format!(
                    "in-flight bytes: expected {}, found {found}",
                    entry.in_flight_bytes()
                )),
            ))
        })?;
        Ok(entry)
    }

    /// Takes a message of a file whose digest was verified; the lists stay encoded.
    pub(super) fn from_message(message: RegionMessage) -> Self {
        Self(message)
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

    /// Checkpoint whose snapshot really produced the state.
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

    /// How often it fell back since its last snapshot.
    pub fn fallbacks(&self) -> u64 {
        self.0.fallbacks
    }

    /// When it began to fall back, in milliseconds since the epoch.
    pub fn stale_since_ms(&self) -> Option<u64> {
        self.0.stale_since_ms
    }

    /// Why it fell back last.
    pub fn cause(&self) -> &str {
        &self.0.cause
    }

    /// Size in bytes of all its in-flight data.
    pub fn in_flight_bytes(&self) -> u64 {
        self.0.in_flight_bytes
    }

    /// States of its operators.
    ///
    /// # Errors
    /// `Corrupt`.
    pub fn operators(&self) -> Result<Vec<OperatorEntry>> {
        decode_operators(&self.0.operators).map_err(|e| name_region(self.region(), e))
    }

    /// Its in-flight data, oldest first.
    ///
    /// # Errors
    /// `Corrupt`.
    pub fn in_flight(&self) -> Result<Vec<InFlight>> {
        decode_in_flight(&self.0.in_flight).map_err(|e| name_region(self.region(), e))
    }

    /// What sinks staged.
    ///
    /// # Errors
    /// `Corrupt`.
    pub fn staged(&self) -> Result<Vec<Staged>> {
        decode_staged(&self.0.staged).map_err(|e| name_region(self.region(), e))
    }

    /// The entry of a region that failed: the state of before, with the input that it owes behind
    /// what it owed already (R16, R30). What it staged is not part of the checkpoint (R80).
    ///
    /// # Errors
    /// `InvalidInput` for in-flight data that cannot be.
    pub fn fell_back(&self, cause: &str, now_ms: u64, in_flight: &[InFlight]) -> Result<Self> {
        let owed = check_in_flight(self.0.in_flight_bytes, in_flight)
            .map_err(|e| name_region(self.region(), e))?;
        Ok(Self(RegionMessage {
            failed: true,
            fallbacks: self.0.fallbacks.saturating_add(1),
            stale_since_ms: Some(self.0.stale_since_ms.unwrap_or(now_ms)),
            cause: cut_cause(cause),
            in_flight_bytes: owed,
            in_flight: joined(&self.0.in_flight, encode_in_flight(in_flight)),
            staged: Bytes::new(),
            region: self.0.region.clone(),
            operators: self.0.operators.clone(),
            ..self.0
        }))
    }

    /// The entry of a region that had nothing to do: as it was, but for what was staged, which
    /// belongs to the checkpoint before.
    #[must_use]
    pub fn carried(&self) -> Self {
        Self(RegionMessage {
            staged: Bytes::new(),
            ..self.0.clone()
        })
    }

    /// Every segment it needs, each once per owner.
    ///
    /// # Errors
    /// `Corrupt`.
    pub fn references(&self) -> Result<Vec<RegionReference>> {
        let mut found = Vec::new();
        for operator in self.operators()? {
            for state in operator.states {
                let StateContent::Pieces(pieces) = state.content else {
                    continue;
                };
                let mut segments: Vec<_> = pieces.into_iter().map(|p| p.reference).collect();
                segments.sort_unstable();
                segments.dedup();
                found.extend(segments.into_iter().map(|reference| RegionReference {
                    operator: operator.name.clone(),
                    store: state.name.clone(),
                    origin: self.origin(),
                    reference,
                }));
            }
        }
        let mut owed = Vec::new();
        for in_flight in self.in_flight()? {
            if let InFlightPlace::Segment(reference) = in_flight.place {
                owed.push(RegionReference {
                    operator: IN_FLIGHT_OPERATOR.to_owned(),
                    store: in_flight.created.to_string(),
                    origin: in_flight.created,
                    reference,
                });
            }
        }
        // One segment serves all channels of a region (R56).
        owed.sort_unstable();
        owed.dedup();
        found.append(&mut owed);
        Ok(found)
    }

    fn parts(&self) -> Result<NewRegion> {
        Ok(NewRegion {
            region: self.0.region.clone(),
            origin: self.origin(),
            operators: self.operators()?,
            in_flight: self.in_flight()?,
            staged: self.staged()?,
            finished: self.finished(),
            failed: self.failed(),
            fallbacks: self.fallbacks(),
            stale_since_ms: self.stale_since_ms(),
            cause: self.0.cause.clone(),
        })
    }
}

/// Returns the size of all in-flight data.
fn check_parts(new: &NewRegion) -> Result<u64> {
    check_length("name of a region", &new.region, MAX_NAME_BYTES)?;
    new.operators.iter().try_for_each(OperatorEntry::check)?;
    check_unique("operator", new.operators.iter().map(|o| o.name.as_str()))?;
    new.staged.iter().try_for_each(Staged::check)?;
    check_in_flight(0, &new.in_flight)
}

/// Returns the size of `in_flight` on top of `owed`.
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
