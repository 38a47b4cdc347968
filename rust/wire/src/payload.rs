//! Large payloads: written to a file in memory whose descriptor is passed.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt};

use holdfast_core::{Error, ErrorKind, Result};
use prost::Message;
use rustix::fs::{MemfdFlags, memfd_create};

use super::{MAX_INLINE_BYTES, MAX_PAYLOAD_BYTES};

/// Bytes read at once: the page cache of the copied part is touched while it is warm.
const CHUNK_BYTES: usize = 1 << 20;

/// Announces a payload: in the bytes that follow, or in the descriptor with the message.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(super) struct PayloadMessage {
    #[prost(uint64, tag = "1")]
    pub bytes: u64,
    #[prost(bool, tag = "2")]
    pub by_descriptor: bool,
}

pub(super) fn announce(payload: &[u8]) -> PayloadMessage {
    PayloadMessage {
        bytes: payload.len() as u64,
        by_descriptor: payload.len() > MAX_INLINE_BYTES,
    }
}

/// A file in memory with these bytes, for another process to read.
pub(super) fn memory_file(bytes: &[u8]) -> Result<File> {
    let made = memfd_create("holdfast-payload", MemfdFlags::CLOEXEC);
    let written = made.map_err(std::io::Error::from).and_then(|descriptor| {
        let mut file = File::from(descriptor);
        file.write_all(bytes)?;
        Ok(file)
    });
    written.map_err(|e| Error::io(format!("a file in memory for {} bytes", bytes.len()), e))
}

/// The first `bytes` bytes of a passed file. Read, not mapped: its process can cut it at any time.
pub(super) fn read_passed(file: &File, bytes: u64) -> Result<Vec<u8>> {
    let found = file
        .metadata()
        .map_err(|e| Error::io("looking at a passed descriptor", e))?;
    if !found.is_file() || found.size() < bytes {
        return Err(Error::invalid_input(format!(
            "a passed descriptor must be a file of at least {bytes} bytes, found {} bytes",
            found.size()
        )));
    }
    let mut content = reserve(bytes)?;
    let mut at = 0;
    while at < bytes {
        let step = usize::try_from(bytes - at).map_or(CHUNK_BYTES, |left| left.min(CHUNK_BYTES));
        let start = content.len();
        content.resize(start + step, 0);
        let chunk = content.get_mut(start..).unwrap_or_default();
        file.read_exact_at(chunk, at)
            .map_err(|e| Error::io(format!("reading {step} passed bytes at offset {at}"), e))?;
        at += step as u64;
    }
    Ok(content)
}

/// Room for a payload; an error if there is none, instead of the end of the process.
pub(super) fn reserve(bytes: u64) -> Result<Vec<u8>> {
    check_payload_bytes(bytes)?;
    let mut room = Vec::new();
    let reserved = usize::try_from(bytes).map(|bytes| room.try_reserve_exact(bytes));
    match reserved {
        Ok(Ok(())) => Ok(room),
        _ => Err(Error::new(
            ErrorKind::LimitExceeded,
            format!("no memory for a payload of {bytes} bytes"),
        )),
    }
}

/// Refuses a size that no payload can have.
pub(super) fn check_payload_bytes(bytes: u64) -> Result<()> {
    if bytes <= MAX_PAYLOAD_BYTES {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::LimitExceeded,
        format!("a payload has at most {MAX_PAYLOAD_BYTES} bytes, found {bytes}"),
    ))
}

#[cfg(test)]
#[path = "payload_tests.rs"]
mod tests;
