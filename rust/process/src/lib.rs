//! The process lane: calls in worker processes that can be killed. `python/guerdon/_worker` has the
//! other side of `wire`, the core's `columns`, `shared_page` and `zygote_requests`.
//!
//! - No message and no system call per sample: progress and values are in the shared page.
//! - A call that hangs gets a signal at `timeout`, its process group a kill at `timeout + grace`.
//! - However a worker ends, each of its calls ends once. A worker is not trusted: whatever it
//!   sends, nothing here panics or waits for ever.
//! - After `close`, or the end of this process, nothing is left.

#![forbid(unsafe_code)]

mod blocking;
mod call_watch;
mod child;
mod child_guard;
mod config;
mod descriptors;
mod exit_status;
mod give_way;
mod in_flight;
mod lane;
mod lane_state;
mod load_retries;
mod open_sessions;
mod open_slots;
mod orphan_marker;
mod output;
mod output_meter;
mod parent;
mod pool_starts;
mod recycle;
mod resource_limits;
mod session;
mod shared_page;
mod slots;
mod stack_file;
mod stack_request;
mod supervisor;
#[cfg(test)]
mod tests;
mod wire;
mod worker_process;
mod worker_socket;
mod zygote;
mod zygote_requests;

pub use config::ProcessConfig;
pub use lane::{ProcessLane, ProcessStats};
pub use output::{Printer, Sink, standard_error};
pub use recycle::Recycle;
pub use resource_limits::ResourceLimits;
pub use stack_request::NoStack;
