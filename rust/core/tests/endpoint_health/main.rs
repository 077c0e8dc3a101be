//! Hostile days of an endpoint, simulated on a paused clock: what they may cost, in figures.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "what is missing has failed the test")]

mod faults;
mod hanging;
mod rig;
mod sharing;
mod throttling;
