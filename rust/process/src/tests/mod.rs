//! Tests of several parts of the lane together, without processes.

mod fuzz_worker;
mod zygote_loss_simulation;
