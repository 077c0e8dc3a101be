//! Outcomes on disk: an embedded SQLite database in a folder, shared by processes.
//!
//! - An entry is found complete or not at all: each has a checksum, and a process that is killed
//!   loses at most its last few milliseconds.
//! - The folder stays within its size: the entries unused for longest are removed first.
//! - A failure of the folder is reported once, and calls go on as without a cache.

#![forbid(unsafe_code)]

mod database;
mod entry;
mod file_system;
mod folder_failure;
mod last_use;
mod memory;
mod store;
mod writer;

pub use store::{Counts, OutcomeStore};
