//! Open handles of objects, shared by all their readers, and a bound on their number.
//!
//! Each read has a handle for itself, because the streams of some file systems serve one read at a
//! time. So an object has as many handles as threads read it at once, however many readers it has.

use std::collections::{HashMap, VecDeque};

use parking_lot::Mutex;

use super::ReadFile;

/// Handles for the objects of all storages that share this. A full pool closes the handles that
/// were not used for longest. The next read opens such an object again.
///
/// Memory: about 100 bytes for each object that has readers, and the handles.
#[derive(Debug)]
pub struct HandlePool {
    max_handles: usize,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    /// Objects that have readers.
    objects: HashMap<u128, Object>,
    /// Handles that no read has; the last one was used last.
    idle: VecDeque<Idle>,
    /// Number of handles that reads have, or open.
    lent: usize,
}

#[derive(Debug, Default)]
struct Object {
    readers: usize,
    /// Handles that were lent under another number are closed when they return.
    life: u64,
}

#[derive(Debug)]
struct Idle {
    object: u128,
    handle: Box<dyn ReadFile>,
}

impl HandlePool {
    /// A pool of `max_handles`, or one for each read at once if there are more.
    pub fn new(max_handles: usize) -> Self {
        Self {
            max_handles,
            inner: Mutex::default(),
        }
    }

    /// Counts a reader of an object until [`HandlePool::leave`].
    pub(super) fn join(&self, object: u128) {
        self.inner.lock().objects.entry(object).or_default().readers += 1;
    }

    /// A reader ends. The last one of an object closes its handles.
    pub(super) fn leave(&self, object: u128) {
        self.change(|inner| {
            let readers = inner.objects.get_mut(&object).map(|known| {
                known.readers -= 1;
                known.readers
            });
            if readers != Some(0) {
                return ((), Vec::new());
            }
            inner.objects.remove(&object);
            ((), inner.take_idle(object))
        });
    }

    /// Closes the handles of an object. Reads that have one close it at their end.
    pub(super) fn forget(&self, object: u128) {
        self.change(|inner| {
            if let Some(known) = inner.objects.get_mut(&object) {
                known.life += 1;
            }
            ((), inner.take_idle(object))
        });
    }

    /// Returns whether a read of the object would find a handle.
    pub(super) fn has_idle(&self, object: u128) -> bool {
        self.inner.lock().has_idle(object)
    }

    /// A handle that can read the bytes of an object before `end`. Without one it closes all
    /// handles of the object, because it was shorter when they were opened.
    pub(super) fn lend(&self, object: u128, end: u64) -> Option<(Loan<'_>, Box<dyn ReadFile>)> {
        self.change(|inner| {
            let is_fit = |idle: &Idle| idle.object == object && idle.handle.size_bytes() >= end;
            let found = inner.idle.iter().rposition(is_fit);
            match found.and_then(|at| inner.idle.remove(at)) {
                Some(idle) => (Some((self.loan(inner, object), idle.handle)), Vec::new()),
                None => (None, inner.take_idle(object)),
            }
        })
    }

    /// Makes room for a handle that the caller opens.
    pub(super) fn make_room(&self, object: u128) -> Loan<'_> {
        self.change(|inner| {
            let loan = self.loan(inner, object);
            (loan, inner.shrink(self.max_handles))
        })
    }

    fn loan(&self, inner: &mut Inner, object: u128) -> Loan<'_> {
        inner.lent += 1;
        Loan {
            pool: self,
            object,
            life: inner.life_of(object),
        }
    }

    /// Closes the handles that `act` returns, without the lock: closing may be a request.
    fn change<T>(&self, act: impl FnOnce(&mut Inner) -> (T, Vec<Idle>)) -> T {
        let (done, closed) = act(&mut self.inner.lock());
        drop(closed);
        done
    }
}

impl Inner {
    fn life_of(&self, object: u128) -> Option<u64> {
        self.objects.get(&object).map(|known| known.life)
    }

    fn has_idle(&self, object: u128) -> bool {
        self.idle.iter().any(|idle| idle.object == object)
    }

    fn take_idle(&mut self, object: u128) -> Vec<Idle> {
        if !self.has_idle(object) {
            return Vec::new();
        }
        let all = std::mem::take(&mut self.idle).into_iter();
        let (taken, kept): (Vec<_>, Vec<_>) = all.partition(|idle| idle.object == object);
        self.idle = kept.into();
        taken
    }

    fn shrink(&mut self, max_handles: usize) -> Vec<Idle> {
        let excess = (self.idle.len() + self.lent).saturating_sub(max_handles);
        self.idle.drain(..excess.min(self.idle.len())).collect()
    }
}

#[derive(Debug)]
pub(super) struct Loan<'a> {
    pool: &'a HandlePool,
    object: u128,
    /// The object's `life` at that time; `None` if it had no reader.
    life: Option<u64>,
}

impl Loan<'_> {
    /// Returns the handle for the next read, or closes it if no read may have it any more.
    pub fn keep(self, handle: Box<dyn ReadFile>) {
        let Self { object, life, .. } = self;
        let idle = Idle { object, handle };
        self.pool.change(|inner| {
            if life.is_none() || life != inner.life_of(object) {
                return ((), vec![idle]);
            }
            inner.idle.push_back(idle);
            ((), Vec::new())
        });
    }
}

impl Drop for Loan<'_> {
    fn drop(&mut self) {
        self.pool.change(|inner| {
            inner.lent -= 1;
            ((), inner.shrink(self.pool.max_handles))
        });
    }
}
