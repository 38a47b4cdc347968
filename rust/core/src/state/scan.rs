//! A pass over entries of one family, as they were when it began.

use super::arena::RecordAt;
use super::family::Family;
use super::table::Pass;
use crate::error::Result;

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
    /// Of a table over a run.
    Pass { pass: Box<Pass>, is_over: bool },
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

    pub(super) fn of_pass(pass: Pass) -> Self {
        let entries = Entries::Pass {
            pass: Box::new(pass),
            is_over: false,
        };
        Self { entries, next: 0 }
    }

    /// Known once some of it was handed out.
    pub(super) fn is_over(&self) -> bool {
        match &self.entries {
            Entries::Keys(keys) => self.next >= keys.len(),
            Entries::Elements(elements) => self.next >= elements.len(),
            Entries::Pass { is_over, .. } => *is_over,
        }
    }

    /// Copies entries to `out` as `key_len u32, value_len u32, key, value` (little-endian): as many as
    /// fit `max_bytes`, at least one. Returns the number of entries.
    ///
    /// # Errors
    /// Those of reading keys that are not in memory.
    pub(super) fn fill(
        &mut self,
        family: &Family,
        max_bytes: usize,
        out: &mut Vec<u8>,
    ) -> Result<u32> {
        let start = out.len();
        let mut count = 0;
        if let Entries::Pass { pass, is_over } = &mut self.entries {
            while let Some((key, value)) = pass.peek(family.heads())? {
                if count > 0 && out.len() - start + entry_bytes(key, value) > max_bytes {
                    return Ok(count);
                }
                put_entry(out, key, value);
                count += 1;
                pass.advance(family.heads())?;
            }
            *is_over = true;
            return Ok(count);
        }
        while let Some((head, element)) = self.peek() {
            // Every record stays until the next session begins, see Table::select.
            let Some((key, value)) = family.entry(head, element) else {
                self.next += 1;
                continue;
            };
            if count > 0 && out.len() - start + entry_bytes(key, value) > max_bytes {
                break;
            }
            put_entry(out, key, value);
            self.next += 1;
            count += 1;
        }
        Ok(count)
    }

    fn peek(&self) -> Option<(RecordAt, Option<RecordAt>)> {
        match &self.entries {
            Entries::Keys(keys) => keys.get(self.next).map(|head| (*head, None)),
            Entries::Elements(elements) => elements
                .get(self.next)
                .map(|(head, element)| (*head, Some(*element))),
            Entries::Pass { .. } => None,
        }
    }
}

fn entry_bytes(key: &[u8], value: &[u8]) -> usize {
    8 + key.len() + value.len()
}

fn put_entry(out: &mut Vec<u8>, key: &[u8], value: &[u8]) {
    out.extend_from_slice(&(key.len() as u32).to_le_bytes());
    out.extend_from_slice(&(value.len() as u32).to_le_bytes());
    out.extend_from_slice(key);
    out.extend_from_slice(value);
}
