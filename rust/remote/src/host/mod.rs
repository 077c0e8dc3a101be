//! Carries messages between two processes of a host, over a Unix socket.
//!
//! - A message arrives complete and in order, or the connection is lost; messages that arrived
//!   before the loss are delivered before the loss is reported.
//! - A peer that has ended, or sends nothing for a given time in spite of questions, is lost.
//! - Memory is allocated as bytes arrive: a false length costs nothing.

mod carry;
mod liveness;
mod record;

pub use carry::{CarryEnd, Ends, carry};
pub use liveness::Patience;
