//! Messages of the metadata file. Most have a public type beside them, in which kinds, references and
//! "either in segments or inline" are checked.

use prost::Message;
use prost::bytes::Bytes;

use super::entry::{
    InFlight, InFlightPlace, OperatorEntry, Piece, Staged, StateContent, StateEntry, StateKind,
};
use crate::error::{Error, Result};
use crate::ids::{CheckpointId, SegmentRef};

#[derive(Clone, PartialEq, Message)]
pub(super) struct HeaderMessage {
    #[prost(uint32, tag = "1")]
    pub version: u32,
    #[prost(uint64, tag = "2")]
    pub id: u64,
    #[prost(sint64, tag = "3")]
    pub batch_id: i64,
    #[prost(uint32, tag = "4")]
    pub kind: u32,
    #[prost(uint64, tag = "5")]
    pub created_ms: u64,
    #[prost(bytes = "vec", tag = "6")]
    pub topology: Vec<u8>,
    #[prost(uint64, tag = "7")]
    pub consecutive_regional: u64,
    #[prost(bool, tag = "8")]
    pub force_global: bool,
    #[prost(string, repeated, tag = "9")]
    pub finished_operators: Vec<String>,
    #[prost(btree_map = "string, string", tag = "10")]
    pub properties: std::collections::BTreeMap<String, String>,
}

/// A region's entry. The three lists stay encoded: each is the encoding of a message with nothing
/// but a repeated field, so that joining two lists is joining their bytes.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub(super) struct RegionMessage {
    #[prost(string, tag = "1")]
    pub region: String,
    #[prost(uint64, tag = "2")]
    pub origin: u64,
    #[prost(bool, tag = "3")]
    pub failed: bool,
    #[prost(bool, tag = "4")]
    pub finished: bool,
    #[prost(uint64, tag = "5")]
    pub fallbacks: u64,
    #[prost(uint64, optional, tag = "6")]
    pub stale_since_ms: Option<u64>,
    #[prost(string, tag = "7")]
    pub cause: String,
    #[prost(uint64, tag = "8")]
    pub in_flight_bytes: u64,
    #[prost(bytes = "bytes", tag = "9")]
    pub operators: Bytes,
    #[prost(bytes = "bytes", tag = "10")]
    pub in_flight: Bytes,
    #[prost(bytes = "bytes", tag = "11")]
    pub staged: Bytes,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct CoordinatorMessage {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(bytes = "vec", tag = "2")]
    pub snapshot: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct OperatorList {
    #[prost(message, repeated, tag = "1")]
    items: Vec<OperatorMessage>,
}

#[derive(Clone, PartialEq, Message)]
struct OperatorMessage {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(bool, tag = "2")]
    finished: bool,
    #[prost(message, repeated, tag = "3")]
    states: Vec<StateMessage>,
}

#[derive(Clone, PartialEq, Message)]
struct StateMessage {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(uint32, tag = "2")]
    kind: u32,
    #[prost(string, tag = "3")]
    dtype: String,
    #[prost(uint64, repeated, tag = "4")]
    shape: Vec<u64>,
    #[prost(message, repeated, tag = "5")]
    pieces: Vec<PieceMessage>,
    #[prost(bytes = "vec", optional, tag = "6")]
    inline: Option<Vec<u8>>,
}

#[derive(Clone, PartialEq, Message)]
struct PieceMessage {
    #[prost(bytes = "vec", tag = "1")]
    reference: Vec<u8>,
    #[prost(uint64, tag = "2")]
    payload_offset: u64,
    #[prost(uint64, tag = "3")]
    length: u64,
}

#[derive(Clone, PartialEq, Message)]
struct InFlightList {
    #[prost(message, repeated, tag = "1")]
    items: Vec<InFlightMessage>,
}

#[derive(Clone, PartialEq, Message)]
struct InFlightMessage {
    #[prost(uint64, tag = "1")]
    created: u64,
    #[prost(string, tag = "2")]
    channel: String,
    #[prost(uint64, tag = "3")]
    rows: u64,
    #[prost(uint64, tag = "4")]
    bytes: u64,
    #[prost(bytes = "vec", optional, tag = "5")]
    reference: Option<Vec<u8>>,
    #[prost(bytes = "vec", optional, tag = "6")]
    inline: Option<Vec<u8>>,
}

#[derive(Clone, PartialEq, Message)]
struct StagedList {
    #[prost(message, repeated, tag = "1")]
    items: Vec<Staged>,
}

/// Decodes any message; the error says of what.
pub(super) fn decode<M: Message + Default>(what: &str, bytes: impl prost::bytes::Buf) -> Result<M> {
    M::decode(bytes).map_err(|e| Error::corrupt(format!("{what} cannot be decoded: {e}")))
}

pub(super) fn encode_operators(operators: &[OperatorEntry]) -> Bytes {
    let items = operators.iter().map(OperatorMessage::from).collect();
    OperatorList { items }.encode_to_vec().into()
}

pub(super) fn decode_operators(bytes: &[u8]) -> Result<Vec<OperatorEntry>> {
    let list: OperatorList = decode("list of operators", bytes)?;
    list.items.into_iter().map(TryFrom::try_from).collect()
}

pub(super) fn encode_in_flight(in_flight: &[InFlight]) -> Bytes {
    let items = in_flight.iter().map(InFlightMessage::from).collect();
    InFlightList { items }.encode_to_vec().into()
}

pub(super) fn decode_in_flight(bytes: &[u8]) -> Result<Vec<InFlight>> {
    let list: InFlightList = decode("list of in-flight data", bytes)?;
    list.items.into_iter().map(TryFrom::try_from).collect()
}

pub(super) fn encode_staged(staged: &[Staged]) -> Bytes {
    let items = staged.to_vec();
    StagedList { items }.encode_to_vec().into()
}

pub(super) fn decode_staged(bytes: &[u8]) -> Result<Vec<Staged>> {
    let list: StagedList = decode("list of staged files", bytes)?;
    Ok(list.items)
}

fn reference_from(bytes: &[u8]) -> Result<SegmentRef> {
    SegmentRef::from_bytes(bytes).map_err(|e| Error::corrupt(e.to_string()))
}

impl From<&OperatorEntry> for OperatorMessage {
    fn from(entry: &OperatorEntry) -> Self {
        Self {
            name: entry.name.clone(),
            finished: entry.finished,
            states: entry.states.iter().map(StateMessage::from).collect(),
        }
    }
}

impl TryFrom<OperatorMessage> for OperatorEntry {
    type Error = Error;

    fn try_from(message: OperatorMessage) -> Result<Self> {
        let states: Result<Vec<_>> = message.states.into_iter().map(TryFrom::try_from).collect();
        Ok(Self {
            name: message.name,
            states: states?,
            finished: message.finished,
        })
    }
}

impl From<&StateEntry> for StateMessage {
    fn from(entry: &StateEntry) -> Self {
        let (pieces, inline) = match &entry.content {
            StateContent::Pieces(pieces) => (pieces.iter().map(PieceMessage::from).collect(), None),
            StateContent::Inline(bytes) => (Vec::new(), Some(bytes.clone())),
        };
        Self {
            name: entry.name.clone(),
            kind: entry.kind.tag(),
            dtype: entry.dtype.clone(),
            shape: entry.shape.clone(),
            pieces,
            inline,
        }
    }
}

impl TryFrom<StateMessage> for StateEntry {
    type Error = Error;

    fn try_from(message: StateMessage) -> Result<Self> {
        let kind = StateKind::from_tag(message.kind).ok_or_else(|| {
            Error::corrupt(format!(
                "kind of a state: expected 1 to 5, found {}",
                message.kind
            ))
        })?;
        let pieces: Result<Vec<_>> = message.pieces.into_iter().map(TryFrom::try_from).collect();
        let content = match (pieces?, message.inline) {
            (pieces, None) => StateContent::Pieces(pieces),
            (pieces, Some(bytes)) if pieces.is_empty() => StateContent::Inline(bytes),
            _ => return Err(Error::corrupt("a state both in segments and inline")),
        };
        Ok(Self {
            name: message.name,
            kind,
            dtype: message.dtype,
            shape: message.shape,
            content,
        })
    }
}

impl From<&Piece> for PieceMessage {
    fn from(piece: &Piece) -> Self {
        Self {
            reference: piece.reference.to_bytes().to_vec(),
            payload_offset: piece.payload_offset,
            length: piece.length,
        }
    }
}

impl TryFrom<PieceMessage> for Piece {
    type Error = Error;

    fn try_from(message: PieceMessage) -> Result<Self> {
        Ok(Self {
            reference: reference_from(&message.reference)?,
            payload_offset: message.payload_offset,
            length: message.length,
        })
    }
}

impl From<&InFlight> for InFlightMessage {
    fn from(in_flight: &InFlight) -> Self {
        let (reference, inline) = match &in_flight.place {
            InFlightPlace::Segment(reference) => (Some(reference.to_bytes().to_vec()), None),
            InFlightPlace::Inline(bytes) => (None, Some(bytes.clone())),
        };
        Self {
            created: in_flight.created.0,
            channel: in_flight.channel.clone(),
            rows: in_flight.rows,
            bytes: in_flight.bytes,
            reference,
            inline,
        }
    }
}

impl TryFrom<InFlightMessage> for InFlight {
    type Error = Error;

    fn try_from(message: InFlightMessage) -> Result<Self> {
        let place = match (message.reference, message.inline) {
            (Some(reference), None) => InFlightPlace::Segment(reference_from(&reference)?),
            (None, Some(bytes)) => InFlightPlace::Inline(bytes),
            _ => {
                return Err(Error::corrupt(
                    "in-flight data: expected it either in a segment or inline",
                ));
            }
        };
        Ok(Self {
            created: CheckpointId(message.created),
            channel: message.channel,
            rows: message.rows,
            bytes: message.bytes,
            place,
        })
    }
}
