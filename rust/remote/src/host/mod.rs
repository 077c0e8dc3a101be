//! Carries messages between two processes of a host, over a Unix socket.
//!
//! - A message arrives whole and in order, or the connection is lost; messages that arrived before
//!   the loss are delivered before the loss is reported.
//! - A peer that has ended, or says nothing for a given time though it is asked, is lost.
//! - Memory is taken as bytes arrive: a false length costs nothing.

mod carry;
mod liveness;
mod record;

pub use carry::{CarryEnd, Ends, carry};
pub use liveness::Patience;
