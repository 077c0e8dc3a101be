//! Calls on several samples, and what becomes of those that fail (`scheduler::gather`).

mod batches;
mod one_batch;
mod rig;
mod stories;
