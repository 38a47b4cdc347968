//! How the driver makes a physical file durable before it publishes a batch that needs the file.
//! [`next_step`] is pure: the driver carries out the step, adds what it learned to the [`Facts`] and
//! asks again. The model in rust/sim/models/commits asks the same function.

/// Knowledge about the writer of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writer {
    /// It may be there and was not asked yet.
    Unasked,
    /// It made the file durable.
    Done,
    /// It could not make the file durable.
    Failed,
    /// It did not answer. It may be alive.
    Silent,
    /// It was lost, or it has closed the file.
    Gone,
}

/// Knowledge about a file that a batch needs. `None` was not looked at yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Bytes from the start of the file that the batch needs.
    pub end: u64,
    /// A sync of the file failed. A later sync may succeed without its bytes.
    pub is_lost: bool,
    /// The answer of the writer, if it is there.
    pub writer: Writer,
    /// Bytes of the file in storage; 0 for a file that is not there.
    pub stored: Option<u64>,
    /// True if copies on other executors have all that the batch needs of the file.
    pub copied: Option<bool>,
}

/// A step of the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Ask the writer to make the file durable.
    Ask,
    /// Look at the file in storage; make it durable if storage can do that without the writer.
    Look,
    /// Fetch the copies.
    Gather,
    /// Create the file from the copies. If its name is taken, look at the file again.
    Complete,
    /// The file is durable.
    Done,
    /// The batch must not be published.
    Fail(Failure),
}

/// The reason why a file cannot be made durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// A sync failed before.
    Lost,
    /// The writer could not make the file durable.
    WriterFailed,
    /// Only the writer knows whether its bytes are safe. If it is alive, it may also append more to
    /// the file, which a file made from copies would not have.
    WriterSilent,
    /// The writer is gone, and neither storage nor copies have all bytes.
    Incomplete,
}

/// Returns what the driver does next for a file.
pub fn next_step(facts: &Facts) -> Step {
    if facts.is_lost {
        return Step::Fail(Failure::Lost);
    }
    match facts.writer {
        Writer::Unasked => Step::Ask,
        Writer::Done => Step::Done,
        Writer::Failed => Step::Fail(Failure::WriterFailed),
        Writer::Silent => Step::Fail(Failure::WriterSilent),
        Writer::Gone => match (facts.stored, facts.copied) {
            (None, _) => Step::Look,
            (Some(bytes), _) if bytes >= facts.end => Step::Done,
            // A file that is there and too short cannot be replaced: its name is taken.
            (Some(0), None) => Step::Gather,
            (Some(0), Some(true)) => Step::Complete,
            _ => Step::Fail(Failure::Incomplete),
        },
    }
}
