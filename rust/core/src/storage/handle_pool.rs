//! Open handles of objects that are read, shared by all their readers, and a bound on their number.
//!
//! A read has a handle for itself while it lasts, because the streams of some file systems serve one read
//! at a time. So an object has as many handles as threads read it at once, however many readers it has.

use std::collections::{HashMap, VecDeque};

use parking_lot::Mutex;

use super::ReadFile;

/// Handles of objects of all storages that share this. Those that were not used for longest are closed
/// where there would be too many: what reads from such an object opens it again.
///
/// Memory: about 100 bytes for each object that has readers, beside the handles.
#[derive(Debug)]
pub struct HandlePool {
    max_handles: usize,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    /// Those that have readers.
    objects: HashMap<u128, Object>,
    /// No read has them; the one that was used last is at the end.
    idle: VecDeque<Idle>,
    /// Handles that reads have, or open.
    lent: usize,
}

#[derive(Debug, Default)]
struct Object {
    readers: usize,
    /// Handles that were lent under another number are closed when they come back.
    life: u64,
}

#[derive(Debug)]
struct Idle {
    object: u128,
    handle: Box<dyn ReadFile>,
}

impl HandlePool {
    /// Has at most `max_handles` handles open, or as many as there are reads at once if those are more:
    /// no read waits for another.
    pub fn new(max_handles: usize) -> Self {
        Self {
            max_handles,
            inner: Mutex::default(),
        }
    }

    /// Counts a reader of an object; [`HandlePool::leave`] is to follow.
    pub(super) fn join(&self, object: u128) {
        self.inner.lock().objects.entry(object).or_default().readers += 1;
    }

    /// A reader ends. The last one of an object takes the object's handles with it.
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

    /// Closes the handles of an object, those that reads have as soon as they come back.
    pub(super) fn forget(&self, object: u128) {
        self.change(|inner| {
            if let Some(known) = inner.objects.get_mut(&object) {
                known.life += 1;
            }
            ((), inner.take_idle(object))
        });
    }

    /// Whether an object has a handle that no read has.
    pub(super) fn has_idle(&self, object: u128) -> bool {
        self.inner.lock().has_idle(object)
    }

    /// A handle with which the bytes of an object before `end` can be read. `None` where there is none:
    /// those that were opened when the object was shorter are closed.
    pub(super) fn lend(&self, object: u128, end: u64) -> Option<(Place<'_>, Box<dyn ReadFile>)> {
        self.change(|inner| {
            let is_fit = |idle: &Idle| idle.object == object && idle.handle.size_bytes() >= end;
            let found = inner.idle.iter().rposition(is_fit);
            match found.and_then(|at| inner.idle.remove(at)) {
                Some(idle) => (Some((self.lent(inner, object), idle.handle)), Vec::new()),
                None => (None, inner.take_idle(object)),
            }
        })
    }

    /// Makes room for a handle that the caller opens.
    pub(super) fn place(&self, object: u128) -> Place<'_> {
        self.change(|inner| {
            let place = self.lent(inner, object);
            (place, inner.shrink(self.max_handles))
        })
    }

    fn lent(&self, inner: &mut Inner, object: u128) -> Place<'_> {
        inner.lent += 1;
        Place {
            pool: self,
            object,
            life: inner.life_of(object),
        }
    }

    /// Closes the handles that `act` returns once it has let go of the lock: closing may be a request.
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

    /// Gives up handles until there are not too many, or none is idle.
    fn shrink(&mut self, max_handles: usize) -> Vec<Idle> {
        let excess = (self.idle.len() + self.lent).saturating_sub(max_handles);
        self.idle.drain(..excess.min(self.idle.len())).collect()
    }
}

/// Counts a handle that one read has.
#[derive(Debug)]
pub(super) struct Place<'a> {
    pool: &'a HandlePool,
    object: u128,
    /// That of the object when it was lent; `None` if the object had no reader.
    life: Option<u64>,
}

impl Place<'_> {
    /// Takes the handle back for the next read, or closes it if no read may have it any more.
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

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.pool.change(|inner| {
            inner.lent -= 1;
            ((), inner.shrink(self.pool.max_handles))
        });
    }
}
