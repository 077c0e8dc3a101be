//! The request queue of one function: calls that wait, and requests in flight. `queue` runs the
//! requests, `calls` has the call of each request, `bodies` the bytes sent for it.

mod bodies;
mod calls;
mod queue;

pub use queue::RequestQueue;
