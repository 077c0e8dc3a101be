//! The native lane: runs `kernels` on blocking threads of the runtime, over all cores.
//!
//! - No call needs Python, its lock or a copy of an ASCII text.
//! - Threads exist only while frames wait for them; an idle lane has none.
#![forbid(unsafe_code)]

mod inputs;
pub mod kernels;
mod lane;
mod running_frame;

pub use inputs::{InputKind, read_input};
pub use lane::NativeLane;
