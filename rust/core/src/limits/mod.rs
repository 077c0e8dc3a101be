//! Limits: how fast, and how many at a time, calls may go to an endpoint, over all functions, lanes and processes that name its key.
//!
//! `book` is the arithmetic, `shared` keeps a book in a file that all processes of the host use, `holder` tells which of them are alive, and
//! `gate` is what the scheduler asks.
//!
//! - L-1  A call asks before it is handed to a lane, so that waiting is queueing and never run time; each attempt asks anew.
//! - L-2  Nothing here waits: who can't go is told when to ask again.
//! - L-3  A permit ends once, whatever becomes of its call; the share of a process that died is free again.
//!
//! The crate governor has the same arithmetic (a generic cell rate algorithm), but over an atomic of one process and for a rate that never
//! changes: here the state stands in a file under a lock, because ranks are processes, and the rate shrinks and grows with the answers.

mod book;
mod gate;
mod holder;
mod shared;
#[cfg(test)]
mod tests;

pub use book::{Heard, Rules, Tokens};
pub use gate::{Asked, Gate, Limit, Permit};
