//! The request queue of one function: calls that wait, and requests in flight. `queue` runs the
//! requests, `calls` says which request has which call, `bodies` what is sent for it.

mod bodies;
mod calls;
mod queue;

pub use queue::RequestQueue;
