//! Errors in transit through a socket. They keep their kind and the system's error number.

use holdfast_core::{Error, ErrorKind};
use prost::{Enumeration, Message};

#[derive(Clone, PartialEq, Message)]
pub(super) struct FailureMessage {
    #[prost(uint32, tag = "1")]
    kind: u32,
    #[prost(string, tag = "2")]
    message: String,
    /// Number of the system's error that is the cause, if there is one.
    #[prost(int32, optional, tag = "3")]
    errno: Option<i32>,
    /// A [`Fate`].
    #[prost(int32, tag = "4")]
    fate: i32,
}

/// Future of a connection after a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enumeration)]
#[repr(i32)]
pub(super) enum Fate {
    Stays = 0,
    Closes = 1,
    /// The server closes it and did nothing, so the client should connect again.
    Over = 2,
}

/// Stable number of a kind. No kind has 0, so a missing field is noticed.
const KINDS: [(u32, ErrorKind); 11] = [
    (1, ErrorKind::NotFound),
    (2, ErrorKind::AlreadyExists),
    (3, ErrorKind::Corrupt),
    (4, ErrorKind::Storage),
    (5, ErrorKind::InvalidInput),
    (6, ErrorKind::AttemptEnded),
    (7, ErrorKind::Fenced),
    (8, ErrorKind::Poisoned),
    (9, ErrorKind::LimitExceeded),
    (10, ErrorKind::Unsupported),
    (11, ErrorKind::Newer),
];

/// Longer texts are cut, because a message has a bound.
const MAX_TEXT_BYTES: usize = 64 << 10;

impl FailureMessage {
    pub fn of(error: &Error, fate: Fate) -> Self {
        let number = KINDS.iter().find(|(_, kind)| *kind == error.kind());
        let (mut message, errno) = error.parts();
        if message.len() > MAX_TEXT_BYTES {
            message.truncate(message.floor_char_boundary(MAX_TEXT_BYTES));
        }
        Self {
            kind: number.map_or(0, |(number, _)| *number),
            message,
            errno,
            fate: fate.into(),
        }
    }

    /// An unknown value is from a later version: to close the connection is always right.
    pub fn fate(&self) -> Fate {
        Fate::try_from(self.fate).unwrap_or(Fate::Closes)
    }

    pub fn into_error(self) -> Error {
        let kind = KINDS.iter().find(|(number, _)| *number == self.kind);
        let kind = kind.map_or(ErrorKind::Storage, |(_, kind)| *kind);
        Error::from_parts(kind, self.message, self.errno)
    }
}

#[cfg(test)]
#[path = "failure_tests.rs"]
mod tests;
