//! The slots of a store that leave memory, oldest sessions first.

use std::cmp::Ordering;
use std::collections::BTreeMap;

/// Evicts all slots that were last touched before session `newest`, and so many bytes of those that
/// `newest` touched last, which may be nearly all after a load.
#[derive(Debug, Default)]
pub(crate) struct Eviction {
    newest: Option<u32>,
    bytes_of_newest: usize,
}

impl Eviction {
    /// Evicts `bytes`, or a little more. `ages` are those that can go, by the session of their last
    /// use.
    pub fn of(bytes: usize, ages: BTreeMap<u32, usize>) -> Self {
        let mut eviction = Self::default();
        let mut left = bytes;
        for (session, of_session) in ages {
            if left == 0 {
                break;
            }
            eviction = Self {
                newest: Some(session),
                bytes_of_newest: left,
            };
            left = left.saturating_sub(of_session);
        }
        eviction
    }

    /// Returns whether a slot goes that `session` touched last.
    pub fn reaches(&self, session: u32) -> bool {
        match Some(session).cmp(&self.newest) {
            Ordering::Less => true,
            Ordering::Equal => self.bytes_of_newest > 0,
            Ordering::Greater => false,
        }
    }

    /// Returns whether the next slot goes, which takes `bytes` and was last touched by `session`.
    pub fn takes(&mut self, session: u32, bytes: usize) -> bool {
        let goes = self.reaches(session);
        if goes && Some(session) == self.newest {
            self.bytes_of_newest = self.bytes_of_newest.saturating_sub(bytes);
        }
        goes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sessions of the slots that stay, of ten slots of 10 bytes in each of the sessions 1 to 3.
    fn left(bytes: usize) -> [usize; 3] {
        let mut eviction = Eviction::of(bytes, (1..4).map(|session| (session, 100)).collect());
        [3, 1, 2].map(|session| (0..10).filter(|_| !eviction.takes(session, 10)).count())
    }

    #[test]
    fn what_was_not_touched_for_longest_goes_and_of_the_last_session_a_part() {
        assert_eq!(left(0), [10, 10, 10]);
        assert_eq!(left(1), [10, 9, 10]);
        assert_eq!(left(100), [10, 0, 10]);
        assert_eq!(left(101), [10, 0, 9]);
        assert_eq!(left(245), [5, 0, 0]);
        assert_eq!(left(usize::MAX), [0, 0, 0]);
    }
}
