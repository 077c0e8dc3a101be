//! Outcomes on disk: an embedded SQLite database in a folder, shared by processes.
//!
//! - What is found is what was kept, whole: each entry has a checksum, and a process that is killed
//!   leaves its last few milliseconds out.
//! - The folder stays within its size: what was not used for longest goes first.
//! - Trouble with the folder is reported once, and calls go on as without one.

#![forbid(unsafe_code)]

mod database;
mod entry;
mod file_system;
mod last_use;
mod memory;
mod store;
mod trouble;
mod writer;

pub use store::{Counts, OutcomeStore};
