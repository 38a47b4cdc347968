//! Calls of tables as messages. A batch of keys or entries is the payload of its message.

use holdfast_core::manager::{TableAnswer, TableCall, TableCommit};
use holdfast_core::state::{KeyRange, VersionId};
use holdfast_core::{Error, Owner, Result};
use prost::{Message, Oneof};

use super::payload::{PayloadMessage, announce};
use super::values::{ref_bytes, refs_from};

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

#[derive(Clone, PartialEq, Message)]
pub(super) struct TableMessage {
    #[prost(uint64, tag = "1")]
    pub session: u64,
    #[prost(message, optional, tag = "2")]
    pub payload: Option<PayloadMessage>,
    #[prost(oneof = "What", tags = "3, 4, 5, 6, 7, 8, 9, 10")]
    what: Option<What>,
}

/// A [`TableCall`] without its payload.
#[derive(Clone, PartialEq, Oneof)]
enum What {
    #[prost(message, tag = "3")]
    Get(()),
    #[prost(message, tag = "4")]
    Contains(()),
    #[prost(message, tag = "5")]
    Put(()),
    #[prost(message, tag = "6")]
    Remove(()),
    #[prost(message, tag = "7")]
    Scan(ScanMessage),
    #[prost(message, tag = "8")]
    ScanOn(ScanOnMessage),
    #[prost(uint32, tag = "9")]
    CloseScan(u32),
    #[prost(message, tag = "10")]
    Len(()),
}

#[derive(Clone, PartialEq, Message)]
struct ScanMessage {
    #[prost(uint64, tag = "1")]
    max_bytes: u64,
    #[prost(bytes = "vec", optional, tag = "2")]
    prefix: Option<Vec<u8>>,
    #[prost(bytes = "vec", optional, tag = "3")]
    from: Option<Vec<u8>>,
    #[prost(bytes = "vec", optional, tag = "4")]
    to: Option<Vec<u8>>,
}

#[derive(Clone, PartialEq, Message)]
struct ScanOnMessage {
    #[prost(uint32, tag = "1")]
    scan: u32,
    #[prost(uint64, tag = "2")]
    max_bytes: u64,
}

impl TableMessage {
    pub fn of<'a>(session: u64, call: &TableCall<'a>) -> (Self, &'a [u8]) {
        let (what, payload): (_, &[u8]) = match *call {
            TableCall::Get(keys) => (What::Get(()), keys),
            TableCall::Contains(keys) => (What::Contains(()), keys),
            TableCall::Put(entries) => (What::Put(()), entries),
            TableCall::Remove(keys) => (What::Remove(()), keys),
            TableCall::Scan { range, max_bytes } => {
                let [prefix, from, to] = range.bounds().map(|bound| bound.map(<[u8]>::to_vec));
                let max_bytes = max_bytes as u64;
                let scan = ScanMessage {
                    max_bytes,
                    prefix,
                    from,
                    to,
                };
                (What::Scan(scan), &[])
            }
            TableCall::ScanOn { scan, max_bytes } => {
                let max_bytes = max_bytes as u64;
                (What::ScanOn(ScanOnMessage { scan, max_bytes }), &[])
            }
            TableCall::CloseScan(scan) => (What::CloseScan(scan), &[]),
            TableCall::Len => (What::Len(()), &[]),
        };
        let message = Self {
            session,
            payload: Some(announce(payload)),
            what: Some(what),
        };
        (message, payload)
    }

    /// The call of a message.
    pub fn call<'a>(&'a self, payload: &'a [u8]) -> Result<TableCall<'a>> {
        let what = self.what.as_ref().ok_or_else(|| {
            Error::invalid_input("a call of a table that this version does not know")
        })?;
        let bound = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        Ok(match what {
            What::Get(()) => TableCall::Get(payload),
            What::Contains(()) => TableCall::Contains(payload),
            What::Put(()) => TableCall::Put(payload),
            What::Remove(()) => TableCall::Remove(payload),
            What::Scan(scan) => TableCall::Scan {
                range: KeyRange::of([&scan.prefix, &scan.from, &scan.to]),
                max_bytes: bound(scan.max_bytes),
            },
            What::ScanOn(on) => TableCall::ScanOn {
                scan: on.scan,
                max_bytes: bound(on.max_bytes),
            },
            What::CloseScan(scan) => TableCall::CloseScan(*scan),
            What::Len(()) => TableCall::Len,
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
