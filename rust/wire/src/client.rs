//! The worker's end.

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use holdfast_core::format::NewSegment;
use holdfast_core::{CheckpointId, Error, ErrorKind, Owner, Result, SegmentRef};
use parking_lot::Mutex;
use rustix::net::sockopt::socket_peercred;
use rustix::process::geteuid;

use super::MAX_MESSAGE_BYTES;
use super::channel::{Channel, Outgoing, announce, broken};
use super::failure::Fate;
use super::protocol::{
    Answer, AppendCall, Call, Hello, HelloMessage, ReadCall, Request, Response, SegmentsCall,
    StageCall, check_version, ref_bytes,
};

/// A manager in another process of the same user, through one connection. Several threads may use it;
/// their requests wait for each other.
///
/// A connection that broke fails the request it was used for. The next request connects again.
#[derive(Debug)]
pub struct Client {
    socket: PathBuf,
    hello: Hello,
    connection: Mutex<Option<Connected>>,
}

#[derive(Debug)]
struct Connected {
    channel: Channel,
    /// The process that connected: a child that inherits the connection must not use it.
    process: u32,
}

/// Why a request has no answer.
enum Failed {
    /// The manager said no. The connection is good.
    Refused(Error),
    /// The connection is of no use any more.
    Broken(Error),
    /// The connection is of no use any more, and nothing was done.
    Over(Error),
}

impl Client {
    /// Connects to the socket of a server.
    ///
    /// # Errors
    /// `NotFound` without a socket; `Unsupported` when the server speaks another version; what the
    /// server says of this client.
    pub fn connect(socket: impl Into<PathBuf>, hello: Hello) -> Result<Self> {
        let client = Self {
            socket: socket.into(),
            hello,
            connection: Mutex::new(None),
        };
        let connected = client.open()?;
        *client.connection.lock() = Some(connected);
        Ok(client)
    }

    /// Path of the socket.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// How it introduces itself.
    pub fn hello(&self) -> &Hello {
        &self.hello
    }

    /// As [`SnapshotManager::append`](holdfast_core::manager::SnapshotManager::append).
    ///
    /// # Errors
    /// Those of the manager; `Storage` when the connection broke.
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

    /// As [`SnapshotManager::read`](holdfast_core::manager::SnapshotManager::read); returns the payload.
    ///
    /// # Errors
    /// Those of the manager; `Storage` when the connection broke.
    pub fn read(&self, reference: &SegmentRef, owner: &Owner) -> Result<Vec<u8>> {
        self.read_known(reference, owner, 0)
    }

    /// As [`SnapshotManager::read_known`](holdfast_core::manager::SnapshotManager::read_known); returns
    /// the payload.
    ///
    /// # Errors
    /// Those of the manager; `Storage` when the connection broke.
    pub fn read_known(
        &self,
        reference: &SegmentRef,
        owner: &Owner,
        known_bytes: u64,
    ) -> Result<Vec<u8>> {
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

    /// As [`SnapshotManager::lease`](holdfast_core::manager::SnapshotManager::lease).
    ///
    /// # Errors
    /// Those of the manager; `Storage` when the connection broke.
    pub fn lease(&self, owner: &Owner, id: CheckpointId, refs: &[SegmentRef]) -> Result<Vec<bool>> {
        match self.call(Call::Lease(segments(owner, id, refs)), &[])? {
            (Answer::Kept(answer), _) if answer.kept.len() == refs.len() => Ok(answer.kept),
            (other, _) => Err(unexpected(&other)),
        }
    }

    /// As [`SnapshotManager::persist_segments`](holdfast_core::manager::SnapshotManager::persist_segments).
    ///
    /// # Errors
    /// Those of the manager; `Storage` when the connection broke.
    pub fn persist_segments(
        &self,
        id: CheckpointId,
        owner: &Owner,
        refs: &[SegmentRef],
    ) -> Result<()> {
        self.done(Call::Persist(segments(owner, id, refs)))
    }

    /// As [`SnapshotManager::release`](holdfast_core::manager::SnapshotManager::release).
    ///
    /// # Errors
    /// `Storage` when the connection broke.
    pub fn release(&self, owner: &Owner, refs: &[SegmentRef]) -> Result<()> {
        self.done(Call::Release(segments(owner, CheckpointId(0), refs)))
    }

    /// Hands bytes on to the driver. Waits as long as the driver has no room for them.
    ///
    /// # Errors
    /// What the driver says; `Storage` when the connection broke: they may or may not have arrived.
    pub fn send(&self, data: &[u8]) -> Result<()> {
        self.done(Call::Send(data.to_vec()))
    }

    /// Lets the executor make the content of the local file `local` ready to be published as
    /// `target`, under a name `staged` that no other task uses; both are URIs of any file system that
    /// it reaches. Durable on return.
    ///
    /// # Errors
    /// `NotFound` without the local file; `AlreadyExists` when the staged name is taken; `Unsupported`
    /// by a server without such file systems; `Storage` when they fail, or the connection broke: the
    /// file may then be staged.
    pub fn stage(&self, local: &str, staged: &str, target: &str) -> Result<()> {
        self.done(Call::Stage(StageCall {
            local: local.to_owned(),
            staged: staged.to_owned(),
            target: target.to_owned(),
        }))
    }

    fn done(&self, call: Call) -> Result<()> {
        match self.call(call, &[])? {
            (Answer::Done(()), _) => Ok(()),
            (other, _) => Err(unexpected(&other)),
        }
    }

    /// One request and its answer. A session that was over before the request is begun anew, once.
    fn call(&self, call: Call, payload: &[u8]) -> Result<(Answer, Vec<u8>)> {
        let append = matches!(call, Call::Append(_));
        let request = Request { call: Some(call) };
        let request = if append {
            Outgoing::with_payload(&request, payload)?
        } else {
            Outgoing::new(&request)?
        };
        let mut connection = self.connection.lock();
        let mut again = true;
        loop {
            let mut connected = match connection.take() {
                Some(connected) if connected.process == std::process::id() => connected,
                _ => self.open()?,
            };
            match connected.exchange(&request) {
                Ok(answer) => {
                    *connection = Some(connected);
                    return Ok(answer);
                }
                Err(Failed::Refused(error)) => {
                    *connection = Some(connected);
                    return Err(error);
                }
                Err(Failed::Over(_)) if again => again = false,
                Err(Failed::Over(error) | Failed::Broken(error)) => return Err(error),
            }
        }
    }

    fn open(&self) -> Result<Connected> {
        let stream = UnixStream::connect(&self.socket)
            .map_err(|e| Error::io(format!("connecting to {}", self.socket.display()), e))?;
        let owner = socket_peercred(&stream).map_err(|e| broken(e.into()))?.uid;
        if owner != geteuid() {
            return Err(Error::invalid_input(format!(
                "{} belongs to user {}, this process to user {}",
                self.socket.display(),
                owner.as_raw(),
                geteuid().as_raw()
            )));
        }
        let mut connected = Connected {
            channel: Channel::new(stream),
            process: std::process::id(),
        };
        let hello = Outgoing::new(&HelloMessage::from(&self.hello))?;
        match connected.exchange(&hello) {
            Ok((Answer::Welcome(version), _)) => {
                check_version("server", version)?;
                Ok(connected)
            }
            Ok((other, _)) => Err(unexpected(&other)),
            Err(Failed::Refused(error) | Failed::Broken(error) | Failed::Over(error)) => Err(error),
        }
    }
}

impl Connected {
    fn exchange(&mut self, message: &Outgoing) -> std::result::Result<(Answer, Vec<u8>), Failed> {
        let sent = self.channel.send(message);
        // A server that refuses a message closes without reading all of it: what it said counts
        // more than that sending failed.
        match (self.answer(), sent) {
            (Ok((Answer::Failure(failure), _)), _) => Err(match failure.fate() {
                Fate::Stays => Failed::Refused(failure.into_error()),
                Fate::Closes => Failed::Broken(failure.into_error()),
                Fate::Over => Failed::Over(failure.into_error()),
            }),
            (_, Err(error)) | (Err(error), Ok(())) => Err(Failed::Broken(error)),
            (Ok(answer), Ok(())) => Ok(answer),
        }
    }

    /// What the server says, with the payload that comes with it.
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
            Answer::Payload(announced) => self.channel.receive_payload(*announced, frame)?,
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
    let what = match answer {
        Answer::Failure(_) => "a failure",
        Answer::Welcome(_) => "a welcome",
        Answer::Done(()) => "nothing",
        Answer::Reference(_) => "a reference",
        Answer::Payload(_) => "a payload",
        Answer::Kept(_) => "another number of segments",
    };
    Error::new(
        ErrorKind::Storage,
        format!("the executor answered something else than was asked: {what}"),
    )
}
