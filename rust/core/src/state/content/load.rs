//! Reads segments page by page; for a damaged run the segments that it replaced, if still there.

use std::sync::Arc;

use super::families::Families;
use crate::error::{Error, Result};
use crate::format::{
    RunReader, SegmentHead, SegmentKind, SegmentReader, SegmentStream, TableKeys, read_head,
};
use crate::ids::{CheckpointId, Owner, SegmentRef};
use crate::state::memory::{MemoryShare, loaded_bytes};
use crate::state::runs::entry_stream::EntryStream;
use crate::state::runs::stack::OpenRun;

/// Bytes of one read. On remote storage every read is a round trip.
pub(crate) const READ_AHEAD_BYTES: u64 = 4 << 20;
/// A run of up to this size is read together with the bytes around it.
const LITTLE_BYTES: u64 = 512 << 10;
/// Memory of loaded changelogs, at least, as a multiple of their stored bytes.
const IN_MEMORY: u64 = 4;

pub(crate) struct Load<'a> {
    pub segments: SegmentReader<'a>,
    pub owner: &'a Owner,
    /// The content, empty at first.
    pub families: &'a mut Families,
    /// With it the content lies over runs that do not fit or load slowly; keys are read on demand.
    pub memory: Option<&'a MemoryShare>,
    /// `created` of the runs of the version, oldest first.
    pub runs: Vec<CheckpointId>,
    /// `created` of the newest changelogs, oldest first.
    pub changed: Vec<CheckpointId>,
    /// Number of the oldest changelogs that the content lies over, instead of applying them.
    pub ready: usize,
    pub rebuilt: Vec<String>,
}

impl Load<'_> {
    /// Applies everything that `newest` builds on, then `newest`. Returns the last segment that it
    /// applied and its head: `newest`, or `replaced` if `newest` is a damaged run.
    pub fn run(
        &mut self,
        newest: &SegmentRef,
        replaced: Option<SegmentRef>,
    ) -> Result<(SegmentRef, SegmentHead)> {
        // Its head has the lineage.
        let stream = match self.stream(newest) {
            Ok(stream) => stream,
            Err(damage) => return self.rebuild(damage, replaced),
        };
        let head = stream.head.clone();
        let mut stream = Some(stream);
        let segments = [head.lineage.as_slice(), &[*newest]].concat();
        let (runs, changelogs) = segments.split_at(head.most_runs().min(segments.len()));
        if changelogs.is_empty() {
            let applied = self.apply_runs(runs, &[], &head.tables, stream);
            return match applied.and_then(|()| self.count(&head.tables)) {
                Ok(()) => Ok((*newest, head)),
                Err(damage) => self.rebuild(damage, head.replaced.or(replaced)),
            };
        }
        if let Err(damage) = self.apply_runs(runs, changelogs, &head.tables, None) {
            self.rebuild(damage, head.replaced)?;
            self.ready = 0;
            self.changed.clear();
        }
        for changelog in changelogs.iter().skip(self.ready) {
            match stream.take_if(|_| changelog == newest) {
                Some(stream) => self.apply_stream(changelog, stream)?,
                None => self.apply(changelog)?,
            }
        }
        self.count(&head.tables)?;
        Ok((*newest, head))
    }

    /// Applies the segment that a damaged run replaced, with its lineage. The recursion ends: a
    /// reference has the digest of its segment, so no segment refers to a later one.
    fn rebuild(
        &mut self,
        damage: Error,
        replaced: Option<SegmentRef>,
    ) -> Result<(SegmentRef, SegmentHead)> {
        let Some(replaced) = replaced.filter(|_| damage.is_damage()) else {
            return Err(damage);
        };
        // A part of the damaged run may be applied already.
        self.ready = 0;
        self.runs.clear();
        self.changed.clear();
        *self.families = Families::new(self.families.layout());
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

    /// Puts the content over the runs of a lineage and applies `changelogs`, oldest first. The
    /// result has `tables` keys. Does not work around damage.
    pub fn run_over(
        &mut self,
        runs: Vec<Arc<OpenRun>>,
        changelogs: &[SegmentRef],
        tables: &[TableKeys],
    ) -> Result<()> {
        self.families.open_over(runs)?;
        self.families.stop_counting();
        for changelog in changelogs {
            self.apply(changelog)?;
        }
        self.families
            .count_unlinked(tables)
            .map_err(|e| e.context(self.owner))
    }

    /// Applies the runs of a lineage, oldest first, or puts the content over them and over the
    /// `changelogs` that are runs, see [`Load::ready`]. `tables` are the final keys, if known;
    /// `newest` is the last run if it is open.
    fn apply_runs(
        &mut self,
        runs: &[SegmentRef],
        changelogs: &[SegmentRef],
        tables: &[TableKeys],
        mut newest: Option<SegmentStream>,
    ) -> Result<()> {
        let below = self.opened_over(runs, changelogs, tables);
        if below > 0 && !tables.is_empty() {
            self.families.stop_counting();
        }
        for (number, run) in runs.iter().enumerate().skip(below) {
            match newest.take_if(|_| number + 1 == runs.len()) {
                Some(stream) => self.apply_stream(run, stream)?,
                None => self.apply(run)?,
            }
        }
        if self.ready == 0 {
            self.runs.append(&mut self.changed);
        }
        Ok(())
    }

    fn count(&mut self, tables: &[TableKeys]) -> Result<()> {
        if tables.is_empty() {
            return Ok(());
        }
        self.families
            .count_unlinked(tables)
            .map_err(|e| e.context(self.owner))
    }

    /// Puts the content over runs that are not loaded, and returns their number. Opens only the
    /// oldest if no segment records the number of keys. The next load reports an unreadable run.
    fn opened_over(
        &mut self,
        runs: &[SegmentRef],
        changelogs: &[SegmentRef],
        tables: &[TableKeys],
    ) -> usize {
        let Some(memory) = self.memory.filter(|_| self.families.can_lie_over_runs()) else {
            return 0;
        };
        let known = if tables.is_empty() { 1 } else { runs.len() };
        let mut opened = Vec::new();
        let mut bytes = 0;
        for run in runs.iter().take(known) {
            // A small run will probably be loaded: it shares one read with the bytes around it.
            let found = if run.len <= LITTLE_BYTES {
                RunReader::look_at(self.segments.storage(), run, self.owner)
            } else {
                RunReader::open(self.segments.storage(), run, self.owner)
            };
            let Ok(run) = found else {
                break;
            };
            let head = &run.head;
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
        let (above, changed) = match below == runs.len() && !tables.is_empty() {
            true => self.ready_runs(changelogs),
            false => (Vec::new(), Vec::new()),
        };
        let heads = above.iter().map(|run| &run.head);
        bytes = heads.fold(bytes, |sum, head| sum.saturating_add(loaded_bytes(head)));
        if below == 0 || !(memory.is_short(bytes) || memory.is_slow_to_load(bytes)) {
            return 0;
        }
        let mut stay = Vec::new();
        for (run, reference) in opened.into_iter().zip(runs) {
            let run = if reference.len <= LITTLE_BYTES {
                RunReader::open(self.segments.storage(), reference, self.owner)
            } else {
                Ok(run)
            };
            let Ok(run) = run else {
                return 0;
            };
            stay.push(Arc::new(OpenRun::new(run)));
        }
        stay.extend(above.into_iter().map(|run| Arc::new(OpenRun::new(run))));
        let heads = stay.iter().take(below).map(|run| run.reader.head.created);
        let created = heads.collect();
        match self.families.open_over(stay) {
            Ok(()) => {
                self.ready = changed.len();
                self.changed = changed;
                self.runs = created;
                below
            }
            Err(_) => {
                *self.families = Families::new(self.families.layout());
                0
            }
        }
    }

    /// The runs among the oldest changelogs, and `created` of all of these. Empty changelogs
    /// between them name them. The first changelog with changes ends them.
    fn ready_runs(&self, changelogs: &[SegmentRef]) -> (Vec<RunReader>, Vec<CheckpointId>) {
        let storage = self.segments.storage();
        let (mut runs, mut changed) = (Vec::new(), Vec::new());
        let bytes = changelogs.iter().map(|one| one.len).sum::<u64>();
        let is_slow = |memory: &MemoryShare| memory.is_slow_to_load(IN_MEMORY * bytes);
        if !self.memory.is_some_and(is_slow) {
            return (runs, changed);
        }
        for changelog in changelogs {
            let Ok(head) = read_head(storage, changelog, self.owner) else {
                break;
            };
            match head.kind {
                SegmentKind::Run => match RunReader::open(storage, changelog, self.owner) {
                    Ok(run) => runs.push(run),
                    Err(_) => break,
                },
                _ if head.entries > 0 => break,
                _ => {}
            }
            changed.push(head.created);
        }
        (runs, changed)
    }

    /// After an error the content is of no version.
    fn apply(&mut self, reference: &SegmentRef) -> Result<()> {
        let stream = self.stream(reference)?;
        self.apply_stream(reference, stream)
    }

    fn stream(&mut self, reference: &SegmentRef) -> Result<SegmentStream> {
        self.segments
            .stream(reference, self.owner, READ_AHEAD_BYTES)
    }

    fn apply_stream(&mut self, reference: &SegmentRef, stream: SegmentStream) -> Result<()> {
        self.changed.push(stream.head.created);
        self.families
            .apply(&mut EntryStream::new(stream))
            .map_err(|e| e.context(format!("{reference}, {}", self.owner)))
    }
}
