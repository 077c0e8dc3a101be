//! What the tests and benches of the engine share. Development only.
//!
//! - `lane`: a lane that does what a script says, on tokio's time (paused in most tests), and remembers what it saw (`log`).
//! - `setup`: functions, batches and runtimes to test with.
//! - `script`: what a script can make of an attempt. `chaos`: one that draws it from a seed, so that the same calls meet the same fate.
//! - `serial`: the same script, run call by call without an engine; what the engine gives must equal it.
//! - `training`: a training run as events in time, for docs/internals/prediction.md.
//! - `instant`: a lane that costs nothing, to measure what is left.
//! - `judge` (feature of that name): a server for the http lane that misbehaves on purpose; also a program, `mock-judge`.
#![forbid(unsafe_code)]

mod chaos;
mod instant;
#[cfg(feature = "judge")]
pub mod judge;
mod lane;
mod log;
mod script;
mod serial;
mod setup;
pub mod training;

pub use chaos::Chaos;
pub use instant::InstantLane;
pub use lane::{FakeLane, Room};
pub use log::{CallSeen, FrameSeen, Log};
pub use script::{Act, Ask, Script, failure};
pub use serial::{Expected, serial};
pub use setup::{Samples, done, function, paused, spec};
