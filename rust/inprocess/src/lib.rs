//! The thread lane and the asyncio lane: which Python thread or event loop runs each call, when its
//! time ends, and what happens then. This crate does not depend on Python: the bindings call it on
//! Python's threads, and it calls nothing in Python.
//!
//! Locks are taken in one order: a running frame's, then the scheduler's, then a lane's own. While
//! a lane's lock is held no function of the scheduler is called and no frame is dropped.
#![forbid(unsafe_code)]

pub mod asyncio_lane;

mod frame;
#[cfg(all(test, feature = "loom"))]
mod loom;
pub mod supervisor;
mod sync;
#[cfg(test)]
mod tests;
pub mod thread_lane;
mod time;

pub use frame::{CallFrame, Timeouts};
