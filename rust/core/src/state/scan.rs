//! A pass over entries of one family, as they were when it began.

use super::arena::RecordAt;

/// Entries still to be handed out. Valid until the store's next session begins.
#[derive(Debug)]
pub(super) struct Scan {
    entries: Entries,
    next: usize,
}

#[derive(Debug)]
enum Entries {
    /// Record of each key, value included.
    Keys(Vec<RecordAt>),
    /// Record of the key, record of the element.
    Elements(Vec<(RecordAt, RecordAt)>),
}

impl Scan {
    pub(super) fn of_keys(keys: Vec<RecordAt>) -> Self {
        Self {
            entries: Entries::Keys(keys),
            next: 0,
        }
    }

    pub(super) fn of_elements(elements: Vec<(RecordAt, RecordAt)>) -> Self {
        Self {
            entries: Entries::Elements(elements),
            next: 0,
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.next
            >= match &self.entries {
                Entries::Keys(keys) => keys.len(),
                Entries::Elements(elements) => elements.len(),
            }
    }

    /// Copies entries to `out` as `key_len u32, value_len u32, key, value` (little-endian): as many as
    /// fit `max_bytes`, at least one. `entry` finds key and value by the records of a key and of an
    /// element. Returns the number of entries.
    pub(super) fn fill<'a>(
        &mut self,
        entry: impl Fn(RecordAt, Option<RecordAt>) -> Option<(&'a [u8], &'a [u8])>,
        max_bytes: usize,
        out: &mut Vec<u8>,
    ) -> u32 {
        let start = out.len();
        let mut count = 0;
        while let Some((head, element)) = self.peek() {
            // Every record stays until the next session begins, see Table::select.
            let Some((key, value)) = entry(head, element) else {
                self.next += 1;
                continue;
            };
            let need = 8 + key.len() + value.len();
            if count > 0 && out.len() - start + need > max_bytes {
                break;
            }
            out.extend_from_slice(&(key.len() as u32).to_le_bytes());
            out.extend_from_slice(&(value.len() as u32).to_le_bytes());
            out.extend_from_slice(key);
            out.extend_from_slice(value);
            self.next += 1;
            count += 1;
        }
        count
    }

    fn peek(&self) -> Option<(RecordAt, Option<RecordAt>)> {
        match &self.entries {
            Entries::Keys(keys) => keys.get(self.next).map(|head| (*head, None)),
            Entries::Elements(elements) => elements
                .get(self.next)
                .map(|(head, element)| (*head, Some(*element))),
        }
    }
}
