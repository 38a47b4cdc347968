//! Memory for the records of one table. A record is `key_len u32, value_len u32, key, value`.

use crate::state::memory::Release;

const FIRST_PAGE_BYTES: usize = 4 << 10;
const LAST_PAGE_BYTES: usize = 1 << 20;
const HEADER_BYTES: usize = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecordAt(u64);

impl RecordAt {
    pub(crate) const NONE: Self = Self(u64::MAX);

    pub(crate) fn is_none(self) -> bool {
        self == Self::NONE
    }

    fn new(page: usize, offset: usize) -> Self {
        // A page never exceeds 4 GiB (see `Arena::push`) and there are far fewer than 2^32 pages.
        Self(((page as u64) << 32) | offset as u64)
    }

    pub(crate) fn page(self) -> usize {
        (self.0 >> 32) as usize
    }

    fn offset(self) -> usize {
        (self.0 & 0xffff_ffff) as usize
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) value: &'a [u8],
}

impl Record<'_> {
    pub(crate) fn stored_bytes(&self) -> usize {
        HEADER_BYTES + self.key.len() + self.value.len()
    }
}

/// Append-only pages. The first `forgotten` are freed; `used_bytes` counts dead records, too.
#[derive(Debug, Default)]
pub(crate) struct Arena {
    pages: Vec<Vec<u8>>,
    forgotten: usize,
    used_bytes: usize,
    capacity_bytes: usize,
}

impl Arena {
    /// Appends a record; `None` if key and value together exceed 4 GiB.
    pub(crate) fn push(&mut self, key: &[u8], value: &[u8]) -> Option<RecordAt> {
        let key_len = u32::try_from(key.len()).ok()?;
        let value_len = u32::try_from(value.len()).ok()?;
        let need = HEADER_BYTES
            .checked_add(key.len())?
            .checked_add(value.len())
            .filter(|n| u32::try_from(*n).is_ok())?;
        let last = self.pages.last();
        if last.is_none_or(|page| page.capacity() - page.len() < need) {
            // At most an eighth of the memory is not used yet.
            let part = (self.capacity_bytes / 8).max(1);
            let grown = (1 << part.ilog2()).clamp(FIRST_PAGE_BYTES, LAST_PAGE_BYTES);
            let page = Vec::with_capacity(grown.max(need));
            self.capacity_bytes += page.capacity();
            self.pages.push(page);
        }
        let page_number = self.pages.len() - 1;
        let page = self.pages.last_mut()?;
        let at = RecordAt::new(page_number, page.len());
        page.extend_from_slice(&key_len.to_le_bytes());
        page.extend_from_slice(&value_len.to_le_bytes());
        page.extend_from_slice(key);
        page.extend_from_slice(value);
        self.used_bytes += need;
        Some(at)
    }

    pub(crate) fn get(&self, at: RecordAt) -> Option<Record<'_>> {
        let bytes = self.pages.get(at.page())?.get(at.offset()..)?;
        let (key_len, rest) = bytes.split_first_chunk::<4>()?;
        let (value_len, rest) = rest.split_first_chunk::<4>()?;
        let (key, rest) = rest.split_at_checked(u32::from_le_bytes(*key_len) as usize)?;
        let value = rest.get(..u32::from_le_bytes(*value_len) as usize)?;
        Some(Record { key, value })
    }

    /// Overwrites the value of a record in place; false if the sizes differ.
    pub(crate) fn overwrite(&mut self, at: RecordAt, value: &[u8]) -> bool {
        let Some(record) = self.get(at).filter(|r| r.value.len() == value.len()) else {
            return false;
        };
        let start = at.offset() + HEADER_BYTES + record.key.len();
        let page = self.pages.get_mut(at.page());
        let Some(target) = page.and_then(|page| page.get_mut(start..start + value.len())) else {
            return false;
        };
        target.copy_from_slice(value);
        true
    }

    pub(crate) fn pages(&self) -> usize {
        self.pages.len()
    }

    /// Frees all pages before the record's, after `release`. No caller may ask for their records.
    pub(crate) fn forget_before(&mut self, at: RecordAt, release: Release) {
        while self.forgotten < at.page()
            && let Some(page) = self.pages.get_mut(self.forgotten)
        {
            self.capacity_bytes -= page.capacity();
            release(page);
            *page = Vec::new();
            self.forgotten += 1;
        }
    }

    pub(crate) fn forget_all(mut self, release: Release) {
        for page in &mut self.pages {
            release(page);
        }
    }

    pub(crate) fn used_bytes(&self) -> usize {
        self.used_bytes
    }

    pub(crate) fn capacity_bytes(&self) -> usize {
        self.capacity_bytes
    }
}

#[cfg(test)]
#[path = "arena_tests.rs"]
mod tests;
