//! Reads the segments of a version. Where the base image is damaged and the segments
//! it replaced are still there, the state is rebuilt from those.

use super::content::Families;
use crate::error::{Error, ErrorKind, Result};
use crate::format::{Segment, SegmentHead, SegmentReader};
use crate::ids::{Owner, SegmentRef};

/// One load of one owner's state.
pub(super) struct Load<'a> {
    pub segments: SegmentReader<'a>,
    pub owner: &'a Owner,
    /// Empty at first.
    pub content: &'a mut Families,
    /// One message per base image that could not be read and was worked around.
    pub rebuilt: Vec<String>,
}

impl Load<'_> {
    /// Applies everything that `newest` builds on, then `newest`; returns its head, or that of
    /// `replaced` when `newest` is a base image that had to be rebuilt.
    ///
    /// # Errors
    /// `NotFound` or `Corrupt` when a segment is gone or damaged and there is no way around it.
    pub fn run(
        &mut self,
        newest: &SegmentRef,
        replaced: Option<SegmentRef>,
    ) -> Result<SegmentHead> {
        let segment = match self.segments.read(newest, self.owner) {
            Ok(segment) => segment,
            Err(damage) => return self.rebuild(damage, replaced),
        };
        if let Some((base, changelogs)) = segment.head.lineage.split_first() {
            match self.segments.read(base, self.owner) {
                Ok(base_segment) => self.apply(base, &base_segment)?,
                Err(damage) => {
                    self.rebuild(damage, segment.head.replaced)?;
                }
            }
            for changelog in changelogs {
                let read = self.segments.read(changelog, self.owner)?;
                self.apply(changelog, &read)?;
            }
        }
        self.apply(newest, &segment)?;
        Ok(segment.head)
    }

    /// Applies what a damaged base image replaced. This ends: a reference holds the digest of what
    /// it names, so no segment refers to one that was written later.
    fn rebuild(&mut self, damage: Error, replaced: Option<SegmentRef>) -> Result<SegmentHead> {
        let repairable = matches!(damage.kind(), ErrorKind::Corrupt | ErrorKind::NotFound);
        let Some(replaced) = replaced.filter(|_| repairable) else {
            return Err(damage);
        };
        match self.run(&replaced, None) {
            Ok(head) => {
                self.rebuilt.push(format!(
                    "{damage}; its state was rebuilt from the older segments up to {replaced}, \
                     and a new base image is written before anything builds on it"
                ));
                Ok(head)
            }
            Err(older) => Err(Error::new(
                damage.kind(),
                format!("{damage}; nor can it be rebuilt from older segments: {older}"),
            )),
        }
    }

    fn apply(&mut self, reference: &SegmentRef, segment: &Segment) -> Result<()> {
        self.content
            .apply(segment)
            .map_err(|e| e.context(format!("{reference}, {}", self.owner)))
    }
}
