//! The thread lane and the asyncio lane: the Python thread or event loop of each call, the end of
//! its time, and the action on it. Nothing here knows Python: the bindings call in, on Python's own
//! threads, and nothing calls out.
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
