//! The remote lane and its agents over links in memory, on a clock that only moves when all wait.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "what is missing has failed the test")]

mod ends;
mod faults;
mod hostile;
mod in_agents;
mod makespan;
mod output;
mod poison;
mod random;
mod rig;
mod shared;
