//! Reads the segments of a version, page by page. Where a run is damaged and the segments it replaced
//! are still there, the state is rebuilt from those.

use std::sync::Arc;

use super::content::Families;
use super::entry_stream::EntryStream;
use super::hydration::loaded_bytes;
use super::memory::MemoryShare;
use super::open_run::OpenRun;
use crate::error::{Error, Result};
use crate::format::{SegmentHead, SegmentKind, SegmentReader, SegmentStream, TableKeys};
use crate::ids::{CheckpointId, Owner, SegmentRef};

/// What is read at once. On remote storage every read is a round trip.
const READ_AHEAD_BYTES: u64 = 4 << 20;

/// A run of so much is read together with what lies around it.
const LITTLE_BYTES: u64 = 512 << 10;

/// One load of one owner's state.
pub(super) struct Load<'a> {
    pub segments: SegmentReader<'a>,
    pub owner: &'a Owner,
    /// Empty at first.
    pub content: &'a mut Families,
    /// Memory that is limited: runs that do not fit, or that would take long, stay where they are, and
    /// their keys are read when they are asked for.
    pub memory: Option<&'a MemoryShare>,
    /// `created` of the changelogs that were applied last, oldest first.
    pub changed: Vec<CheckpointId>,
    /// One message per run that could not be read and was worked around.
    pub rebuilt: Vec<String>,
}

/// How many of the segments that a version is made of, the oldest ones, may be runs. `head` is that of
/// the newest.
pub(super) fn runs_of(head: &SegmentHead) -> usize {
    match head.kind {
        SegmentKind::Run => head.lineage.len() + 1,
        // Only the first, which may be the newest itself, or as many as it says.
        _ => (head.runs as usize).clamp(1, head.lineage.len().max(1)),
    }
}

impl Load<'_> {
    /// Applies everything that `newest` builds on, then `newest`; returns what was applied last and its
    /// head: `newest`, or `replaced` when `newest` is a run that had to be rebuilt.
    ///
    /// # Errors
    /// `NotFound` or `Corrupt` when a segment is gone or damaged and there is no way around it.
    pub fn run(
        &mut self,
        newest: &SegmentRef,
        replaced: Option<SegmentRef>,
    ) -> Result<(SegmentRef, SegmentHead)> {
        // Its head says what comes before it.
        let stream = match self.stream(newest) {
            Ok(stream) => stream,
            Err(damage) => return self.rebuild(damage, replaced),
        };
        let head = stream.head().clone();
        let mut stream = Some(stream);
        let segments = [head.lineage.as_slice(), &[*newest]].concat();
        let (runs, changelogs) = segments.split_at(runs_of(&head).min(segments.len()));
        if changelogs.is_empty() {
            let applied = self.apply_runs(runs, &head.tables, stream);
            return match applied.and_then(|()| self.count(&head.tables)) {
                Ok(()) => Ok((*newest, head)),
                Err(damage) => self.rebuild(damage, head.replaced.or(replaced)),
            };
        }
        if let Err(damage) = self.apply_runs(runs, &head.tables, None) {
            self.rebuild(damage, head.replaced)?;
        }
        self.changed.clear();
        for changelog in changelogs {
            match stream.take_if(|_| changelog == newest) {
                Some(stream) => self.apply_stream(changelog, stream)?,
                None => self.apply(changelog)?,
            }
        }
        self.count(&head.tables)?;
        Ok((*newest, head))
    }

    /// Applies what a damaged run replaced, and what that builds on. This ends: a reference holds the
    /// digest of what it names, so no segment refers to one that was written later.
    fn rebuild(
        &mut self,
        damage: Error,
        replaced: Option<SegmentRef>,
    ) -> Result<(SegmentRef, SegmentHead)> {
        let Some(replaced) = replaced.filter(|_| damage.is_damage()) else {
            return Err(damage);
        };
        // It was found to be damaged when some of it had been applied.
        *self.content = Families::new(self.content.layout());
        match self.run(&replaced, None) {
            Ok(applied) => {
                self.rebuilt.push(format!(
                    "{damage}; its state was rebuilt from the older segments up to {replaced}, \
                     and a new base image is written before anything builds on it"
                ));
                Ok(applied)
            }
            Err(older) => Err(Error::new(
                damage.kind(),
                format!("{damage}; nor can it be rebuilt from older segments: {older}"),
            )),
        }
    }

    /// Puts the content over `runs`, which are those of a lineage, and applies `changelogs`, oldest first.
    /// There are `tables` keys then. What is damaged is not worked around.
    ///
    /// # Errors
    /// As [`Load::run`]; the content is that of no version then.
    pub fn run_over(
        &mut self,
        runs: Vec<Arc<OpenRun>>,
        changelogs: &[SegmentRef],
        tables: &[TableKeys],
    ) -> Result<()> {
        let references: Vec<_> = runs.iter().map(|run| run.reference()).collect();
        if self.content.open_over(runs)? {
            self.content.stop_counting();
        } else {
            for run in &references {
                self.apply(run)?;
            }
        }
        for changelog in changelogs {
            self.apply(changelog)?;
        }
        self.content
            .count_unlinked(tables)
            .map_err(|e| e.context(self.owner))
    }

    /// Applies the runs of a lineage, oldest first, or puts the content over them. `tables` are the keys
    /// that there are once all is applied, where that is known; `newest` is the last run if it is open.
    fn apply_runs(
        &mut self,
        runs: &[SegmentRef],
        tables: &[TableKeys],
        mut newest: Option<SegmentStream>,
    ) -> Result<()> {
        let below = self.opened_over(runs, tables);
        if below > 0 && !tables.is_empty() {
            self.content.stop_counting();
        }
        for (number, run) in runs.iter().enumerate().skip(below) {
            match newest.take_if(|_| number + 1 == runs.len()) {
                Some(stream) => self.apply_stream(run, stream)?,
                None => self.apply(run)?,
            }
        }
        Ok(())
    }

    /// Takes over how many keys there are, where the newest segment says so.
    fn count(&mut self, tables: &[TableKeys]) -> Result<()> {
        if tables.is_empty() {
            return Ok(());
        }
        self.content
            .count_unlinked(tables)
            .map_err(|e| e.context(self.owner))
    }

    /// Puts the content over the runs of a lineage, if they are to stay below, and returns how many do:
    /// only the oldest where nobody says how many keys there are in all. Of what cannot be opened, loading
    /// says what is wrong with it.
    fn opened_over(&mut self, runs: &[SegmentRef], tables: &[TableKeys]) -> usize {
        let Some(memory) = self.memory.filter(|_| self.content.can_rest_on_run()) else {
            return 0;
        };
        let known = if tables.is_empty() { 1 } else { runs.len() };
        let mut opened = Vec::new();
        let mut bytes = 0;
        for run in runs.iter().take(known) {
            // One that will be loaded has to be opened no more than once, together with what lies around it.
            let found = if run.len <= LITTLE_BYTES {
                self.segments.look_at_run(run, self.owner)
            } else {
                self.segments.open_run(run, self.owner)
            };
            let Ok(run) = found else {
                break;
            };
            let head = run.head();
            if head.lineage != runs.get(..opened.len()).unwrap_or_default() {
                break;
            }
            bytes = loaded_bytes(head).saturating_add(bytes);
            opened.push(run);
        }
        if opened.len() < known {
            opened.truncate(1);
        }
        let below = opened.len();
        if below == 0 || !(memory.is_short(bytes) || memory.is_slow_to_load(bytes)) {
            return 0;
        }
        let mut stay = Vec::new();
        for (run, reference) in opened.into_iter().zip(runs) {
            let run = if reference.len <= LITTLE_BYTES {
                self.segments.open_run(reference, self.owner)
            } else {
                Ok(run)
            };
            let Ok(run) = run else {
                return 0;
            };
            stay.push(Arc::new(OpenRun::new(run)));
        }
        match self.content.open_over(stay) {
            Ok(true) => below,
            Ok(false) => 0,
            Err(_) => {
                *self.content = Families::new(self.content.layout());
                0
            }
        }
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
        if stream.head().kind == SegmentKind::Changelog {
            self.changed.push(stream.head().created);
        }
        self.content
            .apply(&mut EntryStream::new(stream))
            .map_err(|e| e.context(format!("{reference}, {}", self.owner)))
    }
}
