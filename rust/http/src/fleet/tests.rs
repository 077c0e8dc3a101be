//! Hostile days of a fleet under a paused clock, with the figures that it promises; and properties
//! of the choice. The replicas are simulated, what chooses and sends is the real thing.

mod choice;
mod hedging;
mod hostile_day;
mod replicas;
mod run_time;
