//! One source in one run of a query: batch after batch, and the writes of markers, one at a time.

use std::collections::BTreeMap;

use super::decisions::{Batch, refused};
use super::marker::Marker;
use super::messages::{Action, Fact, Plan};
use crate::isolation::Part;
use crate::{Error, Result};

/// The machine of one source in one run of a query.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Run {
    /// The durable markers, by batch.
    markers: BTreeMap<u64, Marker>,
    batch: Option<Batch>,
    writing: Option<(u64, Marker, Vec<Part>)>,
}

impl Run {
    /// Adds a marker that is durable.
    pub fn know(&mut self, batch: u64, marker: Marker) {
        self.markers.insert(batch, marker);
    }

    /// The durable marker of a batch.
    pub fn marker(&self, batch: u64) -> Option<&Marker> {
        self.markers.get(&batch)
    }

    /// Like [`Run::take`], in JSON: a list of `through` and the fact, and a list of actions.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) if the text is no fact.
    pub fn take_json(&mut self, number: u64, told: &[u8]) -> Result<Vec<u8>> {
        let unknown = |e| Error::invalid_input(format!("a fact about bad rows: {e}"));
        let (through, fact) = serde_json::from_slice::<(Vec<u32>, _)>(told).map_err(unknown)?;
        serde_json::to_vec(&self.take(number, &through, fact)).map_err(unknown)
    }

    /// Takes an event of a batch. Returns the actions to carry out, in this order. `through` has
    /// partitions that tasks delivered to their end, with a result that Spark took. Only partitions that
    /// an attempt asked for have to be in it.
    pub fn take(&mut self, number: u64, through: &[u32], fact: Fact) -> Vec<Action> {
        let mut actions = Vec::new();
        match (fact, &mut self.batch) {
            (Fact::Begin(plan), _) => self.begin(number, *plan, &mut actions),
            (Fact::Written, _) => self.written(None, &mut actions),
            (Fact::NotWritten(error), _) => self.written(Some(error), &mut actions),
            (Fact::Committed, _) => {
                // No run repeats the batch any more, so its rows are final.
                let marker = self.marker(number).cloned();
                actions.extend(marker.map(|marker| Action::Publish(number, marker)));
            }
            (fact, Some(batch)) if batch.number == number => batch.take(through, fact),
            (Fact::Asks(part, _) | Fact::Settles(part, ..), _) => {
                let why = format!("The query has gone on without task {}", part.attempt);
                actions.push(Action::Refuse(part, why));
            }
            _ => {}
        }
        self.write(&mut actions);
        if let Some(batch) = &mut self.batch {
            actions.append(&mut batch.actions);
        }
        actions
    }

    fn begin(&mut self, number: u64, plan: Plan, actions: &mut Vec<Action>) {
        if let Some(old) = self.batch.take() {
            old.end(actions);
        }
        let oldest = number.saturating_sub(plan.retained);
        self.markers.retain(|batch, _| {
            // Unless it is a re-run, a user may have gone back to an earlier batch.
            let is_old = *batch < oldest || (*batch >= number && !plan.rerun);
            actions.extend(is_old.then_some(Action::Delete(*batch)));
            !is_old
        });
        match Batch::begin(number, plan, self.markers.get(&number)) {
            Ok(batch) => self.batch = Some(batch),
            Err(why) => actions.push(Action::Fail(why)),
        }
    }

    fn write(&mut self, actions: &mut Vec<Action>) {
        let Some(batch) = self.batch.as_mut().filter(|_| self.writing.is_none()) else {
            return;
        };
        let durable = self.markers.get(&batch.number);
        let Some((marker, settled)) = batch.take_changes(durable) else {
            return;
        };
        if marker.as_ref() == durable && !batch.is_uncertain {
            return batch.durable(settled);
        }
        match marker {
            Some(marker) => {
                actions.push(Action::Write(batch.number, marker.clone()));
                self.writing = Some((batch.number, marker, settled));
            }
            None => {
                actions.push(Action::Delete(batch.number));
                self.markers.remove(&batch.number);
                batch.durable(settled);
            }
        }
    }

    fn written(&mut self, error: Option<String>, actions: &mut Vec<Action>) {
        let Some((number, marker, settled)) = self.writing.take() else {
            return;
        };
        if error.is_none() {
            self.markers.insert(number, marker);
        }
        let batch = self.batch.as_mut().filter(|one| one.number == number);
        match (error, batch) {
            (None, Some(batch)) => {
                batch.is_uncertain = false;
                batch.durable(settled);
            }
            (why, batch) => {
                batch.into_iter().for_each(|one| one.is_uncertain = true);
                let why = why.unwrap_or_else(|| "The query has gone on".to_owned());
                actions.extend(refused(settled, &why));
            }
        }
    }
}
