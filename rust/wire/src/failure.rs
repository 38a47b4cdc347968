//! Errors on their way through a socket. They keep their kind and the system's error number.

use holdfast_core::{Error, ErrorKind};
use prost::{Enumeration, Message};

#[derive(Clone, PartialEq, Message)]
pub(super) struct FailureMessage {
    #[prost(uint32, tag = "1")]
    kind: u32,
    #[prost(string, tag = "2")]
    message: String,
    /// Number of the system's error behind it, if there is one.
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

    /// An unknown value comes from a later version: to close the connection is always right.
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
mod tests {
    use super::*;

    #[test]
    fn every_kind_arrives_as_itself() {
        for (number, kind) in KINDS {
            let sent = FailureMessage::of(&Error::new(kind, "what happened"), Fate::Stays);
            assert_eq!(sent.kind, number);
            let received = sent.into_error();
            assert_eq!(received.kind(), kind);
            assert_eq!(received.to_string(), "what happened");
        }
    }

    #[test]
    fn a_number_of_the_system_arrives_with_the_same_text() {
        let disk_full = std::io::Error::from_raw_os_error(28);
        let error = Error::io("appending to /data/file", disk_full);
        let received = FailureMessage::of(&error, Fate::Stays).into_error();
        assert_eq!(received.to_string(), error.to_string());
        let source = std::error::Error::source(&received).map(ToString::to_string);
        assert_eq!(
            source,
            std::error::Error::source(&error).map(ToString::to_string)
        );
    }

    #[test]
    fn a_cause_without_a_number_stays_in_the_text() {
        let error = Error::io("reading", std::io::Error::other("broken"));
        let received = FailureMessage::of(&error, Fate::Stays).into_error();
        assert_eq!(received.to_string(), "reading: broken");
    }

    #[test]
    fn an_endless_text_is_cut_between_characters() {
        let error = Error::invalid_input("ä".repeat(MAX_TEXT_BYTES));
        let received = FailureMessage::of(&error, Fate::Stays).into_error();
        assert!(received.to_string().len() <= MAX_TEXT_BYTES);
    }
}
