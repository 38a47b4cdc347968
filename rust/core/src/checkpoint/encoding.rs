//! Messages of the entries of regions. Most have a public type, which checks kinds, references and
//! "either in segments or inline".

use prost::Message;
use prost::bytes::Bytes;

use super::entry::{
    InFlight, InFlightPlace, OperatorEntry, Piece, Staged, StateContent, StateEntry, StateKind,
};
use crate::error::{Error, Result};
use crate::format::decode;
use crate::ids::{CheckpointId, SegmentRef};

/// A region's entry. The three lists stay encoded, each as a message with one repeated field: to
/// join two lists, join their bytes.
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

pub(super) fn encode_operators(operators: &[OperatorEntry]) -> Bytes {
    let message = |operator: &OperatorEntry| OperatorMessage {
        name: operator.name.clone(),
        finished: operator.finished,
        states: operator.states.iter().map(state_message).collect(),
    };
    let items = operators.iter().map(message).collect();
    OperatorList { items }.encode_to_vec().into()
}

pub(super) fn decode_operators(bytes: &[u8]) -> Result<Vec<OperatorEntry>> {
    let list: OperatorList = decode("list of operators", bytes)?;
    let operator = |message: OperatorMessage| {
        let states = message.states.into_iter().map(state_from);
        Ok(OperatorEntry {
            name: message.name,
            states: states.collect::<Result<_>>()?,
            finished: message.finished,
        })
    };
    list.items.into_iter().map(operator).collect()
}

pub(super) fn encode_in_flight(in_flight: &[InFlight]) -> Bytes {
    let items = in_flight.iter().map(in_flight_message).collect();
    InFlightList { items }.encode_to_vec().into()
}

pub(super) fn decode_in_flight(bytes: &[u8]) -> Result<Vec<InFlight>> {
    let list: InFlightList = decode("list of in-flight data", bytes)?;
    list.items.into_iter().map(in_flight_from).collect()
}

pub(super) fn encode_staged(staged: &[Staged]) -> Bytes {
    let items = staged.to_vec();
    StagedList { items }.encode_to_vec().into()
}

pub(super) fn decode_staged(bytes: &[u8]) -> Result<Vec<Staged>> {
    Ok(decode::<StagedList>("list of staged files", bytes)?.items)
}

fn reference_from(bytes: &[u8]) -> Result<SegmentRef> {
    SegmentRef::from_bytes(bytes).map_err(|e| Error::corrupt(e.to_string()))
}

fn state_message(state: &StateEntry) -> StateMessage {
    let message = |piece: &Piece| PieceMessage {
        reference: piece.reference.to_bytes().to_vec(),
        payload_offset: piece.payload_offset,
        length: piece.length,
    };
    let pieces = state.content.pieces().iter().map(message).collect();
    let inline = match &state.content {
        StateContent::Pieces(_) => None,
        StateContent::Inline(bytes) => Some(bytes.clone()),
        StateContent::Table { description, .. } => Some(description.clone()),
    };
    StateMessage {
        name: state.name.clone(),
        kind: state.kind.tag(),
        dtype: state.dtype.clone(),
        shape: state.shape.clone(),
        pieces,
        inline,
    }
}

fn state_from(message: StateMessage) -> Result<StateEntry> {
    let kind = StateKind::from_tag(message.kind).ok_or_else(|| {
        let (newest, found) = (StateKind::Table.tag(), message.kind);
        if found > newest {
            return Error::newer("kind of a state", newest, found);
        }
        Error::corrupt(format!(
            "kind of a state: expected 1 to {newest}, found {found}"
        ))
    })?;
    let piece = |piece: PieceMessage| {
        Ok(Piece {
            reference: reference_from(&piece.reference)?,
            payload_offset: piece.payload_offset,
            length: piece.length,
        })
    };
    let pieces = message.pieces.into_iter().map(piece);
    let pieces = pieces.collect::<Result<Vec<_>>>()?;
    let content = match message.inline {
        Some(description) if kind == StateKind::Table => StateContent::Table {
            pieces,
            description,
        },
        None => StateContent::Pieces(pieces),
        Some(bytes) if pieces.is_empty() => StateContent::Inline(bytes),
        Some(_) => return Err(Error::corrupt("a state both in segments and inline")),
    };
    Ok(StateEntry {
        name: message.name,
        kind,
        dtype: message.dtype,
        shape: message.shape,
        content,
    })
}

fn in_flight_message(in_flight: &InFlight) -> InFlightMessage {
    let (reference, inline) = match &in_flight.place {
        InFlightPlace::Segment(reference) => (Some(reference.to_bytes().to_vec()), None),
        InFlightPlace::Inline(bytes) => (None, Some(bytes.clone())),
    };
    InFlightMessage {
        created: in_flight.created.0,
        channel: in_flight.channel.clone(),
        rows: in_flight.rows,
        bytes: in_flight.bytes,
        reference,
        inline,
    }
}

fn in_flight_from(message: InFlightMessage) -> Result<InFlight> {
    let place = match (message.reference, message.inline) {
        (Some(reference), None) => InFlightPlace::Segment(reference_from(&reference)?),
        (None, Some(bytes)) => InFlightPlace::Inline(bytes),
        _ => {
            return Err(Error::corrupt(
                "in-flight data: expected it either in a segment or inline",
            ));
        }
    };
    Ok(InFlight {
        created: CheckpointId(message.created),
        channel: message.channel,
        rows: message.rows,
        bytes: message.bytes,
        place,
    })
}
