//! Evidence from a log and from leases, and the clean-up that deletes by it.

use holdfast_core::leases::{self, Now, read_leases};
use holdfast_core::liveness::{
    Evidence as _, Floors, Leased, ListedFile, ListedKind, ListedSegment, Needed, sort_out,
};
use holdfast_core::state::CommitId;
use holdfast_core::{CheckpointId, Error, ErrorKind, Result};
use parking_lot::Mutex;

use crate::checkpoint::{
    BATCHES, Checkpoint, Lease, NAMES, OF_BRANCH, Record, TAG, bit, floor, is_image, owner,
};
use crate::folder::{Answer, Folder, not_found};
use crate::model::{Model, Mutant};

/// Tags and branches have no end.
const NOW: Now = Now { oldest: 0, ms: 0 };

/// A request of `read_leases` that was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Answered {
    /// By name, whether there is a lease, and a mark.
    List([(bool, bool); 2]),
    Lease(usize, Option<Record>),
}

/// The oldest entry, and then the leases.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Evidence {
    /// 0 before it is read.
    oldest: u8,
    /// The requests of `read_leases` so far.
    answered: Vec<Answered>,
    /// The batches of leases.
    leased: Option<Vec<u8>>,
}

impl Evidence {
    /// The first request.
    pub fn begin(model: &Model, checkpoint: &Checkpoint) -> Self {
        let mut new = Self::default();
        new.step(model, checkpoint);
        new
    }

    /// One request. Returns false if it fails, which ends the clean-up.
    pub fn step(&mut self, model: &Model, checkpoint: &Checkpoint) -> bool {
        let is_late = model.is(Mutant::ReadsOldestLast) && self.leased.is_none();
        if self.oldest == 0 && !is_late {
            self.oldest = checkpoint.oldest;
            return true;
        }
        let Some(read) = self.read_leases(model, checkpoint) else {
            return true;
        };
        let Ok(leases) = read else {
            return false;
        };
        let batches = leases.iter().map(|lease| lease.batch as u8);
        let is_blind = model.is(Mutant::IgnoresLeases);
        self.leased = Some(batches.filter(|_| !is_blind).collect());
        self.answered.clear();
        true
    }

    pub fn is_complete(&self) -> bool {
        self.oldest > 0 && self.leased.is_some()
    }

    /// The product reads up to its first request that has no answer. The next one waits for the next
    /// step, so other things may happen between any two requests.
    fn read_leases(
        &mut self,
        model: &Model,
        checkpoint: &Checkpoint,
    ) -> Option<Result<Vec<leases::Lease>>> {
        let known = self.answered.len();
        let asked = Mutex::new((0, std::mem::take(&mut self.answered)));
        let read = read_leases(
            NOW,
            &Folder(|name: Option<&str>| {
                let (count, answered) = &mut *asked.lock();
                let place = *count;
                *count += 1;
                if place > known {
                    return Err(Error::new(ErrorKind::Storage, "waits for the next step"));
                }
                if place == known {
                    let new = answer(name, answered, model, checkpoint);
                    answered.push(new);
                }
                content(answered[place], checkpoint)
            }),
        );
        let (count, answered) = asked.into_inner();
        self.answered = answered;
        if !model.is(Mutant::ReadsLeasesOnce) {
            self.forget();
        }
        (count <= known + 1).then_some(read)
    }

    /// Drops readings that make no difference any more, to have fewer states: a reading only has to
    /// agree with the one before.
    fn forget(&mut self) {
        if matches!(self.answered.last(), Some(Answered::Lease(_, None))) {
            self.answered.clear();
        }
        let is_list = |answered: &Answered| matches!(answered, Answered::List(_));
        let lists = self
            .answered
            .iter()
            .enumerate()
            .filter(|(_, one)| is_list(one));
        let lists: Vec<usize> = lists.map(|(place, _)| place).collect();
        if let [_, second, _] = lists[..] {
            self.answered.drain(..second);
        }
    }

    /// The product's evidence.
    fn needed(&self, model: &Model, checkpoint: &Checkpoint) -> Option<Needed> {
        let mut oldest = Floors::default();
        oldest.add_version("0/0", &checkpoint.id(self.oldest));
        let leases = self.leased.iter().flatten();
        let leases = leases.map(|batch| match model.is(Mutant::LeaseHasNoFloor) {
            false => Leased::of(&lease(*batch, 0, checkpoint)),
            true => {
                let mut newest = Leased::default();
                let mut id = checkpoint.id(*batch);
                id.state = CommitId {
                    floor: CheckpointId(id.state.version),
                    ..id.state
                };
                newest.add_version("0/0", &id);
                Ok(newest)
            }
        });
        Some(Needed {
            oldest,
            leases: leases.collect::<Result<_>>().ok()?,
        })
    }

    /// Versions up to `last` that are needed, as bits.
    pub fn needed_until(&self, last: u8, model: &Model, checkpoint: &Checkpoint) -> u8 {
        let needed = self.needed(model, checkpoint);
        let is_needed = |version: &u8| {
            let created = CheckpointId((*version).into());
            let needs = |needed: &Needed| needed.decides(&owner(), created, kind(*version));
            needed.as_ref().and_then(needs) == Some(true)
        };
        (1..=last).filter(is_needed).map(bit).sum()
    }
}

/// Answers from the folder, or as before.
fn answer(
    name: Option<&str>,
    before: &[Answered],
    model: &Model,
    checkpoint: &Checkpoint,
) -> Answered {
    // The mutant gets the first answer again. A lease that was gone is not even listed.
    let before = match model.is(Mutant::ReadsLeasesOnce) {
        true => before,
        false => &[],
    };
    let is_gone = |place| before.contains(&Answered::Lease(place, None));
    let is_name = |known: &&str| name.is_some_and(|name| name.starts_with(*known));
    let place = NAMES.iter().position(is_name);
    let same = before.iter().find_map(|answered| match (*answered, place) {
        (Answered::List([tag, branch]), None) => Some(Answered::List([
            (tag.0 && !is_gone(TAG), tag.1),
            (branch.0 && !is_gone(OF_BRANCH), branch.1),
        ])),
        (Answered::Lease(known, _), Some(place)) if known == place => Some(*answered),
        _ => None,
    });
    let counts = |lease: &Lease| lease.marks != 0 || !model.is(Mutant::IgnoresUnheld);
    same.unwrap_or_else(|| match place {
        None => Answered::List(checkpoint.leases.map(|lease| {
            let is_there = lease.record.is_some() && counts(&lease);
            (is_there, lease.marks != 0)
        })),
        Some(place) => Answered::Lease(place, checkpoint.leases[place].record),
    })
}

fn content(answered: Answered, checkpoint: &Checkpoint) -> Result<Answer> {
    match answered {
        Answered::List(listed) => {
            let mut names = Vec::new();
            for (name, (is_there, is_marked)) in NAMES.iter().zip(listed) {
                names.extend(is_marked.then(|| format!("{name}.1.held")));
                names.extend(is_there.then(|| format!("{name}.lease")));
            }
            Ok(Answer::Names(names))
        }
        Answered::Lease(_, None) => not_found(),
        Answered::Lease(_, Some(record)) => {
            let mut bytes = lease(record.batch, record.id, checkpoint).to_bytes()?;
            if !record.is_whole {
                bytes.pop();
            }
            Ok(Answer::Content(bytes))
        }
    }
}

fn lease(batch: u8, id: u8, checkpoint: &Checkpoint) -> leases::Lease {
    leases::Lease {
        batch: batch.into(),
        id: id.to_string(),
        branch: None,
        made_ms: 0,
        until: None,
        expires_ms: None,
        stores: vec![(0, 0, checkpoint.id(batch).to_string())],
    }
}

fn kind(version: u8) -> ListedKind {
    match is_image(version) {
        true => ListedKind::Run,
        false => ListedKind::Other,
    }
}

/// A clean-up of a checkpoint. One whose driver crashes stays where it is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Pass {
    Waits,
    Reads(Evidence),
    /// It has judged all files, and deletes these versions.
    Deletes(u8),
    Ended,
}

impl Pass {
    /// Returns `None` if it cannot begin, or ended before.
    pub fn step(self, model: &Model, checkpoint: &mut Checkpoint) -> Option<Self> {
        Some(match self {
            Self::Waits if checkpoint.newest == 0 => return None,
            Self::Waits => Self::Reads(Evidence::begin(model, checkpoint)),
            Self::Reads(evidence) if evidence.is_complete() => {
                let needed = evidence.needed(model, checkpoint)?;
                let sorted = sort_out(listed(checkpoint), &needed, &|_| false, 2.0);
                let going = sorted.going.iter().map(|file| file.file.seq as u8);
                match going.map(bit).sum() {
                    0 => Self::Ended,
                    versions => Self::Deletes(versions),
                }
            }
            Self::Reads(mut evidence) => match evidence.step(model, checkpoint) {
                true => Self::Reads(evidence),
                false => Self::Ended,
            },
            Self::Deletes(versions) => {
                checkpoint.files &= !versions;
                Self::Ended
            }
            Self::Ended => return None,
        })
    }
}

/// The files in the folder of a checkpoint, which are listed after the evidence is complete.
fn listed(checkpoint: &Checkpoint) -> Vec<ListedFile> {
    let versions = (1..=BATCHES as u8).filter(|version| checkpoint.files & bit(*version) != 0);
    let file = |version: u8| {
        let segment = ListedSegment {
            owner: owner().into(),
            created: CheckpointId(version.into()),
            len: 1,
            kind: kind(version),
        };
        ListedFile {
            file: checkpoint.file(version),
            sealed: true,
            damaged: false,
            physical_bytes: 1,
            segments: [segment].into(),
        }
    };
    versions.map(file).collect()
}

/// The versions that the entries of a log need, as bits.
pub fn needed_by_log(checkpoint: &Checkpoint) -> u8 {
    match checkpoint.newest {
        0 => 0,
        newest => (floor(checkpoint.oldest)..=newest).map(bit).sum(),
    }
}
