//! Hostile days of an endpoint, simulated on a paused clock: what they may cost, in figures.

mod days;
mod faults;
mod hanging;
pub mod rig;
mod sharing;
mod throttling;
