//! Leases: what keeps the segments of a batch beyond the batches that Spark retains.
//!
//! A lease is a file `NAME.lease` in a folder beside the physical files. It has the ids of all stores
//! after one batch. A *tag* is a lease with a copy of Spark's files of the batch. A *branch* is a
//! checkpoint of its own, which begins with the segments of its parent and has a lease there.
//!
//! A clean-up reads the oldest entry of the commit log first, and the leases after it. A command writes
//! its lease first, and then looks whether the commit log still has the batch. So a clean-up that does
//! not see a lease read an oldest entry that is not newer than the batch. No clock and no lock is
//! needed. The model in rust/sim/models/leases asks the same functions.
//!
//! Readers and rollbacks have leases that end by themselves.
//!
//! A lease is *held* once the command has looked: `NAME.ID.held` is there, with the id in the lease. A
//! lease that is cut and not held belongs to a command that died before it looked, and keeps nothing.

mod branch;
mod listed;
mod records;
mod steps;

pub use branch::{BranchStorage, open_local, read_parent};
pub use listed::read_leases;
pub use records::{Lease, Now, Parent};
pub use steps::{Facts, Record, Step, next_step};
