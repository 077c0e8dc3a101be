//! The engine on fake lanes and a paused clock. One program: each more would be linked again.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "what is missing has failed the test")]

mod chaos;
mod comparisons;
mod composites;
mod concurrent_calls;
mod conditions;
mod early_delivery;
mod endpoint_health;
mod gathering;
mod lanes;
mod limits;
mod nested_composites;
mod observer;
mod open_batch;
mod order;
mod panics;
mod reports;
mod rubrics;
mod sharing;
mod spending;
mod stalls;
mod threads;
mod timeouts;
mod tracer;
