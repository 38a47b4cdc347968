//! One public error. Its kind tells the caller what to do, and its message has the values to debug.

use std::fmt;

/// Result of every fallible call in this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Says what the caller can do about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The named object does not exist. Restore it, or use a checkpoint that does not need it.
    NotFound,
    /// A name that must be new exists already. Another incarnation is at work: take a new term.
    AlreadyExists,
    /// Bytes on storage are not the bytes that were written. The data must be repaired.
    Corrupt,
    /// Storage refused or failed. Trying again may help.
    Storage,
    /// The call itself is wrong. Fix the call.
    InvalidInput,
    /// The attempt was decided already: late work is not accepted.
    AttemptEnded,
    /// A newer incarnation took over. Stop this one.
    Fenced,
    /// An earlier failure made this object unusable. Open it again.
    Poisoned,
    /// A configured limit was reached. Raise it, or need less.
    LimitExceeded,
    /// Another program or another build wrote this, or this backend has no such operation.
    Unsupported,
    /// A newer Holdfast wrote this, and it is intact. Upgrade: a return to older data would lose it.
    Newer,
}

/// Error of the core. The message names what, where, expected and found values.
#[derive(Debug, thiserror::Error)]
#[error("{message}{}", .source.as_ref().map_or_else(String::new, |e| format!(": {e}")))]
pub struct Error {
    kind: ErrorKind,
    message: String,
    #[source]
    source: Option<std::io::Error>,
}

impl Error {
    /// An error without an operating system cause.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            source: None,
        }
    }

    /// Wraps an I/O error; not-found and already-exists keep their meaning.
    pub fn io(context: impl Into<String>, source: std::io::Error) -> Self {
        let kind = match source.kind() {
            std::io::ErrorKind::NotFound => ErrorKind::NotFound,
            std::io::ErrorKind::AlreadyExists => ErrorKind::AlreadyExists,
            _ => ErrorKind::Storage,
        };
        Self {
            kind,
            message: context.into(),
            source: Some(source),
        }
    }

    /// Shorthand for [`ErrorKind::InvalidInput`].
    pub fn invalid_input(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::InvalidInput, message)
    }

    /// Shorthand for [`ErrorKind::Corrupt`].
    pub fn corrupt(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Corrupt, message)
    }

    /// [`ErrorKind::Newer`]: `what` has version `found`, and this build reads up to `newest`.
    pub fn newer(what: &str, newest: impl fmt::Display, found: impl fmt::Display) -> Self {
        Self::new(
            ErrorKind::Newer,
            format!(
                "{what}: this build reads up to {newest}, found {found}: a newer Holdfast wrote it, \
                 and it is intact. Upgrade Holdfast to read it"
            ),
        )
    }

    /// Says what the caller can do about it.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Message and the system's number of the cause. Without a number the message has the cause.
    pub fn parts(&self) -> (String, Option<i32>) {
        match self.source.as_ref().map(std::io::Error::raw_os_error) {
            Some(Some(errno)) => (self.message.clone(), Some(errno)),
            _ => (self.to_string(), None),
        }
    }

    /// Inverse of [`Error::parts`].
    pub fn from_parts(kind: ErrorKind, message: String, errno: Option<i32>) -> Self {
        Self {
            kind,
            message,
            source: errno.map(std::io::Error::from_raw_os_error),
        }
    }

    /// The bytes to read are altered or gone. Another copy, or older segments, may serve instead.
    pub fn is_damage(&self) -> bool {
        matches!(self.kind, ErrorKind::Corrupt | ErrorKind::NotFound)
    }

    /// The disk, or the user's share of it, is full: a retry may work once there is space.
    pub(crate) fn is_out_of_space(&self) -> bool {
        use std::io::ErrorKind::{QuotaExceeded, StorageFull};
        let kind = self.source.as_ref().map(std::io::Error::kind);
        matches!(kind, Some(StorageFull | QuotaExceeded))
    }

    /// Puts the action that failed in front of the message.
    #[must_use]
    pub fn context(mut self, what: impl fmt::Display) -> Self {
        self.message = format!("{what}: {}", self.message);
        self
    }
}
