//! The range of keys of a scan.

/// The range of keys of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyRange<'a> {
    /// All keys.
    All,
    /// Keys that begin with these bytes.
    Prefix(&'a [u8]),
    /// Keys from `from` (inclusive) to `to` (exclusive); `None` is no bound.
    Between {
        /// Smallest key.
        from: Option<&'a [u8]>,
        /// First key that is too large.
        to: Option<&'a [u8]>,
    },
}

impl<'a> KeyRange<'a> {
    /// The range with this prefix, or else from the second bound to the third.
    pub fn of([prefix, from, to]: [&'a Option<Vec<u8>>; 3]) -> Self {
        match (prefix, from, to) {
            (Some(prefix), ..) => Self::Prefix(prefix),
            (None, None, None) => Self::All,
            (None, from, to) => Self::Between {
                from: from.as_deref(),
                to: to.as_deref(),
            },
        }
    }

    /// Inverse of [`KeyRange::of`].
    pub fn bounds(self) -> [Option<&'a [u8]>; 3] {
        match self {
            Self::All => [None; 3],
            Self::Prefix(prefix) => [Some(prefix), None, None],
            Self::Between { from, to } => [None, from, to],
        }
    }
}
