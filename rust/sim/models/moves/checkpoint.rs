//! The files of a checkpoint: Spark's two logs, and the state of either provider.

use crate::model::PARTS;

/// Batches, the first of which is committed when a history begins.
pub const BATCHES: usize = 8;
/// Rows that the source has. The first batch took one.
pub const ROWS: u8 = 3;
/// Entries of its logs, and versions of the old provider, that a driver keeps.
const RETAINED: usize = 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Provider {
    /// Names its versions by the batch: a writer may replace what another one wrote.
    Old,
    /// Names nothing twice, and the commit log has the names.
    New,
}

/// An entry of `offsets`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Planned {
    /// Rows of the source up to the end of the batch.
    pub rows: u8,
    pub provider: Provider,
    /// A command planned it, and it takes no rows.
    pub is_move: bool,
}

/// An entry of `commits`: the state that its ids name, if they are ids of the new provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Committed {
    pub state: Option<NewState>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NewState {
    /// Rows in it, as bits.
    pub content: u8,
    /// Partitions that are written.
    pub parts: u8,
    pub record: Record,
}

/// Files of the old provider that were there when a command began to adopt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Record {
    pub versions: u8,
    pub files: u8,
}

/// A version of the old provider. Versions share files, as RocksDB's do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OldVersion {
    pub content: u8,
    /// The batch whose files it needs.
    pub files: usize,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Checkpoint {
    pub offsets: [Option<Planned>; BATCHES],
    pub commits: [Option<Committed>; BATCHES],
    /// Versions of the old provider, by the batch that made them.
    pub old: [Option<OldVersion>; BATCHES],
    /// Files that such versions share, as bits by batch.
    pub files: u8,
    /// For invariants: how often the sink has each row, the batches that it has, and moves that drivers
    /// have seen or will see.
    pub sink: [u8; ROWS as usize],
    pub written: u8,
    pub moved: u8,
}

impl Checkpoint {
    /// The old provider committed the first batch.
    pub fn new() -> Self {
        let mut new = Self {
            offsets: [None; BATCHES],
            commits: [None; BATCHES],
            old: [None; BATCHES],
            files: bit(0),
            sink: [0; ROWS as usize],
            written: bit(0),
            moved: 0,
        };
        new.offsets[0] = Some(Planned {
            rows: 1,
            provider: Provider::Old,
            is_move: false,
        });
        new.commits[0] = Some(Committed { state: None });
        new.old[0] = Some(OldVersion {
            content: rows(1),
            files: 0,
        });
        new.sink[0] = 1;
        new
    }

    pub fn planned(&self) -> usize {
        newest(&self.offsets)
    }

    pub fn committed(&self) -> usize {
        newest(&self.commits)
    }

    pub fn newest_plan(&self) -> Planned {
        self.offsets[self.planned()].unwrap_or(Planned {
            rows: 0,
            provider: Provider::Old,
            is_move: false,
        })
    }

    /// Creates an entry that must not be there. Returns whether it was not.
    pub fn plan(&mut self, batch: usize, plan: Planned) -> bool {
        let is_free = self.offsets[batch].is_none();
        self.offsets[batch].get_or_insert(plan);
        is_free
    }

    /// Like `plan`, in the commit log.
    pub fn commit(&mut self, batch: usize, entry: Committed) -> bool {
        let is_free = self.commits[batch].is_none();
        self.commits[batch].get_or_insert(entry);
        let is_move = self.offsets[batch].is_some_and(|plan| plan.is_move);
        if is_free && is_move && batch == self.planned() {
            self.moved |= bit(batch);
        }
        is_free
    }

    /// The content of the state that a batch left, for its provider.
    pub fn load(&self, batch: usize, provider: Provider) -> Option<u8> {
        match provider {
            Provider::Old => self.old_version(batch).map(|version| version.content),
            Provider::New => {
                let state = self.commits[batch]?.state?;
                (state.parts == PARTS).then_some(state.content)
            }
        }
    }

    pub fn old_version(&self, batch: usize) -> Option<OldVersion> {
        self.old[batch].filter(|version| self.files & bit(version.files) != 0)
    }

    pub fn record(&self) -> Record {
        let there = (0..BATCHES).filter(|batch| self.old[*batch].is_some());
        Record {
            versions: there.map(bit).sum(),
            files: self.files,
        }
    }

    /// Gives rows to a sink that commits a batch once.
    pub fn write_sink(&mut self, batch: usize, from: u8, to: u8) {
        if self.written & bit(batch) == 0 {
            for row in from..to {
                let count = &mut self.sink[usize::from(row)];
                *count = (*count + 1).min(2);
            }
        }
        self.written |= bit(batch);
    }

    /// Deletes what a driver that committed a batch does not keep.
    pub fn forget(&mut self, batch: usize, provider: Provider) {
        for older in 0..(batch + 1).saturating_sub(RETAINED) {
            self.offsets[older] = None;
            self.commits[older] = None;
            if provider == Provider::Old {
                self.old[older] = None;
            }
        }
    }
}

fn newest<T>(log: &[Option<T>]) -> usize {
    log.iter().rposition(Option::is_some).unwrap_or(0)
}

/// The content of a state with so many rows.
pub const fn rows(count: u8) -> u8 {
    (1 << count) - 1
}

pub const fn bit(batch: usize) -> u8 {
    1 << batch
}
