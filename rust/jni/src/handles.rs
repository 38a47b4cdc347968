//! Handles: index in the low half, generation in the high half. A stale handle finds another
//! generation and is refused.

use std::sync::Arc;

use parking_lot::RwLock;

use crate::guard::Failure;

struct Slot<T> {
    generation: u32,
    value: Option<Arc<T>>,
}

struct Inner<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
}

/// With a larger generation a handle would be negative, and its generation not the one it was made of.
const LAST_GENERATION: u32 = u32::MAX >> 1;

/// Begins again after 2 billion uses of one slot, with 1: handle 0 stands for none.
fn next_generation(generation: u32) -> u32 {
    if generation >= LAST_GENERATION {
        1
    } else {
        generation + 1
    }
}

/// All objects of one kind that Java holds.
pub(crate) struct Handles<T> {
    what: &'static str,
    inner: RwLock<Inner<T>>,
}

impl<T> Handles<T> {
    /// No objects yet; `what` names the kind in errors.
    pub(crate) const fn new(what: &'static str) -> Self {
        let inner = Inner {
            slots: Vec::new(),
            free: Vec::new(),
        };
        Self {
            what,
            inner: RwLock::new(inner),
        }
    }

    /// Takes an object and returns its handle, never 0.
    pub(crate) fn insert(&self, value: T) -> i64 {
        let mut inner = self.inner.write();
        let index = match inner.free.pop() {
            Some(index) => index,
            None => {
                inner.slots.push(Slot {
                    generation: 0,
                    value: None,
                });
                (inner.slots.len() - 1) as u32
            }
        };
        let mut generation = 0;
        if let Some(slot) = inner.slots.get_mut(index as usize) {
            slot.generation = next_generation(slot.generation);
            slot.value = Some(Arc::new(value));
            generation = slot.generation;
        }
        (i64::from(generation) << 32) | i64::from(index)
    }

    /// The object, kept alive for as long as the result lives.
    pub(crate) fn get(&self, handle: i64) -> Result<Arc<T>, Failure> {
        self.with(handle, |value| Ok(Arc::clone(value)))
    }

    /// Runs a short call on the object without counting a reference.
    pub(crate) fn with<R>(
        &self,
        handle: i64,
        call: impl FnOnce(&Arc<T>) -> Result<R, Failure>,
    ) -> Result<R, Failure> {
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
        let index = (handle & 0xffff_ffff) as u32;
        let slot = inner
            .slots
            .get_mut(index as usize)
            .filter(|slot| i64::from(slot.generation) == handle >> 32)?;
        let value = slot.value.take()?;
        inner.free.push(index);
        Some(value)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_closed_handle_is_refused_even_after_its_slot_was_reused() {
        let handles = Handles::new("store");
        let first = handles.insert(1);
        assert_ne!(first, 0);
        assert_eq!(*handles.get(first).unwrap(), 1);
        assert!(handles.remove(first).is_some());
        assert!(handles.remove(first).is_none());
        let second = handles.insert(2);
        assert_eq!(first & 0xffff_ffff, second & 0xffff_ffff);
        assert!(matches!(handles.get(first), Err(Failure::Closed("store"))));
        assert_eq!(*handles.get(second).unwrap(), 2);
        assert!(matches!(handles.get(0), Err(Failure::Closed(_))));
        assert!(matches!(handles.get(-1), Err(Failure::Closed(_))));
    }

    #[test]
    fn a_slot_goes_on_after_its_last_generation() {
        let handles = Handles::new("store");
        let first = handles.insert(1);
        handles.remove(first).unwrap();
        let mut inner = handles.inner.write();
        inner.slots.get_mut(0).unwrap().generation = LAST_GENERATION - 1;
        drop(inner);
        let last = handles.insert(2);
        assert_eq!(*handles.get(last).unwrap(), 2);
        assert_eq!(last >> 32, i64::from(LAST_GENERATION));
        handles.remove(last).unwrap();
        let next = handles.insert(3);
        assert_eq!(*handles.get(next).unwrap(), 3);
        assert_eq!(next, first);
        assert!(matches!(handles.get(last), Err(Failure::Closed(_))));
        handles.remove(next).unwrap();
    }
}
