//! Reads the segments of a version, page by page. Where the base image is damaged and the segments
//! it replaced are still there, the state is rebuilt from those.

use super::content::Families;
use super::entry_stream::EntryStream;
use super::memory::MemoryShare;
use crate::error::{Error, ErrorKind, Result};
use crate::format::{RunReader, SegmentHead, SegmentReader, SegmentStream, TableKeys};
use crate::ids::{Owner, SegmentRef};

/// What is read at once. On remote storage every read is a round trip.
const READ_AHEAD_BYTES: u64 = 4 << 20;

/// What a key takes in memory beside itself and its value: slot, index, order.
const SLOT_BYTES: u64 = 48;

/// One load of one owner's state.
pub(super) struct Load<'a> {
    pub segments: SegmentReader<'a>,
    pub owner: &'a Owner,
    /// Empty at first.
    pub content: &'a mut Families,
    /// Memory that is limited: a run that does not fit stays where it is, and its keys are read when
    /// they are asked for.
    pub memory: Option<&'a MemoryShare>,
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
        // Its head says what comes before it.
        let stream = match self.stream(newest) {
            Ok(stream) => stream,
            Err(damage) => return self.rebuild(damage, replaced),
        };
        let head = stream.head().clone();
        if let Some((base, changelogs)) = head.lineage.split_first() {
            match self.apply_base(base) {
                // The newest changelog says how many keys there are in the end.
                Ok(true) if !head.tables.is_empty() => self.content.stop_counting(),
                Ok(_) => {}
                Err(damage) => _ = self.rebuild(damage, head.replaced)?,
            }
            for changelog in changelogs {
                self.apply(changelog)?;
            }
        }
        let applied = match head.lineage.is_empty() && self.opened_over(newest) {
            true => Ok(()),
            false => self.apply_newest(newest, stream, &head.tables),
        };
        match applied {
            Ok(()) => Ok(head),
            Err(damage) => self.rebuild(damage, replaced),
        }
    }

    /// Applies what a damaged base image replaced. This ends: a reference holds the digest of what
    /// it names, so no segment refers to one that was written later.
    fn rebuild(&mut self, damage: Error, replaced: Option<SegmentRef>) -> Result<SegmentHead> {
        let repairable = matches!(damage.kind(), ErrorKind::Corrupt | ErrorKind::NotFound);
        let Some(replaced) = replaced.filter(|_| repairable) else {
            return Err(damage);
        };
        // It was found to be damaged when some of it had been applied.
        *self.content = Families::new(self.content.layout());
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

    /// Applies a lineage, oldest first, whose first segment is `run` and stays below where it can. There
    /// are `tables` keys then. What is damaged is not worked around.
    ///
    /// # Errors
    /// As [`Load::run`]; the content is that of no version then.
    pub fn run_over(
        &mut self,
        run: RunReader,
        changelogs: &[SegmentRef],
        tables: &[TableKeys],
    ) -> Result<()> {
        let base = run.reference();
        if self.content.open_over(run)? {
            self.content.stop_counting();
        } else {
            self.apply(&base)?;
        }
        for changelog in changelogs {
            self.apply(changelog)?;
        }
        self.content
            .count_unlinked(tables)
            .map_err(|e| e.context(self.owner))
    }

    /// Applies the first segment of a lineage, or leaves it below: true.
    fn apply_base(&mut self, reference: &SegmentRef) -> Result<bool> {
        if self.opened_over(reference) {
            return Ok(true);
        }
        self.apply(reference)?;
        Ok(false)
    }

    /// Applies the last segment, whose head may say how many keys there are then.
    fn apply_newest(
        &mut self,
        reference: &SegmentRef,
        stream: SegmentStream,
        tables: &[TableKeys],
    ) -> Result<()> {
        self.apply_stream(reference, stream)?;
        if tables.is_empty() {
            return Ok(());
        }
        self.content
            .count_unlinked(tables)
            .map_err(|e| e.context(format!("{reference}, {}", self.owner)))
    }

    /// Puts the content over a run, if the segment is one and is to stay below. Of one that cannot be
    /// opened, loading says what is wrong with it.
    fn opened_over(&mut self, reference: &SegmentRef) -> bool {
        let Some(memory) = self.memory.filter(|_| self.content.can_rest_on_run()) else {
            return false;
        };
        let run = self.segments.open_run(reference, self.owner).ok();
        let run = run.filter(|run| {
            let head = run.head();
            let bytes = head.payload_bytes + head.entries * SLOT_BYTES;
            head.lineage.is_empty() && memory.is_short(bytes)
        });
        let Some(run) = run else {
            return false;
        };
        let opened = self.content.open_over(run);
        if opened.is_err() {
            *self.content = Families::new(self.content.layout());
        }
        opened.unwrap_or(false)
    }

    /// Applies a segment page by page. After an error the content is that of no version.
    fn apply(&mut self, reference: &SegmentRef) -> Result<()> {
        let stream = self.stream(reference)?;
        self.apply_stream(reference, stream)
    }

    fn stream(&mut self, reference: &SegmentRef) -> Result<SegmentStream> {
        self.segments
            .stream(reference, self.owner, READ_AHEAD_BYTES)
    }

    fn apply_stream(&mut self, reference: &SegmentRef, stream: SegmentStream) -> Result<()> {
        self.content
            .apply(&mut EntryStream::new(stream))
            .map_err(|e| e.context(format!("{reference}, {}", self.owner)))
    }
}
