//! A streaming merge of sorted entries, newest change first.

use std::cmp::Ordering;

use super::entries::Change;
use super::entry_stream::EntryStream;
use crate::error::Result;

/// Bytes of a key that the heap has at hand: most keys of one owner differ in them.
const HEAD_BYTES: usize = 16;

/// The entries of several inputs in the order of their keys, each key once: with what the newest input
/// that has the key does to it.
#[derive(Debug)]
pub(super) struct Merge {
    /// Oldest first.
    inputs: Vec<EntryStream>,
    /// The inputs that have a current entry, as a heap: the smallest key first, of equal keys that of
    /// the newest input.
    heap: Vec<Current>,
    /// The first in the heap was handed out.
    handed_out: bool,
}

/// An input that has a current entry.
#[derive(Clone, Copy, Debug)]
struct Current {
    /// First bytes of its key, big-endian; behind the end of the key are zeros.
    head: u128,
    input: usize,
}

impl Current {
    fn new(input: usize, entries: &EntryStream) -> Self {
        let mut head = [0; HEAD_BYTES];
        let key = entries.key();
        let len = key.len().min(HEAD_BYTES);
        if let (Some(to), Some(from)) = (head.get_mut(..len), key.get(..len)) {
            to.copy_from_slice(from);
        }
        Self {
            head: u128::from_be_bytes(head),
            input,
        }
    }
}

impl Merge {
    /// Merges `inputs`, oldest first.
    ///
    /// # Errors
    /// Those of [`EntryStream::advance`].
    pub fn new(inputs: Vec<EntryStream>) -> Result<Self> {
        let mut merge = Self {
            heap: Vec::with_capacity(inputs.len()),
            inputs,
            handed_out: false,
        };
        for (number, input) in merge.inputs.iter_mut().enumerate() {
            if input.advance()? {
                merge.heap.push(Current::new(number, input));
            }
        }
        for place in (0..merge.heap.len() / 2).rev() {
            merge.sift_down(place);
        }
        Ok(merge)
    }

    /// The next key and what became of it.
    ///
    /// # Errors
    /// Those of [`EntryStream::advance`]: what was handed out before is not to be trusted.
    #[allow(clippy::should_implement_trait)] // lends from itself
    pub fn next(&mut self) -> Result<Option<(&[u8], Change<'_>)>> {
        if std::mem::take(&mut self.handed_out) {
            self.leave_key()?;
        }
        let first = self.heap.first().and_then(|at| self.inputs.get(at.input));
        self.handed_out = first.is_some();
        Ok(first.map(|input| (input.key(), input.change())))
    }

    /// Moves all inputs behind the key of the first one.
    fn leave_key(&mut self) -> Result<()> {
        // In a heap an equal key lies below an equal key: the older ones go first.
        while let Some(place) = [1, 2].into_iter().find(|place| self.is_same(*place)) {
            self.advance_at(place)?;
        }
        self.advance_at(0)
    }

    /// The key at `place` of the heap is that of the first.
    fn is_same(&self, place: usize) -> bool {
        let (Some(first), Some(other)) = (self.heap.first(), self.heap.get(place)) else {
            return false;
        };
        first.head == other.head && self.compare(first, other) == Ordering::Equal
    }

    /// Moves the input at `place` of the heap to its next entry.
    fn advance_at(&mut self, place: usize) -> Result<()> {
        let at = self.heap.get_mut(place);
        let found = at.and_then(|at| Some((self.inputs.get_mut(at.input)?, at)));
        if let Some((input, at)) = found {
            if input.advance()? {
                *at = Current::new(at.input, input);
            } else {
                self.heap.swap_remove(place);
            }
        }
        self.sift_down(place);
        Ok(())
    }

    fn sift_down(&mut self, mut place: usize) {
        loop {
            let left = 2 * place + 1;
            let child = if self.is_before(left + 1, left) {
                left + 1
            } else {
                left
            };
            if !self.is_before(child, place) {
                return;
            }
            self.heap.swap(child, place);
            place = child;
        }
    }

    /// What is at place `a` of the heap comes before what is at `b`; false where nothing is at `a`.
    fn is_before(&self, a: usize, b: usize) -> bool {
        let (Some(a), Some(b)) = (self.heap.get(a), self.heap.get(b)) else {
            return false;
        };
        match a.head.cmp(&b.head).then_with(|| self.compare(a, b)) {
            Ordering::Less => true,
            Ordering::Equal => a.input > b.input,
            Ordering::Greater => false,
        }
    }

    /// Compares whole keys.
    fn compare(&self, a: &Current, b: &Current) -> Ordering {
        let key = |at: &Current| self.inputs.get(at.input).map(EntryStream::key);
        key(a).cmp(&key(b))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::collections::BTreeMap;

    use super::super::entries::ChangeWriter;
    use super::*;
    use crate::format::{Segment, SegmentHead, SegmentKind};
    use crate::ids::{CheckpointId, Owner};
    use proptest::prelude::*;

    type Input = BTreeMap<Vec<u8>, Option<u16>>;

    fn stream(input: &Input) -> EntryStream {
        let mut writer = ChangeWriter::default();
        for (key, value) in input {
            let bytes = value.map(u16::to_le_bytes);
            let change = bytes.as_ref().map_or(Change::Remove, |v| Change::Put(v));
            writer.push(&[], key, change);
        }
        let head = SegmentHead {
            owner: Owner::new("", "0", "0", "default"),
            created: CheckpointId(1),
            kind: SegmentKind::Changelog,
            lineage: Vec::new(),
            replaced: None,
            journal: None,
            payload_bytes: 0,
            entries: writer.entries(),
            tables: Vec::new(),
            runs: 0,
        };
        EntryStream::of_segment(Segment {
            head,
            payload: writer.into_bytes(),
        })
    }

    /// Keys of every length around that of the heads, many of which have equal ones.
    fn key() -> impl Strategy<Value = Vec<u8>> {
        let zeros = prop::sample::select(vec![0usize, 7, 15, 16, 17]);
        let end = prop::collection::vec(0u8..3, 0..4);
        (zeros, end).prop_map(|(zeros, end)| [vec![0; zeros], end].concat())
    }

    proptest! {
        #[test]
        fn merging_equals_applying_in_order(
            inputs in prop::collection::vec(
                prop::collection::btree_map(key(), prop::option::of(any::<u16>()), 0..30), 0..9)
        ) {
            let mut model = BTreeMap::new();
            for input in &inputs {
                for (key, value) in input {
                    model.insert(key.clone(), *value);
                }
            }
            let mut merge = Merge::new(inputs.iter().map(stream).collect()).unwrap();
            let mut found = Vec::new();
            while let Some((key, change)) = merge.next().unwrap() {
                let value = change.value().map(|v| u16::from_le_bytes(v.try_into().unwrap()));
                found.push((key.to_vec(), value));
            }
            prop_assert_eq!(found, model.into_iter().collect::<Vec<_>>());
        }
    }
}
