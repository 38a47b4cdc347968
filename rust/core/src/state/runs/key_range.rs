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
