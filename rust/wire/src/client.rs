//! A worker's end of the connection.

use std::os::unix::net::UnixStream;

use holdfast_core::format::NewSegment;
use holdfast_core::manager::{TableAnswer, TableCall, TableCommit};
use holdfast_core::state::CommitId;
use holdfast_core::{CheckpointId, Error, ErrorKind, Owner, Result, SegmentRef};
use parking_lot::Mutex;
use rustix::net::sockopt::socket_peercred;
use rustix::process::geteuid;

use super::MAX_MESSAGE_BYTES;
use super::address::Address;
use super::channel::{Channel, Outgoing, broken};
use super::failure::Fate;
use super::payload::announce;
use super::protocol::{
    Answer, AppendCall, Call, Hello, ReadCall, Request, Response, SegmentsCall, StageCall,
    check_version,
};
use super::table::{OpenTableMessage, TableAnswerMessage, TableMessage};
use super::values::ref_bytes;

/// A manager in another process of the same user, through one connection. Several threads may use
/// it. Their requests wait for each other.
///
/// Requests return the errors of the manager. If the connection breaks, its request fails with
/// `Storage`, and the next request connects again.
#[derive(Debug)]
pub struct Client {
    address: Address,
    hello: Hello,
    connection: Mutex<Option<Connected>>,
}

#[derive(Debug)]
struct Connected {
    channel: Channel,
    /// The process that connected. A forked child must not use the connection that it inherits.
    process: u32,
}

type Failed = (Fate, Error);

impl Client {
    /// Connects to the socket of a server.
    ///
    /// # Errors
    /// `NotFound` without a server; `Unsupported` for another version; errors of a refusal.
    pub fn connect(address: impl Into<Address>, mut hello: Hello) -> Result<Self> {
        let address = address.into();
        hello.key = address.key().to_owned();
        let client = Self {
            address,
            hello,
            connection: Mutex::new(None),
        };
        let connected = client.open()?;
        *client.connection.lock() = Some(connected);
        Ok(client)
    }

    /// Like [`SnapshotManager::append`](holdfast_core::manager::SnapshotManager::append).
    pub fn append(&self, new: &NewSegment<'_>, payload: &[u8]) -> Result<SegmentRef> {
        let call = Call::Append(AppendCall {
            owner: Some(new.owner.clone()),
            created: new.created.0,
            kind: u32::from(new.kind.tag()),
            lineage: ref_bytes(new.lineage),
            entries: new.entries,
            payload: Some(announce(payload)),
        });
        match self.call(call, payload)? {
            (Answer::Reference(bytes), _) => SegmentRef::from_bytes(&bytes),
            (other, _) => Err(unexpected(&other)),
        }
    }

    /// The payload of
    /// [`SnapshotManager::read_known`](holdfast_core::manager::SnapshotManager::read_known).
    pub fn read(&self, reference: &SegmentRef, owner: &Owner, known_bytes: u64) -> Result<Vec<u8>> {
        let call = Call::Read(ReadCall {
            owner: Some(owner.clone()),
            reference: reference.to_bytes().to_vec(),
            known_bytes,
        });
        match self.call(call, &[])? {
            (Answer::Payload(_), payload) => Ok(payload),
            (other, _) => Err(unexpected(&other)),
        }
    }

    /// Like [`SnapshotManager::lease`](holdfast_core::manager::SnapshotManager::lease).
    pub fn lease(&self, owner: &Owner, id: CheckpointId, refs: &[SegmentRef]) -> Result<Vec<bool>> {
        match self.call(Call::Lease(segments(owner, id, refs)), &[])? {
            (Answer::Kept(answer), _) if answer.kept.len() == refs.len() => Ok(answer.kept),
            (other, _) => Err(unexpected(&other)),
        }
    }

    /// Does the same as
    /// [`SnapshotManager::persist_segments`](holdfast_core::manager::SnapshotManager::persist_segments).
    pub fn persist_segments(
        &self,
        id: CheckpointId,
        owner: &Owner,
        refs: &[SegmentRef],
    ) -> Result<()> {
        self.done(Call::Persist(segments(owner, id, refs)))
    }

    /// Like [`SnapshotManager::release`](holdfast_core::manager::SnapshotManager::release).
    pub fn release(&self, owner: &Owner, refs: &[SegmentRef]) -> Result<()> {
        self.done(Call::Release(segments(owner, CheckpointId(0), refs)))
    }

    /// Sends bytes to the driver. Waits as long as the driver has no room for them.
    ///
    /// # Errors
    /// Errors of the driver; `Storage` when the connection broke: the bytes may have arrived.
    pub fn send(&self, data: &[u8]) -> Result<()> {
        self.done(Call::Send(data.to_vec()))
    }

    /// Lets the executor make the content of the local file `local` ready to be published as
    /// `target`, under a name `staged` that no other task uses. Both are URIs on any file system
    /// that it reaches. The content is durable on return.
    ///
    /// # Errors
    /// `NotFound` without the local file; `AlreadyExists` when the staged name is taken;
    /// `Unsupported` by a server without such file systems; `Storage` when they fail, or the
    /// connection broke: then the file may be staged.
    pub fn stage(&self, local: &str, staged: &str, target: &str) -> Result<()> {
        self.done(Call::Stage(StageCall {
            local: local.to_owned(),
            staged: staged.to_owned(),
            target: target.to_owned(),
        }))
    }

    /// Like [`SnapshotManager::open_table`](holdfast_core::manager::SnapshotManager::open_table).
    pub fn open_table(
        &self,
        owner: &Owner,
        attempt: CheckpointId,
        id: Option<&CommitId>,
    ) -> Result<u64> {
        let call = Call::OpenTable(OpenTableMessage {
            owner: Some(owner.clone()),
            checkpoint: attempt.0,
            id: id.map_or_else(String::new, CommitId::to_string),
        });
        match self.call(call, &[])? {
            (Answer::Session(session), _) => Ok(session),
            (other, _) => Err(unexpected(&other)),
        }
    }

    /// Like [`SnapshotManager::table`](holdfast_core::manager::SnapshotManager::table).
    pub fn table(&self, session: u64, call: &TableCall<'_>) -> Result<TableAnswer> {
        let (message, payload) = TableMessage::of(session, call);
        match self.call(Call::Table(message), payload)? {
            (Answer::Table(answer), bytes) => Ok(answer.answer(bytes)),
            (other, _) => Err(unexpected(&other)),
        }
    }

    /// Like [`SnapshotManager::commit_table`](holdfast_core::manager::SnapshotManager::commit_table).
    ///
    /// # Errors
    /// Errors of the manager; `Storage` when the connection broke: the session may have ended.
    pub fn commit_table(&self, session: u64) -> Result<TableCommit> {
        match self.call(Call::CommitTable(session), &[])? {
            (Answer::Committed(commit), _) => commit.commit(),
            (other, _) => Err(unexpected(&other)),
        }
    }

    /// Like [`SnapshotManager::close_table`](holdfast_core::manager::SnapshotManager::close_table).
    pub fn close_table(&self, session: u64) -> Result<()> {
        self.done(Call::CloseTable(session))
    }

    fn done(&self, call: Call) -> Result<()> {
        match self.call(call, &[])? {
            (Answer::Done(()), _) => Ok(()),
            (other, _) => Err(unexpected(&other)),
        }
    }

    /// One request and its answer. If the session was over before the request, connects again once.
    fn call(&self, call: Call, payload: &[u8]) -> Result<(Answer, Vec<u8>)> {
        let request = Outgoing::new(&Request { call: Some(call) }, payload)?;
        let mut connection = self.connection.lock();
        let mut again = true;
        loop {
            let mut connected = match connection.take() {
                Some(connected) if connected.process == std::process::id() => connected,
                _ => self.open()?,
            };
            let done = connected.exchange(&request);
            if again && matches!(done, Err((Fate::Over, _))) {
                again = false;
                continue;
            }
            if matches!(done, Ok(_) | Err((Fate::Stays, _))) {
                *connection = Some(connected);
            }
            return done.map_err(|(_, error)| error);
        }
    }

    fn open(&self) -> Result<Connected> {
        let stream = UnixStream::connect_addr(&self.address.socket()?)
            .map_err(|e| self.address.unreachable(e))?;
        let owner = socket_peercred(&stream).map_err(|e| broken(e.into()))?.uid;
        if owner != geteuid() {
            return Err(Error::invalid_input(format!(
                "{} belongs to user {}, this process to user {}",
                self.address,
                owner.as_raw(),
                geteuid().as_raw()
            )));
        }
        let mut connected = Connected {
            channel: Channel::new(stream),
            process: std::process::id(),
        };
        let welcome = connected.exchange(&Outgoing::new(&self.hello, &[])?);
        match welcome.map_err(|(_, error)| error)? {
            (Answer::Welcome(version), _) => {
                check_version("server", version)?;
                Ok(connected)
            }
            (other, _) => Err(unexpected(&other)),
        }
    }
}

impl Connected {
    fn exchange(&mut self, message: &Outgoing) -> std::result::Result<(Answer, Vec<u8>), Failed> {
        let sent = self.channel.send(message);
        // A server that refuses a message stops reading, so sending fails: its answer says why.
        match (self.answer(), sent) {
            (Ok((Answer::Failure(failure), _)), _) => Err((failure.fate(), failure.into_error())),
            (_, Err(error)) | (Err(error), Ok(())) => Err((Fate::Closes, error)),
            (Ok(answer), Ok(())) => Ok(answer),
        }
    }

    fn answer(&mut self) -> Result<(Answer, Vec<u8>)> {
        let frame = self.channel.receive(MAX_MESSAGE_BYTES)?;
        let frame = frame.ok_or_else(|| broken(std::io::ErrorKind::UnexpectedEof.into()))?;
        let response: Response = frame.decode()?;
        let answer = response.answer.ok_or_else(|| {
            Error::new(
                ErrorKind::Storage,
                "an answer that this version does not know",
            )
        })?;
        let payload = match &answer {
            Answer::Payload(announced)
            | Answer::Table(TableAnswerMessage {
                payload: Some(announced),
                ..
            }) => self.channel.receive_payload(*announced, frame)?,
            _ => Vec::new(),
        };
        Ok((answer, payload))
    }
}

fn segments(owner: &Owner, id: CheckpointId, refs: &[SegmentRef]) -> SegmentsCall {
    SegmentsCall {
        owner: Some(owner.clone()),
        checkpoint: id.0,
        refs: ref_bytes(refs),
    }
}

/// Both ends speak the same version, so this is a bug in one of them.
fn unexpected(answer: &Answer) -> Error {
    Error::new(
        ErrorKind::Storage,
        format!("the executor answered something else than was asked: {answer:?}"),
    )
}
