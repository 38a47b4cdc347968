//! A scan of entries of one family, as they were when it began.

use super::family::Family;
use crate::error::Result;
use crate::state::runs::key_range::KeyRange;
use crate::state::tables::arena::RecordAt;
use crate::state::tables::table::Pass;

/// Entries still to be returned. Valid until the store's next session begins.
#[derive(Debug)]
pub(crate) struct Scan {
    entries: Entries,
    next: usize,
}

#[derive(Debug)]
enum Entries {
    /// Records with key and value.
    Keys(Vec<RecordAt>),
    /// Records of key and element.
    Elements(Vec<(RecordAt, RecordAt)>),
    /// Entries of a table over runs.
    Pass { pass: Box<Pass>, is_over: bool },
}

impl Scan {
    /// An entry for `every_value` of a list, or else for the first one. Reads lists into memory.
    pub(crate) fn of_range(
        family: &mut Family,
        range: KeyRange<'_>,
        every_value: bool,
    ) -> Result<Self> {
        let entries = if family.options().several_values {
            Entries::Elements(family.lists_in(range, every_value)?)
        } else {
            match family.heads.pass(range)? {
                Some(pass) => Entries::Pass {
                    pass: Box::new(pass),
                    is_over: false,
                },
                None => Entries::Keys(family.heads.select(range)?),
            }
        };
        Ok(Self { entries, next: 0 })
    }

    pub(crate) fn of_values(family: &mut Family, key: &[u8]) -> Result<Self> {
        let entries = Entries::Elements(family.list_of(key)?);
        Ok(Self { entries, next: 0 })
    }

    pub(crate) fn is_over(&self) -> bool {
        match &self.entries {
            Entries::Keys(keys) => self.next >= keys.len(),
            Entries::Elements(elements) => self.next >= elements.len(),
            Entries::Pass { is_over, .. } => *is_over,
        }
    }

    pub(crate) fn fill(
        &mut self,
        family: &Family,
        max_bytes: usize,
        out: &mut Vec<u8>,
    ) -> Result<u32> {
        let start = out.len();
        let mut count = 0;
        if let Entries::Pass { pass, is_over } = &mut self.entries {
            while let Some((key, value)) = pass.peek(&family.heads)? {
                if count > 0 && out.len() - start + entry_bytes(key, value) > max_bytes {
                    return Ok(count);
                }
                put_entry(out, key, value);
                count += 1;
                pass.advance(&family.heads)?;
            }
            *is_over = true;
            return Ok(count);
        }
        while let Some((head, element)) = self.peek() {
            // Every record remains until the next session begins, see Table::select.
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

pub(crate) fn put_entry(out: &mut Vec<u8>, key: &[u8], value: &[u8]) {
    out.extend_from_slice(&(key.len() as u32).to_le_bytes());
    out.extend_from_slice(&(value.len() as u32).to_le_bytes());
    out.extend_from_slice(key);
    out.extend_from_slice(value);
}
