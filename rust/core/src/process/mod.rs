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

mod asking;
mod body;
mod child;
pub mod columns;
mod control;
mod ending;
mod flight;
#[cfg(test)]
mod fuzz;
mod inside;
mod lane;
mod link;
mod loading;
mod meter;
mod output;
mod page;
mod places;
mod recycle;
mod session;
mod shared;
mod slot;
mod stack;
mod token;
mod watch;
mod wire;
mod zygote;

use std::ffi::OsString;
use std::path::PathBuf;

pub use asking::NoStack;
pub use inside::Sight;
pub use lane::{ProcessLane, ProcessStats};
pub use output::{Sink, standard_error};
pub use recycle::Recycle;

/// How the lane runs its processes.
pub struct ProcessConfig {
    /// The interpreter.
    pub python: PathBuf,
    /// The folder of `_zygote.py`.
    pub worker_dir: PathBuf,
    /// The functions, as `guerdon._serialization.serialized_functions` pickles them.
    pub shipment: Vec<u8>,
    /// Workers that share the work.
    pub workers: usize,
    /// When a worker is replaced that could go on.
    pub recycle: Recycle,
    /// All of the zygote's environment, and so of the workers'; `None`: this process's.
    pub environment: Option<Vec<(OsString, OsString)>>,
    /// Where the lines go that workers print.
    pub sink: Sink,
}

impl ProcessConfig {
    /// Workers are replaced only when they end, have this process's environment, and print to standard error.
    #[must_use]
    pub fn new(python: PathBuf, worker_dir: PathBuf, shipment: Vec<u8>, workers: usize) -> Self {
        let sink = standard_error();
        Self { python, worker_dir, shipment, workers, recycle: Recycle::default(), environment: None, sink }
    }
}
