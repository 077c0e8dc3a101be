//! The process lane: calls in worker processes that can be killed.
//!
//! ```text
//! lane     the trait's side: room, where a frame goes, close
//! places   the slots and how much each can take          slot     gets a slot its workers, one after another
//! session  one worker from fork to end                   flight   the frames it holds and what became of their calls
//! link     its socket                                    body     its process: output, end
//! watch    when a call is slow, out of time, to be killed (pure)
//! zygote   the processes that fork, kept by one task     control  requests to them
//! loading  who loads the functions when loaders die      ending   how a process ended, in words
//! child    pidfds, kills                                 stack    the file that a Python says in where it stands
//! wire     messages to and from a worker                 columns  the values of calls in wire form
//! page     the memory shared with a worker               output   what workers print
//! asking   where a worker's Python stands                recycle  when a worker is replaced
//! inside   what all workers have in hand                 token    what outlives a killed zygote, found
//! meter    how much a call printed
//! ```
//!
//! The worker's side is `python/guerdon/_worker`.
//!
//! - P-1  No message and no system call per sample: what is in hand, since when, and what came of it stand in the shared page.
//! - P-2  A call that hangs is told by a signal at its `timeout` and its worker's process group killed at `timeout + grace`; one call is lost.
//! - P-3  However a worker ends, each call it held is ended once: what it gave counts, the one in hand fails, the rest goes back as it was.
//! - P-4  A worker is not believed: whatever it sends or writes, nothing here panics, waits for ever, or ends a call twice.
//! - P-5  An idle lane does nothing; after `close`, or the end of this process, nothing of it is left.
//! - P-6  What was killed tells where it stood, and so does what runs: also while C code holds the GIL.
#![forbid(unsafe_code)]

mod child;
mod child_guard;
pub mod columns;
mod config;
mod exit_status;
#[cfg(test)]
mod fuzz_worker;
mod in_flight;
mod inspect;
mod lane;
mod lane_state;
mod load_retries;
mod orphan_marker;
mod output;
mod output_meter;
mod recycle;
mod resource_limits;
mod session;
mod shared_page;
mod slots;
mod stack_file;
mod stack_request;
mod supervisor;
mod watchdog;
mod wire;
mod worker_process;
mod worker_socket;
mod zygote;
mod zygote_requests;

pub use config::ProcessConfig;
pub use inspect::WorkerSnapshot;
pub use lane::{ProcessLane, ProcessStats};
pub use output::{Sink, standard_error};
pub use recycle::Recycle;
pub use resource_limits::ResourceLimits;
pub use stack_request::NoStack;
