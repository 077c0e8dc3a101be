//! Calls on several samples, and what becomes of those that fail (`scheduler::gather`).
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "what is missing has failed the test")]

mod batches;
mod one_batch;
mod rig;
mod stories;
