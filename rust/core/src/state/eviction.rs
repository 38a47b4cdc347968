//! What is to leave memory of a store, its oldest sessions first.

use std::cmp::Ordering;
use std::collections::BTreeMap;

/// All that no session touched since `newest`, and of what that one touched last so many bytes: it may be
/// nearly everything, as after a load.
#[derive(Debug, Default)]
pub(super) struct Eviction {
    newest: Option<u32>,
    bytes_of_newest: usize,
}

impl Eviction {
    /// Of `bytes`, or a little more; `ages` says how many each session could give up that touched them last.
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

    /// Whether anything goes that `session` touched last.
    pub fn reaches(&self, session: u32) -> bool {
        match Some(session).cmp(&self.newest) {
            Ordering::Less => true,
            Ordering::Equal => self.bytes_of_newest > 0,
            Ordering::Greater => false,
        }
    }

    /// Whether the next slot goes, which takes so much memory and `session` touched last.
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
