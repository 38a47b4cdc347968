//! One run of a query: batch after batch, and the writes of markers, one at a time.

use std::collections::BTreeSet;

use super::decisions::{Batch, Change};
use super::known::Known;
use super::marker::Marker;
use super::messages::{Action, Fact, Plan};
use crate::{Error, Result};

/// The machine of one run of a query.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Run {
    /// Empty while a batch has it.
    known: Known,
    batch: Option<Batch>,
    writing: Option<Writing>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Writing {
    batch: u64,
    marker: Marker,
    changes: Vec<Change>,
}

impl Run {
    /// A run that knows of no marker.
    pub fn new(id: impl Into<String>, checkpoint: impl Into<String>) -> Self {
        let mut run = Self::default();
        run.known.id = id.into();
        run.known.checkpoint = checkpoint.into();
        run
    }

    fn known(&mut self) -> &mut Known {
        let batch = self.batch.as_mut();
        batch.map_or(&mut self.known, |batch| &mut batch.known)
    }

    /// Adds a marker that is durable.
    pub fn know(&mut self, batch: u64, marker: Marker) {
        self.known().markers.insert(batch, marker);
    }

    /// The durable marker of a batch.
    pub fn marker(&self, batch: u64) -> Option<&Marker> {
        let known = self.batch.as_ref().map_or(&self.known, |one| &one.known);
        known.markers.get(&batch)
    }

    /// Like [`Run::take`], in JSON: a list of `through` and the fact, and a list of actions.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) if the text is no fact.
    pub fn take_json(&mut self, number: u64, told: &[u8]) -> Result<Vec<u8>> {
        let unknown = |e| Error::invalid_input(format!("a fact about a batch: {e}"));
        let (through, fact) = serde_json::from_slice::<(Vec<u32>, _)>(told).map_err(unknown)?;
        serde_json::to_vec(&self.take(number, &through, fact)).map_err(unknown)
    }

    /// Takes an event of a batch. Returns the actions to carry out, in this order. `through` has
    /// partitions that tasks delivered or parked to their end, with a result that Spark took. Only
    /// partitions that an attempt asked for, or that were parked, have to be in it.
    pub fn take(&mut self, number: u64, through: &[u32], fact: Fact) -> Vec<Action> {
        let mut actions = Vec::new();
        match (fact, &mut self.batch) {
            (Fact::Begin(plan), _) => self.begin(number, *plan, &mut actions),
            (Fact::Written, _) => self.written(None, &mut actions),
            (Fact::NotWritten(error), _) => self.written(Some(error), &mut actions),
            (fact, Some(batch)) if batch.number == number => batch.take(through, fact),
            (Fact::Asks(part, _) | Fact::Settles(part, _), _) => {
                let why = format!("The query has gone on without task {}", part.attempt);
                actions.push(Action::Refuse(part, why));
            }
            _ => {}
        }
        self.write();
        if let Some(batch) = &mut self.batch {
            actions.append(&mut batch.actions);
        }
        actions
    }

    fn begin(&mut self, number: u64, plan: Plan, actions: &mut Vec<Action>) {
        if let Some(old) = self.batch.take() {
            self.known = old.end(actions);
        }
        let needed: BTreeSet<u64> = plan.pending.values().flatten().copied().collect();
        let oldest = number.saturating_sub(plan.retained);
        let is_open = self.marker(number).is_some_and(|marker| !marker.sealed);
        let sealed = plan.rerun && !(plan.seals && is_open);
        self.known.markers.retain(|batch, _| {
            // Unless it is a re-run, a user may have gone back to an earlier batch.
            let is_undone = *batch >= number && !plan.rerun;
            let is_old = is_undone || (*batch < oldest && !needed.contains(batch));
            actions.extend(is_old.then_some(Action::Delete(*batch)));
            !is_old
        });
        match Batch::begin(number, plan, sealed, &mut self.known) {
            Ok(batch) => self.batch = Some(batch),
            Err(why) => actions.push(Action::Fail(why)),
        }
    }

    fn write(&mut self) {
        if let Some(batch) = self.batch.as_mut().filter(|_| self.writing.is_none()) {
            let (marker, changes) = batch.take_changes();
            let Some(marker) = marker else {
                return batch.durable(changes);
            };
            batch
                .actions
                .push(Action::Write(batch.number, marker.clone()));
            self.writing = Some(Writing {
                batch: batch.number,
                marker,
                changes,
            });
        }
    }

    fn written(&mut self, error: Option<String>, actions: &mut Vec<Action>) {
        let Some(done) = self.writing.take() else {
            return;
        };
        if error.is_none() {
            self.know(done.batch, done.marker);
        }
        let batch = self.batch.as_mut().filter(|one| one.number == done.batch);
        match (error, batch) {
            (None, Some(batch)) => {
                batch.is_uncertain = false;
                batch.durable(done.changes);
            }
            (why, batch) => {
                batch.into_iter().for_each(|one| one.is_uncertain = true);
                let why = why.unwrap_or_else(|| "The query has gone on".to_owned());
                actions.extend(Change::refused(done.changes, &why));
            }
        }
    }
}
