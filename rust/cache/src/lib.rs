//! Outcomes on disk: an embedded SQLite database in a folder, shared by processes.
//!
//! - A found entry is the stored one, complete: each entry has a checksum, and a process that is
//!   killed leaves its last few milliseconds out.
//! - The folder stays within its size: what was not used for longest goes first.
//! - FolderFailure with the folder is reported once, and calls go on as without one.

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
