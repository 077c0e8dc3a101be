//! The engine: batches, scheduling, timeouts and lanes. It does not depend on Python, processes or
//! HTTP.
//!
//! A [`scheduler::Scheduler`] takes batches and hands their calls to [`lane::Lane`]s in
//! [`frame::Frame`]s. Each outcome goes into the batch's [`grid::Grid`], which announces groups as
//! they complete. Modules depend on each other in one direction: batch, batch slice, frame, lane,
//! scheduler.

#![forbid(unsafe_code)]

#[cfg(not(target_os = "linux"))]
compile_error!("Guerdon needs Linux (on Windows: WSL 2; on macOS: a Linux container or virtual machine)");

mod append_list;
pub mod batch;
pub mod batch_slice;
pub mod call;
pub mod clock;
pub mod compose;
pub mod condvar;
pub mod delivery;
pub mod dependents;
pub mod frame;
pub mod frame_runner;
pub mod function;
pub mod grid;
pub mod in_flight;
pub mod lane;
pub mod limits;
mod locked_file;
#[cfg(all(test, feature = "loom"))]
mod loom;
pub mod loss_ledger;
pub mod member_call;
pub mod observer;
pub mod open_batch;
pub mod outcome;
pub mod outcome_cache;
mod pairs;
pub mod payload;
pub mod pidfd;
pub mod report;
pub mod scheduler;
pub mod settings;
pub mod snapshots;
pub mod spending;
pub mod stall;
mod sync;
pub mod task;
pub mod timeout_messages;
pub mod timings;
pub mod tracer;
pub mod wake;
mod words;
