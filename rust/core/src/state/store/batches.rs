//! Whole batches of keys in one call, see [`rows`](crate::rows). A failed batch may be given again.

use super::state_store::StateStore;
use crate::error::Result;
use crate::rows::{Packed, push_found};

impl StateStore {
    /// Appends each key's value, or its absence, for [`decode_found`](crate::rows::decode_found).
    ///
    /// # Errors
    /// Errors of [`StateStore::get`]; `InvalidInput` for a buffer that ends within a key.
    pub fn get_batch(&mut self, family: u32, keys: &[u8], out: &mut Vec<u8>) -> Result<()> {
        let mut keys = Packed::of(keys);
        while let Some(key) = keys.key()? {
            push_found(out, self.get(family, key)?)?;
        }
        Ok(())
    }

    /// Appends a byte for each key to `out`: 1 if it exists, else 0.
    pub fn contains_batch(&mut self, family: u32, keys: &[u8], out: &mut Vec<u8>) -> Result<()> {
        let mut keys = Packed::of(keys);
        while let Some(key) = keys.key()? {
            out.push(u8::from(self.get(family, key)?.is_some()));
        }
        Ok(())
    }

    /// Sets keys to the values of entries, the last one of a key. An error leaves some entries set.
    ///
    /// # Errors
    /// Errors of [`StateStore::put`]; `InvalidInput` for a buffer that ends within an entry.
    pub fn put_batch(&mut self, family: u32, entries: &[u8]) -> Result<()> {
        let mut entries = Packed::of(entries);
        while let Some((key, value)) = entries.entry()? {
            self.put(family, key, value)?;
        }
        Ok(())
    }

    /// Removes keys. Appends a byte each: 1 if it existed, else 0. An error leaves some removed.
    ///
    /// # Errors
    /// Errors of [`StateStore::remove`]; `InvalidInput` for a buffer that ends within a key.
    pub fn remove_batch(&mut self, family: u32, keys: &[u8], out: &mut Vec<u8>) -> Result<()> {
        let mut keys = Packed::of(keys);
        while let Some(key) = keys.key()? {
            out.push(u8::from(self.remove(family, key)?));
        }
        Ok(())
    }
}
