//! Requests and answers of both ends: tagged fields, so that a later version can add some.

use holdfast_core::format::Compression;
use holdfast_core::segment::WriterOptions;
use holdfast_core::{Error, Owner, Result};
use prost::{Message, Oneof};

use super::PROTOCOL_VERSION;
use super::failure::FailureMessage;
use super::payload::PayloadMessage;
use super::table::{OpenTableMessage, TableAnswerMessage, TableCommitMessage, TableMessage};

/// First field of the first message: "HFWP" as a little-endian number.
const MAGIC: u32 = u32::from_le_bytes(*b"HFWP");

const MAX_NAME_BYTES: usize = 4096;

/// The first message, in which a client introduces itself.
#[derive(Clone, PartialEq, Message)]
pub struct Hello {
    #[prost(fixed32, tag = "1")]
    pub(super) magic: u32,
    #[prost(uint32, tag = "2")]
    pub(super) version: u32,
    /// Pipeline that it works for.
    #[prost(string, tag = "3")]
    pub pipeline: String,
    /// Folder of the segments: a path, or the URI of a folder on another file system.
    #[prost(string, tag = "4")]
    pub folder: String,
    /// Size in bytes at which a file is sealed. The first client of a manager decides on it.
    #[prost(uint64, tag = "5")]
    pub max_file_bytes: u64,
    /// Tag of the [`Compression`]. The first client of a manager decides on it.
    #[prost(uint32, tag = "6")]
    pub compression: u32,
    #[prost(string, tag = "7")]
    pub(super) key: String,
}

impl Hello {
    /// A client that works for `pipeline` and whose segments are in `folder`.
    pub fn new(pipeline: &str, folder: &str, writer: &WriterOptions) -> Self {
        Self {
            magic: MAGIC,
            version: PROTOCOL_VERSION,
            pipeline: pipeline.to_owned(),
            folder: folder.to_owned(),
            max_file_bytes: writer.max_file_bytes,
            compression: writer.compression.tag(),
            key: String::new(),
        }
    }

    /// Refuses a stranger, and a client of another version.
    pub(super) fn check(&self) -> Result<()> {
        if self.magic != MAGIC {
            return Err(Error::invalid_input(
                "the first message is not one of a Holdfast client",
            ));
        }
        check_version("client", self.version)?;
        for (what, name) in [("pipeline", &self.pipeline), ("folder", &self.folder)] {
            if name.len() > MAX_NAME_BYTES {
                return Err(Error::invalid_input(format!(
                    "the name of a {what} has at most {MAX_NAME_BYTES} bytes, found {}",
                    name.len()
                )));
            }
        }
        if Compression::from_tag(self.compression).is_none() {
            return Err(Error::invalid_input(format!(
                "compression: expected 0 or 1, found {}",
                self.compression
            )));
        }
        Ok(())
    }
}

/// Refuses another version; `peer` is the side that speaks it.
pub(super) fn check_version(peer: &str, version: u32) -> Result<()> {
    if version == PROTOCOL_VERSION {
        return Ok(());
    }
    Err(Error::new(
        holdfast_core::ErrorKind::Unsupported,
        format!(
            "the {peer} speaks version {version} of the protocol between workers and executors, \
             this end speaks {PROTOCOL_VERSION}: use one version of Holdfast for the plugin and for Python"
        ),
    ))
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Request {
    #[prost(oneof = "Call", tags = "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11")]
    pub call: Option<Call>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(super) enum Call {
    #[prost(message, tag = "1")]
    Append(AppendCall),
    #[prost(message, tag = "2")]
    Read(ReadCall),
    #[prost(message, tag = "3")]
    Lease(SegmentsCall),
    #[prost(message, tag = "4")]
    Persist(SegmentsCall),
    #[prost(message, tag = "5")]
    Release(SegmentsCall),
    #[prost(bytes, tag = "6")]
    Send(Vec<u8>),
    #[prost(message, tag = "7")]
    Stage(StageCall),
    #[prost(message, tag = "8")]
    OpenTable(OpenTableMessage),
    #[prost(message, tag = "9")]
    Table(TableMessage),
    #[prost(uint64, tag = "10")]
    CommitTable(u64),
    #[prost(uint64, tag = "11")]
    CloseTable(u64),
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct AppendCall {
    #[prost(message, optional, tag = "1")]
    pub owner: Option<Owner>,
    #[prost(uint64, tag = "2")]
    pub created: u64,
    #[prost(uint32, tag = "3")]
    pub kind: u32,
    #[prost(bytes = "vec", repeated, tag = "4")]
    pub lineage: Vec<Vec<u8>>,
    #[prost(uint64, tag = "5")]
    pub entries: u64,
    #[prost(message, optional, tag = "6")]
    pub payload: Option<PayloadMessage>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ReadCall {
    #[prost(message, optional, tag = "1")]
    pub owner: Option<Owner>,
    #[prost(bytes = "vec", tag = "2")]
    pub reference: Vec<u8>,
    #[prost(uint64, tag = "3")]
    pub known_bytes: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct SegmentsCall {
    #[prost(message, optional, tag = "1")]
    pub owner: Option<Owner>,
    #[prost(uint64, tag = "2")]
    pub checkpoint: u64,
    #[prost(bytes = "vec", repeated, tag = "3")]
    pub refs: Vec<Vec<u8>>,
}

/// Names a file of both processes' machine, and two on any file system, as URIs.
#[derive(Clone, PartialEq, Message)]
pub(super) struct StageCall {
    #[prost(string, tag = "1")]
    pub local: String,
    #[prost(string, tag = "2")]
    pub staged: String,
    #[prost(string, tag = "3")]
    pub target: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Response {
    #[prost(oneof = "Answer", tags = "1, 2, 3, 4, 5, 6, 7, 8, 9")]
    pub answer: Option<Answer>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(super) enum Answer {
    #[prost(message, tag = "1")]
    Failure(FailureMessage),
    #[prost(uint32, tag = "2")]
    Welcome(u32),
    #[prost(message, tag = "3")]
    Done(()),
    #[prost(bytes, tag = "4")]
    Reference(Vec<u8>),
    #[prost(message, tag = "5")]
    Payload(PayloadMessage),
    #[prost(message, tag = "6")]
    Kept(KeptMessage),
    #[prost(uint64, tag = "7")]
    Session(u64),
    #[prost(message, tag = "8")]
    Table(TableAnswerMessage),
    #[prost(message, tag = "9")]
    Committed(TableCommitMessage),
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct KeptMessage {
    #[prost(bool, repeated, tag = "1")]
    pub kept: Vec<bool>,
}
