//! What is written is what completed: whole, once, and of the right kinds, however it is cut.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "what is missing has failed the test")]

mod fixtures;
mod recovery;
mod rows;
