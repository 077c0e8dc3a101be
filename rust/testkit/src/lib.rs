//! Parts that the tests and benches of the engine share. Development only.
//!
//! `lane` is a lane that follows a `script`, on tokio's time, and keeps a `log`; `chaos` draws a
//! script from a seed; `identified` has arguments that identify their sample; `serial` computes the
//! result without an engine; `setup` makes functions and batches, `rig` an engine on one lane;
//! `instant` has lanes that run a frame at once; `training` simulates a training run; `judge` (a
//! feature) is a mock server with fault injection.
#![forbid(unsafe_code)]

mod chaos;
mod holding;
mod identified;
mod instant;
#[cfg(feature = "judge")]
pub mod judge;
mod lane;
mod log;
mod rig;
mod script;
mod serial;
mod setup;
mod temp_folder;
mod texts;
pub mod training;

pub use chaos::Chaos;
pub use holding::HoldingLane;
pub use identified::{NumberedPayload, identity};
pub use instant::{InlineLane, instant_lane};
pub use lane::{FakeLane, Room};
pub use log::{CallSeen, FrameSeen, Log};
pub use rig::{Rig, returns, seconds, statuses};
pub use script::{Act, Ask, Script, failure};
pub use serial::{ExpectedCell, serial};
pub use setup::{Samples, Unwritable, done, function, paused, seeds, spec};
pub use temp_folder::TempFolder;
pub use texts::Texts;
