//! One end of a connection: frames of `length u32 (little-endian), body`, and at most one passed
//! descriptor with the first byte of a frame.

use std::fs::File;
use std::io::{ErrorKind as IoKind, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use holdfast_core::{Error, ErrorKind, Result};
use prost::Message;
use rustix::cmsg_space;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

use super::payload::{PayloadMessage, announce, check_payload_bytes, memory_file, read_passed};
use super::{MAX_INLINE_BYTES, MAX_MESSAGE_BYTES};

const LENGTH_BYTES: usize = 4;

#[derive(Debug)]
pub(super) struct Frame {
    body: Vec<u8>,
    passed: Option<File>,
}

#[derive(Debug)]
pub(super) struct Channel {
    stream: UnixStream,
}

impl Channel {
    pub fn new(stream: UnixStream) -> Self {
        Self { stream }
    }

    /// Bounds the wait for the next bytes of the other end.
    pub fn wait_at_most(&self, timeout: Option<Duration>) -> Result<()> {
        self.stream.set_read_timeout(timeout).map_err(broken)
    }

    pub fn send(&mut self, message: &Outgoing) -> Result<()> {
        let Outgoing { bytes, passed } = message;
        let sent = match passed {
            Some(file) => self.pass(bytes, file).map_err(broken)?,
            None => 0,
        };
        let rest = bytes.get(sent..).unwrap_or_default();
        self.stream.write_all(rest).map_err(broken)
    }

    /// Sends the beginning of `bytes` with a descriptor; returns how many were sent.
    fn pass(&self, bytes: &[u8], file: &File) -> std::io::Result<usize> {
        let descriptors = [file.as_fd()];
        loop {
            let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            control.push(SendAncillaryMessage::ScmRights(&descriptors));
            let parts = [IoSlice::new(bytes)];
            match sendmsg(&self.stream, &parts, &mut control, SendFlags::NOSIGNAL) {
                Err(rustix::io::Errno::INTR) => {}
                done => return Ok(done?),
            }
        }
    }

    /// The next message, of at most `limit` bytes; `None` when the other end closed.
    pub fn receive(&mut self, limit: usize) -> Result<Option<Frame>> {
        let mut length = [0; LENGTH_BYTES];
        let mut passed = None;
        let mut filled = 0;
        while filled < LENGTH_BYTES {
            let rest = length.get_mut(filled..).unwrap_or_default();
            let got = self.receive_part(rest, &mut passed).map_err(broken)?;
            match (got, filled) {
                (0, 0) => return Ok(None),
                (0, _) => return Err(broken(IoKind::UnexpectedEof.into())),
                _ => filled += got,
            }
        }
        let length = u32::from_le_bytes(length) as usize;
        if length > limit {
            return Err(Error::new(
                ErrorKind::LimitExceeded,
                format!("a message has at most {limit} bytes here, found {length}"),
            ));
        }
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body).map_err(broken)?;
        Ok(Some(Frame { body, passed }))
    }

    /// Reads some bytes of a length, and the descriptor that may come with the first of them.
    fn receive_part(&self, into: &mut [u8], passed: &mut Option<File>) -> std::io::Result<usize> {
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC;
        let got = loop {
            let mut parts = [IoSliceMut::new(into)];
            match recvmsg(&self.stream, &mut parts, &mut control, flags) {
                Err(rustix::io::Errno::INTR) => {}
                done => break done?,
            }
        };
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                // A peer sends one descriptor. Others are closed here.
                *passed = descriptors.map(File::from).next().or(passed.take());
            }
        }
        Ok(got.bytes)
    }

    /// The payload that the message in `frame` announced.
    pub fn receive_payload(&mut self, announced: PayloadMessage, frame: Frame) -> Result<Vec<u8>> {
        if announced.by_descriptor {
            let file = frame.passed.ok_or_else(|| {
                Error::invalid_input("a payload was announced, but no descriptor was passed")
            })?;
            return read_passed(&file, announced.bytes);
        }
        let bytes = usize::try_from(announced.bytes).unwrap_or(usize::MAX);
        if bytes > MAX_INLINE_BYTES {
            return Err(Error::new(
                ErrorKind::LimitExceeded,
                format!(
                    "a payload of more than {MAX_INLINE_BYTES} bytes is passed as a descriptor, \
                     found {bytes} bytes"
                ),
            ));
        }
        let mut payload = vec![0; bytes];
        self.stream.read_exact(&mut payload).map_err(broken)?;
        Ok(payload)
    }
}

impl Frame {
    pub fn decode<M: Message + Default>(&self) -> Result<M> {
        M::decode(self.body.as_slice())
            .map_err(|e| Error::invalid_input(format!("a message cannot be decoded: {e}")))
    }
}

#[derive(Debug)]
pub(super) struct Outgoing {
    bytes: Vec<u8>,
    pub(super) passed: Option<File>,
}

impl Outgoing {
    /// `message` announces the payload, unless that is empty.
    pub fn new(message: &impl Message, payload: &[u8]) -> Result<Self> {
        check_payload_bytes(payload.len() as u64)?;
        let length = message.encoded_len();
        if length > MAX_MESSAGE_BYTES {
            return Err(Error::invalid_input(format!(
                "a message has at most {MAX_MESSAGE_BYTES} bytes, found {length}"
            )));
        }
        let mut bytes = Vec::with_capacity(LENGTH_BYTES + length);
        bytes.extend_from_slice(&(length as u32).to_le_bytes());
        message
            .encode(&mut bytes)
            .map_err(|e| Error::invalid_input(format!("a message cannot be encoded: {e}")))?;
        let mut passed = None;
        if announce(payload).by_descriptor {
            passed = Some(memory_file(payload)?);
        } else {
            bytes.extend_from_slice(payload);
        }
        Ok(Self { bytes, passed })
    }
}

/// The error of a connection that broke. An end in the middle of a message counts as a reset.
pub(super) fn broken(error: std::io::Error) -> Error {
    let error = match error.kind() {
        IoKind::UnexpectedEof => rustix::io::Errno::CONNRESET.into(),
        _ => error,
    };
    Error::io("the connection between worker and executor broke", error)
}
