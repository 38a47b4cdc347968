//! Serving one client.

use std::sync::Arc;
use std::time::Duration;

use holdfast_core::format::NewSegment;
use holdfast_core::manager::SnapshotManager;
use holdfast_core::state::VersionId;
use holdfast_core::{CheckpointId, Error, ErrorKind, Result, SegmentRef};

use super::budget::{Budget, Share};
use super::channel::{Channel, Frame, Outgoing};
use super::failure::{FailureMessage, Fate};
use super::payload::{announce, check_payload_bytes};
use super::protocol::{Answer, AppendCall, Call, Hello, KeptMessage, ReadCall, Request, Response};
use super::table::{OpenTableMessage, TableAnswerMessage, TableCommitMessage};
use super::values::{kind_from, owner_from, refs_from};
use super::{MAX_HELLO_BYTES, MAX_MESSAGE_BYTES, PROTOCOL_VERSION};

/// Bound on the wait for the first message of a client.
const HELLO_TIMEOUT: Duration = Duration::from_secs(10);

/// The process that a server runs in.
pub trait Host: Send + Sync {
    /// A client introduced itself.
    ///
    /// # Errors
    /// The reason for a refusal, which the client gets.
    fn open(&self, hello: &Hello) -> Result<Box<dyn Session>>;
}

/// The session of a connected client. Dropped when the client leaves.
pub trait Session {
    /// The manager of its folder.
    ///
    /// # Errors
    /// `Fenced` when this session is over. The client then connects again and repeats its request.
    fn manager(&self) -> Result<Arc<SnapshotManager>>;

    /// Takes bytes for the driver. Returns once they cannot be lost as long as the driver lives.
    ///
    /// # Errors
    /// The reason why they were not taken, which the client gets.
    fn send(&self, data: Vec<u8>) -> Result<()>;

    /// Makes the content of the local file `local` ready to be published as `target`, under the
    /// name `staged`. Both are URIs. Returns once it is durable.
    ///
    /// # Errors
    /// The reason why it was not staged, which the client gets. `Unsupported` if the process
    /// reaches local files only, which the client writes itself.
    fn stage(&self, local: &str, staged: &str, target: &str) -> Result<()> {
        let _ = (local, target);
        Err(Error::new(
            ErrorKind::Unsupported,
            format!("{staged}: only an executor of Spark stages files of other file systems"),
        ))
    }
}

struct Ended {
    error: Error,
    fate: Fate,
}

impl From<Error> for Ended {
    fn from(error: Error) -> Self {
        let fate = Fate::Closes;
        Self { error, fate }
    }
}

/// Calls `keep` with the key of a client that introduced itself.
pub(super) fn serve(
    mut channel: Channel,
    host: &dyn Host,
    budget: &Budget,
    keep: &dyn Fn(&str) -> Result<()>,
) {
    if let Err(Ended { error, fate }) = serve_requests(&mut channel, host, budget, keep) {
        close(channel, &error, fate);
    }
}

fn serve_requests(
    channel: &mut Channel,
    host: &dyn Host,
    budget: &Budget,
    keep: &dyn Fn(&str) -> Result<()>,
) -> std::result::Result<(), Ended> {
    let Some(session) = welcome(channel, host, keep)? else {
        return Ok(());
    };
    while let Some(frame) = channel.receive(MAX_MESSAGE_BYTES)? {
        // An error of the protocol ends the connection: no next message can be found.
        let request = Incoming::read(channel, frame, budget)?;
        let manager = session.manager().map_err(|error| Ended {
            fate: match error.kind() {
                ErrorKind::Fenced => Fate::Over,
                _ => Fate::Closes,
            },
            error,
        })?;
        let done = request.run(&manager, session.as_ref());
        let reply = done.and_then(|(answer, payload)| outgoing(answer, &payload));
        let reply = reply.or_else(|error| failure(&error, Fate::Stays));
        if reply.and_then(|reply| channel.send(&reply)).is_err() {
            break;
        }
    }
    Ok(())
}

/// The first exchange.
fn welcome(
    channel: &mut Channel,
    host: &dyn Host,
    keep: &dyn Fn(&str) -> Result<()>,
) -> Result<Option<Box<dyn Session>>> {
    channel.wait_at_most(Some(HELLO_TIMEOUT))?;
    let Some(frame) = channel.receive(MAX_HELLO_BYTES)? else {
        return Ok(None);
    };
    channel.wait_at_most(None)?;
    let hello: Hello = frame.decode()?;
    hello.check()?;
    keep(&hello.key)?;
    let session = host.open(&hello)?;
    channel.send(&outgoing(Answer::Welcome(PROTOCOL_VERSION), &[])?)?;
    Ok(Some(session))
}

/// Tells the client why, if it still listens, and closes the connection.
pub(super) fn close(mut channel: Channel, error: &Error, fate: Fate) {
    // A client that does not read it finds the connection closed, which says enough.
    let _ = failure(error, fate).and_then(|message| channel.send(&message));
}

fn outgoing(answer: Answer, payload: &[u8]) -> Result<Outgoing> {
    let answer = Some(answer);
    Outgoing::new(&Response { answer }, payload)
}

fn failure(error: &Error, fate: Fate) -> Result<Outgoing> {
    outgoing(Answer::Failure(FailureMessage::of(error, fate)), &[])
}

/// A request with its payload, all of it read from the socket.
struct Incoming<'a> {
    call: Call,
    payload: Vec<u8>,
    _share: Option<Share<'a>>,
}

impl<'a> Incoming<'a> {
    fn read(channel: &mut Channel, frame: Frame, budget: &'a Budget) -> Result<Self> {
        let request: Request = frame.decode()?;
        let call = request
            .call
            .ok_or_else(|| Error::invalid_input("a request that this version does not know"))?;
        let (mut payload, mut share) = (Vec::new(), None);
        let announced = match &call {
            Call::Append(append) => Some(append.payload),
            Call::Table(table) => Some(table.payload),
            _ => None,
        };
        if let Some(announced) = announced {
            let announced = announced
                .ok_or_else(|| Error::invalid_input("a segment or batch without a payload"))?;
            check_payload_bytes(announced.bytes)?;
            share = Some(budget.take(announced.bytes));
            payload = channel.receive_payload(announced, frame)?;
        }
        Ok(Self {
            call,
            payload,
            _share: share,
        })
    }

    fn run(self, manager: &SnapshotManager, session: &dyn Session) -> Result<(Answer, Vec<u8>)> {
        let mut payload = Vec::new();
        let answer = match self.call {
            Call::Append(call) => {
                let reference = append(manager, call, &self.payload)?;
                Answer::Reference(reference.to_bytes().to_vec())
            }
            Call::Read(call) => {
                payload = read(manager, call)?;
                Answer::Payload(announce(&payload))
            }
            Call::Lease(call) => {
                let (owner, refs) = (owner_from(call.owner)?, refs_from(&call.refs)?);
                let kept = manager.lease(&owner, CheckpointId(call.checkpoint), &refs)?;
                Answer::Kept(KeptMessage { kept })
            }
            Call::Persist(call) => {
                let (owner, refs) = (owner_from(call.owner)?, refs_from(&call.refs)?);
                manager.persist_segments(CheckpointId(call.checkpoint), &owner, &refs)?;
                Answer::Done(())
            }
            Call::Release(call) => {
                manager.release(&owner_from(call.owner)?, &refs_from(&call.refs)?);
                Answer::Done(())
            }
            Call::Send(data) => {
                session.send(data)?;
                Answer::Done(())
            }
            Call::Stage(call) => {
                session.stage(&call.local, &call.staged, &call.target)?;
                Answer::Done(())
            }
            Call::OpenTable(call) => Answer::Session(open_table(manager, call)?),
            Call::Table(call) => {
                let answer = manager.table(call.session, &call.call(&self.payload)?)?;
                let (answer, bytes) = TableAnswerMessage::of(answer);
                payload = bytes;
                Answer::Table(answer)
            }
            Call::CommitTable(session) => {
                let commit = manager.commit_table(session)?;
                Answer::Committed(TableCommitMessage::of(&commit))
            }
            Call::CloseTable(session) => {
                manager.close_table(session);
                Answer::Done(())
            }
        };
        Ok((answer, payload))
    }
}

fn append(manager: &SnapshotManager, call: AppendCall, payload: &[u8]) -> Result<SegmentRef> {
    let owner = owner_from(call.owner)?;
    let lineage = refs_from(&call.lineage)?;
    let new = NewSegment {
        lineage: &lineage,
        entries: call.entries,
        ..NewSegment::of(&owner, CheckpointId(call.created), kind_from(call.kind)?)
    };
    manager.append(&new, payload)
}

fn open_table(manager: &SnapshotManager, call: OpenTableMessage) -> Result<u64> {
    let owner = owner_from(call.owner)?;
    let id = match call.id.as_str() {
        "" => None,
        text => Some(text.parse::<VersionId>()?.state),
    };
    manager.open_table(&owner, CheckpointId(call.checkpoint), id.as_ref())
}

fn read(manager: &SnapshotManager, call: ReadCall) -> Result<Vec<u8>> {
    let reference = SegmentRef::from_bytes(&call.reference)?;
    let owner = owner_from(call.owner)?;
    let segment = manager.read_known(&reference, &owner, call.known_bytes)?;
    Ok(segment.payload)
}
