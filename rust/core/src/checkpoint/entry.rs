//! The parts of a region's entry: states of operators, in-flight data, staged files.

use prost::Message;

use super::{
    IN_FLIGHT_OPERATOR, MAX_NAME_BYTES, MAX_PATH_BYTES, check_length, check_name, check_unique,
};
use crate::error::{Error, Result};
use crate::ids::{CheckpointId, SegmentRef};

/// Bytes of a state inside the payload of a segment.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Piece {
    /// The segment.
    pub reference: SegmentRef,
    /// Offset in its payload.
    pub payload_offset: u64,
    /// Length in bytes.
    pub length: u64,
}

/// Redistribution of a state when the regions change (R73).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StateKind {
    /// An array that follows its region.
    Array = 1,
    /// A single value that follows its region.
    Value = 2,
    /// Elements that are split evenly.
    List = 3,
    /// Elements that all go to every region.
    Union = 4,
    /// The same content in every region, which is copied.
    Broadcast = 5,
    /// Rows by key, which go where the other rows of their keys go.
    Table = 6,
}

impl StateKind {
    /// All kinds.
    pub const ALL: [Self; 6] = [
        Self::Array,
        Self::Value,
        Self::List,
        Self::Union,
        Self::Broadcast,
        Self::Table,
    ];

    /// Stable number, as stored.
    pub fn tag(self) -> u32 {
        self as u32
    }

    /// Inverse of [`StateKind::tag`].
    pub fn from_tag(tag: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.tag() == tag)
    }

    /// Name, for people and for Python.
    pub fn name(self) -> &'static str {
        match self {
            Self::Array => "array",
            Self::Value => "value",
            Self::List => "list",
            Self::Union => "union",
            Self::Broadcast => "broadcast",
            Self::Table => "table",
        }
    }
}

/// The bytes of a state.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum StateContent {
    /// In segments, in this order.
    Pieces(Vec<Piece>),
    /// Few bytes, here.
    Inline(Vec<u8>),
    /// A table, and no other kind of state.
    Table {
        /// The segments that it is made of, oldest first: pieces of offset 0 and length 0.
        pieces: Vec<Piece>,
        /// Its columns and its commit.
        description: Vec<u8>,
    },
}

impl StateContent {
    /// The places in segments.
    pub fn pieces(&self) -> &[Piece] {
        match self {
            Self::Pieces(pieces) | Self::Table { pieces, .. } => pieces,
            Self::Inline(_) => &[],
        }
    }
}

/// A state of an operator in a region: type, shape, bytes. Readable without the writer's program.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct StateEntry {
    /// Its name in the operator: the store of its owner.
    pub name: String,
    /// Its redistribution.
    pub kind: StateKind,
    /// Type string of NumPy's array interface, such as `<f8`. May be empty unless it is an array.
    pub dtype: String,
    /// Length of each dimension.
    pub shape: Vec<u64>,
    /// Its bytes.
    pub content: StateContent,
}

impl StateEntry {
    /// # Errors
    /// `InvalidInput` for a wrong name or type.
    pub fn check(&self) -> Result<()> {
        check_name("name of a state", &self.name)?;
        let is_table = matches!(self.content, StateContent::Table { .. });
        if is_table != (self.kind == StateKind::Table) {
            return Err(Error::invalid_input(format!(
                "state {:?} is a {}: only a table has both segments and a description, and every table has",
                self.name,
                self.kind.name()
            )));
        }
        let untyped = self.dtype.is_empty() && self.kind != StateKind::Array;
        if untyped || is_type_string(&self.dtype) {
            return Ok(());
        }
        Err(Error::invalid_input(format!(
            "dtype of state {:?}: expected a type string of NumPy's array interface such as \
             \"<f8\", found {:?}",
            self.name, self.dtype
        )))
    }
}

/// Returns whether `text` has byte order, kind, size in bytes, and for times a unit: `<f8`, `|b1`,
/// `<M8[ns]`. Objects (`O`) have no bytes of their own.
fn is_type_string(text: &str) -> bool {
    let mut rest = text.chars();
    let (order, kind) = (rest.next(), rest.next());
    let (size, unit) = match rest.as_str().split_once('[') {
        None => (rest.as_str(), None),
        Some((size, unit)) => (size, Some(unit)),
    };
    let unit_fits = unit.is_none_or(|unit| {
        let unit = unit.strip_suffix(']').unwrap_or_default();
        matches!(kind, Some('m' | 'M'))
            && (1..=16).contains(&unit.len())
            && unit.bytes().all(|b| b.is_ascii_alphanumeric())
    });
    matches!(order, Some('<' | '>' | '|'))
        && matches!(
            kind,
            Some('b' | 'i' | 'u' | 'f' | 'c' | 'm' | 'M' | 'S' | 'U' | 'V')
        )
        && (1..=10).contains(&size.len())
        && size.bytes().all(|b| b.is_ascii_digit())
        && unit_fits
}

/// The states of one operator in a region.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct OperatorEntry {
    /// Its name in the pipeline.
    pub name: String,
    /// Its states.
    pub states: Vec<StateEntry>,
    /// It has seen the end of its data in this region.
    pub finished: bool,
}

impl OperatorEntry {
    /// # Errors
    /// `InvalidInput` for a wrong name, or a state that occurs twice.
    pub fn check(&self) -> Result<()> {
        check_name("name of an operator", &self.name)?;
        if self.name == IN_FLIGHT_OPERATOR {
            return Err(Error::invalid_input(format!(
                "an operator cannot be called {IN_FLIGHT_OPERATOR:?}: that owns the in-flight data"
            )));
        }
        self.states
            .iter()
            .try_for_each(StateEntry::check)
            .and_then(|()| check_unique("state", self.states.iter().map(|s| s.name.as_str())))
            .map_err(|e| e.context(format!("operator {:?}", self.name)))
    }
}

/// The place of in-flight data.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum InFlightPlace {
    /// In a segment.
    Segment(SegmentRef),
    /// Little data, here.
    Inline(Vec<u8>),
}

/// Pending rows of a region: a checkpoint covers them, but its state does not reflect them yet.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct InFlight {
    /// Checkpoint that stored them.
    pub created: CheckpointId,
    /// Channel they belong to.
    pub channel: String,
    /// Number of rows.
    pub rows: u64,
    /// Their size in bytes.
    pub bytes: u64,
    /// Their place.
    pub place: InFlightPlace,
}

impl InFlight {
    /// # Errors
    /// `InvalidInput` for a name that is too long.
    pub fn check(&self) -> Result<()> {
        check_length("channel of in-flight data", &self.channel, MAX_NAME_BYTES)
    }
}

/// A file that a two-phase sink staged, in memory and as stored.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct Staged {
    /// Its path now.
    #[prost(string, tag = "1")]
    pub path: String,
    /// Its path once it is committed.
    #[prost(string, tag = "2")]
    pub target: String,
    /// Number of rows.
    #[prost(uint64, tag = "3")]
    pub rows: u64,
    /// Its size in bytes.
    #[prost(uint64, tag = "4")]
    pub bytes: u64,
    /// The side output that it belongs to; empty for the main output.
    #[prost(string, tag = "5")]
    pub output: String,
}

impl Staged {
    /// # Errors
    /// `InvalidInput` for an empty path, or a path or a name that is too long.
    pub fn check(&self) -> Result<()> {
        check_length("output of a staged file", &self.output, MAX_NAME_BYTES)?;
        for (what, path) in [("path", &self.path), ("target", &self.target)] {
            if path.is_empty() {
                return Err(Error::invalid_input(format!(
                    "{what} of a staged file is empty"
                )));
            }
            check_length(&format!("{what} of a staged file"), path, MAX_PATH_BYTES)?;
        }
        Ok(())
    }
}
