//! Storages in front of another one.

use std::fmt;
use std::sync::Arc;

use super::{AppendFile, Capabilities, ObjectMeta, ReadFile, Storage};
use crate::error::Result;

/// A storage in front of another one, which does everything else.
pub(super) trait Layer: Send + Sync + fmt::Debug {
    fn below(&self) -> &dyn Storage;

    /// Forgets an object that was deleted or renamed.
    fn forget_object(&self, name: &str);

    fn create(&self, name: &str) -> Result<Box<dyn AppendFile>> {
        self.below().create(name)
    }

    fn open(&self, name: &str) -> Result<Box<dyn ReadFile>> {
        self.below().open(name)
    }

    fn open_near(&self, name: &str) -> Result<Arc<dyn ReadFile>> {
        self.open(name).map(Arc::from)
    }
}

impl<L: Layer> Storage for L {
    fn location(&self) -> String {
        self.below().location()
    }

    fn capabilities(&self) -> Capabilities {
        self.below().capabilities()
    }

    fn create(&self, name: &str) -> Result<Box<dyn AppendFile>> {
        Layer::create(self, name)
    }

    fn open(&self, name: &str) -> Result<Box<dyn ReadFile>> {
        Layer::open(self, name)
    }

    fn open_near(&self, name: &str) -> Result<Arc<dyn ReadFile>> {
        Layer::open_near(self, name)
    }

    fn len(&self, name: &str) -> Result<u64> {
        self.below().len(name)
    }

    fn sync(&self, name: &str) -> Result<()> {
        self.below().sync(name)
    }

    fn delete(&self, name: &str) -> Result<()> {
        let deleted = self.below().delete(name);
        self.forget_object(name);
        deleted
    }

    fn delete_all(&self, names: &[String]) -> Vec<Result<()>> {
        let deleted = self.below().delete_all(names);
        names.iter().for_each(|name| self.forget_object(name));
        deleted
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        let renamed = self.below().rename(from, to);
        self.forget_object(from);
        renamed
    }

    fn list(&self) -> Result<Vec<ObjectMeta>> {
        self.below().list()
    }
}
