//! The executor's manager for other processes of the same user: a Unix socket, length-prefixed
//! messages both ways, large payloads by passed file descriptor.
//!
//! Python workers send their segments to the one [`SnapshotManager`](holdfast_core::manager) of
//! their executor this way, so that merging crosses processes. So do their messages to the driver,
//! as opaque bytes; the [`Host`] sends them on.
//!
//! Every length is checked against a limit before memory is taken. A client that breaks the
//! protocol gets an error and loses its connection; the death of a client harms no other.
#![forbid(unsafe_code)]

mod address;
mod budget;
mod channel;
mod client;
mod connection;
mod failure;
mod listener;
mod manager_message;
mod payload;
mod protocol;
mod table;
mod values;

pub use address::Address;
pub use client::Client;
pub use connection::{Host, Session};
pub use listener::{Connection, Listener};
pub use manager_message::{ManagerMessage, MessageKind, Released};
pub use protocol::Hello;
#[cfg(feature = "testing")]
pub use server::Server;

/// Version of the protocol. If the ends are not from one installation, the first message says so.
pub const PROTOCOL_VERSION: u32 = 1;

/// Bound on a message without its payload, and so on what a worker sends to the driver: 16 MiB.
pub const MAX_MESSAGE_BYTES: usize = 16 << 20;

/// Bound on the first message: two names of 4 KiB and some numbers fit.
const MAX_HELLO_BYTES: usize = 64 << 10;

/// Payloads up to this size follow their message; larger ones are passed as a descriptor. Copying
/// 64 KiB through a socket costs less than making, passing and closing a file.
const MAX_INLINE_BYTES: usize = 64 << 10;

/// Bound on the payload of a segment: 16 GiB, four times the largest state that is planned for.
const MAX_PAYLOAD_BYTES: u64 = 16 << 30;

#[cfg(feature = "testing")]
#[path = "tests/server.rs"]
mod server;
#[cfg(test)]
mod tests;
