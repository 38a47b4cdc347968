//! Serving one client.

use std::sync::Arc;
use std::time::Duration;

use holdfast_core::format::NewSegment;
use holdfast_core::manager::SnapshotManager;
use holdfast_core::{CheckpointId, Error, ErrorKind, Result, SegmentRef};

use super::budget::{Budget, Share};
use super::channel::{Channel, Frame, Outgoing, announce};
use super::failure::{FailureMessage, Fate};
use super::payload::check_payload_bytes;
use super::protocol::{
    Answer, AppendCall, Call, Hello, HelloMessage, KeptMessage, ReadCall, Request, Response,
    kind_from, owner_from, refs_from,
};
use super::{MAX_HELLO_BYTES, MAX_MESSAGE_BYTES, PROTOCOL_VERSION};

/// A client that says nothing for so long after it connected is none.
const HELLO_TIMEOUT: Duration = Duration::from_secs(10);

/// The process that a server runs in.
pub trait Host: Send + Sync {
    /// A client introduced itself.
    ///
    /// # Errors
    /// Whatever keeps it from being served; the client gets it.
    fn open(&self, hello: &Hello) -> Result<Box<dyn Session>>;
}

/// What a connected client works with. Dropped when it left.
pub trait Session {
    /// The manager of its folder.
    ///
    /// # Errors
    /// `Fenced` when this session is over: the client connects again and repeats its request.
    fn manager(&self) -> Result<Arc<SnapshotManager>>;

    /// Takes bytes for the driver. Returns once they cannot be lost as long as the driver lives.
    ///
    /// # Errors
    /// Whatever kept them from being taken; the client gets it.
    fn send(&self, data: Vec<u8>) -> Result<()>;

    /// Makes the content of the local file `local` ready to be published as `target`, under the name
    /// `staged`; both are URIs. Returns once it is durable.
    ///
    /// # Errors
    /// Whatever kept it from being staged; the client gets it. `Unsupported` where the process
    /// reaches local files only, which the client writes itself.
    fn stage(&self, local: &str, staged: &str, target: &str) -> Result<()> {
        let _ = (local, target);
        Err(Error::new(
            ErrorKind::Unsupported,
            format!("{staged}: only an executor of Spark stages files of other file systems"),
        ))
    }
}

/// What is sent back.
enum Reply {
    Answer(Answer),
    Payload(Vec<u8>),
}

impl Reply {
    fn outgoing(self) -> Result<Outgoing> {
        match self {
            Self::Answer(answer) => Outgoing::new(&response(answer)),
            Self::Payload(payload) => {
                let answer = Answer::Payload(announce(&payload));
                Outgoing::with_payload(&response(answer), &payload)
            }
        }
    }
}

/// Serves a client until it leaves or breaks the protocol. `keep` is called once it introduced itself.
pub(super) fn serve(
    mut channel: Channel,
    host: &dyn Host,
    budget: &Budget,
    keep: &dyn Fn() -> Result<()>,
) {
    let session = match welcome(&mut channel, host, keep) {
        Ok(Some(session)) => session,
        Ok(None) => return,
        Err(error) => return refuse(channel, &error),
    };
    loop {
        let frame = match channel.receive(MAX_MESSAGE_BYTES) {
            Ok(Some(frame)) => frame,
            Ok(None) => return,
            Err(error) => return refuse(channel, &error),
        };
        // From here on an error of the protocol ends the connection: where the next message begins
        // is not known any more.
        let request = match Incoming::read(&mut channel, frame, budget) {
            Ok(request) => request,
            Err(error) => return refuse(channel, &error),
        };
        let manager = match session.manager() {
            Ok(manager) => manager,
            Err(error) => return end(channel, &error),
        };
        let done = request.run(&manager, session.as_ref());
        let reply = done.and_then(Reply::outgoing);
        let reply = reply.or_else(|error| failure(&error, Fate::Stays));
        if reply.and_then(|reply| channel.send(&reply)).is_err() {
            return;
        }
    }
}

/// The first exchange.
fn welcome(
    channel: &mut Channel,
    host: &dyn Host,
    keep: &dyn Fn() -> Result<()>,
) -> Result<Option<Box<dyn Session>>> {
    channel.wait_at_most(Some(HELLO_TIMEOUT))?;
    let Some(frame) = channel.receive(MAX_HELLO_BYTES)? else {
        return Ok(None);
    };
    channel.wait_at_most(None)?;
    let hello = Hello::try_from(frame.decode::<HelloMessage>()?)?;
    keep()?;
    let session = host.open(&hello)?;
    channel.send(&Outgoing::new(&response(Answer::Welcome(
        PROTOCOL_VERSION,
    )))?)?;
    Ok(Some(session))
}

/// Says why, as far as the client listens, and closes the connection.
pub(super) fn refuse(channel: Channel, error: &Error) {
    close(channel, error, Fate::Closes);
}

/// As [`refuse`], because of the session.
fn end(channel: Channel, error: &Error) {
    let fate = match error.kind() {
        ErrorKind::Fenced => Fate::Over,
        _ => Fate::Closes,
    };
    close(channel, error, fate);
}

fn close(mut channel: Channel, error: &Error, fate: Fate) {
    // A client that does not read it finds the connection closed, which says enough.
    let _ = failure(error, fate).and_then(|message| channel.send(&message));
}

fn response(answer: Answer) -> Response {
    Response {
        answer: Some(answer),
    }
}

fn failure(error: &Error, fate: Fate) -> Result<Outgoing> {
    Outgoing::new(&response(Answer::Failure(FailureMessage::of(error, fate))))
}

/// A request with its payload: nothing of it is left in the socket.
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
        let Call::Append(append) = &call else {
            return Ok(Self {
                call,
                payload: Vec::new(),
                _share: None,
            });
        };
        let announced = append
            .payload
            .ok_or_else(|| Error::invalid_input("a segment without a payload"))?;
        check_payload_bytes(announced.bytes)?;
        let share = budget.take(announced.bytes);
        let payload = channel.receive_payload(announced, frame)?;
        Ok(Self {
            call,
            payload,
            _share: Some(share),
        })
    }

    fn run(self, manager: &SnapshotManager, session: &dyn Session) -> Result<Reply> {
        let answer = match self.call {
            Call::Append(call) => {
                let reference = append(manager, call, &self.payload)?;
                Answer::Reference(reference.to_bytes().to_vec())
            }
            Call::Read(call) => return read(manager, call).map(Reply::Payload),
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
        };
        Ok(Reply::Answer(answer))
    }
}

fn append(manager: &SnapshotManager, call: AppendCall, payload: &[u8]) -> Result<SegmentRef> {
    let owner = owner_from(call.owner)?;
    let lineage = refs_from(&call.lineage)?;
    let new = NewSegment {
        owner: &owner,
        created: CheckpointId(call.created),
        kind: kind_from(call.kind)?,
        lineage: &lineage,
        replaced: None,
        entries: call.entries,
        tables: &[],
        runs: 0,
    };
    manager.append(&new, payload)
}

fn read(manager: &SnapshotManager, call: ReadCall) -> Result<Vec<u8>> {
    let reference = SegmentRef::from_bytes(&call.reference)?;
    let owner = owner_from(call.owner)?;
    let segment = manager.read_known(&reference, &owner, call.known_bytes)?;
    Ok(segment.payload)
}
