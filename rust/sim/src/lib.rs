//! Seeded simulation of the snapshot manager. It also has what tests of other crates share: storage
//! whose failures can be scripted, and the suite that every storage passes.
//!
//! A history is a random sequence of checkpoint attempts (global, partial, aborted) of several
//! owners in several regions, with messages that are lost, repeated and reordered, storage that
//! fails now and then, tasks that write twice or too late, and managers that die. After every step
//! every segment of every retained checkpoint must be readable with the right bytes; once the last
//! message has arrived nothing else may be kept. Everything follows from the seed.

pub mod conformance;
mod faulty;
mod history;
mod network;
mod rng;
mod storage;
mod task;
mod truth;
mod world;

pub use faulty::{FaultyStorage, Operation};
pub use history::{Summary, run};
pub use network::{Message, Network};
pub use rng::Rng;
pub use storage::SimStorage;
