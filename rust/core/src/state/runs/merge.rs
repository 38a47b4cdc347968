//! A streaming merge of sorted entries, newest change first.

use std::cmp::Ordering;

use super::entries::Change;
use super::entry_stream::EntryStream;
use crate::error::Result;

/// Bytes of each key in the heap: most keys of one owner differ in them.
const HEAD_BYTES: usize = 16;

/// The entries of several inputs in the order of their keys, each key once with its newest change.
pub(crate) struct Merge {
    /// Oldest first.
    inputs: Vec<EntryStream>,
    /// A heap of those with a current entry: the smallest key first, then the newest input.
    heap: Vec<Current>,
    handed_out: bool,
}

#[derive(Clone, Copy, Debug)]
struct Current {
    /// First bytes of its key, big-endian, padded with zeros.
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

    pub fn step(&mut self) -> Result<bool> {
        if std::mem::take(&mut self.handed_out) {
            self.leave_key()?;
        }
        self.handed_out = !self.heap.is_empty();
        Ok(self.handed_out)
    }

    pub fn current(&self) -> Option<(&[u8], Change<'_>)> {
        let first = self.heap.first().and_then(|at| self.inputs.get(at.input));
        first.map(|input| (input.key(), input.change()))
    }

    /// Returns whether an input removes the key, and a newer one sets it again.
    pub fn hides_removal(&self) -> bool {
        let removes = |at: &Current| {
            let input = self.inputs.get(at.input);
            input.is_some_and(|input| input.change() == Change::Remove)
        };
        let is_set = self.heap.first().is_some_and(|first| !removes(first));
        is_set
            && (1..self.heap.len())
                .any(|place| self.is_same(place) && self.heap.get(place).is_some_and(removes))
    }

    fn leave_key(&mut self) -> Result<()> {
        // In a heap equal keys are below each other: the older ones go first.
        while let Some(place) = [1, 2].into_iter().find(|place| self.is_same(*place)) {
            self.advance_at(place)?;
        }
        self.advance_at(0)
    }

    fn is_same(&self, place: usize) -> bool {
        let (Some(first), Some(other)) = (self.heap.first(), self.heap.get(place)) else {
            return false;
        };
        first.head == other.head && self.compare(first, other) == Ordering::Equal
    }

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

    fn compare(&self, a: &Current, b: &Current) -> Ordering {
        let key = |at: &Current| self.inputs.get(at.input).map(EntryStream::key);
        key(a).cmp(&key(b))
    }
}

#[cfg(test)]
#[path = "merge_tests.rs"]
mod tests;
