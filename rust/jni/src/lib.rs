//! JNI library of the Holdfast state store plugin: the native half of `io.holdfast.spark.Native`.
//!
//! Every entry goes through one wrapper (`guard`) that turns Rust errors and panics into typed Java
//! exceptions. Handles of index and generation (`handles`) name objects: use after close throws
//! instead of crashing, and a second close does nothing. `Native.java` documents each method.
#![expect(
    clippy::too_many_arguments,
    reason = "a native method takes what Java passes"
)]

#[cfg(feature = "conformance")]
mod conformance;
mod convert;
mod driver;
mod folders;
mod guard;
mod hadoop;
mod handles;
mod isolation;
mod malloc;
mod parking;
mod pipeline;
mod regional;
mod store;
mod store_id;
