//! Manager, storage, network and truth of one history, and the checks.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::{FaultyStorage, Operation};
use holdfast_core::format::{Compression, read_segment};
use holdfast_core::manager::{
    ManagerOptions, PostponedCheckpoints, RestoredCheckpoint, SnapshotManager,
};
use holdfast_core::segment::WriterOptions;
use holdfast_core::storage::Storage;
use holdfast_core::{FileId, Owner};

use crate::network::Network;
use crate::rng::Rng;
use crate::storage::SimStorage;
use crate::truth::Truth;

/// More than the failures that can be scripted for one kind of call at any time.
const RETRIES: usize = 20;

/// Shape of one history.
#[derive(Clone, Copy, Debug)]
pub struct Params {
    pub durable_append: bool,
    pub across_checkpoints: bool,
    pub regions: u64,
    pub num_retained: usize,
    pub attempts: u64,
    pub max_file_bytes: u64,
    pub max_space_amplification: f64,
    pub decline_percent: u64,
    pub fault_percent: u64,
    pub restart_permille: u64,
    /// Few histories have segments so large that open files are sealed for what they waste.
    pub state_bytes: u64,
}

impl Params {
    fn random(rng: &mut Rng) -> Self {
        let durable_append = rng.percent(75);
        Self {
            durable_append,
            across_checkpoints: durable_append && rng.percent(60),
            regions: rng.between(2, 4),
            num_retained: rng.between(1, 3) as usize,
            attempts: rng.between(5, 16),
            max_file_bytes: rng.pick(&[1, 400, 1500, 1 << 20]).unwrap_or(400),
            max_space_amplification: rng.pick(&[0.0, 1.2, 2.0]).unwrap_or(2.0),
            decline_percent: rng.pick(&[3, 10, 30]).unwrap_or(10),
            fault_percent: rng.pick(&[0, 2, 8]).unwrap_or(0),
            restart_permille: rng.pick(&[0, 5, 20]).unwrap_or(0),
            state_bytes: if rng.percent(4) { 60_000 } else { 60 },
        }
    }
}

#[derive(Debug)]
pub struct World {
    pub rng: Rng,
    pub params: Params,
    pub truth: Truth,
    pub network: Network,
    pub manager: SnapshotManager,
    pub region_of: Vec<u64>,
    storage: SimStorage,
    faulty: Arc<FaultyStorage>,
    trace: Option<Vec<String>>,
}

impl World {
    pub fn new(seed: u64, trace: bool) -> Result<Self, String> {
        let mut rng = Rng::new(seed);
        let params = Params::random(&mut rng);
        let storage = SimStorage::new(params.durable_append);
        let faulty = Arc::new(FaultyStorage::new(Arc::new(storage.clone())));
        let manager = open(&faulty, &params)?;
        let region_of: Vec<u64> = (0..params.regions)
            .flat_map(|region| vec![region; rng.between(1, 2) as usize])
            .collect();
        let names = region_of.iter().enumerate();
        let owners =
            names.map(|(i, region)| Owner::new("", &i.to_string(), &region.to_string(), "s"));
        let truth = Truth::new(owners.collect());
        let mut world = Self {
            rng,
            params,
            truth,
            network: Network::default(),
            manager,
            region_of,
            storage,
            faulty,
            trace: trace.then(Vec::new),
        };
        world.note(|| format!("{params:?}"));
        Ok(world)
    }

    pub fn owner(&self, number: usize) -> Owner {
        self.truth
            .owners
            .get(number)
            .cloned()
            .unwrap_or_else(|| Owner::new("", "", "", ""))
    }

    /// Different bytes every time.
    pub fn payload(&mut self) -> Vec<u8> {
        let len = self.rng.below(self.params.state_bytes) as usize;
        let mut payload = self.rng.bits().to_le_bytes().to_vec();
        payload.resize(8 + len, payload.first().copied().unwrap_or(0));
        payload
    }

    pub fn note(&mut self, event: impl FnOnce() -> String) {
        if let Some(trace) = &mut self.trace {
            trace.push(event());
        }
    }

    pub fn trace(&self) -> String {
        self.trace
            .as_ref()
            .map(|trace| trace.join("\n"))
            .unwrap_or_default()
    }

    /// Now and then one of the next calls of storage will fail.
    pub fn maybe_break_storage(&mut self) {
        if !self.rng.percent(self.params.fault_percent) {
            return;
        }
        let nth = self.rng.between(1, 3);
        let kept = self.rng.below(120) as usize;
        match self.rng.below(6) {
            0 => self.faulty.fail_nth(Operation::Create, nth),
            1 => self.faulty.fail_nth(Operation::Append, nth),
            2 => self.faulty.short_append_nth(nth, kept),
            3 => self.faulty.fail_nth(Operation::Delete, nth),
            4 => self.faulty.fail_nth(Operation::List, nth),
            _ => self.faulty.fail_nth(Operation::Sync, nth),
        }
    }

    /// The manager's thread comes to its work now, or not.
    pub fn maybe_delete(&mut self) {
        if self.rng.percent(60) {
            self.note(|| "deletes".to_owned());
            self.manager.wait_for_deletes();
        }
    }

    pub fn heal_storage(&self) {
        self.faulty.heal();
    }

    /// Some messages arrive.
    pub fn receive(&mut self, at_most: u64) -> Result<(), String> {
        for _ in 0..self.rng.below(at_most + 1) {
            let Some(message) = self.network.receive(&mut self.rng) else {
                break;
            };
            self.note(|| format!("arrives: {message:?}"));
            message
                .deliver(&self.manager)
                .map_err(|e| format!("{message:?}: {e}"))?;
            self.maybe_delete();
            self.check()?;
        }
        Ok(())
    }

    /// The executor dies and comes back.
    pub fn restart(&mut self) -> Result<(), String> {
        let machine = self.rng.percent(50);
        self.note(|| format!("restart, machine crash: {machine}"));
        match machine {
            true => self.storage.crash_machine(&mut self.rng),
            false => self.storage.kill_process(),
        }
        self.manager = open(&self.faulty, &self.params)?;
        self.truth.restarted();
        let all = self.truth.restored();
        if self.rng.percent(30) {
            for one in &all {
                // Storage may refuse; the call below repeats it.
                let _ = self.manager.restore(std::slice::from_ref(one));
                self.check()?;
            }
        }
        match self.rng.percent(50) {
            true => self.until_done("restore", |manager| manager.restore(&all))?,
            false => {
                self.until_done("restore", |manager| manager.restore_later(postponed(&all)))?
            }
        }
        self.check()?;
        self.until_done("sweep", |manager| manager.sweep().map(|_| ()))?;
        self.check()
    }

    /// One region is restored while the manager lives.
    pub fn restore_region(&mut self) -> Result<(), String> {
        self.note(|| "restore in a live manager".to_owned());
        let all = self.truth.restored();
        self.until_done("restore", |manager| manager.restore(&all))?;
        self.check()
    }

    /// Every segment of every retained checkpoint is readable with the right bytes.
    pub fn check(&self) -> Result<(), String> {
        for (id, states) in &self.truth.retained {
            for reference in states.iter().flat_map(|state| &state.segments) {
                let written = self
                    .truth
                    .written
                    .get(reference)
                    .ok_or("cites what no task wrote")?;
                let owner = self.owner(written.owner);
                let segment = read_segment(&self.storage, reference, &owner)
                    .map_err(|e| format!("checkpoint {id}: {e}"))?;
                if segment.payload != written.payload {
                    return Err(format!("checkpoint {id}: {reference} has other bytes"));
                }
            }
        }
        Ok(())
    }

    /// Nothing is kept that is not needed, or explained. Returns the number of the latter.
    pub fn check_nothing_else(&self) -> Result<u64, String> {
        let needed = self.truth.needed();
        let live: BTreeSet<_> = self
            .manager
            .segments()
            .into_iter()
            .map(|s| s.reference)
            .collect();
        if let Some(lost) = needed.difference(&live).next() {
            return Err(format!("{lost} is needed and not live"));
        }
        let strays: Vec<_> = live.difference(&needed).collect();
        if let Some(stray) = strays.iter().find(|stray| !self.truth.explained(stray)) {
            return Err(format!("{stray} is kept for no reason"));
        }
        let files = self.manager.files();
        if let Some(file) = files.iter().find(|file| file.live_segments == 0) {
            return Err(format!("{} is kept without a live segment", file.file));
        }
        let known: BTreeSet<_> = files.iter().map(|file| file.file).collect();
        let listed = self.storage.list().map_err(|e| e.to_string())?;
        let stored: BTreeSet<_> = listed
            .iter()
            .filter_map(|o| FileId::parse(&o.name))
            // With the number 0 it is the claim of a manager, which no decision is about.
            .filter(|file| file.seq > 0)
            .collect();
        // If appends are not durable, a file is not listed while it is open, and never when
        // finishing it failed. Needed files were read just before, so they are in neither.
        let hidden = known
            .difference(&stored)
            .next()
            .filter(|_| self.params.durable_append);
        if let Some(file) = stored.difference(&known).next().or(hidden) {
            return Err(format!("{file} is not both stored and known"));
        }
        Ok(strays.len() as u64)
    }

    fn until_done(
        &mut self,
        what: &str,
        call: impl Fn(&SnapshotManager) -> holdfast_core::Result<()>,
    ) -> Result<(), String> {
        for _ in 0..RETRIES {
            match call(&self.manager) {
                Ok(()) => return Ok(()),
                Err(e) if e.kind() == holdfast_core::ErrorKind::Storage => {}
                Err(e) => return Err(format!("{what}: {e}")),
            }
        }
        Err(format!("{what} does not come to an end"))
    }
}

fn open(faulty: &Arc<FaultyStorage>, params: &Params) -> Result<SnapshotManager, String> {
    let options = || ManagerOptions {
        writer: WriterOptions {
            max_file_bytes: params.max_file_bytes,
            compression: Compression::None,
            copies: false,
            tells: false,
        },
        across_checkpoints: Some(params.across_checkpoints),
        max_space_amplification: params.max_space_amplification,
        background: false,
        // Reads return the bytes that storage has.
        recent_bytes: 0,
        earlier: None,
        ..ManagerOptions::default()
    };
    // Listing may fail now and then: a scripted failure is gone once it happened.
    let mut opened = SnapshotManager::open_next_term(faulty.clone(), options(), 1);
    for _ in 0..RETRIES {
        opened = opened.or_else(|_| SnapshotManager::open_next_term(faulty.clone(), options(), 1));
    }
    opened.map_err(|e| e.to_string())
}

fn postponed(checkpoints: &[RestoredCheckpoint]) -> PostponedCheckpoints {
    let mut files = BTreeMap::new();
    for (_, _, reference) in checkpoints.iter().flat_map(|one| &one.segments) {
        let bytes: &mut u64 = files.entry(reference.file).or_default();
        *bytes = (*bytes).max(reference.end());
    }
    let newest = checkpoints.iter().map(|one| one.id).max();
    let restored = checkpoints.to_vec();
    PostponedCheckpoints::new(files, newest, move || Ok(restored.clone()))
}
