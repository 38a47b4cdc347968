//! Calls of tables as messages. A batch of keys or entries is the payload of its message.

use holdfast_core::manager::{TableAnswer, TableCall, TableCommit};
use holdfast_core::state::{KeyRange, VersionId};
use holdfast_core::{Error, Owner, Result};
use prost::Message;

use super::payload::{PayloadMessage, announce};
use super::values::{ref_bytes, refs_from};

/// Opens a table for an attempt.
#[derive(Clone, PartialEq, Message)]
pub(super) struct OpenTableMessage {
    #[prost(message, optional, tag = "1")]
    pub owner: Option<Owner>,
    #[prost(uint64, tag = "2")]
    pub checkpoint: u64,
    /// The commit to begin with; empty for none.
    #[prost(string, tag = "3")]
    pub id: String,
}

const GET: u32 = 1;
const CONTAINS: u32 = 2;
const PUT: u32 = 3;
const REMOVE: u32 = 4;
const SCAN: u32 = 5;
const SCAN_ON: u32 = 6;
const CLOSE_SCAN: u32 = 7;
const LEN: u32 = 8;

#[derive(Clone, PartialEq, Message)]
pub(super) struct TableMessage {
    #[prost(uint64, tag = "1")]
    pub session: u64,
    #[prost(uint32, tag = "2")]
    pub what: u32,
    #[prost(message, optional, tag = "3")]
    pub payload: Option<PayloadMessage>,
    #[prost(uint32, tag = "4")]
    pub scan: u32,
    #[prost(uint64, tag = "5")]
    pub max_bytes: u64,
    #[prost(bytes = "vec", optional, tag = "6")]
    pub prefix: Option<Vec<u8>>,
    #[prost(bytes = "vec", optional, tag = "7")]
    pub from: Option<Vec<u8>>,
    #[prost(bytes = "vec", optional, tag = "8")]
    pub to: Option<Vec<u8>>,
}

impl TableMessage {
    /// The message of a call, and its payload.
    pub fn of<'a>(session: u64, call: &TableCall<'a>) -> (Self, &'a [u8]) {
        let mut message = Self {
            session,
            ..Self::default()
        };
        let mut payload: &[u8] = &[];
        message.what = match *call {
            TableCall::Get(keys) => {
                payload = keys;
                GET
            }
            TableCall::Contains(keys) => {
                payload = keys;
                CONTAINS
            }
            TableCall::Put(entries) => {
                payload = entries;
                PUT
            }
            TableCall::Remove(keys) => {
                payload = keys;
                REMOVE
            }
            TableCall::Scan { range, max_bytes } => {
                message.max_bytes = max_bytes as u64;
                match range {
                    KeyRange::All => {}
                    KeyRange::Prefix(prefix) => message.prefix = Some(prefix.to_vec()),
                    KeyRange::Between { from, to } => {
                        message.from = from.map(<[u8]>::to_vec);
                        message.to = to.map(<[u8]>::to_vec);
                    }
                }
                SCAN
            }
            TableCall::ScanOn { scan, max_bytes } => {
                message.scan = scan;
                message.max_bytes = max_bytes as u64;
                SCAN_ON
            }
            TableCall::CloseScan(scan) => {
                message.scan = scan;
                CLOSE_SCAN
            }
            TableCall::Len => LEN,
        };
        message.payload = Some(announce(payload));
        (message, payload)
    }

    /// The call of a message.
    ///
    /// # Errors
    /// `InvalidInput` for a call that this version does not know.
    pub fn call<'a>(&'a self, payload: &'a [u8]) -> Result<TableCall<'a>> {
        let max_bytes = usize::try_from(self.max_bytes).unwrap_or(usize::MAX);
        Ok(match self.what {
            GET => TableCall::Get(payload),
            CONTAINS => TableCall::Contains(payload),
            PUT => TableCall::Put(payload),
            REMOVE => TableCall::Remove(payload),
            SCAN => {
                let range = match (&self.prefix, &self.from, &self.to) {
                    (Some(prefix), ..) => KeyRange::Prefix(prefix),
                    (None, None, None) => KeyRange::All,
                    (None, from, to) => KeyRange::Between {
                        from: from.as_deref(),
                        to: to.as_deref(),
                    },
                };
                TableCall::Scan { range, max_bytes }
            }
            SCAN_ON => TableCall::ScanOn {
                scan: self.scan,
                max_bytes,
            },
            CLOSE_SCAN => TableCall::CloseScan(self.scan),
            LEN => TableCall::Len,
            other => {
                return Err(Error::invalid_input(format!(
                    "call of a table: expected {GET} to {LEN}, found {other}"
                )));
            }
        })
    }
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct TableAnswerMessage {
    #[prost(message, optional, tag = "1")]
    pub payload: Option<PayloadMessage>,
    #[prost(uint64, tag = "2")]
    pub rows: u64,
    #[prost(uint32, optional, tag = "3")]
    pub scan: Option<u32>,
}

impl TableAnswerMessage {
    /// The message of an answer, and its payload.
    pub fn of(answer: TableAnswer) -> (Self, Vec<u8>) {
        let message = Self {
            payload: Some(announce(&answer.bytes)),
            rows: answer.rows,
            scan: answer.scan,
        };
        (message, answer.bytes)
    }

    pub fn answer(self, bytes: Vec<u8>) -> TableAnswer {
        TableAnswer {
            bytes,
            rows: self.rows,
            scan: self.scan,
        }
    }
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct TableCommitMessage {
    #[prost(string, tag = "1")]
    pub id: String,
    #[prost(bytes = "vec", repeated, tag = "2")]
    pub segments: Vec<Vec<u8>>,
    #[prost(uint64, tag = "3")]
    pub keys: u64,
}

impl TableCommitMessage {
    pub fn of(commit: &TableCommit) -> Self {
        Self {
            id: commit.id.to_string(),
            segments: ref_bytes(&commit.segments),
            keys: commit.keys,
        }
    }

    pub fn commit(&self) -> Result<TableCommit> {
        Ok(TableCommit {
            id: self.id.parse::<VersionId>()?.state,
            segments: refs_from(&self.segments)?,
            keys: self.keys,
        })
    }
}
