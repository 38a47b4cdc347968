//! How a command makes a lease. [`next_step`] is pure: the command carries out the step, adds what it
//! learned to the [`Facts`] and asks again. A command that was killed begins with fresh facts.

/// The lease of the wanted name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Record {
    /// There is none.
    #[default]
    Absent,
    /// One for the same batch and the same branch: a command that was killed made it, or this one.
    Same,
    /// One for something else.
    Other,
}

/// Knowledge of a command about its lease.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Facts {
    /// The lease of the wanted name.
    pub record: Record,
    /// The lease is held.
    pub held: bool,
    /// This command has copied Spark's files of the batch.
    pub copied: bool,
    /// After the record was there: whether the batch, or the tag that keeps it, still was. `None`
    /// before the look.
    pub retained: Option<bool>,
    /// A query can begin with the branch. True for tags.
    pub published: bool,
}

/// A step of the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Create the lease.
    Record,
    /// Copy Spark's files of the batch, but for the branch's entry of the commit log.
    Copy,
    /// Look whether the batch, or the tag that keeps it, is still there.
    Look,
    /// Make the lease held.
    Hold,
    /// Create the branch's entry of the commit log.
    Publish,
    /// Everything is there.
    Done,
    /// The batch is gone. The lease may be another command's by now, so it stays.
    GiveUp,
    /// Another lease has the name.
    Refuse,
}

/// Returns what the command does next.
pub fn next_step(facts: &Facts) -> Step {
    match (facts.record, facts.held, facts.copied, facts.retained) {
        (Record::Other, ..) => Step::Refuse,
        (Record::Absent, ..) => Step::Record,
        (Record::Same, true, ..) if facts.published => Step::Done,
        (Record::Same, true, ..) => Step::Publish,
        // A copy that misses a file ends the command.
        (Record::Same, false, false, _) => Step::Copy,
        (Record::Same, false, true, None) => Step::Look,
        (Record::Same, false, true, Some(true)) => Step::Hold,
        (Record::Same, false, true, Some(false)) => Step::GiveUp,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_looks_after_its_lease_and_before_it_holds() {
        let mut facts = Facts::default();
        let mut steps = Vec::new();
        loop {
            let step = next_step(&facts);
            steps.push(step);
            match step {
                Step::Record => facts.record = Record::Same,
                Step::Copy => facts.copied = true,
                Step::Look => facts.retained = Some(true),
                Step::Hold => facts.held = true,
                Step::Publish => facts.published = true,
                _ => break,
            }
        }
        use Step::{Copy, Done, Hold, Look, Publish, Record as Write};
        assert_eq!(steps, [Write, Copy, Look, Hold, Publish, Done]);
    }

    #[test]
    fn a_batch_that_is_gone_is_given_up_and_another_lease_is_refused() {
        let mut facts = Facts {
            record: Record::Same,
            copied: true,
            retained: Some(false),
            ..Facts::default()
        };
        assert_eq!(next_step(&facts), Step::GiveUp);
        facts.record = Record::Other;
        assert_eq!(next_step(&facts), Step::Refuse);
    }
}
