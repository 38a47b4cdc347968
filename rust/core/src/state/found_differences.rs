//! Keys that differ between two versions, with their values in both.

use std::ops::Range;

/// Keys that differ, in order, with their values before and after: one each, or a list.
#[derive(Debug, Default)]
pub struct FoundDifferences {
    bytes: Vec<u8>,
    rows: Vec<Row>,
}

#[derive(Debug)]
struct Row {
    key: Range<usize>,
    /// Before and after.
    values: [Vec<Range<usize>>; 2],
}

impl FoundDifferences {
    /// Number of keys.
    pub fn rows(&self) -> usize {
        self.rows.len()
    }

    /// The keys.
    pub fn keys(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.rows.iter().map(|row| self.at(&row.key))
    }

    /// The number of values of each key, before (`side` 0) or after (1).
    pub fn counts(&self, side: usize) -> impl Iterator<Item = usize> {
        let rows = self.rows.iter();
        rows.map(move |row| row.values.get(side).map_or(0, Vec::len))
    }

    /// The values of each key, before (`side` 0) or after (1), and `None` of a key without values.
    pub fn values(&self, side: usize) -> Vec<(&[u8], Option<&[u8]>)> {
        let values = self.rows.iter().flat_map(|row| {
            let key = self.at(&row.key);
            let values = row.values.get(side).map_or(&[][..], Vec::as_slice);
            let none = values.is_empty().then_some((key, None));
            let values = values.iter().map(move |value| (key, Some(self.at(value))));
            values.chain(none)
        });
        values.collect()
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes.len()
    }

    pub(super) fn begin(&mut self, key: &[u8]) {
        let key = self.keep(key);
        let values = [Vec::new(), Vec::new()];
        self.rows.push(Row { key, values });
    }

    /// Adds the next value of the last key before and after, where it is there.
    pub(super) fn push(&mut self, values: [Option<&[u8]>; 2]) {
        let kept = values.map(|value| value.map(|value| self.keep(value)));
        if let Some(row) = self.rows.last_mut() {
            for (all, value) in row.values.iter_mut().zip(kept) {
                all.extend(value);
            }
        }
    }

    /// Drops the last key if its values are equal. Returns whether it stays.
    pub(super) fn end(&mut self) -> bool {
        let [before, after] = [0, 1].map(|side| {
            let values = self.rows.last().and_then(|row| row.values.get(side));
            values.into_iter().flatten().map(|value| self.at(value))
        });
        let differs = !before.eq(after);
        if !differs && let Some(row) = self.rows.pop() {
            self.bytes.truncate(row.key.start);
        }
        differs
    }

    fn keep(&mut self, bytes: &[u8]) -> Range<usize> {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        start..self.bytes.len()
    }

    fn at(&self, range: &Range<usize>) -> &[u8] {
        self.bytes.get(range.clone()).unwrap_or_default()
    }
}
