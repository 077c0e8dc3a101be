//! The engine of guerdon: batches, scheduling, deadlines and lanes, without any knowledge of Python.
//!
//! A [`scheduler::Scheduler`] takes batches on and hands their calls to [`lane::Lane`]s, in [`frame::Frame`]s; each call's outcome goes
//! into the batch's [`grid::Grid`], which announces groups as they complete.
//!
//! From the ground up: `sync` and `segments` (what loom can check), `clock`, `wake`, `text`; `function`, `outcome`, `timings` and `call` (what is
//! said of functions and calls); `grid`, `growth`, `delivery`, `payload` and `batch`; `slice`, `limits`; then `frame`, `lane` and `scheduler`,
//! which know each other: a frame is a lane's end of the scheduler. `doing` and `overtime` are what lanes tell people.
#![forbid(unsafe_code)]

mod append_list;
pub mod batch;
pub mod batch_slice;
pub mod call;
pub mod clock;
pub mod delivery;
pub mod frame;
pub mod function;
pub mod grid;
pub mod in_flight;
pub mod lane;
pub mod limits;
#[cfg(all(test, feature = "loom"))]
mod loom;
pub mod open_batch;
pub mod outcome;
pub mod payload;
pub mod scheduler;
mod sync;
pub mod text;
pub mod timeout_messages;
pub mod timings;
pub mod wake;
