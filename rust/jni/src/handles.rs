//! Handles of objects: the low half is the index of a slot, the high half its generation. A closed
//! handle has an older generation than its slot, so it is refused.

use std::sync::Arc;

use parking_lot::RwLock;

use crate::guard::{Failure, Result};

struct Slot<T> {
    generation: u32,
    value: Option<Arc<T>>,
}

struct Inner<T> {
    slots: Vec<Slot<T>>,
    free: Vec<usize>,
}

/// A larger generation would make the handle negative.
const LAST_GENERATION: u32 = u32::MAX >> 1;

/// Starts again with 1 after 2 billion uses of one slot, because handle 0 means none.
fn next_generation(generation: u32) -> u32 {
    generation % LAST_GENERATION + 1
}

/// All objects of one kind that Java holds.
pub(crate) struct Handles<T> {
    what: &'static str,
    inner: RwLock<Inner<T>>,
}

impl<T> Handles<T> {
    /// No objects yet; `what` names the kind in errors.
    pub(crate) const fn new(what: &'static str) -> Self {
        Self {
            what,
            inner: RwLock::new(Inner {
                slots: Vec::new(),
                free: Vec::new(),
            }),
        }
    }

    /// Takes an object and returns its handle, never 0.
    pub(crate) fn insert(&self, value: T) -> i64 {
        let mut inner = self.inner.write();
        let index = inner.free.pop().unwrap_or(inner.slots.len());
        let value = Some(Arc::new(value));
        let generation = match inner.slots.get_mut(index) {
            Some(slot) => {
                slot.generation = next_generation(slot.generation);
                slot.value = value;
                slot.generation
            }
            None => {
                let generation = 1;
                inner.slots.push(Slot { generation, value });
                generation
            }
        };
        (i64::from(generation) << 32) | index as i64
    }

    /// The object, kept alive for as long as the result lives.
    pub(crate) fn get(&self, handle: i64) -> Result<Arc<T>> {
        self.with(handle, |value| Ok(Arc::clone(value)))
    }

    /// Runs a short call on the object without counting a reference.
    pub(crate) fn with<R>(
        &self,
        handle: i64,
        call: impl FnOnce(&Arc<T>) -> Result<R>,
    ) -> Result<R> {
        let inner = self.inner.read();
        let value = inner
            .slots
            .get((handle & 0xffff_ffff) as usize)
            .filter(|slot| i64::from(slot.generation) == handle >> 32)
            .and_then(|slot| slot.value.as_ref())
            .ok_or(Failure::Closed(self.what))?;
        call(value)
    }

    /// Closes the handle; closing it again does nothing.
    pub(crate) fn remove(&self, handle: i64) -> Option<Arc<T>> {
        let mut inner = self.inner.write();
        let index = (handle & 0xffff_ffff) as usize;
        let slot = inner
            .slots
            .get_mut(index)
            .filter(|slot| i64::from(slot.generation) == handle >> 32)?;
        let value = slot.value.take()?;
        inner.free.push(index);
        Some(value)
    }
}

#[cfg(test)]
#[path = "handles_tests.rs"]
mod tests;
